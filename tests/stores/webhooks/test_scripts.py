"""Each step once, on a cluster and by both protocols: all names of a step are in one slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.domain.webhooks.watches import Watch
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.webhooks.link import listen, open_link
from gateway.stores.webhooks.opening import open_webhooks
from gateway.stores.webhooks.queue import Attempt, DeliveryQueue, Replayed, shard_of
from gateway.stores.webhooks.resources import Resources
from gateway.stores.webhooks.scripts import Execute
from gateway.webhooks.notices import Notices
from tests.kit.acl import FOR_WEBHOOKS, RULES, WEBHOOK_RULES
from tests.kit.redis_cluster import RedisCluster
from tests.kit.redis_server import RedisServer

LATER_US = 4_000_000_000_000_000


@pytest.fixture(params=[2, 3])
async def client(request: Any, redis_server: RedisServer) -> AsyncIterator[Redis]:
    made = Redis.from_url(redis_server.url, protocol=request.param)
    yield made
    await made.aclose()


async def test_both_protocols(client: Any) -> None:
    await walk(client, "int")


async def test_a_cluster(cluster: RedisCluster) -> None:
    """Also for integrations whose shards are on different nodes."""
    made = redis_client(parse_url(cluster.url))
    try:
        for integration in ("int", "int_1", "int_2", "int_3"):
            await walk(made, integration)
    finally:
        await made.aclose()


async def test_the_least_rights(redis_server: RedisServer) -> None:
    """With the documented commands everything works, nothing is denied, and each is needed."""
    async with Redis(port=redis_server.port) as admin:
        rules = ("reset", "on", ">secret", *RULES, *WEBHOOK_RULES)
        await admin.execute_command("ACL", "SETUSER", "courier", *rules)
        await admin.execute_command("ACL", "LOG", "RESET")
        await admin.config_resetstat()
        address = parse_url(f"redis://courier:secret@127.0.0.1:{redis_server.port}")
        heard = asyncio.ensure_future(anext(listen(address)))
        async with open_link(address) as execute:
            stores = open_webhooks(execute, WebhookSettings)
            own = Integration("int_own", "acme", "gateway", "Own", 1)
            of_provider = Integration("int", "acme", "gitlab", "Code", 1, "0" * 32)
            for integration in (own, of_provider):
                assert await stores.resources.add_integration(integration)
            await stores.resources.has_mark("mark")
            assert await stores.resources.captures_to("0" * 32) == of_provider
            assert len(await stores.resources.integrations_of("acme")) == 2
            await _walk_over(execute, "int")
            await stores.budget.look(stores.queues)
            await Notices(stores.notices, stores.resources, stores.queues).take()
            await stores.resources.remove_integration(own)
        heard.cancel()
        assert [entry["object"] for entry in await admin.acl_log()] == []
        used = {name.removeprefix("cmdstat_").lower() for name in await admin.info("commandstats")}
        assert set(FOR_WEBHOOKS) - used == set()
        await admin.execute_command("ACL", "DELUSER", "courier")


async def walk(client: Any, integration: str) -> None:
    await _walk_over(client.execute_command, integration)


async def _walk_over(execute: Execute, integration: str) -> None:
    resources = Resources(execute)
    queue = DeliveryQueue(execute, shard_of(integration), lambda: 100_000)
    watch = Watch("w", integration, "https://hook.example/", ("a.*",), 1)
    await resources.add_watch(watch)
    event = f"evt-{integration}"
    assert await queue.accept(integration, event, "a.b", b"{}") == 1
    (first,) = (await queue.claim(f"one-{integration}", 9, 9)).deliveries
    assert await queue.renew([first]) == frozenset()
    attempt = Attempt(1, 2, 500, "no")
    await queue.finish(first, "dead", attempt, reason="exhausted")
    (dead,) = await queue.dead(integration)
    assert (dead.id, dead.attempts) == (first.id, (attempt,))
    assert await queue.deliveries("w", states=["dead"]) == [dead]
    assert await queue.resend(event, "w") == f"{event}:w:1"
    (second,) = (await queue.claim(f"two-{integration}", 9, 9)).deliveries
    await queue.finish(second, "delivered", attempt)
    assert await queue.replay(integration, "w", 0, LATER_US, 9) == Replayed(1, True, 0)
    await resources.pause(watch)
    assert (await resources.health(watch)).waiting == 1
    assert (await queue.stats()).oldest_due_s == 0.0
    await resources.resume(watch)
    await queue.disable("w", integration, "so")
    states = [each.state for each in await queue.deliveries_of(event)]
    assert states == ["dead", "delivered", "cancelled"]
    (kept,) = await queue.events(integration)
    assert await queue.event(event) == kept
    stats = await queue.stats()
    assert (stats.waiting, stats.in_flight, stats.dead, stats.finished) == (0, 0, 0, 1)
    assert await queue.trim(0) == 1
    assert (await queue.stats()).bytes == 0
    await resources.remove_watch(watch)
