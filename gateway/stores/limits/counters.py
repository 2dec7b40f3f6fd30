"""The counters of limits, for management: reading and reset.

Checks use the same kind of connection and script as a worker's; it is opened at first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from gateway.domain.limits import Check, Decision
from gateway.domain.ports import Limiter, StoreDown
from gateway.limiting.memory import MemoryLimiter
from gateway.stores.limits.build import build_limiter
from gateway.stores.names import reset_name
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clock import host_us
from gateway.stores.redis.cluster import ClusterNodes
from gateway.stores.redis.connection import StoreConnection
from gateway.stores.redis.errors import translated
from gateway.stores.redis.reasons import with_cure

#: The timeout of a check, and of connecting to the store for it.
TIMEOUT_S: Final = 2.0
#: How long the name is kept that notifies the workers of a reset.
_NOTIFY_MS: Final = 1_000


class RedisCounters:
    """domain.ports.Counters at an address. Its owner closes it, and closes the client as well."""

    def __init__(
        self,
        address: StoreAddress,
        client: Redis | RedisCluster,
        *,
        store_us: Callable[[], int] = host_us,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._address = address
        self._redis: Any = client
        self._store_us = store_us
        self._timeout_s = timeout_s
        self._opened: tuple[StoreConnection | ClusterNodes, Limiter] | None = None

    async def decide(self, check: Check) -> Decision:
        """Decide a check; it is counted unless it is `dry` or costs nothing."""
        link, limiter = self._open()
        try:
            async with asyncio.timeout(self._timeout_s):
                await link.wait_up()
        except TimeoutError:
            reason = link.last_error or "the store did not answer"
            raise StoreDown(with_cure(reason)) from None
        answer: asyncio.Future[Decision | None] = asyncio.get_running_loop().create_future()
        limiter.decide(check, _setter(answer))
        decision = await answer
        if decision is None:
            raise StoreDown("the store did not answer")
        return decision

    async def reset(self, names: Sequence[str]) -> None:
        """Delete these counters, and drop cached refusals in every worker of every gateway."""
        async with translated():
            for name in names:
                await self._redis.unlink(name)
                # Only now: a worker that checks again at once must not find the old counter.
                await self._redis.set(reset_name(name), b"", px=_NOTIFY_MS)

    def reconnect(self, reason: str) -> None:
        """Reconnect: the store is another server now."""
        if self._opened is not None:
            self._opened[0].reconnect(reason)

    async def close(self) -> None:
        """Disconnect; harmless when repeated."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened[0].stop()

    def _open(self) -> tuple[StoreConnection | ClusterNodes, Limiter]:
        if self._opened is None:
            link, limiter, _ = build_limiter(
                self._address, lambda: self._timeout_s, store_us=self._store_us
            )
            link.start()
            self._opened = link, limiter
        return self._opened


class MemoryCounters:
    """domain.ports.Counters over the limiter of this process."""

    def __init__(self, limiter: MemoryLimiter) -> None:
        self._limiter = limiter

    async def decide(self, check: Check) -> Decision:
        """Decide a check; it is counted unless it is `dry` or costs nothing."""
        return self._limiter.decide_now(check)

    async def reset(self, names: Sequence[str]) -> None:
        """Delete these counters."""
        for name in names:
            self._limiter.reset(name)


def _setter(answer: asyncio.Future[Decision | None]) -> Callable[[Decision | None], None]:
    """A `done` that sets a future's result; the waiter may have been cancelled."""

    def done(decision: Decision | None) -> None:
        if not answer.done():
            answer.set_result(decision)

    return done
