"""Integrations and watches in Redis."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from gateway.domain.keys import Account
from gateway.domain.ports import CorruptRecord
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import MOST_WATCHES, Watch
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.redis.address import parse_url
from gateway.stores.webhooks import resources as module
from gateway.stores.webhooks.link import executing, open_link
from gateway.stores.webhooks.queue import Attempt, DeliveryQueue, shard_of, tag_of
from gateway.stores.webhooks.resources import ACCOUNTS, CAPTURES, INTEGRATIONS, WATCHES, Resources

CAPTURE = "0123456789abcdef" * 2
INTEGRATION = Integration("int_1", "acme", "github", "Acme's code", 1, CAPTURE)
WATCH = Watch("w1", "int_1", "https://hook.example/", ("a.*",), 1)
TAG = tag_of(shard_of("int_1"))


@pytest.fixture
def resources(store_client: Any) -> Resources:
    return Resources(executing(store_client))


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


async def test_nothing_is_left_of_a_watch(resources: Resources, store_client: Any) -> None:
    """Its health goes with it, whatever is said of it later by those who do not know yet."""
    queue = DeliveryQueue(store_client.execute_command, shard_of("int_1"), lambda: 1_000_000)
    await resources.add_watch(WATCH)
    for event in ("delivered", "failed", "given-up", "lost"):
        await queue.accept("int_1", event, "a.b", b"{}")
    claimed = (await queue.claim("token", 9, 9)).deliveries
    by_event = {each.id.split(":")[0]: each for each in claimed}
    assert len(by_event) == 4
    assert await resources.remove_watch(WATCH)
    told = Attempt(1, 5, 500, "no")
    await queue.finish(by_event["delivered"], "delivered", told)
    await queue.finish(by_event["failed"], "waiting", told, wait_s=9.0)
    await queue.finish(by_event["given-up"], "dead", told, reason="gone")
    await store_client.zadd(f"{TAG}leases", {by_event["lost"].id: 1})
    assert (await queue.claim("later", 9, 9)).deliveries == ()
    await queue.disable("w1", "int_1", "it answered 410 Gone")
    assert not await resources.pause(WATCH)
    assert not await resources.resume(WATCH)
    assert not await resources.remove_watch(WATCH)
    found = [await queue.delivery(each.id) for each in by_event.values()]
    states = {each.event: (each.state, each.reason) for each in found if each}
    removed = ("cancelled", "removed")
    assert states.pop("delivered") == ("delivered", "")
    assert states == {"failed": removed, "given-up": removed, "lost": removed}
    assert (await queue.stats()).finished == 4
    names = {name.decode().removeprefix(TAG) async for name in store_client.scan_iter(f"{TAG}*")}
    assert {name for name in names if name.endswith("w1")} == {"recent:w1"}
    await queue.trim(0)
    assert not [name async for name in store_client.scan_iter(f"{TAG}*:w1")]


async def test_since_when(resources: Resources, store_client: Any) -> None:
    """The first failure of those in a row, and the disabling, until it succeeds or is resumed."""
    queue = DeliveryQueue(store_client.execute_command, shard_of("int_1"), lambda: 1_000_000)
    await resources.add_watch(WATCH)

    numbers = count()

    async def attempt(status: int) -> int:
        await queue.accept("int_1", f"e{next(numbers)}", "a.b", b"{}")
        (claimed,) = (await queue.claim("token", 9, 9)).deliveries
        result = "delivered" if status == 200 else "dead"
        await queue.finish(claimed, result, Attempt(1, 5, status, ""), reason="gone")
        return (await resources.health(WATCH)).failed_us

    assert (await resources.health(WATCH)).failed_us == 0
    first = await attempt(500)
    assert first > 0
    assert await attempt(500) == first
    assert await attempt(200) == 0
    again = await attempt(500)
    assert again > first
    for why in ("so", "again"):
        await queue.disable("w1", "int_1", why)
    found = await resources.health(WATCH)
    assert (found.why, found.failed_us) == ("so", again)
    assert found.disabled_us > again
    await resources.resume(WATCH)
    found = await resources.health(WATCH)
    assert (found.disabled_us, found.failed_us) == (0, 0)


async def test_pause_and_resume(resources: Resources, store_client: Any) -> None:
    """What arrives meanwhile waits, and is delivered then; a disabled one begins anew."""
    await resources.add_watch(WATCH)
    queue = DeliveryQueue(store_client.execute_command, shard_of("int_1"), lambda: 1_000_000)
    await resources.pause(WATCH)
    assert (await resources.health(WATCH)).state == "paused"
    await queue.accept("int_1", "evt", "a.b", b"{}")
    assert (await queue.claim("one", 9, 9)).deliveries == ()
    await resources.resume(WATCH)
    (claimed,) = (await queue.claim("two", 9, 9)).deliveries
    await queue.finish(claimed, "delivered", Attempt(1, 2, 200, ""))
    succeeded_us = (await resources.health(WATCH)).last_success_us
    await resources.pause(WATCH)
    await resources.resume(WATCH)
    assert (await resources.health(WATCH)).last_success_us == succeeded_us > 0
    await queue.disable("w1", "int_1", "so")
    await resources.resume(WATCH)
    found = await resources.health(WATCH)
    assert (found.state, found.why) == ("active", "")
    assert await queue.accept("int_1", "later", "a.b", b"{}") == 1


async def test_suspended_with_its_account(resources: Resources, store_client: Any) -> None:
    """It waits with the reason until its account is resumed; one that was paused stays so."""
    other = replace(WATCH, id="w2")
    for each in (WATCH, other):
        await resources.add_watch(each)
    await resources.pause(other)
    for each in (WATCH, other):
        await resources.suspend(each)
    states = [(each.state, each.why) for each in await resources.healths([WATCH, other])]
    assert states == [("paused", "its account is suspended"), ("paused", "")]
    for each in (WATCH, other):
        await resources.restore(each)
    assert [each.state for each in await resources.healths([WATCH, other])] == ["active", "paused"]
    # Its owner pauses it while it is suspended.
    await resources.suspend(WATCH)
    await resources.pause(WATCH)
    await resources.restore(WATCH)
    assert (await resources.health(WATCH)).state == "paused"


async def test_a_new_account_of_a_name(resources: Resources, store_client: Any) -> None:
    """It has none of the integrations that were made before the account before it was deleted."""
    keys = RedisKeyStore(store_client)
    await keys.put_account(Account("acme"))
    await resources.add_integration(INTEGRATION)
    await keys.remove_account(Account("acme"))
    assert await resources.integrations_of("acme") == []
    later = replace(INTEGRATION, id="int_2", capture="", created_us=4_000_000_000_000_000)
    await resources.add_integration(later)
    assert await resources.integrations_of("acme") == [later]


async def test_all_of_an_integration_is_forgotten(resources: Resources, store_client: Any) -> None:
    """Its events go, also those in flight and those that wait, and are nobody's bytes any more."""
    queue = DeliveryQueue(executing(store_client), shard_of("int_1"), lambda: 10_000_000)
    await resources.add_watch(WATCH)
    for number in range(250):
        await queue.accept("int_1", f"e{number}", "a.b", b"{}", "acme")
    claim = await queue.claim("token", 1, 1)
    (claimed,) = claim.deliveries
    await resources.remove_integration(INTEGRATION)
    await queue.purge("int_1")
    assert await queue.finish(claimed, "delivered", Attempt(1, 1, 200, "")) is None
    assert list(await queue.events("int_1")) == []
    # What waited is removed by the next claims.
    while (await queue.claim("again", 100, 100)).deliveries or (await queue.stats()).waiting:
        pass
    stats = await queue.stats()
    assert (stats.bytes, stats.waiting, stats.dead, dict(stats.accounts)) == (0, 0, 0, {})
    assert [name async for name in store_client.scan_iter(f"{TAG}event:*")] == []
    assert [name async for name in store_client.scan_iter(f"{TAG}delivery:*")] == []


