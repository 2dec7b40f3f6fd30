"""Spreads requests so that no 429 comes: `Pacer` says when the next one may be sent.

An answer tells how many units of a limit remain, and when all of them are available again if
nothing more is sent (`reset_after`). Then the unit of this request is available again too: a
sliding window has forgotten it, the period of a quota has ended, a bucket is full. The pacer keeps
that time for each of its own requests. A request may be sent while

    own units that are not back + units that others use + requests without an answer < limit

Others are what an answer counts beyond our own units: other clients of the same key, or a request
that costs more than one. Requests without an answer may be in both, which errs on the safe side
until the next answer. Times are those of the caller's clock when the answer is there. That is after
the gateway has counted the request, so a unit is never taken for available too early.

The first half of a limit is sent without a pause. Then requests are `reset_after / limit` apart, so
that no long pause follows a burst.

Each route may have a limit of its own. Which one a request meets is known from the last answer to
its method and the first two segments of its path; for others it is the limit of the last answer.
That may be wrong for the first request to a route with a smaller limit, and where the limits of a
route and of the plan are both nearly used up. Then a 429 can come, and is waited for. Two limits of
the same number are taken for one.

It does no I/O and reads no clock. It is not safe for threads: its callers hold a lock.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, TypeVar

from gateway_client.limits import Limits

#: The part of a limit that is sent without pauses.
UNPACED: Final = 0.5
#: How long others' units, and a 429, are believed without another answer, in seconds.
BELIEVED_S: Final = 300.0
#: While no answer has told the limit, one request goes ahead in so many seconds.
ASK_S: Final = 1.0
#: The most limits, and the most kinds of requests, that are known at a time.
MOST_LIMITS: Final = 64
MOST_KINDS: Final = 1024

#: A method and the beginning of a path.
Kind = tuple[str, str]


def kind_of(method: str, path: str) -> Kind:
    """The kind of GET /api/search/tides?page=2 is GET /api/search."""
    segments = path.partition("?")[0].split("/", 3)
    return method, "/".join(segments[:3])


@dataclass(frozen=True)
class Pause:
    """Ask again after `seconds`, or when an answer has come. None: only then."""

    seconds: float | None


@dataclass
class _Pace:
    """What is known of one limit.

    limit:          its units; None: no answer has told it
    reset_after_s:  of its last answer
    own:            a heap: when each unit that we used is available again, and which one it is
    counted:        units that we used so far
    others:         units that others use
    others_until_s: when these are available again
    in_flight:      requests without an answer
    last_s:         when the last request was sent
    not_before_s:   after a 429
    """

    limit: int | None
    reset_after_s: float = 0.0
    own: list[tuple[float, int]] = field(default_factory=list)
    counted: int = 0
    others: int = 0
    others_until_s: float = float("-inf")
    in_flight: int = 0
    last_s: float = float("-inf")
    not_before_s: float = float("-inf")

    def pause_s(self, now_s: float) -> float | None:
        """How long to wait before the next request; 0: none; None: for an answer."""
        self._forget(now_s)
        if self.limit is None:
            return max(0.0, self.last_s + ASK_S - now_s) if self.in_flight else 0.0
        if now_s < self.not_before_s:
            return self.not_before_s - now_s
        used = len(self.own) + self.others + self.in_flight
        if used >= self.limit:
            return self._until_next_s(now_s)
        if used < self.limit * UNPACED:
            return 0.0
        return max(0.0, self.last_s + self.reset_after_s / self.limit - now_s)

    def _until_next_s(self, now_s: float) -> float | None:
        """How long until another unit is available."""
        times = [self.own[0][0]] if self.own else []
        if self.others:
            times.append(self.others_until_s)
        return min(times) - now_s if times else None

    def _forget(self, now_s: float) -> None:
        while self.own and self.own[0][0] <= now_s:
            heapq.heappop(self.own)
        if self.others_until_s <= now_s:
            self.others = 0

    def count(self, now_s: float) -> None:
        """A request was counted, or may have been, and its unit is back after `reset_after_s`."""
        self.counted += 1
        heapq.heappush(self.own, (now_s + self.reset_after_s, self.counted))

    def tell(self, limits: Limits, now_s: float, *, was_counted: bool) -> None:
        """What an answer says."""
        self._forget(now_s)
        self.reset_after_s = float(limits.reset_after)
        if was_counted:
            self.count(now_s)
        used = max(0, limits.limit - limits.remaining)
        # The answer knows better, but for what it does not count yet. The oldest go: a period has
        # ended, or they are of a limit that only looks like this one.
        most = used + self.in_flight + max(1, limits.limit // 10)
        if len(self.own) > most:
            self.own = heapq.nlargest(most, self.own, key=itemgetter(1))
            heapq.heapify(self.own)
        self.others = max(0, used - len(self.own))
        self.others_until_s = now_s + min(limits.reset_after, BELIEVED_S)


@dataclass(eq=False)
class Ticket:
    """A request that may be sent now; then call `answered` or `lost`, once."""

    kind: Kind
    pace: _Pace | None


class Pacer:
    """The limits of one key, as far as its answers have told them."""

    def __init__(self) -> None:
        self._unknown = _Pace(None)
        #: By its units.
        self._paces: OrderedDict[int, _Pace] = OrderedDict()
        #: The units of the limit that a kind of requests meets; None: their answers tell none.
        self._kinds: OrderedDict[Kind, int | None] = OrderedDict()
        self._last: _Pace | None = self._unknown

    def ask(self, kind: Kind, now_s: float) -> Ticket | Pause:
        """May a request be sent now? With a Ticket it counts as sent."""
        pace = self._pace_of(kind)
        if pace is not None:
            pause_s = pace.pause_s(now_s)
            if pause_s is None or pause_s > 0:
                return Pause(pause_s)
            pace.in_flight += 1
            pace.last_s = now_s
        return Ticket(kind, pace)

    def _pace_of(self, kind: Kind) -> _Pace | None:
        if kind not in self._kinds:
            return self._last
        units = self._kinds[kind]
        return None if units is None else self._paces.get(units, self._last)

    def answered(
        self,
        ticket: Ticket,
        limits: Limits | None,
        now_s: float,
        *,
        retry_after_s: float | None = None,
    ) -> None:
        """An answer has come. retry_after_s: of a 429; None: it is none"""
        self._end(ticket)
        if limits is not None and not limits.limit:
            limits = None  # nothing could ever be sent
        pace = None if limits is None else self._paces.get(limits.limit)
        if limits is not None:
            if pace is None:
                pace = _kept(self._paces, limits.limit, _Pace(limits.limit), MOST_LIMITS)
            if ticket.pace is not None:
                pace.last_s = max(pace.last_s, ticket.pace.last_s)
            pace.tell(limits, now_s, was_counted=retry_after_s is None)
            if retry_after_s is not None:
                pace.not_before_s = now_s + min(retry_after_s, BELIEVED_S)
        units = None if limits is None else limits.limit
        _kept(self._kinds, ticket.kind, units, MOST_KINDS)
        self._last = pace

    def lost(self, ticket: Ticket, now_s: float) -> None:
        """No answer has come; the request may have been counted all the same."""
        self._end(ticket)
        if ticket.pace is not None and ticket.pace.limit is not None:
            ticket.pace.count(now_s)

    def _end(self, ticket: Ticket) -> None:
        if ticket.pace is not None:
            ticket.pace.in_flight -= 1


_K = TypeVar("_K")
_V = TypeVar("_V")


def _kept(known: OrderedDict[_K, _V], key: _K, value: _V, most: int) -> _V:
    """Set an entry, as the newest; the oldest goes if there are more than `most`."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
    return value
