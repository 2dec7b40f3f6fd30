"""Opens the store for management: keys, usage, warnings, the audit log, counters, admin state, and
the history of policies.

Not for the workers' hot path: plain clients of redis-py, which connect at their first use, so that
opening never fails and never waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from gateway.domain.ports import (
    AdminStore,
    AuditStore,
    ConnectionStore,
    Counters,
    KeyStore,
    PolicyStore,
    UsageStore,
    WarningStore,
)
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.limiting.memory import MemoryLimiter
from gateway.stores.admin import MemoryAdminStore, RedisAdminStore
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.audit.store import RedisAuditStore
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.limits.counters import MemoryCounters, RedisCounters
from gateway.stores.mcp.memory import MemoryConnectionStore
from gateway.stores.mcp.store import RedisConnectionStore
from gateway.stores.names import CUSTOMERS_AUDIT
from gateway.stores.policies.memory import MemoryPolicyStore
from gateway.stores.policies.store import RedisPolicyStore
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clients import MasterClient, redis_client
from gateway.stores.redis.clock import ClockKeeper, StoreClock, host_us
from gateway.stores.redis.errors import translating
from gateway.stores.redis.sentinel import MasterWatch
from gateway.stores.usage.memory import MemoryUsageStore
from gateway.stores.usage.store import RedisUsageStore
from gateway.stores.warnings.memory import MemoryWarningStore
from gateway.stores.warnings.store import RedisWarningStore
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.opening import WebhookStores, open_webhooks


@dataclass(frozen=True, slots=True)
class ManagedStores:
    """The stores that `manage` uses; and `admin`, the state of the admin API and console.

    clock_us: the store's time, Unix microseconds, by which keys expire
    sync:     reads the store's time now; for commands, which do not wait. Raises StoreDown
    webhooks: None: of memory://, which has none; customers: the audit log of their changes
    """

    keys: KeyStore
    usage: UsageStore
    warnings: WarningStore
    audit: AuditStore
    counters: Counters
    admin: AdminStore
    policies: PolicyStore
    connections: ConnectionStore
    clock_us: Callable[[], int]
    sync: Callable[[], Awaitable[None]]
    webhooks: WebhookStores | None = None
    customers: AuditStore = field(default_factory=MemoryAuditStore)


@asynccontextmanager
async def open_managed(
    address: StoreAddress,
    clock_us: Callable[[], int] = host_us,
    webhooks: Callable[[], WebhookSettings] = WebhookSettings,
) -> AsyncIterator[ManagedStores]:
    """The stores at an address. Not memory://, which is inside one gateway process.

    clock_us: the host's time of day, until the store's is known
    webhooks: the settings of the policy
    """
    async with AsyncExitStack() as stack:
        client = redis_client(address)
        stack.push_async_callback(client.aclose)
        clock = StoreClock(clock_us)
        counters = RedisCounters(address, client, store_us=clock.now_us)
        stack.push_async_callback(counters.close)
        if isinstance(client, MasterClient):
            watch = MasterWatch(address, (client.reconnect, counters.reconnect))
            await watch.start()
            stack.push_async_callback(watch.stop)
        keys = translating(RedisKeyStore(client))
        keeper = ClockKeeper(clock, keys.time)
        keeper.start()
        stack.push_async_callback(keeper.stop)
        yield ManagedStores(
            keys,
            translating(RedisUsageStore(client)),
            translating(RedisWarningStore(client)),
            translating(RedisAuditStore(client)),
            translating(counters),
            translating(RedisAdminStore(client)),
            translating(RedisPolicyStore(client)),
            RedisConnectionStore(client.execute_command),
            clock.now_us,
            keeper.sync,
            open_webhooks(executing(client), webhooks),
            translating(RedisAuditStore(client, CUSTOMERS_AUDIT)),
        )


def memory_managed(
    keys: KeyStore,
    limiter: MemoryLimiter,
    usage: UsageStore | None = None,
    warnings: WarningStore | None = None,
    audit: AuditStore | None = None,
    policies: PolicyStore | None = None,
    connections: ConnectionStore | None = None,
) -> ManagedStores:
    """The same in process, over the stores that the gateway uses."""
    return ManagedStores(
        keys,
        MemoryUsageStore() if usage is None else usage,
        MemoryWarningStore() if warnings is None else warnings,
        MemoryAuditStore() if audit is None else audit,
        MemoryCounters(limiter),
        MemoryAdminStore(),
        MemoryPolicyStore() if policies is None else policies,
        MemoryConnectionStore() if connections is None else connections,
        limiter.clock_us,
        _already,
    )


async def _already() -> None:
    """Do nothing: in one process there is only one clock."""
