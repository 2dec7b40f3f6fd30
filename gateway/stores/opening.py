"""Opens a store: from its address to the parts that a gateway asks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.domain.policy import Policy
from gateway.domain.ports import KeyDirectory, KeyStore, Limiter
from gateway.observe.metrics import Metrics
from gateway.stores.connect import StoreAddress, redis_client
from gateway.stores.directory import Directory
from gateway.stores.embedded import EmbeddedRedis
from gateway.stores.fallback import FallbackLimiter
from gateway.stores.keys import RedisKeyStore
from gateway.stores.limiter import RedisLimiter
from gateway.stores.memory import MemoryLimiter
from gateway.stores.memory_keys import MemoryDirectory, MemoryKeyStore
from gateway.stores.wire import StoreLink

log = logging.getLogger("gateway")

#: A decision that takes longer is not waited for: the request goes on without the store.
STORE_TIMEOUT_S: Final = 0.25
#: How long a start waits for the store before it goes on without.
STORE_PATIENCE_S: Final = 2.0


@dataclass(slots=True)
class Store:
    """What a store is made of, for whoever uses it.

    is_up:  it can be asked for decisions and keys
    was_up: it could be at some time since it was opened
    """

    limiter: Limiter
    directory: KeyDirectory
    keys: KeyStore
    is_up: Callable[[], bool]
    was_up: Callable[[], bool]


@asynccontextmanager
async def embedded_store(data: Path) -> AsyncIterator[StoreAddress]:
    """A private Redis whose files are under `data`. Raises EmbeddedFailed."""
    embedded = EmbeddedRedis(data)
    await asyncio.to_thread(embedded.start)
    try:
        yield embedded.address
    finally:
        await asyncio.to_thread(embedded.stop)


@asynccontextmanager
async def open_store(
    address: StoreAddress,
    *,
    policy: Callable[[], Policy],
    metrics: Metrics,
    clock_us: Callable[[], int],
) -> AsyncIterator[Store]:
    """The store at an address, to be closed by whoever opened it.

    It is there at once, whether it can be reached or not: what is asked of it meanwhile is decided
    as the policy of that moment says. metrics: told of each batch, and whether the store is up.
    """
    if address.kind == "memory":
        keys = MemoryKeyStore()
        metrics.store_up = True
        yield Store(
            MemoryLimiter(clock_us), MemoryDirectory(keys), keys, lambda: True, lambda: True
        )
        return
    async with AsyncExitStack() as stack:
        link = StoreLink(address, timeout_s=STORE_TIMEOUT_S)
        closing = was_up = False

        def went_up() -> None:
            nonlocal was_up
            was_up = True
            metrics.store_up, metrics.fallback_active = True, False
            log.info("store: connected")

        def went_down(error: Exception) -> None:
            if not closing:
                metrics.store_up, metrics.fallback_active = False, True
                log.error("store: lost: %s", error)

        link.on_up.append(went_up)
        link.on_down.append(went_down)
        directory = Directory(address)
        client = redis_client(address)
        stack.push_async_callback(client.aclose)
        for part in (link, directory):
            part.start()
            stack.push_async_callback(part.stop)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STORE_PATIENCE_S):
                await link.wait_up()
                await directory.wait_up()
        if not (link.is_up and directory.is_up):
            log.warning("store %s: not reached yet: %s", address.label, link.last_error)
        limiter = FallbackLimiter(
            RedisLimiter(link, on_batch=metrics.checked),
            MemoryLimiter(clock_us),
            lambda: policy().on_store_failure,
        )
        try:
            yield Store(
                limiter,
                directory,
                RedisKeyStore(client),
                is_up=lambda: link.is_up and directory.is_up,
                was_up=lambda: was_up,
            )
        finally:
            closing = True
