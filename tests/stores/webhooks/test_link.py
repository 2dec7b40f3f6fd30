"""A courier's commands over one connection, and how it learns that something is due."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from redis.exceptions import NoScriptError

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import parse_url
from gateway.stores.webhooks import link
from gateway.stores.webhooks.link import listen, open_link
from gateway.stores.webhooks.queue import DeliveryQueue, shard_of
from gateway.stores.webhooks.resources import Resources
from tests.kit.redis_server import RedisServer


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


async def test_what_is_due_is_heard(redis_server: RedisServer) -> None:
    """By its shard, as soon as an event is accepted."""
    address = parse_url(redis_server.url)
    async with open_link(address) as execute, aclosing(listen(address)) as heard:
        shard = shard_of("int")
        next_one = asyncio.ensure_future(anext(heard))
        queue = DeliveryQueue(execute, shard, lambda: 1_000_000)
        await execute(
            "HSET", f"gw:{{hooks:{shard}}}:watches:int", "w", '{"id": "w", "events": ["a.*"]}'
        )
        number = 0
        while not next_one.done():
            # It may not listen yet.
            number += 1
            await queue.accept("int", f"evt_{number}", "a.b", b"{}")
            await asyncio.wait({next_one}, timeout=0.05)
        assert next_one.result() == shard
