"""Limits, the question a limiter is asked, and its answer: plain values.

The arithmetic is in `window`; where counts are kept is a store's affair. All times are integer
microseconds, and everything stays below 2**53, so that Lua's doubles hold it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["rate", "quota", "concurrency"]

SECOND_US: Final = 1_000_000
#: The largest amount, burst or cost: what four bytes hold.
MAX_AMOUNT: Final = 4_294_967_295
#: A bucket counts in microseconds from now on. At half of what a double holds exactly, the sum
#: of today's date and a bucket's length stays exact until the year 2112.
MAX_BUCKET_US: Final = 2**52
UNITS_US: Final[dict[str, int]] = {
    "second": SECOND_US,
    "minute": 60 * SECOND_US,
    "hour": 3_600 * SECOND_US,
    "day": 86_400 * SECOND_US,
}
#: A window is counted in this many slots; one more is kept, because the oldest is partly outside.
SLOTS: Final = 60
#: The most limits of one check: each has a bit of `Decision.refusing`.
MOST_LIMITS: Final = 32
#: A lease that nobody renews lapses after this time: so long the places of a gateway that died stay
#: taken, and so long a gateway that lives may fail to reach the store before it loses its own.
LEASE_US: Final = 6 * SECOND_US
#: A lease's number is between 1 and this: what a double holds exactly, and nobody draws twice.
MOST_LEASE: Final = 2**52


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: its promise and what it is counted per.

    name:      what it is known by, in headers, metrics and the store: "plan"
    kind:      "rate" (sliding window, with or without a bucket), "quota" (calendar period, UTC) or
               "concurrency" (leases held at one time)
    amount:    L, what the client is told: 60
    window_us: the window or period: 60_000_000; of a concurrency limit LEASE_US
    burst:     B, the peak admitted in one window; None: no bucket, the peak is L
    per:       "key", "account", "ip" or "header:name-in-lower-case"
    shadow:    decide, count and report, but let through
    """

    name: str
    kind: Kind
    amount: int
    window_us: int
    burst: int | None = None
    per: str = "key"
    shadow: bool = False
    #: B, also where there is no bucket.
    peak: int = field(init=False, repr=False, compare=False)
    #: Width of a slot, ceil(W / 60).
    slot_us: int = field(init=False, repr=False, compare=False)
    #: T, the time one unit of the bucket takes to come back, ceil(W / L).
    unit_us: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "peak", self.amount if self.burst is None else self.burst)
        object.__setattr__(self, "slot_us", -(-self.window_us // SLOTS))
        object.__setattr__(self, "unit_us", -(-self.window_us // self.amount))

    @property
    def counter(self) -> str:
        """What tells its count from others of the same subject: name, kind and window.

        Not its figures: a change of policy keeps the counts. "plan:rate:60000000"
        """
        return f"{self.name}:{self.kind}:{self.window_us}"


def build_rate(
    name: str,
    amount: int,
    window_us: int,
    burst: int | None,
    per: str = "key",
    shadow: bool = False,
) -> Limit:
    """A rate and its bucket. Raises ValueError with the expectation if they do not go together."""
    if burst is not None and burst < amount:
        raise ValueError(f"a burst of at least the rate's amount, {amount}")
    if burst is not None and burst > MAX_AMOUNT:
        raise ValueError(f"a burst up to {MAX_AMOUNT}")
    limit = Limit(name, "rate", amount, window_us, burst, per, shadow)
    if limit.peak * limit.unit_us > MAX_BUCKET_US:
        largest = MAX_BUCKET_US // limit.unit_us
        raise ValueError(f"a burst up to {largest}: beyond it the bucket takes a century to fill")
    return limit


@dataclass(slots=True, eq=False)
class Check:
    """What a limiter is asked: may this request pass, and count it if so.

    A check is made once per caller and route and asked again for each request.

    limits:   in order; ties between them go to the first
    counters: the name of each limit's count, one per limit, subject included
    cost:     how much the request counts; 0 asks how things stand and counts nothing
    dry:      judge, but count nothing: what would happen
    wire:     the store adapter's own encoded form, made at first use, without the lease
    lease:    the number under which each concurrency limit keeps this request's lease, whatever it
              costs: 1 to MOST_LEASE, like no other's; 0: the request takes none, and is only judged
    plain:    the same question without its lease, where this one has one: it keeps `wire` for both
    """

    limits: tuple[Limit, ...]
    counters: tuple[str, ...]
    cost: int = 1
    dry: bool = False
    wire: tuple[bytes, bytes] | None = field(default=None, repr=False)
    lease: int = 0
    plain: Check | None = field(default=None, repr=False)

    def at_cost(self, cost: int) -> Check:
        """The same question for another cost."""
        return Check(self.limits, self.counters, cost)

    def leased(self, number: int) -> Check:
        """The same question for a request that is to hold its leases under this number."""
        return Check(self.limits, self.counters, self.cost, lease=number, plain=self)

    @property
    def leases(self) -> tuple[str, ...]:
        """The names of the counts that hold the request's lease once it is admitted."""
        return tuple(
            name
            for name, limit in zip(self.counters, self.limits, strict=True)
            if limit.kind == "concurrency"
        )


@dataclass(slots=True)
class Standing:
    """How one limit stands after the decision. remaining: 59; reset_us: 60_252_631."""

    remaining: int
    reset_us: int


@dataclass(slots=True)
class Decision:
    """What a limiter answers.

    allowed:   every enforced limit admits it (and then each has counted it)
    governing: index into the check's limits: the one the client is told about
    retry_us:  on refusal, until it would be admitted if nothing more is sent: 1_500_000; where a
               concurrency limit governs, a guess;
               None: never (its cost exceeds the limit), and None on admission
    now_us:    the store's clock at the decision, Unix time
    standings: one per limit, in order
    refusing:  bit i is set where limit i, shadow or not, would not admit it
    local:     decided in the worker because the store could not be asked
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
        """What is left of the governing limit."""
        return self.standings[self.governing].remaining

    @property
    def reset_us(self) -> int:
        """Until the governing limit's whole allowance is back."""
        return self.standings[self.governing].reset_us
