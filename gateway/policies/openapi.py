"""Reads the operations of an OpenAPI document (3.x, or Swagger 2.0), as far as routes need them.

Only a few fixed levels of the document are looked at: schemas and examples may be large, deep and
recursive. YAML is read as events, without tags, so that aliases cannot expand; JSON is YAML, too,
but takes a hundredth of the time as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import yaml

from gateway.domain.json_text import MOST_LEVELS, TooDeep, read_json
from gateway.files import read_regular
from gateway.policies.documents import LOADER

#: The largest document. GitHub's, one of the largest, has 12 MiB as JSON.
MOST_BYTES: Final = 32 * 1024 * 1024
#: The most values of a YAML document; each takes up to 0.2 KB.
_MOST_VALUES: Final = 2_000_000
#: The most operations: routes beyond that are not written by hand.
MOST_OPERATIONS: Final = 10_000
#: The most references of a path item to another.
_MOST_REFERENCES: Final = 8
METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")

_variable = re.compile(r"\{([^{}]{1,64})\}")


class Unusable(Exception):
    """The document cannot be used; the message says what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    method:    "GET"
    path:      with the server's base path: "/v1/pets/{id}"
    name:      its operationId, or ""
    tag:       its first tag, or ""
    is_public: its security requirements are empty: no credentials are needed
    """

    method: str
    path: str
    name: str
    tag: str
    is_public: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document. server: the first server's address, or ""; skipped: paths, and why

    tags: their descriptions, in the document's order
    """

    title: str
    server: str
    tags: Mapping[str, str]
    operations: tuple[Operation, ...]
    skipped: tuple[tuple[str, str], ...]


def read_openapi(path: Path) -> Document:
    """Read a document. Raises Unusable, or OSError if the file cannot be read."""
    root = _parse(read_regular(path, MOST_BYTES))
    if not isinstance(root, dict):
        raise Unusable("found no object, expected an OpenAPI document")
    version = root.get("openapi", root.get("swagger"))
    major = str(version).partition(".")[0]
    if not (("openapi" in root and major == "3") or ("swagger" in root and major == "2")):
        found = f"version {_brief(version)}" if version is not None else "no version"
        raise Unusable(f"found {found}, expected openapi: 3.x or swagger: 2.0")
    paths = root.get("paths")
    if not isinstance(paths, dict) or not paths:
        raise Unusable("found no paths, expected at least one")
    server = _server(root)
    skipped: list[tuple[str, str]] = []
    operations = tuple(_operations(root, paths, _base_path(server), skipped))
    if not operations:
        raise Unusable("found no operation below paths, expected at least one")
    info = _object(root.get("info"))
    tags = {
        _text(tag.get("name")): _text(tag.get("description"))
        for tag in map(_object, _list(root.get("tags")))
    }
    return Document(_text(info.get("title")), server, tags, operations, tuple(skipped))


def _operations(
    root: Mapping[str, Any],
    paths: Mapping[str, Any],
    base: str,
    skipped: list[tuple[str, str]],
) -> Iterator[Operation]:
    count = 0
    default = root.get("security")
    for path, written in paths.items():
        if path.startswith("x-"):
            continue
        item = _resolved(root, written)
        if item is None or not path.startswith("/"):
            why = "a reference that leads nowhere" if item is None else "it does not begin with /"
            skipped.append((path, why))
            continue
        for method in METHODS:
            operation = item.get(method)
            if not isinstance(operation, dict):
                continue
            count += 1
            if count > MOST_OPERATIONS:
                raise Unusable(f"found more than {MOST_OPERATIONS:,} operations, expected fewer")
            security = operation.get("security", default)
            tags = _list(operation.get("tags"))
            yield Operation(
                method.upper(),
                base + path,
                _text(operation.get("operationId")),
                _text(tags[0]) if tags else "",
                isinstance(security, list) and not security,
            )


