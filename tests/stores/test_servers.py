"""The stores on each server of this machine: the packaged one, the oldest supported, and others.

All other tests run on one of them, the machine's own Redis if it has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from gateway.stores.audit.store import RedisAuditStore
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.usage.store import RedisUsageStore
from tests.kit.redis_server import RedisServer, server_binaries, server_binary, server_name
from tests.stores.limits.test_limiter import RedisRig
from tests.suites.audit import AuditStoreSuite
from tests.suites.keys import KeyStoreSuite
from tests.suites.limiter import LimiterSuite, Rig
from tests.suites.usage import UsageStoreSuite

OTHERS = [binary for binary in server_binaries() if binary != server_binary()]
# A machine with one server tries it twice, rather than skip a hundred tests.
OTHERS = OTHERS or [server_binary()]


@pytest.fixture(scope="module", params=OTHERS, ids=server_name)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    server = RedisServer(binary=request.param).start()
    yield server
    server.stop()


@pytest.fixture
def emptied(server: RedisServer) -> RedisServer:
    with server.client() as client:
        client.flushall()
    return server


class TestLimiter(LimiterSuite):
    @pytest.fixture
    def rig(self, emptied: RedisServer) -> Iterator[Rig]:
        with asyncio.Runner() as runner:
            rig = RedisRig(emptied, runner)
            yield rig
            runner.run(rig.link.stop())


class TestKeys(KeyStoreSuite):
    @pytest.fixture
    async def store(self, emptied: RedisServer) -> AsyncIterator[RedisKeyStore]:
        client = redis_client(parse_url(emptied.url))
        yield RedisKeyStore(client)
        await client.aclose()


class TestUsage(UsageStoreSuite):
    @pytest.fixture
    async def store(self, emptied: RedisServer) -> AsyncIterator[RedisUsageStore]:
        client = redis_client(parse_url(emptied.url))
        yield RedisUsageStore(client)
        await client.aclose()


class TestAudit(AuditStoreSuite):
    @pytest.fixture
    async def store(self, emptied: RedisServer) -> AsyncIterator[RedisAuditStore]:
        client = redis_client(parse_url(emptied.url))
        yield RedisAuditStore(client)
        await client.aclose()
