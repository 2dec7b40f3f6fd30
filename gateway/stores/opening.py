"""Opens a store for a worker: builds the limiter, the key directory and the rest."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Final

from gateway.domain.policy import Policy
from gateway.domain.ports import (
    AuditStore,
    ConnectionStore,
    KeyDirectory,
    KeyStore,
    LeaseLimiter,
    Limiter,
    ReviewedLimiter,
    UsageStore,
    WarningStore,
)
from gateway.domain.usage import bucket_start
from gateway.limiting.fallback import FallbackLimiter
from gateway.limiting.memory import MemoryLimiter
from gateway.limiting.prepaid import PrepaidLimiter
from gateway.limiting.refusal_cache import RefusalCache
from gateway.observe.limit_warnings import LimitWarnings
from gateway.observe.metrics import Metrics
from gateway.observe.usage_table import UsageTable
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.audit.store import RedisAuditStore
from gateway.stores.audit.trimmer import AuditTrimmer
from gateway.stores.keys.directory import Directory
from gateway.stores.keys.memory import MemoryDirectory, MemoryKeyStore
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.limits.build import build_limiter
from gateway.stores.limits.leases import LeaseKeeper, RedisLeases, Send
from gateway.stores.limits.membership import Membership
from gateway.stores.mcp.memory import MemoryConnectionStore
from gateway.stores.mcp.reporter import ConnectionReporter
from gateway.stores.mcp.store import RedisConnectionStore
from gateway.stores.names import CUSTOMERS_AUDIT, KEY_INDEX
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clients import MasterClient, redis_client
from gateway.stores.redis.clock import StoreClock
from gateway.stores.redis.connection import StoreConnection
from gateway.stores.redis.errors import translating
from gateway.stores.redis.eviction import EvictionWatch
from gateway.stores.redis.link import SlotLink
from gateway.stores.redis.sentinel import MasterWatch
from gateway.stores.redis.status import Part, StoreStatus
from gateway.stores.usage.memory import MemoryUsageStore
from gateway.stores.usage.scripts import UsageScripts
from gateway.stores.usage.store import RedisUsageStore
from gateway.stores.usage.writer import UsageWriter
from gateway.stores.warnings.memory import MemoryWarningStore
from gateway.stores.warnings.store import RedisWarningStore, WarningScript
from gateway.stores.warnings.writer import WarningWriter

#: How long a starting worker waits for the store before it continues without it.
START_WAIT_S: Final = 2.0


@dataclass(slots=True)
class Store:
    """An open store.

    is_up:  it is available for checks and look-ups
    was_up: it has been up at any time since it was opened
    detail: its state for an operator: "ok", or since when and why it is unavailable
    local:  the counters of this process: all for memory://, else those of the fallback
    table:  counts usage until it is written in the background; warned: the warnings of limits
    clock_us: the store's time, Unix microseconds, by which keys expire
    """

    limiter: LeaseLimiter
    directory: KeyDirectory
    keys: KeyStore
    is_up: Callable[[], bool]
    was_up: Callable[[], bool]
    detail: Callable[[], str]
    usage: UsageStore
    warnings: WarningStore
    audit: AuditStore
    connections: ConnectionStore
    local: MemoryLimiter
    table: UsageTable
    warned: LimitWarnings
    clock_us: Callable[[], int]


@asynccontextmanager
async def open_store(
    address: StoreAddress,
    *,
    policy: Callable[[], Policy],
    metrics: Metrics,
    clock_us: Callable[[], int],
    worker: tuple[int, int] = (0, 1),
) -> AsyncIterator[Store]:
    """The store at an address.

    It can be used at once, even if it is not reachable yet: until then, the policy's
    `on_store_failure` decides.

    metrics:  updated by each batch, and by the state of the store
    clock_us: the host's time of day, until the store's is known
    worker:   the index of this worker, from 0, and the number of workers of its gateway
    """
    async with AsyncExitStack() as stack:
        if address.kind == "memory":
            yield await _in_memory(stack, policy, metrics, clock_us)
        else:
            yield await _in_redis(stack, address, policy, metrics, clock_us, worker)


async def _in_memory(
    stack: AsyncExitStack,
    policy: Callable[[], Policy],
    metrics: Metrics,
    clock_us: Callable[[], int],
) -> Store:
    keys = MemoryKeyStore()
    metrics.store_up = True
    local = MemoryLimiter(clock_us)
    keeper = LeaseKeeper(local, (local,), time.monotonic)
    keeper.start()
    stack.push_async_callback(keeper.stop)
    usage, warnings = MemoryUsageStore(), MemoryWarningStore(clock_us)
    table, warned = _with_usage(stack, usage, warnings, metrics, clock_us)
    audit = MemoryAuditStore()
    _with_trimmer(stack, audit, policy, clock_us)
    connections = MemoryConnectionStore()
    _with_connections(stack, connections, metrics, token_hex(8))
    return Store(
        keeper,
        MemoryDirectory(keys),
        keys,
        is_up=lambda: True,
        was_up=lambda: True,
        detail=lambda: "ok",
        usage=usage,
        warnings=warnings,
        audit=audit,
        connections=connections,
        local=local,
        table=table,
        warned=warned,
        clock_us=clock_us,
    )


async def _in_redis(
    stack: AsyncExitStack,
    address: StoreAddress,
    policy: Callable[[], Policy],
    metrics: Metrics,
    clock_us: Callable[[], int],
    worker: tuple[int, int],
) -> Store:
    clock = StoreClock(clock_us)
    link, decider, send = build_limiter(
        address,
        lambda: policy().store.timeout_s,
        store_us=clock.now_us,
        on_batch=metrics.checked,
    )
    in_cluster = address.kind == "cluster"
    directory = Directory(
        address,
        settings=lambda: policy().store,
        clock=clock,
        link=SlotLink if in_cluster else StoreConnection,
    )
    parts = {"limits": link, "keys": directory}
    status = StoreStatus(address.label, parts, metrics, time.monotonic)
    client = redis_client(address)
    stack.push_async_callback(client.aclose)
    watch: MasterWatch | None = None
    if isinstance(client, MasterClient):
        watch = MasterWatch(address, (link.reconnect, directory.reconnect, client.reconnect))
        await watch.start()
        stack.push_async_callback(watch.stop)
    evictions = _with_data_watch(stack, directory, link, send, address.label, metrics)
    for part in (link, directory):
        part.start()
        stack.push_async_callback(part.stop)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_WAIT_S):
            await link.wait_up()
            await directory.wait_up()
    if not status.is_up:
        status.tell()
    local = MemoryLimiter(clock.now_us)
    worker_id = token_hex(8)
    membership = Membership(directory.send, index=worker[0], workers=worker[1], own_id=worker_id)
    membership.start()
    stack.push_async_callback(membership.stop)
    limiter = _with_fallback(decider, local, link, membership, policy, metrics)
    stack.callback(limiter.close)
    refusals = RefusalCache(PrepaidLimiter(limiter, time.monotonic_ns), time.monotonic_ns)
    directory.on_up.append(refusals.invalidate)
    directory.on_emptied.append(refusals.invalidate)
    directory.on_reset.append(refusals.invalidate)
    keeper = _with_leases(stack, refusals, local, link, send)
    table, warned = _with_usage(
        stack,
        translating(UsageScripts(directory.ask)),
        WarningScript(directory.ask),
        metrics,
        clock.now_us,
    )
    connections = RedisConnectionStore(directory.ask)
    _with_connections(stack, connections, metrics, worker_id)
    audit = translating(RedisAuditStore(client))
    if worker[0] == 0:  # one worker of each gateway is enough
        _with_trimmer(stack, audit, policy, clock.now_us)
        customers = translating(RedisAuditStore(client, CUSTOMERS_AUDIT))
        _with_trimmer(stack, customers, policy, clock.now_us)
    stack.callback(status.close)
    return Store(
        keeper,
        directory,
        translating(RedisKeyStore(client)),
        is_up=lambda: status.is_up,
        was_up=lambda: status.was_up,
        detail=lambda: _detail(
            *(status, limiter, evictions.detail, directory.data.detail),
            "" if watch is None else watch.detail,
        ),
        usage=translating(RedisUsageStore(client)),
        warnings=translating(RedisWarningStore(client)),
        audit=audit,
        connections=connections,
        local=local,
        table=table,
        warned=warned,
        clock_us=clock.now_us,
    )


def _with_fallback(
    primary: ReviewedLimiter,
    local: MemoryLimiter,
    link: Part,
    membership: Membership,
    policy: Callable[[], Policy],
    metrics: Metrics,
) -> FallbackLimiter:
    """The limiter that also decides in an outage; updates the metric of the fallback."""

    def update_metric() -> None:
        metrics.fallback_active = limiter.is_active or not link.is_up

    limiter = FallbackLimiter(
        primary,
        local,
        lambda: policy().on_store_failure,
        position=lambda: membership.position,
        on_active=lambda _: update_metric(),
        on_overadmitted=metrics.overadmitted,
    )
    link.on_up.append(limiter.connected)
    link.on_down.append(lambda _: update_metric())
    update_metric()
    return limiter


def _with_data_watch(
    stack: AsyncExitStack,
    directory: Directory,
    link: Part,
    send: Send,
    label: str,
    metrics: Metrics,
) -> EvictionWatch:
    """The watch for evictions, started with the link; updates the metrics of the store's data."""

    def noticed(evicts: bool) -> None:
        metrics.store_evicts = evicts

    def update_lost() -> None:
        metrics.store_keys_lost = directory.data.lost

    evictions = EvictionWatch(partial(send, KEY_INDEX), label, noticed)
    stack.callback(evictions.stop)
    link.on_up.append(evictions.connected)
    directory.data.on_lost.append(update_lost)
    return evictions


