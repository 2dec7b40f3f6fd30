"""What is done while the store cannot be asked: as the policy's `on_store_failure` says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from gateway.domain.limits import Check, Decision, Limit, Standing
from gateway.domain.policy import OnStoreFailure
from gateway.domain.ports import Limiter
from gateway.stores.memory import MemoryLimiter

Done = Callable[[Decision | None], None]


class FallbackLimiter:
    """Asks the store, and where that cannot be asked does as the policy says.

    mode:    read at each use: "local" counts in this process, "open" lets everything pass and
             counts nothing, "closed" leaves the question unanswered
    workers: how many processes count side by side: each takes its share of every limit
    """

    def __init__(
        self,
        primary: Limiter,
        local: MemoryLimiter,
        mode: Callable[[], OnStoreFailure],
        *,
        workers: int = 1,
    ) -> None:
        self._primary = primary
        self._local = local
        self._mode = mode
        self._workers = workers

    def decide(self, check: Check, done: Done) -> None:
        def answered(decision: Decision | None) -> None:
            done(decision if decision is not None else self._instead(check))

        self._primary.decide(check, answered)

    def _instead(self, check: Check) -> Decision | None:
        mode = self._mode()
        if mode == "closed":
            return None
        if mode == "open":
            return _admitted(check, self._local.clock_us())
        limits = tuple(_share(limit, self._workers, check.cost) for limit in check.limits)
        decision = self._local.decide_now(Check(limits, check.counters, check.cost))
        decision.local = True
        return decision


def _admitted(check: Check, now_us: int) -> Decision:
    """An admission that nothing has counted."""
    standings = tuple(Standing(limit.amount, 0) for limit in check.limits)
    enforced = [index for index, limit in enumerate(check.limits) if not limit.shadow]
    governing = min(enforced, key=lambda index: check.limits[index].amount, default=0)
    return Decision(True, governing, None, now_us, standings, local=True)


@lru_cache(maxsize=4096)
def _share(limit: Limit, workers: int, cost: int) -> Limit:
    """One worker's part of a limit; never so little that a cost it admits could not pass at all."""
    if workers == 1:
        return limit

    def part(whole: int) -> int:
        return min(whole, max(1, cost, whole // workers))

    burst = None if limit.burst is None else part(limit.burst)
    return replace(limit, amount=part(limit.amount), burst=burst)
