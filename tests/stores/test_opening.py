"""A store as a worker opens it, whose server is in trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from redis import Redis
from redis.exceptions import ResponseError

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
