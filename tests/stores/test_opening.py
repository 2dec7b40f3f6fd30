"""A store as a worker opens it, whose server is in trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from gateway.observe.metrics import Metrics
from gateway.stores.names import DATA_MARK, key_name
from gateway.stores.redis.address import parse_url
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.stores.under_load import is_valid, opened_store, with_keys
from tests.suites.keys import nth_id, plain_key


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of the test's own, with a folder to which it cannot save its data."""
    server = RedisServer("--dir", "/proc", "--save", "3600 1000000")
    yield server.start()
    server.stop()


def refuse_by_misconf(client: Redis) -> bool:
    """Have the server try to save its data, in vain; has it failed yet?"""
    with suppress(ResponseError):  # one attempt is still running, or has failed
        client.bgsave()
    return bool(client.info("persistence")["rdb_last_bgsave_status"] == "err")


def refuse_by_replicas(client: Redis) -> bool:
    return bool(client.config_set("min-replicas-to-write", 1))


@pytest.mark.parametrize(
    ("refuse", "code"), [(refuse_by_misconf, "MISCONF"), (refuse_by_replicas, "NOREPLICAS")]
)
async def test_a_server_that_refuses_writes(
    server: RedisServer, refuse: Callable[[Redis], bool], code: str
) -> None:
    """While a server answers reads only, keys that are not cached are looked up on its connections,
    also on new ones; limits are decided as in an outage.
    """
    uncached = [plain_key(nth_id(index)) for index in (7, 8)]
    async with opened_store(parse_url(server.url)) as store:
        (cached,) = await with_keys(store, 1)
        for record in uncached:
            await store.keys.add(record)
        with server.client() as client:
            await eventually(lambda: refuse(client), "it refuses writes")
            assert await is_valid(store, uncached[0].id)
            client.client_kill_filter(_type="normal", skipme=True)
            await eventually(lambda: is_valid(store, uncached[1].id), "it is looked up")
            assert await is_valid(store, cached.id)
        await eventually(lambda: code in store.detail(), "limits cannot be decided")
        assert "limits: " in store.detail()
        assert "keys: " not in store.detail()


async def test_a_server_that_evicts(server: RedisServer) -> None:
    """Readiness and a metric say that the server may evict, and what to set."""
    metrics = Metrics("test")
    with server.client() as client:
        client.config_set("maxmemory", 1_000_000_000)
        client.config_set("maxmemory-policy", "allkeys-lru")
    async with opened_store(parse_url(server.url), metrics) as store:
        await eventually(lambda: metrics.store_evicts, "it is noticed")
        assert store.detail() == (
            "ok; may evict keys and counters: maxmemory-policy is allkeys-lru, expected noeviction"
        )
        with server.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.client_kill_filter(_type="normal", skipme=True)
        await eventually(lambda: not metrics.store_evicts, "it is noticed at the next connection")
        await eventually(lambda: store.detail() == "ok", "nothing is evicted any more")


@pytest.mark.parametrize(
    "words", ["FLUSHALL", "FLUSHDB ASYNC", "SWAPDB 0 1", "UNLINK gw:{keys}:index"]
)
async def test_data_that_were_lost(server: RedisServer, words: str) -> None:
    """A store whose keys have vanished says so, in readiness and by a metric; cached keys are read
    again if they are not there any more.
    """
    metrics = Metrics("test")
    async with opened_store(parse_url(server.url), metrics) as store:
        (record,) = await with_keys(store, 1)
        with server.client() as client:
            await eventually(lambda: client.exists(DATA_MARK) == 1, "the data have a mark")
            # A heartbeat has seen the index and the mark.
            seen = calls(client)
            await eventually(lambda: calls(client) > seen, "they are read")
            client.execute_command(*words.split())
            remains = client.exists(key_name(record.id))
        await eventually(lambda: metrics.store_keys_lost, "it is noticed")
        assert store.detail().startswith("ok; has lost its keys")
        assert await is_valid(store, record.id) is bool(remains)
        await store.keys.add(plain_key(nth_id(7)))
        await eventually(lambda: not metrics.store_keys_lost, "there are keys again")
        assert store.detail() == "ok"


def calls(client: Redis) -> int:
    """How often the index was looked for."""
    return int(client.info("commandstats").get("cmdstat_type", {"calls": 0})["calls"])
