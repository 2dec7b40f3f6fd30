"""What the tests of all stores share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis
from redis.backoff import NoBackoff

from gateway.stores.redis import clients
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from tests.kit.redis_cluster import RedisCluster
from tests.kit.redis_sentinel import RedisSentinel
from tests.kit.redis_server import RedisServer, other_binaries, server_name

# Where the machine has one server, there is nothing to repeat.
collect_ignore = [] if other_binaries() else ["test_servers.py"]


@pytest.fixture
async def store_client(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """The client that a gateway would have for this server."""
    client = redis_client(parse_url(redis_server.url))
    yield client
    await client.aclose()


@pytest.fixture
async def lost_client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Redis]:
    """A client of a server that is not there. It tries again without a pause."""
    monkeypatch.setattr(clients, "ExponentialBackoff", lambda **_: NoBackoff())
    client = redis_client(parse_url(RedisServer().url))
    yield client
    await client.aclose()


# -- other rigs, which run samples (`tests.suites`) ------------------------------------------------


@pytest.fixture(scope="session", params=other_binaries(), ids=server_name)
def _other_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    server = RedisServer(binary=request.param).start()
    yield server
    server.stop()


@pytest.fixture
def other_server(_other_server: RedisServer) -> RedisServer:
    """Each server of this machine but the shared one's; running and empty, and may be killed."""
    _other_server.renew()
    return _other_server


@pytest.fixture(scope="session")
def _redis_cluster() -> Iterator[RedisCluster]:
    cluster = RedisCluster()
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def cluster(_redis_cluster: RedisCluster) -> RedisCluster:
    """Six healthy, empty servers at the start of each test, which may change and kill them."""
    _redis_cluster.heal()
    _redis_cluster.flush()
    return _redis_cluster


@pytest.fixture(scope="session")
def _redis_sentinel() -> Iterator[RedisSentinel]:
    sentinel = RedisSentinel(sentinel_password="of-the-sentinels")
    try:
        yield sentinel.start()
    finally:
        sentinel.stop()


@pytest.fixture
def sentinel(_redis_sentinel: RedisSentinel) -> RedisSentinel:
    """A master, its replica and three Sentinels, healthy and empty at the start of each test."""
    _redis_sentinel.heal()
    _redis_sentinel.flush()
    return _redis_sentinel
