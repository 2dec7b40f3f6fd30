"""Integrations and watches in Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import MOST_WATCHES, Watch
from gateway.stores.webhooks import resources as module
from gateway.stores.webhooks.queue import DeliveryQueue, shard_of, tag_of
from gateway.stores.webhooks.resources import ACCOUNTS, CAPTURES, INTEGRATIONS, WATCHES, Resources

CAPTURE = "0123456789abcdef" * 2
INTEGRATION = Integration("int_1", "acme", "github", "Acme's code", 1, CAPTURE)
WATCH = Watch("w1", "int_1", "https://hook.example/", ("a.*",), 1)
TAG = tag_of(shard_of("int_1"))


@pytest.fixture
def resources(store_client: Any) -> Resources:
    return Resources(store_client.execute_command)


async def test_integrations(resources: Resources) -> None:
    """They are found by id, by capture address, and in the list."""
    other = replace(INTEGRATION, id="int_0", capture="")
    await resources.add_integration(INTEGRATION)
    await resources.add_integration(other)
    assert await resources.integration("int_1") == INTEGRATION
    assert await resources.captures_to(CAPTURE) == INTEGRATION
    assert await resources.integrations() == [other, INTEGRATION]
    assert await resources.integration("int_2") is None
    assert await resources.captures_to("f" * 32) is None
    assert not await resources.add_integration(INTEGRATION)


async def test_those_of_an_account(resources: Resources, store_client: Any) -> None:
    """They are found by an index, of which nothing is left."""
    other = replace(INTEGRATION, id="int_0", capture="", account="other")
    mine = replace(INTEGRATION, id="int_2", capture="")
    for each in (INTEGRATION, other, mine):
        await resources.add_integration(each)
    assert await resources.integrations_of("acme") == [INTEGRATION, mine]
    assert await resources.integrations_of("other") == [other]
    assert await resources.integrations_of("nobody") == []
    # What an addition that failed half-way, or anyone else, leaves in an index.
    await store_client.sadd(ACCOUNTS + "acme", "int_0", "int_9", b"\xff")
    assert await resources.integrations_of("acme") == [INTEGRATION, mine]
    await resources.replace_integration(mine, replace(mine, account="other"))
    assert [each.id for each in await resources.integrations_of("other")] == ["int_0", "int_2"]
    assert await resources.integrations_of("acme") == [INTEGRATION]
    await resources.remove_integration(INTEGRATION)
    assert await resources.integrations_of("acme") == []
    assert not await store_client.sismember(ACCOUNTS + "acme", "int_1")


async def test_the_integration_of_a_watch(resources: Resources, store_client: Any) -> None:
    """It is found by an index, in which nothing is left of a watch that was removed or refused."""
    await resources.add_integration(INTEGRATION)
    for number in range(MOST_WATCHES):
        assert await resources.add_watch(replace(WATCH, id=f"w{number}"))
    assert not await resources.add_watch(replace(WATCH, id="w0"))
    assert await resources.integration_of("w0") == "int_1"
    assert not await resources.add_watch(replace(WATCH, id="refused"))
    assert await resources.integration_of("refused") is None
    await resources.remove_watch(replace(WATCH, id="w0"))
    assert await resources.integration_of("w0") is None
    await resources.remove_integration(INTEGRATION)
    assert await store_client.hlen(WATCHES) == 0


async def test_changes_of_an_integration(resources: Resources) -> None:
    """One that another has changed meanwhile is not overwritten."""
    await resources.add_integration(INTEGRATION)
    paused = replace(INTEGRATION, is_paused=True)
    await resources.replace_integration(INTEGRATION, paused)
    assert await resources.integration("int_1") == paused
    assert not await resources.replace_integration(INTEGRATION, replace(paused, name="Other"))
    rotated = replace(paused, capture="f" * 32)
    await resources.replace_integration(paused, rotated)
    assert await resources.captures_to("f" * 32) == rotated
    assert await resources.captures_to(CAPTURE) is None, "an address that was replaced"


async def test_an_integration_that_is_removed(resources: Resources) -> None:
    """So are its watches, and its address."""
    await resources.add_integration(INTEGRATION)
    await resources.add_watch(WATCH)
    await resources.remove_integration(INTEGRATION)
    assert await resources.integrations() == []
    assert await resources.watches("int_1") == []
    assert await resources.captures_to(CAPTURE) is None


async def test_watches(resources: Resources) -> None:
    """Of one integration, the oldest first."""
    later = replace(WATCH, id="w0", created_us=2)
    await resources.add_watch(later)
    await resources.add_watch(WATCH)
    assert await resources.watches("int_1") == [WATCH, later]
    assert await resources.watches("int_2") == []
    assert await resources.watch("int_1", "w1") == WATCH
    assert await resources.watch("int_2", "w1") is None
    assert not await resources.add_watch(WATCH)
    changed = replace(WATCH, url="https://other.example/")
    await resources.replace_watch(WATCH, changed)
    assert not await resources.replace_watch(WATCH, changed)


async def test_the_most(resources: Resources, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MOST_WATCHES):
        await resources.add_watch(replace(WATCH, id=f"w{number}"))
    assert not await resources.add_watch(replace(WATCH, id="one-more"))
    monkeypatch.setattr(module, "MOST_INTEGRATIONS", 1)
    await resources.add_integration(INTEGRATION)
    assert not await resources.add_integration(replace(INTEGRATION, id="int_2"))


async def test_a_watch_that_is_removed(resources: Resources, store_client: Any) -> None:
    """What waits for it is cancelled by the next claim, also if it was paused."""
    await resources.add_watch(WATCH)
    await store_client.hset(f"{TAG}health:w1", mapping={"status": "paused", "open": 9e15})
    queue = DeliveryQueue(store_client.execute_command, shard_of("int_1"), lambda: 1_000_000)
    await queue.accept("int_1", "evt", "a.b", b"{}")
    await resources.remove_watch(WATCH)
    assert (await queue.claim("token", 9, 9)).deliveries == ()
    assert await store_client.hget(f"{TAG}delivery:evt:w1:0", "state") == b"cancelled"


async def test_pause_and_resume(resources: Resources, store_client: Any) -> None:
    """What arrives meanwhile waits, and is delivered then; a disabled one begins anew."""
    await resources.add_watch(WATCH)
    queue = DeliveryQueue(store_client.execute_command, shard_of("int_1"), lambda: 1_000_000)
    await resources.pause(WATCH)
    assert (await resources.health(WATCH)).state == "paused"
    await queue.accept("int_1", "evt", "a.b", b"{}")
    assert (await queue.claim("one", 9, 9)).deliveries == ()
    await resources.resume(WATCH)
    assert len((await queue.claim("two", 9, 9)).deliveries) == 1
    await queue.disable("w1", "so")
    await resources.resume(WATCH)
    found = await resources.health(WATCH)
    assert (found.state, found.why) == ("active", "")
    assert await queue.accept("int_1", "later", "a.b", b"{}") == 1


async def test_health(resources: Resources, store_client: Any) -> None:
    """What the queue knows of a watch, in words."""
    await resources.add_watch(WATCH)
    found = await resources.health(WATCH)
    assert (found.state, found.waiting, found.last_success_us) == ("active", 0, 0)
    name = f"{TAG}health:w1"
    values = {"failures": 6, "held": 2, "since": 5, "proven": 1, "open": 7, "ms": "x"}
    await store_client.hset(name, mapping=values)
    await store_client.zadd(f"{TAG}queue:w1", {"a:w1:0": 1})
    found = await resources.health(WATCH)
    assert (found.state, found.failures, found.in_flight, found.waiting) == ("failing", 6, 2, 1)
    assert (found.last_success_us, found.probe_us) == (5, 7)
    await store_client.hset(name, mapping={"status": "disabled", "why": "it answered 410 Gone"})
    found = await resources.health(WATCH)
    assert (found.state, found.why) == ("disabled", "it answered 410 Gone")


async def test_records_of_others(resources: Resources, store_client: Any) -> None:
    """One that cannot be read does not hide the others."""
    await resources.add_integration(INTEGRATION)
    await resources.add_watch(WATCH)
    await store_client.hset(INTEGRATIONS, "bad", "{}")
    await store_client.hset(f"{TAG}watches:int_1", "bad", "[]")
    await store_client.hset(CAPTURES, "e" * 32, "int_1")
    assert await resources.integrations() == [INTEGRATION]
    assert await resources.watches("int_1") == [WATCH]
    assert await resources.captures_to("e" * 32) is None
