"""A plot of requests over time, for a terminal: columns of block characters, stacked by outcome.

The plot is readable without colour, as each group has its own shade, and has an ASCII form for
outputs without Unicode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

HEIGHT: Final = 8
#: By group, from the bottom of a column up: its shade, and its ASCII shade.
SHADES: Final[Mapping[str, tuple[str, str]]] = {
    "admitted": ("█", "#"),
    "limited": ("▒", "+"),
    "refused": ("░", "-"),
    "failed": ("▓", "x"),
}
_EIGHTHS: Final = " ▁▂▃▄▅▆▇"
#: In place of the eighths, in ASCII: the top cell is drawn if half of it is filled.
_HALVES: Final = "    ####"

#: The characters of a label with the space after it.
_LABEL_EVERY: Final = 14

#: Gives a piece of text the colour of a group.
Paint = Callable[[str, str], str]


@dataclass(frozen=True, slots=True)
class Column:
    """One step. label: the time of its start: "14:05"; counts: requests by group"""

    label: str
    counts: Mapping[str, int]

    @property
    def sum(self) -> int:
        return sum(self.counts.values())


def draw(
    columns: Sequence[Column],
    width: int,
    *,
    ascii_only: bool = False,
    paint: Paint = lambda text, _group: text,
) -> list[str]:
    """The lines of the plot, as wide as `width`, a legend below."""
    fitting, most, margin = _fit(columns, width)
    room = max(width - margin, 1)
    # The start of each column, and the end of the last.
    edges = [at * room // len(fitting) for at in range(len(fitting) + 1)]
    wide = [end - start for start, end in pairwise(edges)]
    stacks = [_stack(column, most, ascii_only) for column in fitting]
    bar = "|" if ascii_only else "│"
    lines = []
    for row in range(HEIGHT - 1, -1, -1):
        label = f"{most:,}" if row == HEIGHT - 1 else "0" if row == 0 else ""
        drawn = "".join(
            paint(stack[row][0] * cells, stack[row][1]) if stack[row][1] else " " * cells
            for stack, cells in zip(stacks, wide, strict=True)
        )
        lines.append(f"{label:>{margin - 2}} {bar}{drawn}".rstrip())
    lines.append(" " * margin + _axis([column.label for column in fitting], edges))
    lines.append(" " * margin + _legend(fitting, ascii_only, paint))
    return lines


def _fit(columns: Sequence[Column], width: int) -> tuple[list[Column], int, int]:
    """The columns that fit, the largest sum of one, and the width of the margin for its label.

    If there is too little room, steps are merged, which may need a wider label.
    """
    margin = 0
    while True:
        size = -(-len(columns) // max(width - margin, 1))
        fitting = [_merged(columns[at : at + size]) for at in range(0, len(columns), size)]
        most = max(column.sum for column in fitting)
        needed = len(f"{most:,}") + 2
        if needed <= margin:
            return fitting, most, margin
        margin = needed


def _merged(columns: Sequence[Column]) -> Column:
    if len(columns) == 1:
        return columns[0]
    groups = {group for column in columns for group in column.counts}
    sums = {group: sum(column.counts.get(group, 0) for column in columns) for group in groups}
    return Column(columns[0].label, sums)


def _stack(column: Column, most: int, ascii_only: bool) -> list[tuple[str, str]]:
    """The cell of each row, from the bottom: a character and its group; "" for none."""
    cells = [(" ", "")] * HEIGHT
    if not column.sum:
        return cells
    # A column with any requests is visible.
    eighths = max(1, round(column.sum * HEIGHT * 8 / most))
    for row in range(-(-eighths // 8)):
        filled = min(8, eighths - row * 8)
        group = _group_at(column, (row * 8 + filled / 2) / eighths)
        cells[row] = _cell(group, filled, ascii_only), group
    return cells


def _cell(group: str, filled: int, ascii_only: bool) -> str:
    if group == "admitted" and filled < 8:
        return (_HALVES if ascii_only else _EIGHTHS)[filled]
    return SHADES[group][ascii_only]


def _group_at(column: Column, share: float) -> str:
    """The group at a share of the column's height."""
    tops = accumulate(column.counts.get(group, 0) for group in SHADES)
    wanted = share * column.sum
    return next(group for group, top in zip(SHADES, tops, strict=True) if wanted < top)


def _axis(labels: Sequence[str], edges: Sequence[int]) -> str:
    """Labels below their columns, as many as fit."""
    line = ""
    for label, at in zip(labels, edges, strict=False):
        if at >= len(line) and at + len(label) <= edges[-1]:
            line = f"{line:{at}}{label:{_LABEL_EVERY}}"
    return line.rstrip()


def _legend(columns: Sequence[Column], ascii_only: bool, paint: Paint) -> str:
    return "  ".join(
        f"{paint(shades[ascii_only], group)} {group}"
        for group, shades in SHADES.items()
        if any(column.counts.get(group) for column in columns)
    )
