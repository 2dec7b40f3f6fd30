"""What answers say of limits, and when a warning is due."""

from __future__ import annotations

import dataclasses

import pytest
from gateway_client.limits import MOST_LIMITS, Limits, LowLimits, read_limits
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.reach import mostly, reached, reaches

NAMES = ("limit", "remaining", "reset", "reset-after")


def headers(*values: str) -> dict[str, str]:
    return {f"x-ratelimit-{name}": value for name, value in zip(NAMES, values, strict=False)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("60", "59", "1795343894", "61"), Limits(60, 59, 1795343894, 61)),
        (("60", " 0 ", "1795343894", "61"), Limits(60, 0, 1795343894, 61)),
        (("60", "59", "1795343894"), None),
        (("60", "59", "1795343894", "soon"), None),
        (("60", "-1", "1795343894", "61"), None),
        (("60", "59", "1795343894", "²"), None),
        (("9" * 5000, "59", "1795343894", "61"), None),
        ((), None),
    ],
)
def test_reading(values: tuple[str, ...], expected: Limits | None) -> None:
    """All four headers, as whole numbers; else there are no limits."""
    assert read_limits(headers(*values)) == expected


NUMBERS = st.integers(0, 10**10).map(str)
ANY = st.lists(st.text(max_size=30), max_size=4)


@reaches(0.05)
@given(mostly(st.lists(NUMBERS, min_size=4, max_size=4), ANY, st.lists(NUMBERS, max_size=4)))
def test_any_headers(values: list[str]) -> None:
    """Whatever a server sends, it is read as four numbers, or nothing is."""
    found = read_limits(headers(*values))
    if found is not None:
        reached()
        assert dataclasses.astuple(found) == tuple(map(int, values))


@pytest.mark.parametrize(
    ("limit", "remaining", "is_low"), [(60, 6, False), (60, 5, True), (5, 0, True), (0, 0, False)]
)
def test_low(limit: int, remaining: int, is_low: bool) -> None:
    """Low is below a tenth."""
    assert Limits(limit, remaining, 0, 61).is_low is is_low


def test_one_warning_a_window() -> None:
    """The next warning of a limit comes when its window has passed; each limit has its own."""
    low = LowLimits()
    plan, search = Limits(60, 5, 0, 61), Limits(30, 1, 0, 20)
    assert not low.is_due(Limits(60, 6, 0, 61), 0.0)
    assert low.is_due(plan, 0.0)
    assert not low.is_due(plan, 60.9)
    assert low.is_due(search, 1.0)
    assert low.is_due(plan, 61.0)
    assert not low.is_due(search, 20.9)
    assert low.is_due(search, 21.0)


def test_limits_are_bounded() -> None:
    """However many limits a server tells, few are known at a time."""
    low = LowLimits()
    for number in range(10 * MOST_LIMITS):
        assert low.is_due(Limits(number + 1000, 0, 0, 61), 0.0)
    assert len(low._next_at) <= MOST_LIMITS
