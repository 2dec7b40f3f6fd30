"""The limits' counts, for whoever manages them: how they stand, and their reset.

They are judged over the very link and script that the workers use, opened when it is first needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from gateway.domain.limits import Check, Decision
from gateway.domain.ports import Limiter, StoreDown
from gateway.stores.connect import StoreAddress
from gateway.stores.directory import reset_name
from gateway.stores.memory import MemoryLimiter
from gateway.stores.nodes import ClusterNodes
from gateway.stores.opening import limiter_at
from gateway.stores.translated import translated
from gateway.stores.wire import StoreLink

#: How long a person waits for an answer, or for the store to be connected to.
PATIENCE_S: Final = 2.0
#: The workers hear of a reset by a name that comes to be, and are told of its end, too.
_TOLD_MS: Final = 1_000


class RedisCounts:
    """domain.ports.Counts at an address, to be closed by its owner; the client stays another's."""

    def __init__(
        self,
        address: StoreAddress,
        client: Redis | RedisCluster,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._address = address
        self._redis: Any = client
        self._patience_s = patience_s
        self._opened: tuple[StoreLink | ClusterNodes, Limiter] | None = None

    async def judge(self, check: Check) -> Decision:
        """What would be decided; a check that is not `dry` and costs something is counted."""
        link, limiter = self._open()
        try:
            async with asyncio.timeout(self._patience_s):
                await link.wait_up()
        except TimeoutError:
            raise StoreDown(str(link.last_error or "the store did not answer")) from None
        answer: asyncio.Future[Decision | None] = asyncio.get_running_loop().create_future()
        limiter.decide(check, _setter(answer))
        decision = await answer
        if decision is None:
            raise StoreDown("the store did not answer")
        return decision

    async def reset(self, names: Sequence[str]) -> None:
        """Forget these counts, here and in every worker of every gateway."""
        async with translated():
            for name in names:
                await self._redis.unlink(name)
                # Only now: a worker that asks again at once must not meet the old count.
                await self._redis.set(reset_name(name), b"", px=_TOLD_MS)

    def give_up(self, reason: str) -> None:
        """Take the store for lost and connect anew: it is another server now."""
        if self._opened is not None:
            self._opened[0].give_up(reason)

    async def close(self) -> None:
        """Disconnect; harmless when repeated."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened[0].stop()

    def _open(self) -> tuple[StoreLink | ClusterNodes, Limiter]:
        if self._opened is None:
            link, limiter, _ = limiter_at(self._address, lambda: self._patience_s)
            link.start()
            self._opened = link, limiter
        return self._opened


class MemoryCounts:
    """domain.ports.Counts over the limiter of this process."""

    def __init__(self, limiter: MemoryLimiter) -> None:
        self._limiter = limiter

    async def judge(self, check: Check) -> Decision:
        """What would be decided; a check that is not `dry` and costs something is counted."""
        return self._limiter.decide_now(check)

    async def reset(self, names: Sequence[str]) -> None:
        """Forget these counts."""
        for name in names:
            self._limiter.forget(name)


def _setter(answer: asyncio.Future[Decision | None]) -> Callable[[Decision | None], None]:
    """A `done` that does not mind that whoever waited has gone."""

    def done(decision: Decision | None) -> None:
        if not answer.done():
            answer.set_result(decision)

    return done
