"""Policy files as trees of YAML nodes, with their lines.

No file in the folder can crash or block the process: only regular files are read, up to a bound;
nesting and the number of values are bounded before PyYAML composes the tree (its C composer
recurses on the C stack, and 100,000 brackets crash the interpreter; a value takes 0.4 KB); and the
size of expanded aliases is measured before the tree is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from gateway.domain.policy_files import MOST_TEXT_BYTES, FilesHash, Texts, is_file_name
from gateway.files import read_regular
from gateway.policies.faults import Fault

#: The longest file. Ten thousand simple routes have a fifth of this.
MAX_BYTES: Final = 4 * 1024 * 1024
#: The most values of all files, with aliases expanded: fifty for each of ten thousand routes, which
#: take three seconds and 250 MB. This stops "billion laughs" files (aliases of aliases).
MAX_VALUES: Final = 500_000
#: The most levels. A policy has eight.
MAX_DEPTH: Final = 64

LOADER: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Document:
    """One file. file: its name in messages, "policies/routes.yaml"; root: None for an empty file"""

    file: str
    root: yaml.Node | None


@dataclass(frozen=True, slots=True)
class Documents:
    """A whole folder. complete: all files could be read, so missing keys are really missing

    names: ("gateway.yaml", …); hash: of names and contents, 16 hexadecimal digits
    texts: those of all files; None: they are too large to be kept, or a file has a fault
    """

    documents: tuple[Document, ...]
    faults: tuple[Fault, ...]
    names: tuple[str, ...]
    hash: str
    texts: Texts | None = None

    @property
    def complete(self) -> bool:
        return not self.faults


class _Unusable(Exception):
    """Valid YAML that is rejected for its structure. Arguments: line, found, expected."""


def policy_files(folder: Path) -> list[Path]:
    """The folder's *.yaml files by name, except hidden ones. Raises OSError."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix == ".yaml" and not path.name.startswith(".") and not path.is_dir()
    )


def read_documents(folder: Path) -> Documents:
    """Read all policy files. One that cannot be read is a fault; the others are read anyway."""
    try:
        paths = policy_files(folder)
    except OSError as exc:
        found = f"no readable folder ({exc.strerror})"
        return Documents(
            (), (Fault(str(folder), 0, "", found, "a folder of *.yaml files"),), (), ""
        )
    if not paths:
        fault = Fault(str(folder), 0, "", "no *.yaml file", "at least one policy file")
        return Documents((), (fault,), (), "")
    misnamed = tuple(
        Fault(str(path), 0, "", "the ending .yml", "the ending .yaml: no other files are read")
        for path in sorted(folder.glob("*.yml"))
    )
    read = read_files(paths)
    return replace(read, faults=(*misnamed, *read.faults))


def read_files(paths: Iterable[Path]) -> Documents:
    """Read these files. One that cannot be read is a fault; the others are read anyway."""
    return _documents(_read(paths))


def documents_of(folder: Path, texts: Texts) -> Documents:
    """The documents of texts, as if they were the files of this folder."""
    return _documents((folder / name, texts[name].encode()) for name in sorted(texts))


def _read(paths: Iterable[Path]) -> Iterator[tuple[Path, bytes | OSError]]:
    """Each file and its content, or why it could not be read; one at a time."""
    for path in paths:
        try:
            yield path, read_regular(path, MAX_BYTES)
        except OSError as exc:
            yield path, exc


def _documents(contents: Iterable[tuple[Path, bytes | OSError]]) -> Documents:
    digest, kept = FilesHash(), _KeptTexts()
    documents: list[Document] = []
    faults: list[Fault] = []
    names: list[str] = []
    room = MAX_VALUES
    for path, content in contents:
        name, file = path.name, str(path)
        names.append(name)
        if isinstance(content, OSError):
            found = f"an unreadable file ({content.strerror})"
            faults.append(Fault(file, 0, "", found, "a YAML file"))
            continue
        digest.add(name, content)
        result = _parse(file, content, room)
        if isinstance(result, Fault):
            faults.append(result)
        else:
            document, count = result
            documents.append(document)
            room -= count
            kept.add(name, content)
    texts = None if faults else kept.texts
    return Documents(tuple(documents), tuple(faults), tuple(names), digest.text(), texts)


