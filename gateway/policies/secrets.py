"""Files of secrets, one in a line."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Final

from gateway.policies.pages import read_content
from gateway.policies.values import Value

_MOST_BYTES: Final = 4_096


def read_secret_lines(value: Value, most: int, expected: str) -> tuple[bytes, ...] | None:
    """The lines of a file that are not empty. most: how many; expected: what a fault says"""
    found = read_content(value, _MOST_BYTES)
    if found is None:
        return None
    content = found[1].removeprefix(BOM_UTF8)
    lines = tuple(line.strip() for line in content.splitlines() if line.strip())
    if not 1 <= len(lines) <= most:
        value.add_fault(expected, f"{value.found} with {len(lines)} lines")
        return None
    return lines
