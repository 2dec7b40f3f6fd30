"""Webhooks on stores that are more than one server, and on one that has lost everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from redis.crc import key_slot

from gateway.stores.webhooks.queue import shard_of, tag_of
from tests.kit.certificates import Certificate
from tests.kit.eventually import eventually
from tests.kit.hook_site import PATHS, open_site
from tests.kit.hooks import LEASE_ENDS_S, Provider, add_account
from tests.kit.redis_cluster import RedisCluster
from tests.kit.redis_sentinel import RedisSentinel
from tests.kit.redis_server import RedisServer

pytestmark = pytest.mark.asyncio(loop_scope="session")

Stopping = Callable[[RedisSentinel | RedisCluster], None]


@pytest_asyncio.fixture(loop_scope="session")
async def stopping() -> AsyncIterator[Stopping]:
    """Stop these servers at the end: what blocks is done in a thread."""
    async with AsyncExitStack() as stack:

        def stop_later(servers: RedisSentinel | RedisCluster) -> None:
            stack.push_async_callback(asyncio.to_thread, servers.stop)

        yield stop_later


async def test_a_failover(tmp_path: Path, certificate: Certificate, stopping: Stopping) -> None:
    """The master is killed while deliveries are in flight: webhooks wait in a file meanwhile."""
    servers = RedisSentinel()
    stopping(servers)
    await asyncio.to_thread(servers.start)
    async with open_site(tmp_path, servers.url, certificate) as site:
        gateway = await site.gateway()
        had = await site.in_flight(gateway, 20)
        old = await asyncio.to_thread(lambda: servers.master)
        with old.client() as client:
            # All is at the replica, so that nothing is lost with the master.
            await asyncio.to_thread(client.wait, 1, 0)
        old.kill()
        killed_s = time.monotonic()

        async def is_spooled() -> bool:
            await site.provider.send(gateway)
            return site.provider.spooled >= 5

        await eventually(is_spooled, "webhooks wait in a file", LEASE_ENDS_S)
        site.receiver.release()

        async def is_kept() -> bool:
            before = site.provider.spooled
            await site.provider.send_accepted(gateway, 1)
            return site.provider.spooled == before

        await eventually(is_kept, "the new master has webhooks", LEASE_ENDS_S)
        print(f"resumed {time.monotonic() - killed_s:.1f} s after the master was killed")
        await site.all_arrive()
        assert site.twice <= had, f"{len(site.twice)} twice, {len(had)} in flight"


async def test_a_cluster(tmp_path: Path, certificate: Certificate, stopping: Stopping) -> None:
    """Captured and delivered; also while the node of their shard is replaced."""
    servers = RedisCluster()
    stopping(servers)
    await asyncio.to_thread(servers.start)
    async with open_site(tmp_path, servers.url, certificate) as site:
        gateway = await site.gateway()
        had = await site.in_flight(gateway, 20)
        slot = key_slot(f"{tag_of(shard_of(site.account.integration.id))}leases".encode())
        await asyncio.to_thread(servers.fail_over, slot)
        site.receiver.release()
        await site.provider.send_accepted(gateway, 10)
        await site.all_arrive()
        assert site.twice <= had, f"{len(site.twice)} twice, {len(had)} in flight"


async def test_a_store_that_was_flushed(
    tmp_path: Path, certificate: Certificate, redis_server: RedisServer
) -> None:
    """What was in it is lost with it; what is made anew works, in the same processes."""
    async with open_site(tmp_path, redis_server.url, certificate) as site:
        gateway = await site.gateway()
        had = await site.in_flight(gateway, 20)
        with redis_server.client() as client:
            client.flushall()
        assert await site.provider.send(gateway) == 404
        site.receiver.release()
        anew = await add_account(
            redis_server.url, {path: site.receiver.at(f"{path}-anew") for path in PATHS}
        )
        provider = Provider(anew.integration, "anew")
        await provider.send_accepted(gateway, 20)
        paths = [f"{path}-anew" for path in PATHS]
        await eventually(
            lambda: not site.receiver.lacks(provider.accepted, paths), "all arrive", LEASE_ENDS_S
        )
        of_before = {sent for sent in site.receiver.times if sent[1] in PATHS}
        assert of_before == had
        assert set(site.receiver.times.values()) == {1}
