"""What one limit of one key has admitted for certain, as seen by a client.

A client knows when it sent a request and when it got the answer; the decision was made in between.
Only admissions that were certainly within the given time are counted. So a number is never too
large.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from math import inf, nextafter
from typing import Final

from gateway.domain.limits import SECOND_US, Limit

#: The assumed difference of the clocks of a client and of the store at the change of a period.
_APART_S: Final = 2.0
#: How much faster or slower than the store's a client's clock may run.
_DRIFT: Final = 0.001
#: Old entries are removed in blocks: removing the head of a list moves all the rest.
_LUMP: Final = 512


class Counts:
    """Admissions of one limit, added in the order in which their answers came."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        #: The window as a client may measure it, shorter by the drift of the clocks.
        self.window_s: Final = limit.window_us / SECOND_US * (1 - _DRIFT)
        self._first_s: float | None = None
        self._all = 0
        self._sent_s: list[float] = []
        self._told_s: list[float] = []
        self._period = -1
        self._in_period = 0

    def add(self, sent_s: float, told_s: float, told_unix_s: float, cost: int) -> None:
        """Add an admission. Admissions are added in the order of `told_s`."""
        if self._first_s is None:
            self._first_s = sent_s
        self._all += cost
        if self.limit.kind == "quota":
            self._add_to_period(told_unix_s - (told_s - sent_s), told_unix_s, cost)
            return
        for _ in range(cost):
            insort(self._sent_s, sent_s)
            self._told_s.append(told_s)
        for moments_s in (self._sent_s, self._told_s):
            past = bisect_left(moments_s, told_s - self.window_s)
            if past >= _LUMP:
                del moments_s[:past]

    def within(self, from_s: float, until_s: float) -> int:
        """The units certainly admitted in this time, which began at most a window ago.

        Those sent since its beginning, without those whose answers came after its end.
        """
        begun = len(self._sent_s) - bisect_left(self._sent_s, from_s)
        late = len(self._told_s) - bisect_right(self._told_s, until_s)
        return max(0, begun - late)

    def standing(self, sent_s: float, told_s: float, told_unix_s: float) -> int:
        """The units that certainly count for a request that was decided between these times."""
        if self.limit.kind == "quota":
            window_s = self.limit.window_us / SECOND_US
            first = (told_unix_s - (told_s - sent_s) - _APART_S) // window_s
            last = (told_unix_s + _APART_S) // window_s
            return self._in_period if first == last == self._period else 0
        # An answer that came at this very moment may be of a later decision.
        return self.within(told_s - self.window_s, nextafter(sent_s, -inf))

    def in_last_window(self, told_s: float) -> int:
        """The units certainly admitted in the window, or period, that ends here."""
        if self.limit.kind == "quota":
            return self._in_period
        return self.within(told_s - self.window_s, told_s)

    def beyond_rate(self, told_s: float) -> int:
        """Units beyond the rate and a full bucket since the first admission; 0: none."""
        if self.limit.burst is None or self._first_s is None:
            return 0
        passed_us = (told_s - self._first_s) * (1 + _DRIFT) * SECOND_US
        return max(0, self._all - self.limit.peak - int(passed_us // self.limit.unit_us) - 1)

    def restart(self) -> None:
        """Restart the count of the long run."""
        self._first_s, self._all = None, 0

    def _add_to_period(self, sent_unix_s: float, told_unix_s: float, cost: int) -> None:
        """Count it in its period; what is too near to a period's end to be certain is left out."""
        window_s = self.limit.window_us / SECOND_US
        first, last = (
            int(moment // window_s) for moment in (sent_unix_s - _APART_S, told_unix_s + _APART_S)
        )
        if first != last:
            return
        if first > self._period:
            self._period, self._in_period = first, 0
        self._in_period += cost
