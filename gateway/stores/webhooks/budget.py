"""Divides the budget of events in the store among the shards, and makes room before it is spent.

Couriers do not know of each other. Each says down to how many bytes a shard is trimmed, so that
several that see the same drop the same events. Between two looks the shards together may grow past
the budget, by what arrives meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from gateway.domain.ports import StoreDown
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.webhooks.queue import SHARDS, DeliveryQueue, ShardStats

log = logging.getLogger("gateway")

#: How often the shards are looked at.
LOOK_S: Final = 1.0
#: Room is made when more than this share of the budget is used.
FULL: Final = 0.9
#: A shard is trimmed by this share of the budget, then the next one with the oldest events is.
_STEP: Final = 1 / 64
#: The most such steps of one look.
_STEPS: Final = 32
#: Of the budget, the most that one account's events may take of which any delivery waits.
MOST_SHARE: Final = 0.25
_NOTHING: Final = ShardStats(0, 0, 0, 0, 0, 0, 0.0, 0, -1.0)


class Budget:
    """The budget of all shards.

    total:  of their bytes
    keep_s: how long an event of which nothing waits is kept
    """

    def __init__(self, total: Callable[[], int], keep_s: Callable[[], float]) -> None:
        self._total = total
        self._keep_s = keep_s
        self._shards = [_NOTHING] * SHARDS
        #: When the first finished event of each was over, by the clock of this process.
        self._oldest_s = [math.inf] * SHARDS
        self._is_known = False
        #: Why the last look failed; None: it did not, or there was none.
        self.fault: StoreDown | None = None
        self._throttle = LogThrottle()

    @property
    def total(self) -> int:
        return self._total()

    def of(self, shard: int) -> int:
        """The most bytes of a shard: what the others do not use."""
        return max(0, self._total() - self.stats.bytes + self._shards[shard].bytes)

    def share_of(self, shard: int, account: str) -> int:
        """The most bytes of an account's events with deliveries left: what others do not have.

        Of a shard with very many accounts, only those are known that have the most.
        """
        known = enumerate(self._shards)
        others = sum(each.accounts.get(account, 0) for at, each in known if at != shard)
        return max(0, int(MOST_SHARE * self._total()) - others)

    @property
    def shards(self) -> Sequence[ShardStats] | None:
        """What each shard had at the last look; None: the store does not answer."""
        return self._shards if self._is_known else None

    @property
    def stats(self) -> ShardStats:
        """Those of all shards together, as they were at the last look."""
        return summed(self._shards)

    async def run(self, queues: Sequence[DeliveryQueue]) -> None:
        """Look at all shards again and again, until cancelled. queues: by shard"""
        while True:
            try:
                await self.look(queues)
                self._is_known, self.fault = True, None
            except StoreDown as error:
                self._is_known, self.fault = False, error
                if self._throttle.suppressed("look", time.monotonic()) is not None:
                    log.warning("the shards of webhooks cannot be read: %s", error)
            except Exception as error:
                # Whatever another program wrote there: without looks the budget would not be kept.
                self._is_known, self.fault = (
                    False,
                    StoreDown(f"what it has cannot be read: {error}"),
                )
                if self._throttle.suppressed("look", time.monotonic()) is not None:
                    log.warning("the shards of webhooks cannot be read", exc_info=error)
            await asyncio.sleep(LOOK_S)

    async def look(self, queues: Sequence[DeliveryQueue]) -> None:
        """Read what all shards have; drop what is over for too long, and what has no room."""
        for shard, queue in enumerate(queues):
            await self._read(queue, shard)
            if self._shards[shard].oldest_finished_s > self._keep_s():
                await self._trim(queue, shard, self._shards[shard].bytes)
        candidates = set(range(len(queues)))
        for _ in range(_STEPS):
            needed = self.stats.bytes - int(FULL * self._total())
            candidates = {each for each in candidates if self._shards[each].finished}
            if needed <= 0 or not candidates:
                break
            oldest = min(candidates, key=lambda each: self._oldest_s[each])
            step = min(needed, int(_STEP * self._total()) + 1)
            if not await self._trim(queues[oldest], oldest, self._shards[oldest].bytes - step):
                candidates.discard(oldest)

    async def _trim(self, queue: DeliveryQueue, shard: int, most_bytes: int) -> int:
        dropped = await queue.trim(most_bytes)
        await self._read(queue, shard)
        return dropped

    async def _read(self, queue: DeliveryQueue, shard: int) -> None:
        stats = await queue.stats()
        self._shards[shard] = stats
        age_s = stats.oldest_finished_s
        self._oldest_s[shard] = time.monotonic() - age_s if age_s >= 0 else math.inf


def summed(shards: Sequence[ShardStats]) -> ShardStats:
    """What shards have together; of the times, the longest."""
    return ShardStats(
        waiting=sum(each.waiting for each in shards),
        due=sum(each.due for each in shards),
        in_flight=sum(each.in_flight for each in shards),
        dead=sum(each.dead for each in shards),
        finished=sum(each.finished for each in shards),
        bytes=sum(each.bytes for each in shards),
        oldest_due_s=max(each.oldest_due_s for each in shards),
        breakers=sum(each.breakers for each in shards),
        oldest_finished_s=max(each.oldest_finished_s for each in shards),
    )
