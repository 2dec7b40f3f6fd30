"""Reported connections in Redis."""

from __future__ import annotations

import pytest

from gateway.domain.ports import StoreDown
from gateway.stores.mcp import store as module
from gateway.stores.mcp.store import HOLDS_MS, RedisConnectionStore
from gateway.stores.names import MCP_PREFIX, WORKERS
from tests.kit.rows import each_row
from tests.suites.connections import ConnectionStoreSuite

KEY = "7h3k9m2p4q6r"


@pytest.fixture
async def redis_store(store_client):
    await store_client.zadd(WORKERS, {"a": 1, "b": 2})
    return RedisConnectionStore(store_client.execute_command)


class TestRedis(ConnectionStoreSuite):
    @pytest.fixture
    def store(self, redis_store):
        return redis_store


async def test_a_report_expires(redis_server, redis_store):
    """One of a worker that was killed does not stay."""
    await redis_store.report("a", {KEY: 3})
    with redis_server.client() as client:
        assert 0 < client.pttl(MCP_PREFIX + "a") <= HOLDS_MS


async def test_only_live_workers_count(redis_store, store_client):
    """A worker that has left is not read, though its report is still there."""
    await redis_store.report("a", {KEY: 3})
    await store_client.zrem(WORKERS, "a")
    assert await redis_store.connected() == {}


@each_row(
    "value",
    [
        *("", "=", "x=", f"{KEY}", f"{KEY}=-1", f"{KEY}=1e9", f"{KEY}=9999999999", "\x1b[2J=1"),
        *(f"{KEY}x=1", "gwk_production=1", f"{KEY}=1\n{KEY}=2", "<script>=1"),
    ],
)
async def test_entries_of_others_are_ignored(redis_store, store_client, value):
    """What the gateway would not have written is left out; the rest of the report is read."""
    await store_client.set(MCP_PREFIX + "a", f"{value} 8h3k9m2p4q6r=2")
    assert await redis_store.connected() == {"8h3k9m2p4q6r": 2}


async def test_values_of_others(redis_store, store_client):
    """A value of another type or a long one is no failure, and members that are no ids neither."""
    await store_client.hset(MCP_PREFIX + "a", "x", "y")
    await store_client.set(MCP_PREFIX + "b", f"{KEY}=1 " * 1_000)
    await store_client.zadd(WORKERS, {"*": 3, "x" * 99: 4, "{other}": 5})
    found = await redis_store.connected()
    assert set(found) == {KEY}
    assert found[KEY] <= 4_000 / len(f"{KEY}=1 ")
    await redis_store.report("a", {KEY: 1})


async def test_many_workers_are_read_in_steps(redis_store, store_client, monkeypatch):
    """Each once."""
    monkeypatch.setattr(module, "_STEP", 3)
    names = [f"w{number}" for number in range(10)]
    await store_client.zadd(WORKERS, dict.fromkeys(names, 9))
    for name in names:
        await redis_store.report(name, {KEY: 1})
    assert await redis_store.connected() == {KEY: 10}


async def test_an_outage(lost_client):
    """It is StoreDown."""
    store = RedisConnectionStore(lost_client.execute_command)
    for asked in (store.connected(), store.report("a", {KEY: 1})):
        with pytest.raises(StoreDown):
            await asked
