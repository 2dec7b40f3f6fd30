"""A cache of refusals: a refused request cannot be admitted before its retry time.

So the store is not asked, and a client that does not wait costs it nothing. Until then the cached
decision is returned, its times reduced by the time that has passed. The real wait may be longer:
other requests of the client may have used up a limit that both share.

Decisions that may change at any moment are not cached: those made without the store, and refusals
by a concurrency limit, whose leases may end at any time. The store decides a check with other
limits or other costs than the refused one, so a change of policy or key invalidates nothing here;
a reset of counters does (`invalidate`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.domain.limits import SECOND_US, Check, Decision, Limit, Standing
from gateway.domain.ports import Limiter

Done = Callable[[Decision | None], None]

#: The most refusals cached; beyond it, the oldest is evicted, and the store is asked.
MOST_REFUSALS: Final = 10_000
#: How long a refusal is cached that does not end by waiting: a cost beyond the limit.
NEVER_US: Final = SECOND_US
#: How long the same decision is returned: its times may be too long by this.
AGE_NS: Final = 50_000_000
#: How long nothing is cached after an invalidation: a refusal decided by the old counters may still
#: be in flight.
RESET_GRACE_NS: Final = 1_000_000_000


@dataclass(slots=True)
class _Refusal:
    """A decision as it was at `at_ns`, and the check that it answered."""

    limits: tuple[Limit, ...]
    cost: int
    costs: tuple[int, ...] | None
    decision: Decision
    at_ns: int
    until_ns: int
    #: The decision that was returned last, and when it was made.
    given: Decision
    given_ns: int


class RefusingLimiter(Limiter, Protocol):
    """A limiter that reports its refusals, before it calls `done` with them."""

    on_refused: Callable[[Check, Decision], None]


class RefusalCache:
    """Implements `domain.ports.Limiter` around one that decides.

    now_ns: a clock that never steps back, in nanoseconds
    """

    def __init__(
        self, limiter: RefusingLimiter, now_ns: Callable[[], int], *, capacity: int = MOST_REFUSALS
    ) -> None:
        self._limiter = limiter
        limiter.on_refused = self._put
        self._now_ns = now_ns
        self._capacity = capacity
        self._ignore_until_ns = now_ns()
        #: By the names of the counters, oldest first.
        self._kept: OrderedDict[tuple[str, ...], _Refusal] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def decide(self, check: Check, done: Done) -> None:
        if self._kept:
            kept = self._kept.get(check.counters)
            if kept is not None and (decision := self._cached(kept, check)) is not None:
                done(decision)
                return
        self._limiter.decide(check, done)

    def invalidate(self, prefix: str = "") -> None:
        """Drop the refusals by counters whose names begin with this; by default all."""
        self._ignore_until_ns = self._now_ns() + RESET_GRACE_NS
        self._kept = OrderedDict(
            (names, kept)
            for names, kept in self._kept.items()
            if not any(name.startswith(prefix) for name in names)
        )

    def _cached(self, kept: _Refusal, check: Check) -> Decision | None:
        """The cached refusal as of now; None: it does not answer this check."""
        now_ns = self._now_ns()
        if now_ns >= kept.until_ns:
            del self._kept[check.counters]
            return None
        if check.cost != kept.cost or check.dry or check.costs != kept.costs:
            return None
        if check.limits != kept.limits:
            return None
        if now_ns - kept.given_ns >= AGE_NS:
            kept.given, kept.given_ns = (
                _aged(kept.decision, (now_ns - kept.at_ns) // 1000),
                now_ns,
            )
        return kept.given

    def _put(self, check: Check, decision: Decision) -> None:
        now_ns = self._now_ns()
        if (
            decision.local
            or not check.cost
            or check.dry
            or check.limits[decision.governing].is_leased
            or now_ns < self._ignore_until_ns
        ):
            return
        wait_us = NEVER_US if decision.retry_us is None else decision.retry_us
        self._kept.pop(check.counters, None)
        if len(self._kept) >= self._capacity:
            self._kept.popitem(last=False)
        self._kept[check.counters] = _Refusal(
            *(check.limits, check.cost, check.costs, decision),
            *(now_ns, now_ns + wait_us * 1000, decision, now_ns),
        )


def _aged(decision: Decision, passed_us: int) -> Decision:
    """A refusal after this time, in which nothing was counted."""
    retry_us = decision.retry_us
    return Decision(
        False,
        decision.governing,
        None if retry_us is None else retry_us - passed_us,
        decision.now_us + passed_us,
        tuple(
            Standing(standing.remaining, max(0, standing.reset_us - passed_us))
            for standing in decision.standings
        ),
        decision.refusing,
    )
