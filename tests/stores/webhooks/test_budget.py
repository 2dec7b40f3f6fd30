"""The budget of all shards together, by several couriers on a real server."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from gateway import tasks
from gateway.domain.ports import StoreDown
from gateway.stores.webhooks import budget
from gateway.stores.webhooks.budget import FULL, MOST_SHARE, Budget
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.queue import SHARDS, BudgetSpent, DeliveryQueue, shard_of, tag_of
from tests.kit.eventually import eventually

#: Each in a shard of its own.
INTEGRATIONS = {shard_of(f"int_{number}"): f"int_{number}" for number in range(500)}
BODY = b"x" * 600  # with its record, 2,000 bytes; and 750 for each delivery


class Courier:
    """The budget of one courier, and its queues."""

    def __init__(
        self, client: Any, total: int, keep_s: float = 3_600.0, *, has_shares: bool = False
    ) -> None:
        self.client = client
        self.total = total
        self.keep_s = keep_s
        self.budget = Budget(lambda: self.total, lambda: self.keep_s)
        self.queues = [
            DeliveryQueue(
                *(executing(client), shard, partial(self.budget.of, shard)),
                keep_s=lambda: self.keep_s,
                share=partial(self.budget.share_of, shard) if has_shares else None,
            )
            for shard in range(SHARDS)
        ]

    async def accept(self, shard: int, event: str, account: str = "") -> int:
        its = INTEGRATIONS[shard]
        return await self.queues[shard].accept(its, event, "a.b", BODY, account)

    async def look(self) -> None:
        await self.budget.look(self.queues)

    async def events(self) -> set[str]:
        found = [await queue.events(INTEGRATIONS[shard]) for shard, queue in enumerate(self.queues)]
        return {event.id for some in found for event in some}


async def test_an_account_has_a_share_of_all_shards(store_client: Any) -> None:
    """However many integrations it has; others have their own."""
    courier = Courier(store_client, 55_000, has_shares=True)
    for shard in (1, 2, 3):
        name = f"{tag_of(shard)}watches:{INTEGRATIONS[shard]}"
        await store_client.hset(name, "w", '{"events": ["a.*"]}')
    share = int(MOST_SHARE * 55_000)
    # Each is counted with its body, its record and its delivery.
    taken = len(BODY) + 1_400 + 750
    for shard in (1, 2):
        for number in range(2):
            await courier.accept(shard, f"e{number}", "acme")
    await courier.look()
    assert courier.budget.share_of(1, "acme") == share - 2 * taken
    assert courier.budget.share_of(3, "acme") == share - 4 * taken
    assert courier.budget.share_of(3, "other") == share
    assert courier.budget.stats.bytes < 55_000 - 4 * taken, "there is room, but not for it"
    assert await courier.accept(3, "fits", "acme") == 1
    with pytest.raises(BudgetSpent):
        await courier.accept(3, "does not fit", "acme")
    assert await courier.accept(3, "theirs", "other") == 1


async def test_a_shard_has_what_the_others_do_not_use(store_client: Any) -> None:
    """The budget is of all of them together; it can change."""
    courier = Courier(store_client, 11_500)
    for shard in (1, 2):
        name = f"{tag_of(shard)}watches:{INTEGRATIONS[shard]}"
        await store_client.hset(name, "w", '{"events": ["a.*"]}')
    for number in range(3):
        await courier.accept(1, f"e{number}")
    await courier.look()
    assert courier.budget.stats.bytes == 8_250
    assert (courier.budget.of(1), courier.budget.of(2)) == (11_500, 3_250)
    await courier.accept(2, "fits")
    await courier.look()
    with pytest.raises(BudgetSpent):
        await courier.accept(3, "does not fit")
    courier.total = 20_000
    await courier.accept(3, "does not fit")
    await courier.look()
    assert (courier.budget.stats.waiting, courier.budget.stats.finished) == (4, 1)


async def _some_of_each(courier: Courier) -> None:
    """40 events in all shards, which were over in this order, hours apart."""
    for number in range(40):
        shard = number % SHARDS
        await courier.accept(shard, f"e{number:02}")
        over_us = (number + 1) * 3_600_000_000
        await courier.client.zadd(f"{tag_of(shard)}finished", {f"e{number:02}": over_us})
    courier.total = 80_000


async def test_the_oldest_events_of_all_shards_go(store_client: Any) -> None:
    """Until there is room."""
    courier = Courier(store_client, 1_000_000, keep_s=1e10)
    await _some_of_each(courier)
    for _ in range(2):
        await courier.look()
        assert FULL * 80_000 == 36 * 2_000
        assert await courier.events() == {f"e{number:02}" for number in range(4, 40)}


async def test_couriers_that_look_at_the_same_time(store_client: Any) -> None:
    """They drop the same events: three of them, not three times as many."""
    couriers = [Courier(store_client, 80_000, keep_s=1e10) for _ in range(3)]
    couriers[0].total = 1_000_000
    await _some_of_each(couriers[0])
    await asyncio.gather(*(courier.look() for courier in couriers))
    left = await couriers[0].events()
    assert 28 < len(left) <= 36
    assert left == {f"e{number:02}" for number in range(40 - len(left), 40)}


async def test_expired_events_go_everywhere(store_client: Any) -> None:
    courier = Courier(store_client, 1_000_000)
    for shard in range(SHARDS):
        await courier.accept(shard, f"old{shard}")
        await store_client.zadd(f"{tag_of(shard)}finished", {f"old{shard}": 1})
        await courier.accept((shard + 1) % SHARDS, f"new{shard}")
    await courier.look()
    left = await courier.events()
    assert left == {f"new{shard}" for shard in range(SHARDS)}
    courier.keep_s = -1.0
    await courier.look()
    assert await courier.events() == set()
    assert courier.budget.stats.bytes == 0


async def test_it_runs_on_after_an_outage(
    store_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "LOOK_S", 0.01)
    courier = Courier(store_client, 1_000_000)
    failed: list[bool] = []

    async def down() -> Any:
        failed.append(True)
        raise StoreDown("the store is unavailable")

    await courier.accept(5, "evt")
    stats = courier.queues[5].stats
    courier.queues[5].stats = down  # type: ignore[method-assign]
    running = tasks.spawn(courier.budget.run(courier.queues), "budget")
    await eventually(lambda: bool(failed), "the store is down")
    courier.queues[5].stats = stats  # type: ignore[method-assign]
    await eventually(lambda: courier.budget.stats.bytes == 2_000, "the shards were read")
    await tasks.end(running)


@pytest.mark.parametrize("score", ["inf", "-inf"])
async def test_infinite_bytes_of_another_program(store_client: Any, score: str) -> None:
    """They are not counted, and all shards are looked at."""
    await store_client.zadd(f"{tag_of(3)}accounts", {"x": score, "acme": 500})
    courier = Courier(store_client, 1_000_000)
    await courier.look()
    assert courier.budget.share_of(1, "acme") == int(MOST_SHARE * 1_000_000) - 500
    assert courier.budget.share_of(1, "x") == int(MOST_SHARE * 1_000_000)


async def test_a_look_that_fails(
    store_client: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails: it is told, nothing old is shown, and the next look is made."""
    # Long enough to be seen between two looks.
    monkeypatch.setattr(budget, "LOOK_S", 0.2)
    courier = Courier(store_client, 1_000_000)
    looks: list[int] = []

    async def look(_: object) -> None:
        looks.append(1)
        if len(looks) == 1:
            raise OverflowError("an odd value")

    courier.budget.look = look  # type: ignore[method-assign]
    async with asyncio.timeout(30):
        running = tasks.spawn(courier.budget.run(courier.queues), "budget")
        await eventually(lambda: courier.budget.fault is not None, "the fault is told")
        assert courier.budget.shards is None
        await eventually(lambda: courier.budget.shards is not None, "the next look is made")
        await tasks.end(running)
    assert courier.budget.fault is None
    assert "an odd value" in caplog.text
