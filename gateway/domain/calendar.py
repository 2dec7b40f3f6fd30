"""Calendar periods that are not of one length, or do not begin at midnight in UTC.

A day in a time zone has 23 to 25 hours when its clocks change; a month has 28 to 31 days. A day,
week or month begins at the first moment of its first day, which may be later than 0:00 where the
clocks are put forward at midnight. Hours are 60 minutes each, and begin when the zone's clock shows
a full hour of its standard time: on Lord Howe Island clocks are put forward by half an hour, and an
hour that followed them would have 30 minutes on that day.

A month may begin on another day than its first, such as an account's billing day. In a month that
is too short for it, it begins on the last day.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

Unit = Literal["hour", "day", "week", "month"]

_HOUR_US: Final = 3_600_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)
#: Policies and accounts have a few units, zones and billing days.
_MOST_CACHED: Final = 1_024

#: `ZoneInfo` keeps eight by itself, and reads the others from disk again.
zone_info = lru_cache(maxsize=_MOST_CACHED)(ZoneInfo)


class Bounds(NamedTuple):
    """The period of a moment, and those before and after it. Unix microseconds.

    before: the start of the previous period
    start:  the first moment of the period
    end:    the first moment after it
    after:  the end of the next period
    """

    before: int
    start: int
    end: int
    after: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """A division of time into periods.

    zone:      a name of the IANA time zone database: "Europe/Berlin"
    month_day: the day that months begin with, 1 to 31
    """

    unit: Unit
    zone: str = "UTC"
    month_day: int = 1

    def bounds(self, at_us: int) -> Bounds:
        """The period of this moment, with its neighbours."""
        found = _cached.get(self)
        if found is None or not found.start <= at_us < found.end:
            start, end = self._period(at_us)
            found = Bounds(self._period(start - 1)[0], start, end, self._period(end)[1])
            if len(_cached) >= _MOST_CACHED:
                _cached.clear()
            _cached[self] = found
        return found

    def _period(self, at_us: int) -> tuple[int, int]:
        local = (_EPOCH + timedelta(microseconds=at_us)).astimezone(zone_info(self.zone))
        if self.unit == "hour":
            standard = (local.utcoffset() or timedelta()) - (local.dst() or timedelta())
            offset_us = standard // _MICROSECOND
            start = at_us - (at_us + offset_us) % _HOUR_US
            return start, start + _HOUR_US
        first, last = self._days(local.date())
        return self._begins(first), self._begins(last)

    def _days(self, day: date) -> tuple[date, date]:
        """The first day of the period that has this day, and of the next period."""
        if self.unit == "day":
            return day, day + _DAY
        if self.unit == "week":
            monday = day - day.weekday() * _DAY
            return monday, monday + 7 * _DAY
        month = day.replace(day=1)
        if day < self._begin_in(month):
            month = (month - _DAY).replace(day=1)
        return self._begin_in(month), self._begin_in(month + 31 * _DAY)

    def _begin_in(self, month: date) -> date:
        """The day of this month on which a period begins."""
        return month.replace(day=min(self.month_day, monthrange(month.year, month.month)[1]))

    def _begins(self, day: date) -> int:
        # Where 0:00 is skipped, Python takes it as the moment of the change; where it is shown
        # twice, as the first time.
        start = datetime(day.year, day.month, day.day, tzinfo=zone_info(self.zone))
        return (start.astimezone(UTC) - _EPOCH) // _MICROSECOND


_cached: dict[Calendar, Bounds] = {}