@pytest.mark.parametrize("queue", ["queue", "replays"])
@pytest.mark.parametrize("is_resumed", [True, False])
async def test_what_waits_is_due_once_it_is_resumed(
    resources: Resources, store_client: Any, queue: str, is_resumed: bool
) -> None:
    """Or has another URL. All of it, in order, behind what was due before; couriers hear of it."""
    await resources.add_watch(WATCH)
    name, now_us = f"{TAG}{queue}:w1", await _now_us(store_client)
    later_us = now_us + 3_600_000_000
    ids = [f"e{number}:w1:0" for number in range(1_200)]
    # Some wait for the same time, as those of one answer do.
    waiting = {each: later_us + number // 2 for number, each in enumerate(sorted(ids))}
    await store_client.zadd(name, {"due:w1:0": now_us - 1, **waiting})
    before = await store_client.zrange(name, 0, -1)
    await store_client.hset(f"{TAG}health:w1", mapping={"failures": 6, "open": later_us})
    assert (await resources.health(WATCH)).next_us == later_us
    async with store_client.pubsub() as heard:
        await heard.subscribe(f"{TAG}due")
        await heard.get_message(timeout=10)
        await (resources.resume if is_resumed else resources.forget_failures)(WATCH)
        message = await heard.get_message(ignore_subscribe_messages=True, timeout=10)
    assert message is not None
    after = await store_client.zrange(name, 0, -1, withscores=True)
    assert [each for each, _ in after] == before
    assert after[-1][1] <= await _now_us(store_client) + len(ids)
    found = await resources.health(WATCH)
    assert (found.state, found.waiting, found.next_us) == ("active", 1_201, now_us - 1)


async def test_another_url_resumes_nothing(resources: Resources, store_client: Any) -> None:
    """A paused watch stays paused."""
    await resources.add_watch(WATCH)
    await resources.pause(WATCH)
    await resources.forget_failures(WATCH)
    assert (await resources.health(WATCH)).state == "paused"


async def _now_us(client: Any) -> int:
    seconds, micros = await client.time()
    return int(seconds) * 1_000_000 + int(micros)


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
    assert (found.last_success_us, found.next_us) == (5, 7)
    await store_client.zadd(f"{TAG}queue:w1", {"a:w1:0": 90})
    assert (await resources.health(WATCH)).next_us == 90, "the delivery is due after the probe"
    await store_client.zadd(f"{TAG}replays:w1", {"b:w1:0": 80})
    assert (await resources.health(WATCH)).next_us == 80
    await store_client.hset(name, "status", "paused")
    assert (await resources.health(WATCH)).next_us == 0
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


async def test_records_that_are_too_long(resources: Resources, store_client: Any) -> None:
    """They are left out of replies, which would end the connection; the others are read."""
    await resources.add_integration(INTEGRATION)
    await resources.add_watch(WATCH)
    long = b"x" * (17 * 1024 * 1024)
    await store_client.hset(f"{TAG}watches:int_1", "long", long)
    await store_client.hset(INTEGRATIONS, "long", long)
    async with open_link(parse_url(_url(store_client))) as execute:
        linked = Resources(execute)
        assert await linked.watches("int_1") == [WATCH]
        for read in (linked.watch("int_1", "long"), linked.integration("long")):
            with pytest.raises(CorruptRecord):
                await read
        assert await linked.watch("int_1", "w1") == WATCH
        assert await linked.watch("int_1", "none") is None


def _url(client: Any) -> str:
    its = client.connection_pool.connection_kwargs
    return f"redis://{its['host']}:{its['port']}"
