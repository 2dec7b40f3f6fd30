"""Managing counters: reading them, and resetting them with a message to every worker."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.domain.limits import Check, Limit
from gateway.domain.ports import StoreDown
from gateway.limiting.memory import MemoryLimiter
from gateway.stores.keys.directory import Directory
from gateway.stores.keys.memory import MemoryKeyStore
from gateway.stores.limits.counters import MemoryCounters, RedisCounters
from gateway.stores.managed import memory_managed, open_managed
from gateway.stores.names import reset_name
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.suites.audit import event

DAILY = Limit("daily", "quota", 2, 86_400_000_000)
SEARCH = Limit("search", "rate", 3, 60_000_000)
NAMES = (f"gw:limit:{{acme}}:key:k:{DAILY.counter}", f"gw:limit:{{acme}}:key:k:{SEARCH.counter}")
ONE = Check((DAILY, SEARCH), NAMES, 1)
ASK = ONE.at_cost(0)


@asynccontextmanager
async def counts_at(url, **options):
    client = redis_client(parse_url(url))
    counts = RedisCounters(parse_url(url), client, **options)
    yield counts
    await counts.close()
    await client.aclose()


async def remaining(counts):
    return [standing.remaining for standing in (await counts.decide(ASK)).standings]


async def is_reset_alone(counts):
    """Check what every `Counters` guarantees."""
    assert await remaining(counts) == [2, 3]
    for left in (1, 0):
        assert (await counts.decide(ONE)).remaining == left
    decision = await counts.decide(ONE)
    assert (decision.allowed, decision.governing) == (False, 0)
    await counts.reset([NAMES[0]])
    assert await remaining(counts) == [2, 1]
    await counts.reset(NAMES)
    await counts.reset([])
    assert await remaining(counts) == [2, 3]


async def test_in_redis(redis_server):
    """A check is counted, one at cost 0 is not, and a reset is of the named counters only."""
    async with counts_at(redis_server.url) as counts:
        await is_reset_alone(counts)


async def test_in_memory():
    """The same in memory."""
    await is_reset_alone(MemoryCounters(MemoryLimiter(lambda: 1_800_000_000_000_000)))


async def test_in_a_cluster(cluster):
    """The same in a cluster, where counters and records are in different slots."""
    async with open_managed(cluster.address) as stores:
        await is_reset_alone(stores.counters)
        appended = await asyncio.gather(*(stores.audit.append(event(n)) for n in range(5)))
        assert await stores.audit.entries() == appended[::-1]


async def test_behind_sentinels(sentinel):
    """The same with Sentinels, also after a failover."""
    async with open_managed(sentinel.address) as stores:
        await is_reset_alone(stores.counters)
        await asyncio.to_thread(sentinel.fail_over)

        async def goes_on() -> bool:
            with suppress(StoreDown):
                await stores.counters.decide(ONE)
                await stores.audit.append(event(1))
                return True
            return False

        await eventually(goes_on, "the new master is asked")


async def test_every_worker_hears_of_it(redis_server):
    """A reset is pushed to each directory with the counter's name, whatever its characters are."""
    name = "gw:limit:{a%3Ab~}:key:k:x y:rate:60000000"
    told = [[], []]
    workers = [Directory(parse_url(redis_server.url)) for _ in told]
    for worker, names in zip(workers, told, strict=True):
        worker.on_reset.append(names.append)
        worker.start()
        await worker.wait_up()
    async with counts_at(redis_server.url) as counts:
        await counts.reset([name])
    await eventually(lambda: all(name in names for names in told), "both are told")
    with redis_server.client() as client:
        assert 0 < client.pttl(reset_name(name)) <= 1_000
    for worker in workers:
        await worker.stop()


async def test_a_store_that_is_away():
    """A store that cannot be reached raises StoreDown with the cause."""
    async with counts_at(RedisServer().url, timeout_s=0.2) as counts:
        with pytest.raises(StoreDown, match=r"cannot connect|did not answer"):
            await counts.decide(ASK)
        with pytest.raises(StoreDown):
            await counts.reset(NAMES)


async def test_a_store_that_goes_away():
    """So does one that was lost; after its restart it is used again."""
    server = RedisServer().start()
    try:
        async with counts_at(server.url, timeout_s=10.0) as counts:
            counts.reconnect("nothing is open yet")
            assert await remaining(counts) == [2, 3]
            server.kill()

            async def is_down() -> bool:
                try:
                    await asyncio.wait_for(counts.decide(ASK), 0.5)
                except (StoreDown, TimeoutError):
                    return True
                return False

            await eventually(is_down, "it is noticed")
            server.start()
            counts.reconnect("another server now")
            assert await remaining(counts) == [2, 3]
            counts.reconnect("another server now")
            assert await remaining(counts) == [2, 3]
            await counts.close()
    finally:
        server.stop()


async def test_without_an_answer(redis_server):
    """A missing decision raises StoreDown."""
    async with counts_at(redis_server.url) as counts:
        await counts.decide(ASK)
        counts._opened[1].decide = lambda _check, done: done(None)
        with pytest.raises(StoreDown, match="did not answer"):
            await counts.decide(ASK)


async def test_a_cancelled_request(redis_server):
    """If a request was cancelled, its late answer has no effect."""
    async with counts_at(redis_server.url) as counts:
        await counts.decide(ASK)
        waiting = []
        counts._opened[1].decide = lambda _check, done: waiting.append(done)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(counts.decide(ASK), 0.01)
        waiting[0](None)


async def test_opened_as_one(redis_server):
    """One address opens keys, usage, audit and counters of one store."""
    async with open_managed(parse_url(redis_server.url)) as stores:
        assert await stores.keys.get("x") is None
        assert await stores.usage.plans() == []
        assert await stores.audit.entries() == []
        assert await remaining(stores.counters) == [2, 3]


async def test_opening_needs_no_store():
    """A store that is unavailable can be opened; its methods raise StoreDown."""
    async with open_managed(parse_url(RedisServer().url)) as stores:
        with pytest.raises(StoreDown):
            await stores.keys.get("x")


async def test_in_one_process():
    """In memory, the gateway's own parts are managed; missing ones are created."""
    keys, limiter = MemoryKeyStore(), MemoryLimiter(lambda: 1_800_000_000_000_000)
    stores = memory_managed(keys, limiter)
    assert stores.keys is keys
    limiter.decide_now(ONE)
    assert await remaining(stores.counters) == [1, 2]
    assert await stores.usage.plans() == []
    assert await stores.audit.entries() == []
    again = memory_managed(keys, limiter, stores.usage, stores.warnings, stores.audit)
    assert (again.usage, again.audit) == (stores.usage, stores.audit)
