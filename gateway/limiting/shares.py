"""What one worker may admit while the store is away: its part of every limit.

Each limit is cut into as many parts as there are live workers, whole units that add up to the limit
and never to more. With a limit smaller than the number of workers some parts are nothing, and which
ones these are depends on the count's name: else the same workers would refuse every small client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final
from zlib import crc32

from gateway.domain.limits import SECOND_US, Check, Decision, Limit, Standing
from gateway.stores.memory import MemoryLimiter

#: What is told to wait to whoever has no share here at all: by then the store may be back.
RETRY_US: Final = SECOND_US


class OwnCounts:
    """Decides by this worker's own counts, within its share of every limit.

    place: this worker's rank, from 0, and how many workers share the limits
    """

    def __init__(self, local: MemoryLimiter, place: Callable[[], tuple[int, int]]) -> None:
        self._local = local
        self._place = place

    def decide(self, check: Check) -> Decision:
        """The decision, counted here and nowhere else."""
        rank, workers = self._place()
        shares = [
            share(limit, name, rank, workers)
            for limit, name in zip(check.limits, check.counters, strict=True)
        ]
        starved = [index for index, own in enumerate(shares) if own is None]
        is_refused = check.cost > 0 and any(not check.limits[index].shadow for index in starved)
        asked = Check(
            # A limit without a share judges nothing here; the whole of it is just a stand-in.
            tuple(own or limit for own, limit in zip(shares, check.limits, strict=True)),
            check.counters,
            check.cost,
            dry=check.dry or is_refused,
            lease=check.lease,
        )
        decision = self._local.decide_now(asked)
        decision.local = True
        if starved:
            _starve(decision, check, starved)
        if not decision.allowed and decision.retry_us is None and _can_pass(check):
            decision.retry_us = RETRY_US
        return decision

    def release(self, check: Check) -> None:
        """The check's request holds no leases after all."""
        for name in check.leases:
            self._local.release(name, check.lease)


def share(limit: Limit, name: str, rank: int, workers: int) -> Limit | None:
    """The part of a limit that a worker has for the count of this name; None: nothing.

    rank: the worker's place among the `workers` that live, from 0
    """
    if workers == 1:
        return limit
    return _share(limit, (rank + crc32(name.encode())) % workers, workers)


def part(whole: int, rank: int, workers: int) -> int:
    """One of the parts that a whole number is cut into; all of them add up to it."""
    return whole * (rank + 1) // workers - whole * rank // workers


@lru_cache(maxsize=4096)
def _share(limit: Limit, rank: int, workers: int) -> Limit | None:
    amount = part(limit.amount, rank, workers)
    burst = None
    if limit.burst is not None:
        burst = part(limit.burst, rank, workers)
        # The two are cut at different places, and a peak below the rate is none.
        amount = min(amount, burst)
    return replace(limit, amount=amount, burst=burst) if amount else None


def _starve(decision: Decision, check: Check, starved: list[int]) -> None:
    """Say of limits without a share that nothing is left of them, and let those enforced refuse."""
    enforced = [index for index in starved if not check.limits[index].shadow]
    standings = list(decision.standings)
    for index in starved:
        standings[index] = Standing(0, RETRY_US)
    decision.standings = tuple(standings)
    if check.cost:
        decision.refusing |= sum(1 << index for index in starved)
    if enforced and decision.allowed:
        decision.governing = enforced[0]
        if check.cost:
            decision.allowed, decision.retry_us = False, RETRY_US


def _can_pass(check: Check) -> bool:
    """Would the whole limits ever admit it?"""
    return all(limit.shadow or check.cost <= limit.peak for limit in check.limits)
