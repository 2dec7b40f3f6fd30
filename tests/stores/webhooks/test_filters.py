"""Lists of events and deliveries by state, type and time: what is in them, and what they cost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

import pytest

from gateway.domain.webhooks.deliveries import Filter, Page
from gateway.domain.webhooks.event_types import takes
from gateway.stores.webhooks.queue import LOOKED_AT
from tests.stores.webhooks.test_queue import TAG, Shard

TYPES = (
    "pull_request.merged",
    "pull_request.review.submitted",
    "pull_request_review.closed",
    "a.b",
)
STATES = ("queued", "dead")
STATES_ASKED: tuple[tuple[str, ...], ...] = ((), ("dead",), ("dead", "queued"))
#: Entries have the times 1 to 24; each is of another type and state than its neighbours.
KEPT = [(f"e{at}", at, TYPES[at % 4], STATES[at // 4 % 2]) for at in range(1, 25)]
SPANS = [(None, None), (5, None), (None, 20), (5, 20), (20, 5), (9, 10), (10**15, None), (-9, 0)]

Read = Callable[[int], Awaitable[Page[Any]]]


@pytest.fixture
async def shard(store_client: Any) -> Shard:
    """Events with a delivery each, which is a dead letter as well if it was given up."""
    for event, at, kind, state in KEPT:
        delivery = f"{event}:w:0"
        record = {"integration": "int", "type": kind, "body": "{", "at": at, "left": 0}
        await store_client.hset(f"{TAG}event:{event}", mapping=record)
        await store_client.zadd(f"{TAG}events:int", {event: at})
        await store_client.hset(f"{TAG}delivery:{delivery}", mapping={"state": state, "at": at})
        await store_client.zadd(f"{TAG}recent:w", {delivery: at})
        if state == "dead":
            await store_client.zadd(f"{TAG}dead:int", {delivery: at})
    return Shard(store_client)


async def all_of(read: Read) -> list[str]:
    """The events of all pages, each of which goes on where the one before says."""
    found, before_us = [], 0
    while True:
        page = await read(before_us)
        found += [getattr(each, "event", None) or each.id for each in page]
        if not page.next_us:
            return found
        before_us = page.next_us


def expected(wanted: Filter, states: Collection[str] = STATES) -> list[str]:
    from_us = 0 if wanted.from_us is None else wanted.from_us
    to_us = 100 if wanted.to_us is None else wanted.to_us
    return [
        event
        for event, at, kind, state in reversed(KEPT)
        if from_us <= at < to_us
        and state in states
        and (not wanted.type or takes([wanted.type], kind))
    ]


@pytest.mark.parametrize("most", [2, 200])
@pytest.mark.parametrize("kind", ["", *TYPES, "pull_request.*", "pull_request.review.*", "pull.*"])
async def test_what_is_listed(shard: Shard, kind: str, most: int) -> None:
    """The same rule as of watches, from then on and before then, however long the pages are."""
    queue = shard.queue
    for from_us, to_us in SPANS:
        wanted = Filter(kind, from_us, to_us)
        found = await all_of(partial(queue.events, "int", most, wanted=wanted))
        assert found == expected(wanted), wanted
        for states in STATES_ASKED:
            read = partial(queue.deliveries, "w", most, states=states, wanted=wanted)
            assert await all_of(read) == expected(wanted, states or STATES), (wanted, states)
        found = await all_of(partial(queue.dead, "int", most, wanted=wanted))
        assert found == expected(wanted, ("dead",)), wanted


async def test_a_page_that_goes_on(shard: Shard) -> None:
    """It is before its cursor and before the end of the range, whichever is first."""
    span = Filter(from_us=3, to_us=9)
    assert [each.id for each in await shard.queue.events("int", 2, 6, span)] == ["e5", "e4"]
    assert [each.id for each in await shard.queue.events("int", 2, 20, span)] == ["e8", "e7"]
    assert await shard.queue.events("int", 2, 3, span) == []


async def test_the_end_of_a_range(shard: Shard) -> None:
    """A list stops there: no page looks at what is older."""
    older = {f"x{number}:w:0": -number for number in range(2 * LOOKED_AT)}
    await shard.client.zadd(f"{TAG}recent:w", older)
    page = await shard.queue.deliveries("w", wanted=Filter("b.*", from_us=2))
    assert (page, page.next_us) == ([], 0)
    page = await shard.queue.deliveries("w", wanted=Filter("b.*", from_us=-LOOKED_AT))
    assert (page, page.next_us) == ([], 24 - LOOKED_AT + 1)


@pytest.mark.parametrize("states", STATES_ASKED)
async def test_a_page_looks_at_few(shard: Shard, states: tuple[str, ...]) -> None:
    """However many deliveries there are; at two fields of each at most, and at no body."""
    async with shard.client.pipeline() as pipeline:
        for number in range(2 * LOOKED_AT):
            pipeline.zadd(f"{TAG}recent:w", {f"x{number}:w:0": number + 100})
            pipeline.hset(f"{TAG}delivery:x{number}:w:0", "state", "dead")
            pipeline.hset(f"{TAG}event:x{number}", "type", "c.d")
        await pipeline.execute()
    wanted = Filter("a.*")
    await shard.queue.deliveries("w", states=states, wanted=wanted)
    await shard.client.config_resetstat()
    page = await shard.queue.deliveries("w", states=states, wanted=wanted)
    assert (page, page.next_us) == ([], LOOKED_AT + 100)
    commands = await shard.client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): each["calls"] for name, each in commands.items()}
    assert calls["hget"] == LOOKED_AT * (2 if states else 1)
    assert sum(calls.values()) < calls["hget"] + 20


async def test_bodies_of_others_take_no_room(shard: Shard) -> None:
    """A page of few small events is not shorter for the large ones between them."""
    for number in range(8):
        large = {"integration": "int", "type": "c.d", "body": b"x" * 2_000_000, "at": 30 + number}
        await shard.client.hset(f"{TAG}event:x{number}", mapping=large)
        await shard.client.zadd(f"{TAG}events:int", {f"x{number}": 30 + number})
    page = await shard.queue.events("int", wanted=Filter("a.b"))
    assert [each.id for each in page] == expected(Filter("a.b"))
    assert page.next_us == 0
    assert 1 <= len(await shard.queue.events("int")) < 4


async def test_what_has_no_type(shard: Shard) -> None:
    """A delivery whose event is gone, and names of others' writing, are of no type."""
    await shard.client.delete(f"{TAG}event:e24")
    for name in ("e99", ":", "", "e98:w"):
        await shard.client.zadd(f"{TAG}recent:w", {name: 50})
        await shard.client.hset(f"{TAG}delivery:{name}", "state", "dead")
    found = await all_of(partial(shard.queue.deliveries, "w", 50, wanted=Filter(TYPES[0])))
    assert found == expected(Filter(TYPES[0]))[1:]


@pytest.mark.parametrize(
    "kind", ["*", ".*", "pull_request.", "pull_request*", "%a+.*", "[a]*.b", "a.b\n", "x" * 10_000]
)
async def test_odd_types(shard: Shard, kind: str) -> None:
    """Which no face lets through: nothing fits them, and nothing fails."""
    assert await shard.queue.events("int", wanted=Filter(kind)) == []
    assert await shard.queue.deliveries("w", wanted=Filter(kind)) == []
    assert await shard.queue.dead("int", wanted=Filter(kind)) == []
