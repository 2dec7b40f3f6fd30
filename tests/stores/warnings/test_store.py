"""Stores of warnings, and their form in Redis."""

from __future__ import annotations

import pytest

from gateway.domain.ports import StoreDown
from gateway.stores.names import WARNINGS
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.warnings import memory as memory_warnings
from gateway.stores.warnings import store as module
from gateway.stores.warnings.memory import MemoryWarningStore
from gateway.stores.warnings.store import RedisWarningStore, WarningScript
from tests.suites.warnings import NOW_US, WarningStoreSuite, warning


class TestMemory(WarningStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryWarningStore()

    async def test_a_warning_expires(self):
        """The bound per minute and each counter's mark expire."""
        now_us = 0
        store = MemoryWarningStore(lambda: now_us)
        for at in range(61):
            assert await store.warn(warning(str(at), for_us=1_000_000))
        assert len(await store.newest(count=100)) == 60
        now_us = 999_999
        assert not await store.warn(warning("60", for_us=1_000_000))
        now_us = 60_000_000
        assert await store.warn(warning("60", for_us=1_000_000))
        assert len(await store.newest(count=100)) == 61

    async def test_the_newest_are_kept(self, monkeypatch):
        """The store keeps a bounded number, the newest ones."""
        monkeypatch.setattr(memory_warnings, "MOST_KEPT", 3)
        store = MemoryWarningStore()
        for at in range(5):
            await store.warn(warning(str(at), key_id=str(at)))
        assert [kept.key_id for kept in await store.newest()] == list("432")


@pytest.fixture
def redis_store(store_client):
    return RedisWarningStore(store_client)


class TestRedis(WarningStoreSuite):
    @pytest.fixture
    def store(self, redis_store):
        return redis_store


async def test_the_newest_are_kept(redis_server, redis_store, monkeypatch):
    """The stream is capped, and all else expires: clients cannot make it grow."""
    monkeypatch.setattr(module, "MOST_KEPT", 3)
    for at in range(5):
        await redis_store.warn(warning(str(at), key_id=str(at)))
    assert [kept.key_id for kept in await redis_store.newest()] == list("432")
    with redis_server.client() as client:
        assert client.xlen(WARNINGS) == 3
        for name in client.scan_iter():
            assert (name == WARNINGS.encode()) == (client.ttl(name) == -1)


async def test_an_answer_that_was_lost(redis_server, redis_store):
    """A command that is sent again gets the same reply as the first time, and stores nothing."""
    client = redis_client(parse_url(redis_server.url))

    async def twice(*words):
        assert await client.execute_command(*words) == 1
        return await client.execute_command(*words)

    assert await WarningScript(twice).warn(warning())
    assert len(await redis_store.newest()) == 1
    await client.aclose()


async def test_foreign_values_make_way(redis_server, redis_store):
    """Values of other programs under the names do not prevent the next warning."""
    await redis_store.warn(warning())
    with redis_server.client() as client:
        for name in client.scan_iter():
            client.delete(name)
            client.hset(name, "a", "foreign")
    assert await redis_store.warn(warning())
    assert len(await redis_store.newest()) == 1


async def test_unreadable_entries(redis_server, redis_store):
    """An invalid entry is skipped, and hides no other."""
    await redis_store.warn(warning())
    good = {"at": NOW_US, "level": 80}
    with redis_server.client() as client:
        for bad in (
            {"x": "y"},
            {**good, "level": "81"},
            {**good, "at": "\u0666"},
            {**good, "at": "-1"},
            {**good, "at": "9" * 5_000},
            {**good, "level": b"\xff"},
        ):
            client.xadd(WARNINGS, bad)
        client.xadd(WARNINGS, {**good, "key": b"\xff"})
    assert [kept.key_id for kept in await redis_store.newest(count=2)] == [
        "\ufffd",
        "7h3k9m2p4q6r",
    ]


async def test_an_unavailable_or_full_store(redis_server, redis_store, lost_client):
    """Nothing is stored partly, and reading or writing raises."""
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StoreDown):
                await redis_store.warn(warning())
        finally:
            client.config_set("maxmemory", 0)
        assert client.keys() == []
    store = RedisWarningStore(lost_client)
    for asked in (store.warn(warning()), store.newest()):
        with pytest.raises(StoreDown):
            await asked
