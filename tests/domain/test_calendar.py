"""Periods of calendars: their bounds, in time zones and in months of any length."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.calendar import Calendar, Unit

HOUR_US = 3_600_000_000
#: 1990 to 2100: before that, some zones skipped whole days.
TIMES = st.integers(631_152_000_000_000, 4_102_444_800_000_000)


def us(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 10**6


@given(
    at_us=TIMES,
    unit=st.sampled_from(("day", "week", "month")),
    zone=st.sampled_from(sorted(available_timezones())),
    day=st.integers(1, 31),
)
def test_periods_follow_each_other(at_us: int, unit: Unit, zone: str, day: int) -> None:
    """A moment is in its period, and all moments of a period and its neighbours agree."""
    calendar = Calendar(unit, zone, day)
    bounds = calendar.bounds(at_us)
    assert bounds.start <= at_us < bounds.end
    assert calendar.bounds(bounds.start) == calendar.bounds(bounds.end - 1) == bounds
    assert calendar.bounds(bounds.end)[:3] == bounds[1:]
    assert calendar.bounds(bounds.start - 1)[1:] == bounds[:3]


@given(at_us=TIMES, zone=st.sampled_from(sorted(available_timezones())))
def test_hours(at_us: int, zone: str) -> None:
    """An hour has 60 minutes, and begins when the zone's clock shows a full hour."""
    bounds = Calendar("hour", zone).bounds(at_us)
    assert bounds.start <= at_us < bounds.end == bounds.start + HOUR_US


@pytest.mark.parametrize("change", ["2026-04-04T15:00", "2026-10-03T15:30"])
def test_hours_where_clocks_change_by_half_an_hour(change: str) -> None:
    """On Lord Howe Island no two hours overlap, and none is short, when clocks are changed."""
    calendar = Calendar("hour", "Australia/Lord_Howe")
    shown = [datetime.fromtimestamp(us(change) / 1e6 + s, ZoneInfo(calendar.zone)) for s in (-1, 0)]
    assert abs(shown[1].utcoffset() - shown[0].utcoffset()).seconds == 1_800
    bounds = calendar.bounds(us(change) - 3 * HOUR_US)
    for _ in range(6):
        following = calendar.bounds(bounds.end)
        assert (following.before, following.start) == (bounds.start, bounds.end)
        assert following.end - following.start == HOUR_US
        assert calendar.bounds(bounds.end - 1) == bounds
        bounds = following


@pytest.mark.parametrize(
    ("calendar", "at", "start", "end"),
    [
        # The clocks are put forward in the night of the 29th, and back in that of October 25.
        (
            Calendar("day", "Europe/Berlin"),
            "2026-03-29T12:00",
            "2026-03-28T23:00",
            "2026-03-29T22:00",
        ),
        (
            Calendar("day", "Europe/Berlin"),
            "2026-10-25T12:00",
            "2026-10-24T22:00",
            "2026-10-25T23:00",
        ),
        # In Santiago they are put forward at midnight: the day begins at 1:00.
        (
            Calendar("day", "America/Santiago"),
            "2026-09-06T12:00",
            "2026-09-06T04:00",
            "2026-09-07T03:00",
        ),
        (Calendar("week"), "2026-03-01T23:59", "2026-02-23T00:00", "2026-03-02T00:00"),
        (Calendar("month"), "2028-02-29T12:00", "2028-02-01T00:00", "2028-03-01T00:00"),
        (Calendar("month", "UTC", 31), "2026-02-27T00:00", "2026-01-31T00:00", "2026-02-28T00:00"),
        (Calendar("month", "UTC", 31), "2026-03-30T00:00", "2026-02-28T00:00", "2026-03-31T00:00"),
        (Calendar("month", "UTC", 31), "2026-12-31T00:00", "2026-12-31T00:00", "2027-01-31T00:00"),
        (Calendar("month", "UTC", 15), "2026-01-14T00:00", "2025-12-15T00:00", "2026-01-15T00:00"),
        (
            Calendar("hour", "Asia/Kolkata"),
            "2026-01-01T00:10",
            "2025-12-31T23:30",
            "2026-01-01T00:30",
        ),
    ],
    ids=str,
)
def test_bounds(calendar: Calendar, at: str, start: str, end: str) -> None:
    """Periods by the calendar, all times in UTC."""
    bounds = calendar.bounds(us(at))
    assert (bounds.start, bounds.end) == (us(start), us(end))


def test_the_day_of_a_leap_year() -> None:
    """A month from the 30th begins on February 29 in a leap year, on February 28 otherwise."""
    calendar = Calendar("month", "UTC", 30)
    for year, day in ((2027, 28), (2028, 29)):
        february_us = us(f"{year}-02-20T00:00")
        end = datetime.fromtimestamp(calendar.bounds(february_us).end / 1e6, UTC)
        assert (end.month, end.day) == (2, day)
