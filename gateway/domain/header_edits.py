"""`request_headers` and `response_headers` of a route: fields that are set, added and removed.

Values may have variables. What they stand for at run time cannot end a line: characters that are
not printable ASCII become "?". A field whose value is empty then is not sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gateway.domain.headers import plain_name

#: What a value may have in braces. All but the first two are empty without a key.
VARIABLES: Final = ("request_id", "client_ip", "key_id", "account", "plan")
#: Fields of the gateway's own answers; `response_headers` does not repeat them there.
_OWN_FIELDS: Final = frozenset(
    b"content-type retry-after allow www-authenticate upgrade strict-transport-security".split()
)
_PARTS: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")

Values = Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]
#: A value as texts and names of variables, in turns: the first is a text.
_Template = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeaderEdits:
    """As written. set, add: pairs of a name and a value; set replaces all fields of the name"""

    set: Pairs = ()
    add: Pairs = ()
    remove: tuple[str, ...] = ()


def read_template(text: str) -> tuple[str, ...]:
    """Texts and names of variables in turns. ValueError says what was expected.

    "{{" and "}}" are braces.
    """
    parts = [""]
    at = 0
    for found in _PARTS.finditer(text):
        parts[-1] += text[at : found.start()]
        at = found.end()
        token = found[0]
        if token in ("{{", "}}"):
            parts[-1] += token[0]
        elif found[1] in VARIABLES:
            parts += [found[1], ""]
        else:
            known = ", ".join(f"{{{name}}}" for name in VARIABLES)
            raise ValueError(f"one of the variables {known}; a brace itself is doubled: {{{{")
    parts[-1] += text[at:]
    return tuple(parts)


class EditRules:
    """`HeaderEdits`, compiled. has_variables: values depend on the request"""

    __slots__ = ("_dropped", "_lines", "has_variables")

    def __init__(self, edits: HeaderEdits) -> None:
        names = (*(name for name, _ in edits.set), *edits.remove)
        self._dropped = frozenset(plain_name(name.lower().encode("ascii")) for name in names)
        self._lines: list[tuple[str, bytes, _Template]] = [
            (name, name.lower().encode("ascii"), read_template(value))
            for name, value in (*edits.set, *edits.add)
        ]
        self.has_variables = any(len(template) > 1 for _, _, template in self._lines)

    def without(self, lines: bytes) -> bytes:
        """Header lines without the fields that are set or removed, in any spelling of the name."""
        if not self._dropped:
            return lines
        return b"".join(
            [
                line + b"\r\n"
                for line in lines.split(b"\r\n")[:-1]
                if plain_name(line.partition(b":")[0].lower()) not in self._dropped
            ]
        )

    def added(self, values: Values, *, is_own: bool = False) -> bytes:
        """The lines that are set and added. is_own: for an answer of the gateway"""
        lines = ""
        for name, lower, template in self._lines:
            if is_own and lower in _OWN_FIELDS:
                continue
            value = template[0]
            if len(template) > 1:
                value = _filled(template, values)
            if value:
                lines += f"{name}: {value}\r\n"
        return lines.encode("ascii")


@lru_cache(maxsize=1024)
def compiled(edits: HeaderEdits) -> EditRules:
    """The rules, compiled once for all routes that share them."""
    return EditRules(edits)


def _filled(template: _Template, values: Values) -> str:
    parts = list(template)
    for at in range(1, len(parts), 2):
        parts[at] = _safe(values[parts[at]])
    return "".join(parts).strip(" \t")


def _safe(text: str) -> str:
    """The text as a part of a field's value."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if " " <= char <= "~" else "?" for char in text)
