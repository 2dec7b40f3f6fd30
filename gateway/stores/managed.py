"""The store as people manage it: keys, usage, warnings, the audit log, the limits' counts, and what
gateways tell each other of their admin sides; opened as one.

Beside the workers, and off their path: plain clients of redis-py, which connect when they are first
used, so that opening never fails and never waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from gateway.domain.ports import (
    AdminStore,
    AuditStore,
    Counts,
    KeyStore,
    UsageStore,
    WarningStore,
)
from gateway.stores.admin import RedisAdminStore
from gateway.stores.audit import RedisAuditStore
from gateway.stores.clients import MasterClient
from gateway.stores.clock import ClockKeeper, StoreClock, host_us
from gateway.stores.connect import StoreAddress, redis_client
from gateway.stores.counts import MemoryCounts, RedisCounts
from gateway.stores.keys import RedisKeyStore
from gateway.stores.limit_warnings import RedisWarningStore
from gateway.stores.memory import MemoryLimiter
from gateway.stores.memory_admin import MemoryAdminStore
from gateway.stores.memory_audit import MemoryAuditStore
from gateway.stores.memory_usage import MemoryUsageStore
from gateway.stores.memory_warnings import MemoryWarningStore
from gateway.stores.translated import asked
from gateway.stores.usage import RedisUsageStore
from gateway.stores.watch import MasterWatch


@dataclass(frozen=True, slots=True)
class ManagedStores:
    """All that `manage` asks; and for the admin side itself, `admin`.

    clock_us: the store's time, Unix microseconds: what keys expire by
    sync:     asks the store for its time now, for whoever cannot wait. Raises StoreDown
    """

    keys: KeyStore
    usage: UsageStore
    warnings: WarningStore
    audit: AuditStore
    counts: Counts
    admin: AdminStore
    clock_us: Callable[[], int]
    sync: Callable[[], Awaitable[None]]


@asynccontextmanager
async def open_managed(
    address: StoreAddress, clock_us: Callable[[], int] = host_us
) -> AsyncIterator[ManagedStores]:
    """The store at an address, but for memory://, which lives inside one gateway.

    clock_us: the host's time of day, until the store's is known
    """
    async with AsyncExitStack() as stack:
        client = redis_client(address)
        stack.push_async_callback(client.aclose)
        counts = RedisCounts(address, client)
        stack.push_async_callback(counts.close)
        if isinstance(client, MasterClient):
            watch = MasterWatch(address, (client.give_up, counts.give_up))
            await watch.start()
            stack.push_async_callback(watch.stop)
        clock, keys = StoreClock(clock_us), asked(RedisKeyStore(client))
        keeper = ClockKeeper(clock, keys.time)
        keeper.start()
        stack.push_async_callback(keeper.stop)
        yield ManagedStores(
            keys,
            asked(RedisUsageStore(client)),
            asked(RedisWarningStore(client)),
            asked(RedisAuditStore(client)),
            asked(counts),
            asked(RedisAdminStore(client)),
            clock.now_us,
            keeper.sync,
        )


def memory_managed(
    keys: KeyStore,
    limiter: MemoryLimiter,
    usage: UsageStore | None = None,
    warnings: WarningStore | None = None,
    audit: AuditStore | None = None,
) -> ManagedStores:
    """The same over the parts of this process, those that its gateway uses."""
    return ManagedStores(
        keys,
        MemoryUsageStore() if usage is None else usage,
        MemoryWarningStore() if warnings is None else warnings,
        MemoryAuditStore() if audit is None else audit,
        MemoryCounts(limiter),
        MemoryAdminStore(),
        limiter.clock_us,
        _already,
    )


async def _already() -> None:
    """What is in this process goes by its clock."""