class _KeptTexts:
    """The texts of valid files. texts: None once they are too large, or have an unusual name"""

    def __init__(self) -> None:
        self.texts: dict[str, str] | None = {}
        self._room = MOST_TEXT_BYTES

    def add(self, name: str, content: bytes) -> None:
        self._room -= len(content)
        if self._room < 0 or not is_file_name(name):
            self.texts = None
        if self.texts is not None:
            self.texts[name] = content.decode()


def _parse(file: str, content: bytes, room: int) -> tuple[Document, int] | Fault:
    """A file, and its number of values. room: the most values that it may have"""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        return Fault(file, line, "", f"the byte 0x{content[exc.start]:02x}", "text in UTF-8")
    try:
        _bound(text, room)
        root = yaml.compose(text, Loader=LOADER)
        count = 0 if root is None else _weigh(root, {}, room)[0]
    except yaml.YAMLError as exc:
        return _syntax_fault(file, text, exc)
    except _Unusable as exc:
        line, found, expected = exc.args
        return Fault(file, line, "", found, expected)
    return Document(file, root), count


def _syntax_fault(file: str, text: str, exc: yaml.YAMLError) -> Fault:
    mark = getattr(exc, "problem_mark", None)
    line = mark.line + 1 if mark is not None else 0
    problem = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "unreadable text"
    position = getattr(exc, "position", None)
    if not line and isinstance(position, int):
        line = text.count("\n", 0, position) + 1
    expected = "valid YAML"
    if mark is not None and text[mark.index : mark.index + 1] == "\t":
        problem, expected = "a tab before a value or a key", "spaces"
    if "alias" in (getattr(exc, "context", None) or problem):
        expected += ' (a value that begins with * needs quotes, as in "* /**")'
    elif mark is not None and text[mark.index : mark.index + 1] == "{":
        expected += ' (a value with braces needs quotes, as in "GET /items/{id}")'
    return Fault(file, line, "", f"invalid YAML ({problem})", expected)


def _bound(text: str, room: int) -> None:
    """Raise _Unusable if it has too many levels or values, before a tree is composed."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.NodeEvent):
            room -= 1
            if room < 0:
                raise _too_many(line_of(event))
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(line_of(event))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _weigh(
    node: yaml.Node, known: dict[yaml.Node, tuple[int, int] | None], room: int
) -> tuple[int, int]:
    """The number of values of a tree with aliases expanded, and its number of levels.

    known: the results so far; None for nodes in progress, which must not contain themselves. An
    alias comes after its anchor, so that its result is known, and the recursion is only as deep as
    the nesting of the text.
    """
    if node in known:
        weight = known[node]
        if weight is None:
            raise _Unusable(line_of(node), "an anchor that contains itself", "values that end")
        return weight
    known[node] = None
    count, depth = 1, 1
    for child in _children(node):
        below, deeper = _weigh(child, known, room)
        count += below
        depth = max(depth, deeper + 1)
    if count > room:
        raise _too_many(line_of(node))
    if depth > MAX_DEPTH:
        raise _too_deep(line_of(node))
    known[node] = count, depth
    return count, depth


def _children(node: yaml.Node) -> Sequence[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _too_many(line: int) -> _Unusable:
    found = f"more than {MAX_VALUES} values in all files, with aliases expanded"
    return _Unusable(line, found, "fewer")


def _too_deep(line: int) -> _Unusable:
    return _Unusable(line, f"more than {MAX_DEPTH} levels", "a flatter file")


def line_of(node: yaml.Node | yaml.Event) -> int:
    """The line on which a node begins, from 1."""
    return (node.start_mark.line if node.start_mark else 0) + 1
