"""One value of a policy file, with methods that read it as a type or add a fault.

Every reading method returns None if the value is not as expected, after adding a fault with file,
line and path. So the caller continues with the next value, and all faults are reported together, up
to a thousand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

import yaml

from gateway.policies.documents import line_of
from gateway.policies.faults import Fault, note, one_of, quoted, suggestion

T = TypeVar("T")
Word = TypeVar("Word", bound=str)

_TAG: Final = "tag:yaml.org,2002:"
#: A decimal number. YAML 1.1 also has octal, hexadecimal and sexagesimal ones, which are faults.
_INTEGER: Final = re.compile(r"0|[1-9][0-9]{0,18}(?:_[0-9]{1,18})*")
#: A number that lacks the unit of a duration.
_NUMBER: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
_TRUE: Final = frozenset({"true", "yes", "on"})


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A node with its file, line and path.

    line:   that of its key, if it has one
    faults: the list to add faults to, shared by all values of one load
    used:   the list of other files that a value refers to, shared likewise
    """

    node: yaml.Node
    file: str
    path: str
    line: int
    faults: list[Fault] = field(repr=False)
    used: list[str] = field(default_factory=list, repr=False)

    @property
    def found(self) -> str:
        """The value, for a message."""
        return _described(self.node)

    @property
    def is_text(self) -> bool:
        return self._tag() == "str"

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    def add_fault(self, expected: str, found: str | None = None) -> None:
        """Add a fault. found: replaces the value in the message. Raises TooManyFaults."""
        note(self.faults, Fault(self.file, self.line, self.path, found or self.found, expected))

    def warning(self, found: str, expected: str) -> Fault:
        """What a valid policy may have by mistake; nothing is added to the faults."""
        return Fault(self.file, self.line, self.path, found, expected)

    def text(self, expected: str = "text") -> str | None:
        if self.is_text:
            return str(self.node.value)
        hint = ", in quotes" if isinstance(self.node, yaml.ScalarNode) and self.node.value else ""
        self.add_fault(expected + hint)
        return None

    def parsed(self, reader: Callable[[str], T], expected: str = "text") -> T | None:
        """A text parsed by `reader`, whose ValueError says what was expected.

        expected: for the fault if the value is not a text
        """
        if not isinstance(self.node, yaml.ScalarNode) or not (self.is_text or self.node.value):
            self.add_fault(expected)
            return None
        try:
            value = reader(str(self.node.value))
        except ValueError as exc:
            self.add_fault(str(exc))
            return None
        if self.is_text:
            return value
        self.add_fault(f"{expected}, in quotes")
        return None

    def duration(self, reader: Callable[[str], float]) -> float | None:
        """A duration in seconds; reader: as for `parsed`. A number without a unit is explained."""
        is_scalar = self._tag() in {"int", "float", "str"}
        if is_scalar and _NUMBER.fullmatch(text := str(self.node.value)):
            expected = f"a duration such as {text}ms or {text}s (units: ms, s, m, h, d)"
            self.add_fault(expected, f"the number {text} without a unit")
            return None
        return self.parsed(reader, "a duration such as 10s")

    def matching(self, pattern: str, expected: str) -> str | None:
        """A text that matches a pattern."""
        text = self.text(expected)
        if text is None or re.fullmatch(pattern, text):
            return text
        self.add_fault(expected)
        return None

    def choice(self, *options: Word) -> Word | None:
        text = self.text(one_of(options))
        if text is None:
            return None
        for option in options:
            if option == text:
                return option
        self.add_fault(one_of(options) + suggestion(text, options))
        return None

    def flag(self) -> bool | None:
        if self._tag() == "bool":
            return str(self.node.value).lower() in _TRUE
        self.add_fault("true or false")
        return None

    @property
    def is_true(self) -> bool:
        return self._tag() == "bool" and str(self.node.value).lower() in _TRUE

    @property
    def is_false(self) -> bool:
        return self._tag() == "bool" and str(self.node.value).lower() not in _TRUE

    def integer(self, least: int, most: int) -> int | None:
        if self._tag() == "int" and _INTEGER.fullmatch(str(self.node.value)):
            number = int(str(self.node.value))
            if least <= number <= most:
                return number
        self.add_fault(f"a whole number from {least} to {most}")
        return None

    def items(self, expected: str) -> list[Value] | None:
        """The elements of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.add_fault(expected)
            return None
        return [
            replace(self, node=node, path=f"{self.path}[{index}]", line=line_of(node))
            for index, node in enumerate(self.node.value)
        ]

    def fields(self, known: Collection[str], required: Collection[str] = ()) -> Fields | None:
        """The entries of a mapping with these keys; other keys are faults."""
        entries = self.entries(f"a mapping with {one_of(known)}")
        if entries is None:
            return None
        for key, value in entries.items():
            if key not in known:
                value.add_fault(one_of(known) + suggestion(key, known), f"the key {quoted(key)}")
        for key in required:
            if key not in entries:
                self.add_fault(f"the key {key!r}", f"a mapping without {key!r}")
        return {key: value for key, value in entries.items() if key in known}

    def named(self, pattern: str, what: str) -> Fields | None:
        """The entries of a mapping whose keys are names.

        what: for messages: "a plan"
        """
        entries = self.entries(f"a mapping from the name of {what} to its settings")
        if entries is None:
            return None
        for key, value in entries.items():
            if not re.fullmatch(pattern, key):
                value.add_fault(
                    f"a name for {what}: up to 64 letters, digits, '.', '_' and '-', "
                    "beginning with a letter or digit",
                    f"the key {quoted(key)}",
                )
        return {key: value for key, value in entries.items() if re.fullmatch(pattern, key)}

    def plain(self) -> object:
        """The value as Python's: texts, whole numbers, booleans, None, lists and dictionaries.

        A time or a date stays a text, and so does any other number.
        """
        if isinstance(self.node, yaml.MappingNode):
            entries = self.entries("a mapping") or {}
            return {key: value.plain() for key, value in entries.items()}
        if isinstance(self.node, yaml.SequenceNode):
            return [value.plain() for value in self.items("a list") or ()]
        text = str(self.node.value)
        match self._tag():
            case "null":
                return None
            case "bool":
                return text.lower() in _TRUE
            case "int" if _INTEGER.fullmatch(text):
                return int(text)
            case _:
                return text

    def entries(self, expected: str) -> Fields | None:
        """The entries of any mapping. A repeated key is a fault; "<<" merges another mapping."""
        if not isinstance(self.node, yaml.MappingNode):
            self.add_fault(expected)
            return None
        own: Fields = {}
        merged: Fields = {}
        for key_node, node in self.node.value:
            value = self._at(key_node, node)
            if key_node.tag == f"{_TAG}merge":
                # Of several mappings, the first that has a key is used (YAML).
                for key, inherited in value._inherited().items():
                    merged.setdefault(key, inherited._moved(self, key))
            elif not isinstance(key_node, yaml.ScalarNode):
                self._at(key_node, key_node).add_fault("a name as key")
            elif key_node.value in own:
                first = own[key_node.value].line
                found = f"the key {quoted(key_node.value)} again"
                self._at(key_node, key_node).add_fault(f"it once (first on line {first})", found)
            else:
                own[key_node.value] = value
        return {**merged, **own}

    def _inherited(self) -> Fields:
        """The entries of a mapping, or of a list of mappings, to merge."""
        values = [self]
        if isinstance(self.node, yaml.SequenceNode):
            values = [replace(self, node=node) for node in self.node.value]
        result: Fields = {}
        for value in values:
            for key, inherited in (value.entries("a mapping to merge") or {}).items():
                result.setdefault(key, inherited)
        return result

    def _moved(self, parent: Value, key: str) -> Value:
        return replace(self, path=_joined(parent.path, key))

    def _at(self, key: yaml.Node, node: yaml.Node) -> Value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        return replace(self, node=node, path=_joined(self.path, name), line=line_of(key))

    def _tag(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            return ""
        return self.node.tag.removeprefix(_TAG)


Fields = dict[str, Value]


def setting(given: Fields, key: str, read: Callable[[Value], T | None], default: T) -> T:
    """The value of one entry; the default if it is absent or faulty."""
    value = read(given[key]) if key in given else None
    return default if value is None else value


def _joined(path: str, key: str) -> str:
    # A key may have any characters, but a message is one line.
    key = key if key.isprintable() and len(key) <= 80 else quoted(key)
    return f"{path}.{key}" if path else key


def _described(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    text = str(node.value)
    match node.tag.removeprefix(_TAG):
        case "str":
            return quoted(text)
        case "null":
            return "nothing"
        case "int" | "float":
            return f"the number {quoted(text)[1:-1]}"
        case "bool":
            return f"{text} (a YAML boolean)"
        case tag:
            return f"{quoted(text)} (YAML type {quoted(tag)[1:-1]})"


def read_path(value: Value) -> str | None:
    """A path to a file that can be read; a relative one is relative to the policy folder.

    The content of the file is not checked here.
    """
    text = value.text("the path of a file")
    if text is None:
        return None
    path = Path(value.file).parent / text
    try:
        # Check that it is a file before opening it: opening a pipe would block.
        why = None if path.is_file() else "no file"
        if why is None:
            path.open("rb").close()
    except OSError as exc:
        why = exc.strerror
    if why is None:
        return str(path)
    value.add_fault("a file that can be read", f"{value.found} ({why} at {path})")
    return None
