"""Limits, the check that a limiter decides, and its decision: plain values.

The arithmetic is in `window`; stores keep the counters. All times are integer microseconds, and all
numbers stay below 2**53, so that Lua's doubles hold them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, cast

from gateway.domain.calendar import Calendar, Unit

Kind = Literal["rate", "quota", "concurrency", "connections"]

#: Who holds a lease: a request, by its number; or a connection in a worker, by their tags.
Member = int | tuple[int, int]

SECOND_US: Final = 1_000_000
#: The largest amount, burst or cost: what four bytes hold.
MAX_AMOUNT: Final = 4_294_967_295
#: The longest bucket. At half of what a double holds exactly, the sum of the current time and a
#: bucket's length stays exact until the year 2112.
MAX_BUCKET_US: Final = 2**52
UNITS_US: Final[dict[str, int]] = {
    "second": SECOND_US,
    "minute": 60 * SECOND_US,
    "hour": 3_600 * SECOND_US,
    "day": 86_400 * SECOND_US,
}
#: Of quotas. Months differ in length: 31 days stand for a month.
PERIODS_US: Final[dict[str, int]] = {
    **UNITS_US,
    "week": 7 * UNITS_US["day"],
    "month": 31 * UNITS_US["day"],
}
_UNIT_NAMES: Final = {width_us: name for name, width_us in PERIODS_US.items()}
#: A window is counted in this many slots; one more is kept, because the oldest is partly outside.
SLOTS: Final = 60
#: The most limits of one check: each has a bit of `Decision.refusing`.
MOST_LIMITS: Final = 32
#: The end of a candidate's name; no other limit's name can have it.
CANDIDATE: Final = ":candidate"
#: A lease that is not renewed expires after this time. So do all leases of a gateway that died, or
#: that cannot reach the store.
LEASE_US: Final = 6 * SECOND_US
#: A lease's number is random, from 1 to this: a double holds it exactly, and it is unique.
MOST_LEASE: Final = 2**52


@dataclass(frozen=True, slots=True)
class KindRules:
    """The properties of a kind of limit, for all modules except those with its arithmetic.

    code:        its number for the script in Redis; a rate with a burst has one more
    label:       written before its values in texts: "quota"; "" where none is needed
    slotted:     it counts in slots of its window, which slides
    takes_burst: it may have a burst
    calendar:    its window is a calendar period, which begins for many subjects at once
    leased:      it counts concurrent requests: each holds one lease, at any cost, until it ends. So
                 there is nothing to reset, to write back after an outage or to warn about, and
                 refusals are not cached
    shared:      a leased kind that counts connections: the requests of one share a lease
    written:     the kind as policies write it, with `of`, if it is another
    quota_unit:  its unit in RateLimit-Policy (`qu`); None: requests in a window (`w`)
    windows_us:  the windows that it may have
    """

    code: int
    label: str = ""
    slotted: bool = False
    takes_burst: bool = False
    calendar: bool = False
    leased: bool = False
    shared: bool = False
    written: Kind | None = None
    quota_unit: str | None = None
    windows_us: frozenset[int] = frozenset(UNITS_US.values())

    @property
    def unit_words(self) -> str:
        """What a leased kind counts, in words: "concurrent requests"."""
        return (self.quota_unit or "requests").replace("-", " ")


#: All kinds of limits. What they count and when they refuse is in `window` and `lua/decide.lua`,
#: their format in policies in `policies/limits.py`. No other module compares a kind's name. Code 4
#: is a quota with a calendar.
KINDS: Final[Mapping[Kind, KindRules]] = MappingProxyType(
    {
        "rate": KindRules(0, slotted=True, takes_burst=True),
        "quota": KindRules(
            2, label="quota", calendar=True, windows_us=frozenset(PERIODS_US.values())
        ),
        "concurrency": KindRules(
            3, leased=True, quota_unit="concurrent-requests", windows_us=frozenset({LEASE_US})
        ),
        "connections": KindRules(
            5,
            leased=True,
            shared=True,
            written="concurrency",
            quota_unit="connections",
            windows_us=frozenset({LEASE_US}),
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: its values and its subject.

    name:      in headers, metrics and the store: "plan"
    kind:      "rate" (sliding window, with or without a bucket), "quota" (calendar period),
               "concurrency" (leases held at one time) or "connections" (connections that hold any)
    amount:    L, as X-RateLimit-Limit reports it: 60
    window_us: the window or period: 60_000_000; of a concurrency limit LEASE_US
    burst:     B, the peak admitted in one window; None: no bucket, the peak is L
    per:       "key", "account", "ip" or "header:name-in-lower-case"
    shadow:    it is decided, counted and reported, but refuses nothing
    zone:      of a quota, the time zone of its period
    billing:   of a quota per month, months begin on the account's billing day
    candidate: other values that are tried beside it: a limit of its kind in shadow mode, named
               "search:candidate", which counts apart; None: there are none
    month_day: that day; 1 until the account is known
    was:       its earlier names, the oldest first, under which it counts and is overridden
    is_candidate: it is the candidate of the limit before it in a check, and only compared with it
    of:        what costs something in it on an MCP route; a limiter does not look at it, as a check
               says its cost for each limit. "messages": every message; "requests": those that are
               requests to a server, as everywhere else
    rules:     the properties of its kind
    is_leased: it counts concurrent requests: a copy of `rules.leased`
    """

    name: str
    kind: Kind
    amount: int
    window_us: int
    burst: int | None = None
    per: str = "key"
    shadow: bool = False
    zone: str = "UTC"
    billing: bool = False
    month_day: int = 1
    was: tuple[str, ...] = ()
    candidate: Limit | None = None
    is_candidate: bool = False
    of: Literal["requests", "messages"] = "requests"
    #: B; without a bucket L.
    peak: int = field(init=False, repr=False, compare=False)
    #: Width of a slot, ceil(W / 60).
    slot_us: int = field(init=False, repr=False, compare=False)
    #: T, the time in which the bucket refills by one unit, ceil(W / L).
    unit_us: int = field(init=False, repr=False, compare=False)
    rules: KindRules = field(init=False, repr=False, compare=False)
    is_leased: bool = field(init=False, repr=False, compare=False)
    #: The periods of a quota; None: they are `window_us` long, and begin with 1970 in UTC.
    calendar: Calendar | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "peak", self.amount if self.burst is None else self.burst)
        object.__setattr__(self, "slot_us", -(-self.window_us // SLOTS))
        object.__setattr__(self, "unit_us", -(-self.window_us // self.amount))
        object.__setattr__(self, "rules", KINDS[self.kind])
        object.__setattr__(self, "is_leased", self.rules.leased)
        object.__setattr__(self, "calendar", self._calendar())

    def _calendar(self) -> Calendar | None:
        if not self.rules.calendar or self.window_us not in _UNIT_NAMES:
            return None
        if self.zone == "UTC" and self.window_us <= UNITS_US["day"]:
            return None
        return Calendar(cast(Unit, self.unit), self.zone, self.month_day)

    @property
    def counter(self) -> str:
        """What distinguishes its counter from others of the same subject: "plan:rate:60000000".

        Amount, burst and billing day are not part of it, so that a change of them keeps the
        counter; and the first name stays, so that a rename keeps it.
        """
        counter = f"{(*self.was, self.name)[0]}:{self.kind}:{self.window_us}"
        if self.calendar is None:
            return counter
        zone = "" if self.zone == "UTC" else f":{self.zone}"
        return f"{counter}{zone}{':billing' if self.billing else ''}"

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, then its earlier names, the latest first."""
        return self.name, *reversed(self.was)

    def ever_admits(self, cost: int) -> bool:
        """Can a request of this cost be admitted at all?"""
        return self.is_leased or cost <= self.peak

    @property
    def unit(self) -> str:
        """The name of its window or period: "minute"."""
        return _UNIT_NAMES[self.window_us]

    @property
    def window_s(self) -> int | None:
        """Its window or period in seconds, 60; None: a concurrency limit has none."""
        return None if self.is_leased else self.window_us // SECOND_US


def values_of(limit: Limit) -> dict[str, object]:
    """The values of an override, as they are stored and exported."""
    return {
        "kind": limit.kind,
        "amount": limit.amount,
        "window_us": limit.window_us,
        "burst": limit.burst,
        "per": limit.per,
        "shadow": limit.shadow,
    }


def build_rate(
    name: str,
    amount: int,
    window_us: int,
    burst: int | None,
    per: str = "key",
    shadow: bool = False,
) -> Limit:
    """A rate and its bucket. Raises ValueError with what was expected, if the burst is invalid."""
    if burst is not None and burst < amount:
        raise ValueError(f"a burst of at least the rate's amount, {amount}")
    if burst is not None and burst > MAX_AMOUNT:
        raise ValueError(f"a burst up to {MAX_AMOUNT}")
    limit = Limit(name, "rate", amount, window_us, burst, per, shadow)
    if limit.peak * limit.unit_us > MAX_BUCKET_US:
        largest = MAX_BUCKET_US // limit.unit_us
        raise ValueError(f"a burst up to {largest}: a larger bucket takes a century to fill")
    return limit


@dataclass(slots=True, eq=False)
class Check:
    """The question to a limiter: is this request admitted? If so, it is counted.

    A check is built once per key and route, and used for each request.

    limits:   in order; ties between them go to the first
    counters: the name of each limit's counter, one per limit, subject included
    cost:     how many units the request counts; 0 reports the counters and counts nothing
    costs:    the same for each limit, in order, if they differ: a limit with 0 is reported, counts
              nothing, takes no lease and does not refuse. `cost` is then that of the request as a
              whole: 0 only if all are 0. None: `cost` for each limit
    dry:      decide, but count nothing
    ahead:    the limiter may have several of these counted at once, before they come: one unit of
              one rate
    wire:     the bytes that the store's adapter sends, without the lease; cached at first use
    dated:    the same where a quota has a calendar, and from when until when they hold
    lease:    the number of this request's lease in each concurrency limit, at any cost: unique, 1
              to MOST_LEASE; 0: it takes no lease
    connection: the tag of the connection that the request belongs to, 1 to MOST_LEASE, for limits
              that count connections; 0: it is one of its own. Only looked at with a lease
    holder:   the tag of the worker that holds the lease, set by the one that keeps it: the requests
              of a connection may be in several
    plain:    the same check without its lease, if this one has one: it caches `wire` for both
    leased_in: the counters that have its lease, and whether connections share it; cached, too
    shares:   a worker's rank and the number of workers, and its shares of the limits; cached, too
    """

    limits: tuple[Limit, ...]
    counters: tuple[str, ...]
    cost: int = 1
    dry: bool = False
    wire: tuple[bytes, bytes] | None = field(default=None, repr=False)
    dated: tuple[bytes, bytes, int, int] | None = field(default=None, repr=False)
    lease: int = 0
    plain: Check | None = field(default=None, repr=False)
    costs: tuple[int, ...] | None = None
    connection: int = 0
    holder: int = field(default=0, repr=False)
    leased_in: tuple[tuple[str, bool], ...] | None = field(default=None, repr=False)
    shares: tuple[tuple[int, int], tuple[Limit | None, ...]] | None = field(
        default=None, repr=False
    )
    ahead: bool = False

    def at_cost(self, cost: int) -> Check:
        """The same check at another cost, which is the same for all limits."""
        return Check(self.limits, self.counters, cost)

    def leased(self, number: int, connection: int = 0) -> Check:
        """The same check for a request whose leases have this number.

        connection: as in `Check`
        """
        return Check(
            *(self.limits, self.counters, self.cost),
            lease=number,
            plain=self,
            costs=self.costs,
            connection=connection,
        )

    @property
    def each_cost(self) -> tuple[int, ...]:
        """How many units the request counts in each limit, in order."""
        return self.costs or (self.cost,) * len(self.limits)

    @property
    def leases(self) -> tuple[tuple[str, Member], ...]:
        """Which counters have the request's lease once it is admitted, and as whose."""
        base = self.plain or self
        if base.leased_in is None:
            base.leased_in = tuple(
                (name, limit.rules.shared)
                for name, limit, cost in zip(
                    self.counters, self.limits, self.each_cost, strict=True
                )
                if limit.is_leased and cost
            )
        shared = self._connected
        return tuple([(name, shared if each else self.lease) for name, each in base.leased_in])

    def member(self, limit: Limit) -> Member:
        """Who holds the request's lease of a limit."""
        return self._connected if limit.rules.shared else self.lease

    @property
    def _connected(self) -> Member:
        return (self.connection, self.holder) if self.connection else (self.lease, 0)


@dataclass(slots=True)
class Standing:
    """The state of one limit after the decision. remaining: 59; reset_us: 60_252_631"""

    remaining: int
    reset_us: int


@dataclass(slots=True)
class Decision:
    """A limiter's answer to a check.

    allowed:   every enforced limit admits it, and each limit has counted it
    governing: index into the check's limits: the one that is reported to the client
    retry_us:  on refusal, the time until it is admitted if nothing else is sent: 1_500_000; an
               estimate where a concurrency limit governs; None: never, because its cost exceeds
               the limit; and None on admission
    now_us:    the store's clock at the decision, Unix time
    standings: one per limit, in order
    refusing:  bit i is set if limit i, enforced or in shadow mode, would not admit it
    local:     decided in the worker because the store was unavailable
    """

    allowed: bool
    governing: int
    retry_us: int | None
    now_us: int
    standings: tuple[Standing, ...]
    refusing: int = 0
    local: bool = False

    @property
    def remaining(self) -> int:
        """What remains of the governing limit."""
        return self.standings[self.governing].remaining

    @property
    def reset_us(self) -> int:
        """The time until the whole amount of the governing limit is available again."""
        return self.standings[self.governing].reset_us


def governing(
    limits: Sequence[Limit], standings: Sequence[Standing], waits: Mapping[int, int | None]
) -> int:
    """The index of the limit that is reported to the client; ties go to the first.

    On refusal, the refusing limit with the longest wait; on admission, the enforced limit with the
    least remaining, a concurrency limit only if there is no other. 0 if all limits are in shadow
    mode. `lua/decide.lua` does the same.

    waits: of each enforced limit that refuses, by its index, the wait in microseconds; None: never
    """
    if waits:
        return max(sorted(waits), key=lambda index: _longest(waits[index]))
    enforced = [index for index, limit in enumerate(limits) if not limit.shadow]
    # A client that sends its requests in a row would read of a concurrency limit alone.
    counted = [index for index in enforced if not limits[index].is_leased]
    return min(counted or enforced, key=lambda index: standings[index].remaining, default=0)


def _longest(wait_us: int | None) -> float:
    """A sort key of waits: never is the longest."""
    return float("inf") if wait_us is None else wait_us
