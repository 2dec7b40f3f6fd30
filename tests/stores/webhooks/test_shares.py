"""What the waiting events of one account may take of the store, and what one call does for room."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.domain.ports import StoreDown
from gateway.stores.webhooks.queue import (
    Attempt,
    BudgetSpent,
    DeliveryQueue,
    Replayed,
    shard_of,
    tag_of,
)
from gateway.stores.webhooks.scripts import Execute

SHARD = shard_of("int")
TAG = tag_of(SHARD)
LATER_US = 4_000_000_000_000_000
#: Of an event: its body of 1,000 bytes and its record; and of each of its deliveries.
BODY = b"x" * 1_000
ALONE, EACH = len(BODY) + 1_400, 750
SHARE = 61_000


def queue_with(execute: Execute, share: int = SHARE) -> DeliveryQueue:
    return DeliveryQueue(execute, SHARD, lambda: 1_000_000, share=lambda account: share)


@pytest.fixture
def queue(store_client: Any) -> DeliveryQueue:
    return queue_with(store_client.execute_command)


async def watches(client: Any, count: int, integration: str = "int") -> None:
    for number in range(count):
        record = json.dumps({"events": ["a.*"]})
        await client.hset(f"{TAG}watches:{integration}", f"w{number}", record)


async def fill(queue: DeliveryQueue, account: str = "acme") -> int:
    """Accept events until there is no room; how many there was room for."""
    count = 0
    while True:
        try:
            await queue.accept("int", f"{account}-{count}", "a.b", BODY, account)
        except BudgetSpent:
            return count
        count += 1


async def deliver_all(queue: DeliveryQueue) -> None:
    while claimed := (await queue.claim("token", 100, 100)).deliveries:
        for each in claimed:
            await queue.finish(each, "delivered", Attempt(1, 1, 200, "ok"))


@pytest.mark.parametrize("count", [1, 50])
async def test_all_that_an_event_takes_counts(
    queue: DeliveryQueue, store_client: Any, count: int
) -> None:
    """Also its deliveries: of a small event to many watches they are nearly all."""
    await watches(store_client, count)
    size = ALONE + count * EACH
    assert await fill(queue) == SHARE // size
    stats = await queue.stats()
    assert stats.bytes == sum(stats.accounts.values()) <= SHARE
    # Others have their own.
    assert await queue.accept("int", "theirs", "a.b", b"", "other") == count


async def test_what_grows_while_it_waits(queue: DeliveryQueue, store_client: Any) -> None:
    """Long answers are kept with a delivery, and count; nothing stays counted at the end."""
    await watches(store_client, 1)
    await queue.accept("int", "evt", "a.b", BODY, "acme")
    for _ in range(3):
        (claimed,) = (await queue.claim("token", 1, 1)).deliveries
        await queue.finish(claimed, "waiting", Attempt(1, 1, 500, "x" * 250), wait_s=0.0)
        stats = await queue.stats()
        assert stats.accounts == {"acme": stats.bytes}
    assert stats.bytes > ALONE + EACH + 3 * 150
    await deliver_all(queue)
    assert (await queue.stats()).accounts == {}
    assert await queue.resend("evt", "w0", "acme") == "evt:w0:1"
    stats = await queue.stats()
    assert stats.accounts == {"acme": stats.bytes}
    await deliver_all(queue)
    assert (await queue.stats()).accounts == {}


async def test_what_is_sent_again_has_to_fit(queue: DeliveryQueue, store_client: Any) -> None:
    """A replay makes many events wait that had no watch: they are in the share as well."""
    for number in range(50):
        await queue.accept("int", f"e{number}", "a.b", BODY, "acme")
    assert (await queue.stats()).accounts == {}
    await watches(store_client, 1)
    fits = SHARE // (ALONE + EACH)
    replayed = await queue.replay("int", "w0", 0, LATER_US, 10_000, "acme")
    assert replayed is not None
    assert (replayed.count, replayed.complete) == (fits, False)
    assert (await queue.stats()).accounts == {"acme": fits * (ALONE + EACH)}
    with pytest.raises(BudgetSpent):
        await queue.replay("int", "w0", replayed.next_us, LATER_US, 10_000, "acme")
    with pytest.raises(BudgetSpent):
        await queue.resend("e49", "w0", "acme")
    with pytest.raises(BudgetSpent):
        await queue.accept("int", "new", "a.b", BODY, "acme")
    # One that waits anyhow takes a delivery more.
    assert await queue.resend("e0", "w0", "acme") == "e0:w0:2"
    await deliver_all(queue)
    rest = await queue.replay("int", "w0", replayed.next_us, LATER_US, fits, "acme")
    assert rest == Replayed(fits, False, await at_of(queue, f"e{2 * fits}"))


async def at_of(queue: DeliveryQueue, event: str) -> int:
    kept = await queue.event(event)
    assert kept is not None
    return kept.at_us


async def test_nothing_is_dropped_for_what_does_not_fit(store_client: Any) -> None:
    """An account beyond its share takes nothing of what others can still look at."""
    execute = store_client.execute_command
    await queue_with(execute).accept("other", "theirs", "a.b", BODY, "other")
    await watches(store_client, 1)
    full = DeliveryQueue(execute, SHARD, lambda: ALONE, share=lambda account: ALONE + EACH - 1)
    with pytest.raises(BudgetSpent):
        await full.accept("int", "evt", "a.b", BODY, "acme")
    assert await full.event("theirs") is not None


async def test_a_call_drops_few(store_client: Any) -> None:
    """Events may have hundreds of deliveries; all who use the store wait for each call."""
    queue = queue_with(store_client.execute_command, 1_000_000)
    for number in range(10):
        await queue.accept("int", f"e{number}", "a.b", BODY)
        for again in range(200):
            delivery = f"e{number}:w:{again}"
            await store_client.sadd(f"{TAG}deliveries:e{number}", delivery)
    await store_client.zadd(f"{TAG}finished", {f"e{number}": number for number in range(10)})
    await queue.accept("int", "one", "a.b", BODY)
    assert (await queue.stats()).finished == 11 - 2, "as long as they are kept"
    none = DeliveryQueue(store_client.execute_command, SHARD, lambda: 0)
    with pytest.raises(BudgetSpent):
        await none.accept("int", "two", "a.b", BODY)
    assert (await queue.stats()).finished == 9 - 2, "and for room"
    assert await queue.trim(0) == 7


async def test_a_reply_of_disable_that_cannot_be_read() -> None:
    """It is an error of the store, as of every method."""

    async def execute(*_: object) -> object:
        return 7

    with pytest.raises(StoreDown, match="unexpected reply"):
        await queue_with(execute).disable("w", "int", "so")
