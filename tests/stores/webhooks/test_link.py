"""A courier's commands over one connection, and how it learns that something is due."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import NoScriptError

from gateway import tasks
from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import StoreAddress, parse_url
from gateway.stores.webhooks import link
from gateway.stores.webhooks.link import listen, open_link
from gateway.stores.webhooks.queue import SHARDS, DeliveryQueue, Execute, shard_of, tag_of
from gateway.stores.webhooks.resources import Resources
from tests.kit.eventually import eventually
from tests.kit.redis_cluster import MASTERS, RedisCluster
from tests.kit.redis_server import RedisServer
from tests.kit.store_proxy import StoreProxy
from tests.kit.wire import TIMEOUT_S


async def test_queues_and_resources_work_over_it(redis_server: RedisServer) -> None:
    """Also with a server that does not have the scripts yet."""
    async with open_link(parse_url(redis_server.url)) as execute:
        await execute("SCRIPT", "FLUSH")
        with pytest.raises(NoScriptError):
            await execute("EVALSHA", "0" * 40, 0)
        queue = DeliveryQueue(execute, shard_of("int"), lambda: 1_000_000)
        assert await queue.accept("int", "evt_1", "a.b", b"{}") == 0
        assert (await queue.event("evt_1")) is not None
        assert await Resources(execute).has_mark("mine")
        assert not await Resources(execute).has_mark("another")


async def test_connected_at_once(redis_server: RedisServer) -> None:
    """The first command after a start finds the store: it is a webhook that comes only once."""
    async with open_link(parse_url(redis_server.url)) as execute:
        assert await execute("SET", "a", "b") == b"OK"


async def test_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be opened; commands fail at once."""
    monkeypatch.setattr(link, "_START_WAIT_S", 0.05)
    async with open_link(parse_url("redis://127.0.0.1:1")) as execute:
        with pytest.raises(StoreDown):
            await execute("PING")


async def is_heard(execute: Execute, address: StoreAddress, integration: str) -> None:
    """An event of this integration is accepted, and its shard is heard."""
    shard = shard_of(integration)
    name = f"{tag_of(shard)}watches:{integration}"
    await execute("HSET", name, "w", '{"id": "w", "events": ["a.*"]}')
    queue = DeliveryQueue(execute, shard, lambda: 1_000_000)
    async with aclosing(listen(address)) as heard:
        next_one = asyncio.ensure_future(anext(heard))
        number = 0
        while not next_one.done():
            # It may not listen yet.
            number += 1
            await queue.accept(integration, f"evt_{number}", "a.b", b"{}")
            await asyncio.wait({next_one}, timeout=0.05)
        assert next_one.result() == shard


async def test_what_is_due_is_heard(redis_server: RedisServer) -> None:
    """By its shard, as soon as an event is accepted."""
    address = parse_url(redis_server.url)
    async with open_link(address) as execute:
        await is_heard(execute, address, "int")


async def test_a_cluster(cluster: RedisCluster) -> None:
    """Each command goes to the node of its shard, and what is due at any of them is heard."""
    address = parse_url(cluster.url)
    found: dict[RedisServer, str] = {}
    names = (f"int_{number}" for number in range(100))
    while len(found) < MASTERS:
        name = next(names)
        found.setdefault(cluster.owner_of(f"{tag_of(shard_of(name))}leases"), name)
    async with open_link(address) as execute:
        for integration in found.values():
            await is_heard(execute, address, integration)
        assert await Resources(execute).has_mark("mine")


async def test_commands_to_a_cluster_do_not_wait_for_each_other(cluster: RedisCluster) -> None:
    """A node that does not answer holds up its own shards only."""
    first, *others = (f"{tag_of(shard)}a" for shard in range(SHARDS))
    silent = cluster.owner_of(first)
    names = first, next(each for each in others if cluster.owner_of(each) is not silent)
    async with open_link(parse_url(cluster.url)) as execute:
        for name in names:
            await execute("SET", name, "x")
        await asyncio.to_thread(silent.pause)
        try:
            waits = asyncio.ensure_future(execute("GET", names[0]))
            assert await execute("GET", names[1]) == b"x"
            assert not waits.done()
        finally:
            await asyncio.to_thread(silent.resume)
        await asyncio.wait({waits})
        waits.exception()


async def test_a_silent_store_is_noticed(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that nothing comes from any more is given up, so that another one is made."""
    monkeypatch.setattr(link, "_HEARD_S", 1.0)
    async with (
        StoreProxy(redis_server.port) as proxy,
        aclosing(listen(parse_url(proxy.url))) as heard,
        Redis(port=redis_server.port) as client,
    ):
        hearing = asyncio.ensure_future(anext(heard))

        async def is_asked_again() -> bool:
            stats = await client.info("commandstats")
            return bool(stats.get("cmdstat_ping", {"calls": 0})["calls"] >= 2)

        await eventually(is_asked_again, "a server that answers is asked again")
        proxy.pause()
        with pytest.raises(StoreDown, match="did not answer"):
            await hearing


@pytest.mark.parametrize("method", ["subscribe", "get_message", "ping"])
async def test_a_cancellation_that_the_client_loses(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """What listens ends all the same: `wait_for` of Python 3.11, in redis-py, loses some."""
    asked = asyncio.Event()

    async def lose(*_: object, **__: object) -> None:
        with suppress(asyncio.CancelledError):
            asked.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(link, "_HEARD_S", 0.01)
    monkeypatch.setattr(PubSub, method, lose)

    async def hear() -> None:
        async for _ in listen(parse_url(redis_server.url)):
            pass

    hearing = tasks.spawn(hear(), "what is due")
    await asked.wait()
    await asyncio.wait_for(tasks.end(hearing), TIMEOUT_S)
    assert hearing.cancelled()