def _with_leases(
    stack: AsyncExitStack, limiter: Limiter, local: MemoryLimiter, link: Part, send: Send
) -> LeaseKeeper:
    """The limiter that also keeps leases, in the store and in `local`."""
    leases = RedisLeases(send)
    stack.push_async_callback(leases.flushed)
    keeper = LeaseKeeper(limiter, (leases, local), time.monotonic)
    link.on_up.append(keeper.renew_soon)
    # So that `local` knows the leases that were granted since the last round.
    link.on_down.append(lambda _: keeper.renew_soon())
    keeper.start()
    stack.push_async_callback(keeper.stop)
    return keeper


def _with_usage(
    stack: AsyncExitStack,
    usage: UsageScripts | MemoryUsageStore,
    warnings: WarningScript | MemoryWarningStore,
    metrics: Metrics,
    clock_us: Callable[[], int],
) -> tuple[UsageTable, LimitWarnings]:
    """The tables of usage and of warnings, which are written to the store in the background."""
    table, warned = (
        UsageTable(metrics, bucket_start("minute", clock_us() // 1_000_000)),
        LimitWarnings(),
    )
    writer = UsageWriter(table, usage, clock_us)
    warning_writer = WarningWriter(warned, warnings.warn, metrics)
    for part in (writer, warning_writer):
        part.start()
        stack.push_async_callback(part.stop)
    return table, warned


def _with_connections(
    stack: AsyncExitStack, connections: ConnectionStore, metrics: Metrics, worker_id: str
) -> None:
    """Start reporting which keys have MCP connections at this worker."""
    reporter = ConnectionReporter(metrics.mcp.connected, connections, worker_id)
    reporter.start()
    stack.push_async_callback(reporter.stop)


def _with_trimmer(
    stack: AsyncExitStack,
    audit: AuditStore,
    policy: Callable[[], Policy],
    clock_us: Callable[[], int],
) -> None:
    """Start the trimmer of the audit log."""
    trimmer = AuditTrimmer(audit, lambda: policy().audit, clock_us)
    trimmer.start()
    stack.push_async_callback(trimmer.stop)


def _detail(status: StoreStatus, limiter: FallbackLimiter, *faults: str) -> str:
    """For an operator: "down for 12 s: REASON; on_store_failure: local, share 1 of 4".

    faults: of the data, with the store as their subject; "" for none
    """
    parts = ["ok"]
    if status.down_s is not None:
        down_s = time.monotonic() - status.down_s
        parts = [f"down for {down_s:.0f} s: {status.reason}", limiter.description]
    return "; ".join([*parts, *filter(None, faults)])