def _resolved(root: Mapping[str, Any], item: object) -> Mapping[str, Any] | None:
    """A path item, or what it refers to in this document; None: nothing."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(item, dict):
            return None
        reference = item.get("$ref")
        if not isinstance(reference, str):
            return item
        if not reference.startswith("#/"):
            return None
        item = root
        for word in reference[2:].split("/"):
            name = word.replace("~1", "/").replace("~0", "~")
            item = item.get(name) if isinstance(item, dict) else None
    return None


def _server(root: Mapping[str, Any]) -> str:
    """The first server's address, with the defaults of its variables; "": there is none."""
    if "swagger" in root:
        schemes = _list(root.get("schemes"))
        scheme = _text(schemes[0]) if schemes else "https"
        host, base = _text(root.get("host")), _text(root.get("basePath"))
        return f"{scheme}://{host}{base}" if host else base
    servers = _list(root.get("servers"))
    server = _object(servers[0]) if servers else {}
    variables = _object(server.get("variables"))

    def default(found: re.Match[str]) -> str:
        return _text(_object(variables.get(found[1])).get("default")) or found[0]

    return _variable.sub(default, _text(server.get("url")))


def _base_path(server: str) -> str:
    try:
        path = urlsplit(server).path
    except ValueError as error:
        raise Unusable(f"found the server {_brief(server)}, expected a URL") from error
    path = path.strip("/")
    return f"/{path}" if path else ""


# -- values ----------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _brief(value: object) -> str:
    return json.dumps(str(value)[:60])


def _parse(content: bytes) -> object:
    if content.lstrip()[:1] == b"{":
        try:
            return cast(object, read_json(content))
        except TooDeep as error:
            raise Unusable(str(error)) from error
        except ValueError as error:
            raise Unusable(f"found invalid JSON ({error}), expected an OpenAPI document") from error
    try:
        text = content.decode("utf-8-sig")
        return _Builder().build(text)
    except UnicodeDecodeError as error:
        raise Unusable(f"found the byte 0x{content[error.start]:02x}, expected UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "unreadable text"
        raise Unusable(f"{place}found invalid YAML ({problem}), expected valid YAML") from error


class _Builder:
    """Builds a document from the events of a YAML parser, without recursion.

    All scalars are texts. An alias is the same object as its anchor, so that it takes no memory.
    """

    def __init__(self) -> None:
        self._anchors: dict[str, Any] = {}
        #: The open collections; of a mapping also its next key, if that was read.
        self._open: list[tuple[Any, list[Any]]] = []
        self._root: object = None

    def build(self, text: str) -> object:
        values = 0
        for event in yaml.parse(text, Loader=LOADER):
            if isinstance(event, yaml.AliasEvent):
                self._add(self._anchors.get(event.anchor or ""))
            elif isinstance(event, yaml.NodeEvent):
                values += 1
                if values > _MOST_VALUES:
                    raise Unusable(f"found more than {_MOST_VALUES:,} values, expected fewer")
                self._begin(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
            elif isinstance(event, yaml.DocumentEndEvent):
                break
        return self._root

    def _begin(self, event: yaml.NodeEvent) -> None:
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = event.value
        else:
            value = {} if isinstance(event, yaml.MappingStartEvent) else []
        if event.anchor:
            self._anchors[event.anchor] = value
        self._add(value)
        if not isinstance(value, str):
            self._open.append((value, []))
            # The parser would take a minute for 100,000.
            if len(self._open) > MOST_LEVELS:
                place = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
                raise Unusable(f"{place}found more than {MOST_LEVELS} levels, expected fewer")

    def _add(self, value: Any) -> None:
        if not self._open:
            self._root = value
            return
        parent, key = self._open[-1]
        if isinstance(parent, list):
            parent.append(value)
        elif key:
            name = key.pop()
            if isinstance(name, str):
                parent[name] = value
        else:
            key.append(value)
