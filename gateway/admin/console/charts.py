"""The geometry of a chart of requests over time: stacked bars, in the units of its drawing.

`chart` computes the positions; the template chart.html draws them, with classes for colours and
with patterns, so that groups can be distinguished without colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from gateway.admin.console.wording import GROUPS, number
from gateway.domain.usage import Window
from gateway.manage.usage_sums import (
    Point,
    grouped,
)

#: The size of the drawing, and the edges of the plot in it, which leave room for labels.
WIDTH: Final = 800
HEIGHT: Final = 220
LEFT: Final = 56
RIGHT: Final = 792
TOP: Final = 10
BOTTOM: Final = 190
#: The space between two bars.
_GAP: Final = 1.5
#: Window -> seconds: steps that start at a multiple of it have a label.
_LABELS_S: Final = {"1h": 600, "24h": 4 * 3_600, "7d": 86_400, "30d": 5 * 86_400}


@dataclass(frozen=True, slots=True)
class Part:
    """One group within a bar. group: "limited"; count: requests"""

    group: str
    count: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """One step. start_us: its start; counts: by group; label: its content in words"""

    start_us: int
    x: float
    width: float
    parts: tuple[Part, ...]
    counts: Mapping[str, int]
    label: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A label on an axis. at: its x on the time axis, or its y on the axis of requests"""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """All that is drawn; `filled`: the bars with requests, which are the rows of the table."""

    name: str
    bars: tuple[Bar, ...]
    times: tuple[Tick, ...]
    amounts: tuple[Tick, ...]
    totals: Mapping[str, int]

    @property
    def is_empty(self) -> bool:
        return not any(self.totals.values())

    @property
    def filled(self) -> tuple[Bar, ...]:
        return tuple(bar for bar in self.bars if bar.parts)


def chart(name: str, window: Window, points: Sequence[Point]) -> Chart:
    """A chart of these points. name: an id for it, unique on its page."""
    steps = [grouped(point.counts) for point in points]
    most = ceiling(max((sum(step.values()) for step in steps), default=0))
    slot = (RIGHT - LEFT) / max(1, len(points))
    bars = tuple(
        _bar(point.start_s, window, LEFT + index * slot, slot, step, most)
        for index, (point, step) in enumerate(zip(points, steps, strict=True))
    )
    totals = {group: sum(step.get(group, 0) for step in steps) for group in GROUPS}
    # For a range of dates, some six labels.
    labels_s = _LABELS_S.get(window.name) or max(1, window.span_s // 518_400) * 86_400
    times = tuple(
        Tick(LEFT + (index + 0.5) * slot, _label(point.start_s, window))
        for index, point in enumerate(points)
        if point.start_s % labels_s == 0
    )
    amounts = tuple(Tick(_y(part, most), short(part)) for part in (0, most // 2, most))
    return Chart(name, bars, times, amounts, totals)


def ceiling(most: int) -> int:
    """A round number above all bars, whose half is whole: 0 -> 2, 7 -> 8, 23 -> 40, 410 -> 600."""
    scale = 1
    while True:
        for step in (2, 4, 6, 8, 10):
            if most <= step * scale:
                return step * scale
        scale *= 10


def short(amount: int) -> str:
    """A label for the axis, for a number of `ceiling`: "8,000", "400 k", "2 M"."""
    for unit, width, least in (("G", 10**9, 10**9), ("M", 10**6, 10**6), ("k", 10**3, 10**5)):
        if amount >= least:
            return f"{number(amount // width)} {unit}"
    return number(amount)


def _bar(
    start_s: int, window: Window, x: float, slot: float, step: Mapping[str, int], most: int
) -> Bar:
    parts = []
    base = 0
    for group in GROUPS:
        count = step.get(group, 0)
        if count:
            top = _y(base + count, most)
            parts.append(Part(group, count, top, _y(base, most) - top))
            base += count
    words = ", ".join(f"{number(part.count)} {part.group}" for part in parts)
    label = f"{_moment(start_s, window)}: {words or 'no requests'}"
    counts = {group: step.get(group, 0) for group in GROUPS}
    return Bar(start_s * 1_000_000, x, slot - _GAP, tuple(parts), counts, label)


def _y(amount: int, most: int) -> float:
    return BOTTOM - (BOTTOM - TOP) * amount / most


def _moment(start_s: int, window: Window) -> str:
    at = datetime.fromtimestamp(start_s, UTC)
    return f"{at.day} {at:%b}" if window.step_s >= 86_400 else f"{at.day} {at:%b %H:%M}"


def _label(start_s: int, window: Window) -> str:
    at = datetime.fromtimestamp(start_s, UTC)
    return f"{at.day} {at:%b}" if window.span_s > 86_400 else f"{at:%H:%M}"
