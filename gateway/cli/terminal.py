"""Tables and times for people: with colours and relative times on a terminal, else plain."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.domain.limits import SECOND_US
from gateway.domain.patterns import printable
from gateway.observe.colours import Colour, has_colours, paint

#: A status of a key or an account -> its colour.
STATUS_COLOURS: Final[Mapping[str, Colour]] = {
    "valid": "green",
    "suspended": "yellow",
    "expired": "red",
    "revoked": "red",
    "no record": "dim",
}
#: The largest amount of each unit, and its length in seconds.
_UNITS: Final = (
    ("minute", 60, 60),
    ("hour", 48, 3_600),
    ("day", 60, 86_400),
    ("month", 24, 2_629_800),
    ("year", 10**9, 31_557_600),
)

#: A cell and its colour.
Cell = tuple[str, Colour | None]


def is_terminal() -> bool:
    """Is the output read by a person?"""
    # Python has no output if the shell has closed it.
    return sys.stdout is not None and sys.stdout.isatty()


def in_colours() -> bool:
    """May the output have colours?"""
    return sys.stdout is not None and has_colours(sys.stdout, os.environ)


def time_words(at_us: int, now_us: int) -> str:
    """A time relative to now: "in 3 days", "5 minutes ago", "just now"."""
    past_s = (now_us - at_us) / SECOND_US
    span_s = abs(past_s)
    if span_s < 60:
        return "just now" if past_s >= 0 else "in less than a minute"
    unit, amount = next(
        (unit, int(span_s // width_s)) for unit, most, width_s in _UNITS if span_s < most * width_s
    )
    words = f"{amount} {unit}{'' if amount == 1 else 's'}"
    return f"{words} ago" if past_s > 0 else f"in {words}"


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], colours: bool) -> str:
    """Columns as wide as needed; control characters in cells never reach the terminal."""
    shown: list[list[Cell]] = [[(name, "bold") for name in head]]
    shown += [[(printable(text), colour) for text, colour in row] for row in rows]
    widths = [max(len(text) for text, _ in column) for column in zip(*shown, strict=True)]
    return "\n".join(_line(row, widths, colours) for row in shown)


def _line(row: Sequence[Cell], widths: Sequence[int], colours: bool) -> str:
    last = max((at for at, (text, _) in enumerate(row) if text), default=-1)
    cells = [
        (paint(text, colour) if colours else text) + " " * (width - len(text) if at < last else 0)
        for at, ((text, colour), width) in enumerate(zip(row, widths, strict=True))
        if at <= last
    ]
    return "  ".join(cells)
