"""Opens a store: from its address to the parts that a gateway asks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.domain.policy import Policy
from gateway.domain.ports import (
    AuditStore,
    KeyDirectory,
    KeyStore,
    LeaseLimiter,
    Limiter,
    ReviewedLimiter,
    UsageStore,
    WarningStore,
)
from gateway.domain.usage import bucket_start
from gateway.observe.metrics import Metrics
from gateway.observe.usage import UsageTable
from gateway.observe.warned import Warned
from gateway.stores.audit import RedisAuditStore
from gateway.stores.audit_trimmer import AuditTrimmer
from gateway.stores.clients import MasterClient
from gateway.stores.clock import StoreClock
from gateway.stores.cluster import ClusterLimiter
from gateway.stores.condition import Condition, Part
from gateway.stores.connect import StoreAddress, redis_client
from gateway.stores.directory import Directory
from gateway.stores.fallback import FallbackLimiter
from gateway.stores.keys import RedisKeyStore
from gateway.stores.leases import LeaseKeeper, RedisLeases, Send
from gateway.stores.limit_warnings import RedisWarningStore, WarningWriter
from gateway.stores.limiter import MOST_REPLY_BYTES, RedisLimiter, trial
from gateway.stores.memory import MemoryLimiter
from gateway.stores.memory_audit import MemoryAuditStore
from gateway.stores.memory_keys import MemoryDirectory, MemoryKeyStore
from gateway.stores.memory_usage import MemoryUsageStore
from gateway.stores.memory_warnings import MemoryWarningStore
from gateway.stores.nodes import ClusterNodes
from gateway.stores.remembered import RememberingLimiter
from gateway.stores.roster import Roster
from gateway.stores.script import LOAD
from gateway.stores.slot import SlotLink
from gateway.stores.translated import asked
from gateway.stores.usage import RedisUsageStore
from gateway.stores.usage_scripts import UsageScripts
from gateway.stores.usage_writer import UsageWriter
from gateway.stores.warner import Warner
from gateway.stores.watch import MasterWatch
from gateway.stores.wire import StoreLink

log = logging.getLogger("gateway")

#: How long a start waits for the store before it goes on without.
STORE_PATIENCE_S: Final = 2.0


@dataclass(slots=True)
class Store:
    """What a store is made of, for whoever uses it.

    is_up:  it can be asked for decisions and keys
    was_up: it could be at some time since it was opened
    detail: how it fares, in words for an operator: "ok", or since when and why it is not
    local:  decides in this process: everything for memory://, else what the store's absence leaves
    table:  where use is counted, to be written in the background; warned: counts near their limits
    clock_us: the store's time, Unix microseconds: what keys expire by
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
    local: MemoryLimiter
    table: UsageTable
    warned: Warned
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
    """The store at an address, to be closed by whoever opened it.

    It is there at once, whether it can be reached or not: what is asked of it meanwhile is decided
    as the policy of that moment says.

    metrics:  told of each batch, and whether the store is up
    clock_us: the host's time of day, until the store's is known
    worker:  which of how many workers of its gateway this is, counted from 0
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
    link, decider, send = limiter_at(
        address, lambda: policy().store.timeout_s, on_batch=metrics.checked
    )
    in_cluster = address.kind == "cluster"
    clock = StoreClock(clock_us)
    directory = Directory(
        address,
        settings=lambda: policy().store,
        clock=clock,
        link=SlotLink if in_cluster else StoreLink,
    )
    condition = Condition(address.label, (link, directory), metrics, time.monotonic)
    client = redis_client(address)
    stack.push_async_callback(client.aclose)
    if isinstance(client, MasterClient):
        watch = MasterWatch(address, (link.give_up, directory.give_up, client.give_up))
        await watch.start()
        stack.push_async_callback(watch.stop)
    for part in (link, directory):
        part.start()
        stack.push_async_callback(part.stop)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STORE_PATIENCE_S):
            await link.wait_up()
            await directory.wait_up()
    if not condition.is_up:
        log.warning("store %s: not reached yet: %s", address.label, link.last_error)
    local = MemoryLimiter(clock.now_us)
    roster = Roster(directory.send, index=worker[0], workers=worker[1])
    roster.start()
    stack.push_async_callback(roster.stop)
    limiter = _with_fallback(decider, local, link, roster, policy, metrics)
    stack.callback(limiter.close)
    remembering = RememberingLimiter(limiter, time.monotonic_ns)
    directory.on_up.append(remembering.forget)
    directory.on_emptied.append(remembering.forget)
    directory.on_reset.append(remembering.forget)
    keeper = _with_leases(stack, remembering, local, link, send)
    table, warned = _with_usage(
        stack,
        asked(UsageScripts(directory.ask)),
        WarningWriter(directory.ask),
        metrics,
        clock.now_us,
    )
    audit = asked(RedisAuditStore(client))
    if worker[0] == 0:  # one of each gateway is enough
        _with_trimmer(stack, audit, policy, clock.now_us)
    stack.callback(condition.close)
    return Store(
        keeper,
        directory,
        asked(RedisKeyStore(client)),
        is_up=lambda: condition.is_up,
        was_up=lambda: condition.was_up,
        detail=lambda: _detail(condition, link, limiter),
        usage=asked(RedisUsageStore(client)),
        warnings=asked(RedisWarningStore(client)),
        audit=audit,
        local=local,
        table=table,
        warned=warned,
        clock_us=clock.now_us,
    )


def limiter_at(
    address: StoreAddress,
    timeout_s: Callable[[], float],
    *,
    on_batch: Callable[[int, float], None] | None = None,
) -> tuple[StoreLink | ClusterNodes, ReviewedLimiter, Send]:
    """The limiter of an address; what it asks over; how others send about a count's name.

    The link is to be started and stopped by the caller. Needs a running loop.
    """
    open_link = partial(StoreLink, most_reply_bytes=MOST_REPLY_BYTES)
    if address.kind == "cluster":
        nodes = ClusterNodes(
            address, timeout_s=timeout_s, load=(LOAD,), trial=trial, link=open_link
        )
        return nodes, ClusterLimiter(nodes, on_batch=on_batch), nodes.send
    link = open_link(address, timeout_s=timeout_s, setup=trial())
    limiter = RedisLimiter(link, on_batch=on_batch)
    return link, limiter, lambda _name, encoded, done: link.send(encoded, done)


def _with_fallback(
    primary: ReviewedLimiter,
    local: MemoryLimiter,
    link: Part,
    roster: Roster,
    policy: Callable[[], Policy],
    metrics: Metrics,
) -> FallbackLimiter:
    """The limiter that also decides while the link is down, and the metrics that say so."""

    def tell() -> None:
        metrics.fallback_active = limiter.is_active or not link.is_up

    limiter = FallbackLimiter(
        primary,
        local,
        lambda: policy().on_store_failure,
        place=lambda: roster.place,
        on_active=lambda _: tell(),
        on_beyond=metrics.overadmitted,
    )
    link.on_up.append(limiter.returned)
    link.on_down.append(lambda _: tell())
    tell()
    return limiter


def _with_leases(
    stack: AsyncExitStack, limiter: Limiter, local: MemoryLimiter, link: Part, send: Send
) -> LeaseKeeper:
    """The limiter that also keeps what concurrency limits hold, in the store and in `local`."""
    leases = RedisLeases(send)
    stack.push_async_callback(leases.flushed)
    keeper = LeaseKeeper(limiter, (leases, local), time.monotonic)
    link.on_up.append(keeper.renew_soon)
    # What was granted since the last round is then known here, too.
    link.on_down.append(lambda _: keeper.renew_soon())
    keeper.start()
    stack.push_async_callback(keeper.stop)
    return keeper


def _with_usage(
    stack: AsyncExitStack,
    usage: UsageScripts | MemoryUsageStore,
    warnings: WarningWriter | MemoryWarningStore,
    metrics: Metrics,
    clock_us: Callable[[], int],
) -> tuple[UsageTable, Warned]:
    """Where use and warnings are noted, and who takes them to the store in the background."""
    table, warned = UsageTable(metrics, bucket_start("minute", clock_us() // 1_000_000)), Warned()
    writer = UsageWriter(table, usage, clock_us)
    warner = Warner(warned, warnings.warn, metrics)
    for part in (writer, warner):
        part.start()
        stack.push_async_callback(part.stop)
    return table, warned


def _with_trimmer(
    stack: AsyncExitStack,
    audit: AuditStore,
    policy: Callable[[], Policy],
    clock_us: Callable[[], int],
) -> None:
    """Who keeps the audit log as short as the policy says."""
    trimmer = AuditTrimmer(audit, lambda: policy().audit, clock_us)
    trimmer.start()
    stack.push_async_callback(trimmer.stop)


def _detail(condition: Condition, link: StoreLink | ClusterNodes, limiter: FallbackLimiter) -> str:
    """What an operator is told: "down for 12 s: REASON; on_store_failure: local, share 1 of 4"."""
    if condition.down_s is None:
        return "ok"
    reason = condition.reason or link.last_error or "not reached yet"
    return f"down for {time.monotonic() - condition.down_s:.0f} s: {reason}; {limiter.manner}"
