"""Recounts admissions from their times alone, and finds errors.

Only the values of limits come from the gateway; the arithmetic is independent, so that it cannot
have the same mistake as the gateway's. Times are integer microseconds by the store's clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

from gateway.domain.limits import SLOTS, Limit


class Record:
    """The times at which a limit admitted one unit."""

    def __init__(self, limit: Limit, moments_us: Iterable[int]) -> None:
        self.limit = limit
        self.moments_us = sorted(moments_us)

    @property
    def admitted(self) -> int:
        return len(self.moments_us)

    @property
    def over(self) -> int:
        """Units beyond the limit: in the worst window or period, or from an empty bucket."""
        if self.limit.kind == "quota":
            periods = Counter(at_us // self.limit.window_us for at_us in self.moments_us)
            return sum(max(0, count - self.limit.amount) for count in periods.values())
        in_window = (
            index + 1 - bisect_right(self.moments_us, at_us - self.limit.window_us)
            for index, at_us in enumerate(self.moments_us)
        )
        return max(0, max(in_window, default=0) - self.limit.peak, self._out_of_bucket)

    def at_most(self, from_us: int, until_us: int) -> int:
        """The most that an unused limit may admit in this time."""
        limit = self.limit
        if limit.kind == "quota":
            periods = until_us // limit.window_us - from_us // limit.window_us + 1
            return limit.amount * periods
        # What fills a window is looked at until the slot after it is over.
        look_back_us = (SLOTS + 1) * limit.slot_us
        most = limit.peak * ((until_us - from_us + limit.slot_us) // look_back_us + 1)
        if limit.burst is None:
            return most
        return min(most, limit.peak + (until_us - from_us) // limit.unit_us)

    def was_full(self, from_us: int, until_us: int) -> bool:
        """Was the limit used up at any moment of this time, the ends included?"""
        # Between two admissions a limit only gets emptier.
        first = bisect_left(self.moments_us, from_us)
        last = bisect_right(self.moments_us, until_us)
        return any(map(self._is_full, (from_us, *self.moments_us[first:last])))

    def _is_full(self, at_us: int) -> bool:
        """Is it used up just after the admissions at this moment?"""
        limit, before = self.limit, bisect_right(self.moments_us, at_us)
        if limit.kind == "quota":
            start_us = at_us - at_us % limit.window_us
            return before - bisect_left(self.moments_us, start_us) >= limit.amount
        # The oldest slot is partly outside the window, and counts as a whole.
        start_us = (at_us // limit.slot_us - SLOTS) * limit.slot_us
        if before - bisect_left(self.moments_us, start_us) >= limit.peak:
            return True
        if limit.burst is None or not before:
            return False
        return self._full_at_us[before - 1] - at_us > (limit.peak - 1) * limit.unit_us

    @cached_property
    def _full_at_us(self) -> Sequence[int]:
        """When the bucket will be full again, after each admission."""
        full_at_us, found = 0, []
        for at_us in self.moments_us:
            full_at_us = max(full_at_us, at_us) + self.limit.unit_us
            found.append(full_at_us)
        return found

    @property
    def _out_of_bucket(self) -> int:
        """The most units that were taken beyond the content of the bucket."""
        if self.limit.burst is None:
            return 0
        unit_us, peak = self.limit.unit_us, self.limit.peak
        pairs = zip(self._full_at_us, self.moments_us, strict=True)
        return max(
            (-((at_us - full_at_us) // unit_us) - peak for full_at_us, at_us in pairs), default=0
        )
