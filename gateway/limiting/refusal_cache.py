"""Refusals that are remembered: until its retry time nothing can admit a refused request.

So the store need not be asked, and a caller who does not wait costs it nothing. What is told
meanwhile is the remembered decision, moved on by the time that has passed. It may be outdone: who
goes on with other requests, which count for a common limit, can find that one full as well.

Not remembered is what may change at any moment: decisions made without the store, and refusals by
a concurrency limit, whose leases end when they end. A question with other limits or another cost
than the one that was refused is a new one, so a change of policy or key needs no word; a reset of
counts does (`forget`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.domain.limits import SECOND_US, Check, Decision, Limit, Standing
from gateway.domain.ports import Limiter

Done = Callable[[Decision | None], None]

#: The most refusals kept; beyond, the oldest is forgotten, and the store is asked.
MOST_REFUSALS: Final = 10_000
#: How long a refusal is kept that no waiting would change: a cost beyond the limit.
NEVER_US: Final = SECOND_US
#: So long the same is told: a caller who sends faster is told times that are too long by this.
AGE_NS: Final = 50_000_000
#: For so long after everything was forgotten nothing is remembered: a refusal decided by the old
#: counts may still be on its way.
DEAF_NS: Final = 1_000_000_000


@dataclass(slots=True)
class _Refusal:
    """A decision as it was at `at_ns`, and the question that it answered."""

    limits: tuple[Limit, ...]
    cost: int
    decision: Decision
    at_ns: int
    until_ns: int
    #: What was told last, and when that was made.
    told: Decision
    told_ns: int


class RefusingLimiter(Limiter, Protocol):
    """A limiter that tells of its refusals, before the one who asked hears of them."""

    on_refused: Callable[[Check, Decision], None]


class RememberingLimiter:
    """Implements `domain.ports.Limiter` around one that decides.

    now_ns: a clock that never steps back, in nanoseconds
    """

    def __init__(
        self, limiter: RefusingLimiter, now_ns: Callable[[], int], *, capacity: int = MOST_REFUSALS
    ) -> None:
        self._limiter = limiter
        limiter.on_refused = self._remember
        self._now_ns = now_ns
        self._capacity = capacity
        self._deaf_until_ns = now_ns()
        #: By the names of the counts, oldest first.
        self._kept: OrderedDict[tuple[str, ...], _Refusal] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def decide(self, check: Check, done: Done) -> None:
        if self._kept:
            kept = self._kept.get(check.counters)
            if kept is not None and (decision := self._recall(kept, check)) is not None:
                done(decision)
                return
        self._limiter.decide(check, done)

    def forget(self, prefix: str = "") -> None:
        """Forget what was refused by a count whose name begins so; by default everything."""
        self._deaf_until_ns = self._now_ns() + DEAF_NS
        self._kept = OrderedDict(
            (names, kept)
            for names, kept in self._kept.items()
            if not any(name.startswith(prefix) for name in names)
        )

    def _recall(self, kept: _Refusal, check: Check) -> Decision | None:
        """The kept refusal as it stands now; None: it does not answer this question."""
        now_ns = self._now_ns()
        if now_ns >= kept.until_ns:
            del self._kept[check.counters]
            return None
        # The same limits are the same objects, so that this compares no figures.
        if check.cost != kept.cost or check.dry or check.limits != kept.limits:
            return None
        if now_ns - kept.told_ns >= AGE_NS:
            kept.told, kept.told_ns = (
                _moved_on(kept.decision, (now_ns - kept.at_ns) // 1000),
                now_ns,
            )
        return kept.told

    def _remember(self, check: Check, decision: Decision) -> None:
        now_ns = self._now_ns()
        if (
            decision.local
            or not check.cost
            or check.dry
            or check.limits[decision.governing].kind == "concurrency"
            or now_ns < self._deaf_until_ns
        ):
            return
        wait_us = NEVER_US if decision.retry_us is None else decision.retry_us
        self._kept.pop(check.counters, None)
        if len(self._kept) >= self._capacity:
            self._kept.popitem(last=False)
        self._kept[check.counters] = _Refusal(
            check.limits, check.cost, decision, now_ns, now_ns + wait_us * 1000, decision, now_ns
        )


def _moved_on(decision: Decision, passed_us: int) -> Decision:
    """A refusal as it stands so much later, nothing having been counted meanwhile."""
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
