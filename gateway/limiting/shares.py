"""What one worker may admit in an outage: its share of every limit.

Each limit is divided among the live workers, in whole units whose sum is the limit. If a limit is
smaller than the number of workers, some shares are zero. Which ones depends on the counter's name;
otherwise the same workers would refuse every client with small limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final
from zlib import crc32

from gateway.domain.limits import SECOND_US, Check, Decision, Limit, Standing, governing
from gateway.limiting.memory import MemoryLimiter

#: The retry time where the share is zero: the store may have recovered after it.
RETRY_US: Final = SECOND_US


class LocalCounters:
    """Decides by this worker's own counters, within its share of every limit.

    position: this worker's rank, from 0, and the number of workers that share the limits
    """

    def __init__(self, local: MemoryLimiter, position: Callable[[], tuple[int, int]]) -> None:
        self._local = local
        self._position = position

    def decide(self, check: Check) -> Decision:
        """Decide a check, and count it in this worker."""
        position = self._position()
        if position[1] == 1:
            decision = self._local.decide_now(check)
            decision.local = True
            return decision
        shares = _shares(check, position)
        missing = [
            index
            for index, own in enumerate(shares)
            if own is None and not self._is_connected(check, index)
        ]
        costs = check.each_cost
        is_refused = any(costs[index] and not check.limits[index].shadow for index in missing)
        asked = Check(
            # A limit without a share is decided below; here the whole limit is a placeholder.
            tuple(own or limit for own, limit in zip(shares, check.limits, strict=True)),
            check.counters,
            check.cost,
            dry=check.dry or is_refused,
            lease=check.lease,
            costs=check.costs,
            connection=check.connection,
            holder=check.holder,
        )
        decision = self._local.decide_now(asked)
        decision.local = True
        if missing:
            _refuse_without_share(decision, check, missing)
        if not decision.allowed and decision.retry_us is None and _can_pass(check):
            decision.retry_us = RETRY_US
        return decision

    def release(self, check: Check) -> None:
        """Release the leases of a check that the store refused.

        Not that of a connection: other requests of it may hold it. It expires if none does.
        """
        for name, member in check.leases:
            if not check.connection or isinstance(member, int):
                self._local.release(name, member)

    def _is_connected(self, check: Check, index: int) -> bool:
        """Is the limit one of connections that the check's connection counts in already?"""
        return (
            check.connection > 0
            and check.limits[index].rules.shared
            and self._local.is_connected(check.counters[index], check.connection)
        )


def share(limit: Limit, name: str, rank: int, workers: int) -> Limit | None:
    """A worker's share of a limit, for the counter of this name; None: its share is zero.

    rank: the worker's rank among the live `workers`, from 0
    """
    if workers == 1:
        return limit
    return _share(limit, (rank + crc32(name.encode())) % workers, workers)


def _shares(check: Check, position: tuple[int, int]) -> tuple[Limit | None, ...]:
    """The shares of a check's limits, in order; cached in it until a worker comes or goes."""
    base = check.plain or check
    if base.shares is None or base.shares[0] != position:
        limits = zip(check.limits, check.counters, strict=True)
        base.shares = position, tuple(share(limit, name, *position) for limit, name in limits)
    return base.shares[1]


def part(whole: int, rank: int, workers: int) -> int:
    """A worker's part of a whole number; the sum of all parts is the number."""
    return whole * (rank + 1) // workers - whole * rank // workers


@lru_cache(maxsize=4096)
def _share(limit: Limit, rank: int, workers: int) -> Limit | None:
    amount = part(limit.amount, rank, workers)
    burst = None
    if limit.burst is not None:
        burst = part(limit.burst, rank, workers)
        # Both are divided separately, and a burst below the rate is not valid.
        amount = min(amount, burst)
    return replace(limit, amount=amount, burst=burst) if amount else None


def _refuse_without_share(decision: Decision, check: Check, missing: list[int]) -> None:
    """Report limits without a share as used up, and let the enforced ones refuse that it costs."""
    costs = check.each_cost
    enforced = [index for index in missing if not check.limits[index].shadow]
    refusing = [index for index in enforced if costs[index]]
    standings = list(decision.standings)
    for index in missing:
        standings[index] = Standing(0, RETRY_US)
    decision.standings = tuple(standings)
    decision.refusing |= sum(1 << index for index in missing if costs[index])
    if decision.allowed and refusing:
        decision.governing = refusing[0]
        decision.allowed, decision.retry_us = False, RETRY_US
    elif decision.allowed and enforced:
        decision.governing = governing(check.limits, standings, {})


def _can_pass(check: Check) -> bool:
    """Can the whole limits ever admit this cost?"""
    return all(
        limit.shadow or limit.ever_admits(cost)
        for limit, cost in zip(check.limits, check.each_cost, strict=True)
    )
