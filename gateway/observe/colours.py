"""Colours on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TextIO

Colour = Literal["red", "green", "yellow", "bold", "dim"]

#: ECMA-48, 8.3.117 (SGR).
_CODES: Final[Mapping[Colour, int]] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}


def has_colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """May colours be written there? Only on a terminal that has them, and not with NO_COLOR.

    https://no-color.org: NO_COLOR counts if it is not empty.
    """
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def paint(text: str, colour: Colour | None) -> str:
    """The text in this colour. None: as it is"""
    return text if colour is None or not text else f"\x1b[{_CODES[colour]}m{text}\x1b[0m"
