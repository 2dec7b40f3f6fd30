"""Charts: the positions of bars and labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.console.charts import BOTTOM, LEFT, RIGHT, TOP, ceiling, chart, short
from gateway.domain.usage import WINDOWS
from gateway.manage.usage_sums import (
    Point,
)

NOON = 1_782_907_200  # 2026-07-01 12:00 UTC
OUTCOMES = ("admitted", "limited:plan", "refused:key_expired", "failed:upstream_timeout", "failed")
COUNTS = st.dictionaries(st.sampled_from(OUTCOMES), st.integers(0, 10**9))


@pytest.mark.parametrize(
    ("most", "expected"),
    [(0, 2), (1, 2), (2, 2), (3, 4), (7, 8), (9, 10), (11, 20), (23, 40), (410, 600), (1001, 2000)],
)
def test_the_axis_ends_at_a_round_number(most: int, expected: int) -> None:
    """The axis ends at the first round number that no bar exceeds."""
    assert ceiling(most) == expected


@given(st.integers(0, 10**12))
def test_the_axis_holds_every_bar(most: int) -> None:
    """It is never below the largest bar or far above it, and its half is a whole number."""
    top = ceiling(most)
    assert most <= top <= max(2, 2 * most)
    assert top % 2 == 0


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0, "0"),
        (80_000, "80,000"),
        (100_000, "100 k"),
        (500_000, "500 k"),
        (4_000_000, "4 M"),
        (20_000_000_000, "20 G"),
    ],
)
def test_large_numbers_are_short(amount: int, expected: str) -> None:
    """A label fits beside the bars, however many requests there are."""
    assert short(amount) == expected


@given(st.integers(0, 10**12))
def test_a_short_number_is_exact(most: int) -> None:
    """The short labels of an axis are exact."""
    units = {"k": 10**3, "M": 10**6, "G": 10**9}
    for number in (ceiling(most), ceiling(most) // 2):
        digits, _, unit = short(number).partition(" ")
        assert int(digits.replace(",", "")) * units.get(unit, 1) == number
        assert len(short(number)) <= 7


@given(st.lists(COUNTS, min_size=1, max_size=60))
def test_bars_stay_within_the_plot(steps: list[dict[str, int]]) -> None:
    """The parts of a bar are stacked from the bottom, in order, within the plot."""
    points = [Point(NOON + 60 * number, counts) for number, counts in enumerate(steps)]
    drawn = chart("x", WINDOWS["1h"], points)
    assert len(drawn.bars) == len(steps)
    for bar in drawn.bars:
        assert bar.x >= LEFT
        assert bar.x + bar.width <= RIGHT
        base = float(BOTTOM)
        for part in bar.parts:
            assert part.y + part.height == pytest.approx(base)
            assert part.count > 0
            base = part.y
        assert base >= TOP - 1e-6
    total = sum(count for counts in steps for count in counts.values())
    assert sum(drawn.totals.values()) == total
    assert drawn.is_empty == (total == 0)


def test_a_bar_says_what_it_shows() -> None:
    """A bar has its time and the numbers of its groups in words."""
    counts = {"admitted": 1200, "limited:plan": 3, "limited:search": 4, "failed": 1}
    (bar,) = chart("x", WINDOWS["24h"], [Point(NOON, counts)]).bars
    assert bar.label == "1 Jul 12:00: 1,200 admitted, 7 limited, 1 failed"
    assert bar.counts == {"admitted": 1200, "limited": 7, "refused": 0, "failed": 1}
    assert bar.start_us == NOON * 1_000_000


def test_a_step_without_requests_is_no_row_of_the_table() -> None:
    """A step without requests has a bar without parts, which the table omits."""
    drawn = chart("x", WINDOWS["30d"], [Point(NOON, {}), Point(NOON + 86_400, {"admitted": 1})])
    assert drawn.bars[0].label == "1 Jul: no requests"
    assert [bar.start_us for bar in drawn.filled] == [(NOON + 86_400) * 1_000_000]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1h", ["11:10", "11:20", "11:30", "11:40", "11:50", "12:00"]),
        ("24h", ["16:00", "20:00", "00:00", "04:00", "08:00", "12:00"]),
        ("7d", ["25 Jun", "26 Jun", "27 Jun", "28 Jun", "29 Jun", "30 Jun", "1 Jul"]),
    ],
)
def test_times_are_labelled_at_round_moments(name: str, expected: list[str]) -> None:
    """Labels are at steps that begin at a round time, and few enough to read."""
    window = WINDOWS[name]
    steps = window.span_s // window.step_s
    end_s = NOON + window.step_s
    points = [Point(end_s - window.step_s * back, {}) for back in range(steps, 0, -1)]
    assert [tick.text for tick in chart("x", window, points).times] == expected


def test_the_axis_of_requests_has_its_ends_and_its_middle() -> None:
    """Three labels: 0, half of the axis, and its end."""
    drawn = chart("x", WINDOWS["1h"], [Point(NOON, {"admitted": 1999})])
    assert [(tick.at, tick.text) for tick in drawn.amounts] == [
        (BOTTOM, "0"),
        ((BOTTOM + TOP) / 2, "1,000"),
        (TOP, "2,000"),
    ]
