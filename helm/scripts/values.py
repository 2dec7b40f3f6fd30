"""Reads values.yaml with its comments: each value, its description and its type.

The comment right above a key is its description; a line "@schema: …" in it gives
the kind of the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import yaml

_MARK: Final = "@schema:"


@dataclass(frozen=True, slots=True)
class Value:
    """One value of the chart.

    path:        ("image", "tag")
    description: the comment's text: "The chart's appVersion, if empty."
    kind:        the text after @schema: a name, a piece of JSON Schema, or None
    default:     what values.yaml has
    children:    the values in it, if it is a map whose keys the chart defines
    """

    path: tuple[str, ...]
    description: str
    kind: str | dict[str, object] | None
    default: object
    children: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        return ".".join(self.path)


def read_values(text: str) -> tuple[Value, ...]:
    """Return the values of the top level, in order."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    return tuple(_of_map(root, (), text.splitlines(), yaml.safe_load(text)))


def all_values(values: Sequence[Value]) -> Iterator[Value]:
    """Yield each value, followed by those inside it."""
    for value in values:
        yield value
        yield from all_values(value.children)


def _of_map(
    node: yaml.MappingNode, path: tuple[str, ...], lines: list[str], default: dict[str, object]
) -> Iterator[Value]:
    for key, content in node.value:
        here = (*path, key.value)
        words, kind = _comment(lines, key.start_mark.line)
        found = default[key.value]
        is_own = kind is None and isinstance(content, yaml.MappingNode)
        children = tuple(_of_map(content, here, lines, found)) if is_own else ()  # type: ignore[arg-type]
        yield Value(here, words, kind, found, children)


def _comment(lines: list[str], key: int) -> tuple[str, str | dict[str, object] | None]:
    first = key
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    found = [line.strip().removeprefix("#").strip() for line in lines[first:key]]
    kinds = [yaml.safe_load(line.removeprefix(_MARK)) for line in found if line.startswith(_MARK)]
    words = " ".join(line for line in found if not line.startswith(_MARK))
    return words, (kinds[0] if kinds else None)
