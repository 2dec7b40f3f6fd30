"""Watches that are disabled while much of theirs waits, is in flight, or was of a dead courier."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.ports import StoreDown
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.queue import DeliveryQueue
from tests.stores.webhooks.test_queue import SHARD, TAG, Shard, watch_of


@pytest.fixture
def shard(store_client: Any) -> Shard:
    return Shard(store_client)


async def reasons(shard: Shard) -> set[bytes | None]:
    return {
        await shard.client.hget(name, "reason")
        async for name in shard.client.scan_iter(f"{TAG}delivery:*")
    }


async def test_what_a_dead_courier_had(shard: Shard) -> None:
    """It is cancelled when its lease ends: the watch gets nothing, and the event is over."""
    await shard.watch("w")
    await shard.accept("evt")
    (delivery,) = await shard.take()
    assert await shard.queue.disable("w", "int", "it answered 410 Gone")
    await shard.end_leases()
    assert await shard.take() == []
    assert await shard.state(delivery.id) == "cancelled"
    stats = await shard.queue.stats()
    assert (stats.waiting, stats.in_flight, stats.finished, stats.accounts) == (0, 0, 1, {})
    assert await shard.client.zcard(f"{TAG}heads") == 0


async def test_a_courier_that_dies_while_it_disables(shard: Shard) -> None:
    """What it has not cancelled yet, claims cancel, some in each."""
    await shard.watch("w")
    for number in range(350):
        await shard.accept(f"e{number}")
    await shard.resources.pause(watch_of("w"))
    replies: list[Any] = []

    async def dies(*arguments: Any) -> Any:
        if replies:
            raise StoreDown("the store is unavailable")
        replies.append(await executing(shard.client)(*arguments))
        return replies[0]

    with pytest.raises(StoreDown):
        await DeliveryQueue(dies, SHARD, lambda: 1).disable("w", "int", "so")
    assert (await shard.queue.stats()).waiting == 250
    for left in (150, 50, 0, 0):
        claim = await shard.claim()
        assert claim.deliveries == ()
        assert (claim.wait_s == 0) == (left > 0), "it is claimed again at once while any is left"
        assert (await shard.queue.stats()).waiting == left
    assert await reasons(shard) == {b"disabled"}
    assert (await shard.queue.stats()).finished == 350
    assert await shard.client.zcard(f"{TAG}turns:other") == 0


async def test_it_is_disabled_once(shard: Shard) -> None:
    """However many attempts find that it has gone; not if it was removed meanwhile."""
    await shard.watch("w")
    assert await shard.queue.disable("w", "int", "it answered 410 Gone")
    assert not await shard.queue.disable("w", "int", "it answered 410 Gone")
    assert await shard.client.zcard(f"{TAG}disabled") == 1
    await shard.resources.resume(watch_of("w"))
    assert await shard.queue.disable("w", "int", "it answered 410 Gone")
    await shard.resources.remove_watch(watch_of("w"))
    assert not await shard.queue.disable("w", "int", "it answered 410 Gone")


async def test_it_is_not_paused_at_the_same_time(shard: Shard) -> None:
    """Only `resume` enables it again."""
    await shard.watch("w")
    await shard.queue.disable("w", "int", "it answered 410 Gone")
    assert await shard.resources.pause(watch_of("w"))
    health = await shard.resources.health(watch_of("w"))
    assert (health.state, health.why) == ("disabled", "it answered 410 Gone")
    assert await shard.accept("evt") == 0
