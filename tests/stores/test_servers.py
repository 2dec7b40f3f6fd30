"""The stores on each other server of this machine: the packaged one, the oldest supported, ….

All other tests run on one server, the machine's own Redis if it has one. What another release may
do in another way is in a sample of each suite; a machine with one server has nothing to try here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import Watch
from gateway.stores.admin import RedisAdminStore
from gateway.stores.audit.store import RedisAuditStore
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.mcp.store import RedisConnectionStore
from gateway.stores.names import WORKERS
from gateway.stores.policies.store import RedisPolicyStore
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.redis.embedded import find_server_binary
from gateway.stores.usage.store import RedisUsageStore
from gateway.stores.warnings.store import RedisWarningStore
from gateway.stores.webhooks.queue import DeliveryQueue, tag_of
from gateway.stores.webhooks.resources import Resources
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer, release_of, server_binaries, server_name
from tests.stores.audit.test_store import appends_and_drops_when_full
from tests.stores.keys.test_directory import DirectorySuite
from tests.stores.keys.test_store import takes_changes_when_full
from tests.stores.limits.test_limiter import RedisRig
from tests.stores.limits.test_membership import told
from tests.stores.redis.test_embedded import (
    is_read_by_another_server,
    is_replaced_if_killed,
    keeps_its_data,
)
from tests.stores.webhooks import test_notices as notices
from tests.stores.webhooks.test_scripts import walk
from tests.suites import sample
from tests.suites.admin import AdminStoreSuite
from tests.suites.audit import AuditStoreSuite
from tests.suites.connections import ConnectionStoreSuite
from tests.suites.keys import KeyStoreSuite
from tests.suites.limiter import LimiterSuite, Rig
from tests.suites.policies import PolicyStoreSuite
from tests.suites.usage import UsageStoreSuite
from tests.suites.warnings import WarningStoreSuite


@pytest.fixture
async def client(other_server: RedisServer) -> AsyncIterator[Redis]:
    """The client that a gateway would have for this server."""
    client = redis_client(parse_url(other_server.url))
    yield client
    await client.aclose()


class TestLimiter(sample(LimiterSuite)):
    @pytest.fixture
    def rig(self, other_server: RedisServer) -> Iterator[Rig]:
        with asyncio.Runner() as runner:
            rig = RedisRig(other_server, runner)
            yield rig
            runner.run(rig.link.stop())


class TestKeys(sample(KeyStoreSuite)):
    @pytest.fixture
    def store(self, client: Redis) -> RedisKeyStore:
        return RedisKeyStore(client)

    async def test_a_full_store_takes_changes(
        self, store: RedisKeyStore, other_server: RedisServer
    ) -> None:
        await takes_changes_when_full(store, other_server)


class TestDirectory(sample(DirectorySuite)):
    @pytest.fixture
    def server(self, other_server: RedisServer) -> RedisServer:
        return other_server


class TestUsage(sample(UsageStoreSuite)):
    @pytest.fixture
    def store(self, client: Redis) -> RedisUsageStore:
        return RedisUsageStore(client)


class TestAudit(sample(AuditStoreSuite)):
    @pytest.fixture
    def store(self, client: Redis) -> RedisAuditStore:
        return RedisAuditStore(client)

    async def test_a_full_store_appends_and_drops(
        self, store: RedisAuditStore, other_server: RedisServer
    ) -> None:
        await appends_and_drops_when_full(store, other_server)


class TestPolicies(sample(PolicyStoreSuite)):
    @pytest.fixture
    def store(self, client: Redis) -> RedisPolicyStore:
        return RedisPolicyStore(client)


class TestWarnings(sample(WarningStoreSuite)):
    @pytest.fixture
    def store(self, client: Redis) -> RedisWarningStore:
        return RedisWarningStore(client)


class TestAdmin(sample(AdminStoreSuite)):
    @pytest.fixture
    def store(self, client: Redis) -> RedisAdminStore:
        return RedisAdminStore(client)


class TestConnections(sample(ConnectionStoreSuite)):
    @pytest.fixture
    async def store(self, client: Redis) -> RedisConnectionStore:
        await client.zadd(WORKERS, {"a": 1, "b": 2})
        return RedisConnectionStore(client.execute_command)


async def test_webhooks(client: Redis) -> None:
    """Each script of deliveries runs."""
    await walk(client, "int")


async def test_resources(client: Redis) -> None:
    """Integrations and watches are kept, replaced and removed; a replay ends."""
    resources = Resources(client.execute_command)
    made = Integration("int", "acme", "gitlab", "Code", 1, "0" * 32)
    watch = Watch("w", "int", "https://hook.example/", ("a.*",), 1)
    assert await resources.add_integration(made)
    renamed = replace(made, name="Sources")
    assert await resources.replace_integration(made, renamed)
    assert await resources.captures_to("0" * 32) == renamed
    assert await resources.add_watch(watch)
    assert await resources.watch("int", "w") == watch
    for _ in range(2):
        token = await resources.begin_replay("acme")
        assert token is not None
        await resources.end_replay("acme", token)
    await resources.remove_integration(renamed)
    assert await resources.integrations() == await resources.watches("int") == []


async def test_membership(other_server: RedisServer) -> None:
    """Workers find each other."""
    async with told(other_server, "a") as first, told(other_server, "b") as second:
        await eventually(
            lambda: [first.position, second.position] == [(0, 2), (1, 2)], "both agree"
        )


async def test_notices(client: Redis) -> None:
    """Warnings and disabled watches become notices."""
    site = notices.Site(client)
    await site.resources.add_integration(notices.OURS)
    await site.script.warn(notices.warning())
    assert await site.keys() == ["0"]
    await client.hset(f"{tag_of(3)}watches:int_1", "w", "{}")
    queue = DeliveryQueue(client.execute_command, 3, lambda: 1_000_000)
    await queue.disable("w", "int_1", "so")
    assert len(await site.store.disabled(3, 0, 10)) == 1
    assert await site.store.dropped() == 0


# -- the private store -----------------------------------------------------------------------------

#: Those that `tests/stores/redis/test_embedded.py` does not start.
UNPACKAGED = [binary for binary in server_binaries() if binary != find_server_binary()]


@pytest.mark.parametrize("binary", UNPACKAGED, ids=server_name)
def test_a_private_server(tmp_path: Path, binary: Path) -> None:
    """It keeps its data, and is replaced if it was killed."""
    keeps_its_data(tmp_path / "kept", binary)
    is_replaced_if_killed(tmp_path / "killed", binary)


def test_every_server_reads_the_data(tmp_path: Path) -> None:
    """Of each other one, if it is one of Redis 7.0 or later."""
    readers = [binary for binary in server_binaries() if release_of(binary) >= (7, 0)]
    for number, (writer, reader) in enumerate(product(server_binaries(), readers)):
        is_read_by_another_server(tmp_path / str(number), writer, reader)
