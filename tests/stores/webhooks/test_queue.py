"""Deliveries in Redis: who gets what when, by the scripts on a real server."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.domain.ports import ResentTooOften, StoreDown
from gateway.domain.webhooks.schedule import EXPIRY_S, FAILURES
from gateway.domain.webhooks.watches import Rate, Watch
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.webhooks.link import executing, open_link
from gateway.stores.webhooks.queue import (
    CAP,
    LOOKED_AT,
    VISIT,
    Attempt,
    BudgetSpent,
    Claim,
    Claimed,
    DeliveryQueue,
    Replayed,
    shard_of,
    tag_of,
)
from gateway.stores.webhooks.resources import Resources
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer

SHARD = shard_of("int")
TAG = tag_of(SHARD)
BODY = b'{"id":"evt"}'
SECOND = 1_000_000
LATER_US = 4_000_000_000 * SECOND


def attempt(status: int = 200, ms: int = 5) -> Attempt:
    return Attempt(1, ms, status, "ok")


class Shard:
    """The queue of a shard, and a second look at what it keeps."""

    def __init__(self, client: Any, budget: int = 100_000_000, cap: int = CAP) -> None:
        self.client = client
        self.budget = budget
        self.cap = cap
        self.keep_s = 86_400.0
        self.queue = DeliveryQueue(
            *(client.execute_command, SHARD),
            *(lambda: self.budget, lambda: self.cap, lambda: self.keep_s),
        )
        self.resources = Resources(executing(client))
        self.claims = 0

    async def watch(self, name: str, *events: str, integration: str = "int") -> None:
        record = json.dumps({"url": "https://x", "events": events or ["a.*"]})
        await self.client.hset(f"{TAG}watches:{integration}", name, record)

    async def accept(self, event: str, event_type: str = "a.b", body: bytes = BODY) -> int:
        return await self.queue.accept("int", event, event_type, body)

    async def claim(self, most: int = 100, others: int = 100) -> Claim:
        self.claims += 1
        return await self.queue.claim(f"claim-{self.claims}", most, others)

    async def take(self, most: int = 100, others: int = 100) -> list[Claimed]:
        return list((await self.claim(most, others)).deliveries)

    async def prove(self, *watches: str) -> None:
        """Each of these watches has had a success."""
        for watch in watches:
            await self.client.hset(f"{TAG}health:{watch}", mapping={"proven": 1, "ms": 5})

    async def fail(self, delivery: Claimed, **more: Any) -> bool:
        given = {"wait_s": 0.0, "probe_s": 5.0, **more}
        told = await self.queue.finish(delivery, "waiting", attempt(500), **given)
        return told is not None and told.failed > 0

    async def deliver(self, delivery: Claimed, ms: int = 5) -> bool:
        told = await self.queue.finish(delivery, "delivered", attempt(ms=ms))
        assert told is None or told.failed == 0
        return told is not None

    async def state(self, delivery: str) -> str:
        found = await self.client.hget(f"{TAG}delivery:{delivery}", "state")
        return "" if found is None else found.decode()

    async def health(self, watch: str) -> dict[str, str]:
        found = await self.client.hgetall(f"{TAG}health:{watch}")
        return {name.decode(): value.decode() for name, value in found.items()}

    async def end_leases(self) -> None:
        for id in await self.client.zrange(f"{TAG}leases", 0, -1):
            await self.client.zadd(f"{TAG}leases", {id: 1})


@pytest.fixture
def shard(store_client: Any) -> Shard:
    return Shard(store_client)


async def test_an_event_reaches_the_watches_that_take_it(shard: Shard) -> None:
    """By segment of its type; with the bytes that were accepted."""
    await shard.watch("all", "pull_request.*")
    await shard.watch("one", "pull_request.merged", "ticket.created")
    await shard.watch("other", "pull_request_review.*", "pull_request.closed")
    assert await shard.accept("evt", "pull_request.merged") == 2
    claim = await shard.claim()
    assert sorted(each.id for each in claim.deliveries) == ["evt:all:0", "evt:one:0"]
    found = next(each for each in claim.deliveries if each.id == "evt:all:0")
    assert isinstance(found, Claimed)
    assert json.loads(found.watch)["events"] == ["pull_request.*"]
    assert (found.integration, found.body, found.attempts) == ("int", BODY, 0)
    assert found.at_us > 1_700_000_000 * SECOND
    assert (claim.wait_s, claim.lost) == (None, 0)
    # A segment is a whole one.
    assert await shard.accept("evt 2", "pull_request_review.closed") == 1
    assert [each.id for each in await shard.take()] == ["evt 2:other:0"]


async def test_an_event_without_watches(shard: Shard) -> None:
    """It is kept, and over at once."""
    assert await shard.accept("evt") == 0
    assert await shard.client.zrange(f"{TAG}finished", 0, -1) == [b"evt"]
    assert await shard.take() == []


async def test_a_known_event(shard: Shard) -> None:
    """What the provider sends again is not delivered again, also after it is over and gone."""
    await shard.watch("w")
    assert await shard.accept("evt") == 1
    assert await shard.accept("evt") == 0
    await shard.deliver((await shard.take())[0])
    await shard.client.delete(f"{TAG}event:evt")
    assert await shard.accept("evt") == 0
    assert await shard.take() == []


async def test_so_many_known_events(shard: Shard) -> None:
    """A shard knows the ids of the newest 32,768 events; of older ones only what it keeps."""
    now_us = int((await shard.client.time())[0]) * SECOND
    older = {f"evt-{number}": now_us - 40_000 + number for number in range(32_768)}
    await shard.client.zadd(f"{TAG}seen", older)
    for number, event in enumerate(["new", "newer"]):
        await shard.accept(event)
        assert await shard.client.zcard(f"{TAG}seen") == 32_768
        oldest, *_, newest = await shard.client.zrange(f"{TAG}seen", 0, -1)
        assert (oldest, newest) == (f"evt-{number + 1}".encode(), event.encode())


async def test_what_is_leased_is_no_one_elses(shard: Shard) -> None:
    """Until it is finished: delivered once, it is over."""
    await shard.watch("w")
    await shard.accept("evt")
    (delivery,) = await shard.take()
    assert await shard.take() == []
    assert await shard.state(delivery.id) == "leased"
    assert not await shard.deliver(replace(delivery, token="other"))
    assert await shard.deliver(delivery)
    assert not await shard.deliver(delivery)
    assert await shard.state(delivery.id) == "delivered"
    assert await shard.client.zrange(f"{TAG}finished", 0, -1) == [b"evt"]
    assert (await shard.health("w"))["held"] == "0"


async def test_a_lease_that_ends(shard: Shard) -> None:
    """The next claim gets it; what the first one says later changes nothing."""
    await shard.watch("w")
    await shard.accept("evt")
    (first,) = await shard.take()
    assert await shard.queue.renew([first]) == frozenset()
    assert await shard.queue.renew([replace(first, token="other")]) == {first.id}
    await shard.end_leases()
    claim = await shard.claim()
    (second,) = claim.deliveries
    assert (second.id, claim.lost) == (first.id, 1)
    assert await shard.queue.renew([first, second]) == {first.id}
    assert not await shard.deliver(first)
    assert (await shard.health("w"))["held"] == "1"
    assert await shard.deliver(second)


async def test_a_lease_that_ends_while_nothing_is_claimed(shard: Shard) -> None:
    """Its courier cannot finish it either: the delivery waits, and has no room of its watch."""
    await shard.watch("w")
    await shard.accept("evt")
    (first,) = await shard.take()
    await shard.client.hset(f"{TAG}health:w", "status", "paused")
    await shard.end_leases()
    assert (await shard.claim()).lost == 1
    assert not await shard.deliver(first)
    assert await shard.state(first.id) == "queued"
    assert (await shard.health("w"))["held"] == "0"


async def test_a_failed_attempt(shard: Shard) -> None:
    """It is tried again when its wait is over; all attempts are kept."""
    await shard.watch("w")
    await shard.accept("evt")
    (delivery,) = await shard.take()
    await shard.fail(delivery, wait_s=300.0)
    claim = await shard.claim()
    assert claim.deliveries == ()
    assert claim.wait_s is not None
    assert 290 < claim.wait_s <= 300
    assert await shard.state(delivery.id) == "waiting"
    await shard.client.zadd(f"{TAG}queue:w", {delivery.id: 1})
    await shard.client.zadd(f"{TAG}turns:other", {"w": 1})
    (again,) = (await shard.claim()).deliveries
    assert (again.id, again.attempts) == (delivery.id, 1)
    await shard.queue.finish(again, "dead", attempt(410), reason="gone")
    kept = await shard.client.hgetall(f"{TAG}delivery:{delivery.id}")
    assert (kept[b"state"], kept[b"reason"], kept[b"attempts"]) == (b"dead", b"gone", b"2")
    assert [json.loads(line)[2] for line in kept[b"log"].split(b"\n")] == [500, 410]
    assert await shard.client.zrange(f"{TAG}dead:int", 0, -1) == [delivery.id.encode()]
    assert await shard.client.zrange(f"{TAG}finished", 0, -1) == [b"evt"]


async def test_a_share_of_a_watch(shard: Shard) -> None:
    """Of the most that may be in flight, at least one; it has its turn when one of its own ends."""
    await shard.watch("w")
    for number in range(8):
        await shard.accept(f"e{number}")

    async def take(share: float) -> list[Claimed]:
        shard.claims += 1
        claim = await shard.queue.claim(f"claim-{shard.claims}", 100, 100, share)
        return list(claim.deliveries)

    first = await take(0.3)
    assert len(first) == 2
    assert await take(0.3) == []
    assert await shard.deliver(first[0])
    (third,) = await take(0.3)
    assert await shard.deliver(first[1])
    assert await take(0.0) == []
    assert await shard.deliver(third)
    assert len(await take(0.0)) == 1
    await shard.accept("e8")
    assert len(await take(1.0)) == 5


async def test_one_watch_does_not_take_all_slots(shard: Shard) -> None:
    """Each visit takes a few, in turn; at most CAP are in flight."""
    for watch in ("busy", "quiet"):
        await shard.watch(watch, f"{watch}.*")
    for number in range(20):
        await shard.accept(f"b{number}", "busy.x")
    await shard.accept("q", "quiet.x")
    first = await shard.take(VISIT + 1)
    assert sum(each.id.startswith("b") for each in first) == VISIT
    assert "q:quiet:0" in [each.id for each in first]
    assert len(await shard.take()) == CAP - VISIT
    assert await shard.take() == []
    await shard.deliver(first[0])
    assert len(await shard.take()) == 1


async def test_a_watch_that_gets_events_all_the_time(shard: Shard) -> None:
    """An event that comes does not send it behind the others: it would never have its turn."""
    for watch in ("busy", "a", "b"):
        await shard.watch(watch, f"{watch}.*")
        await shard.prove(watch)
    for number in range(20):
        for other in ("a", "b"):
            await shard.accept(f"{other}{number}", f"{other}.x")
    turns = []
    for number in range(9):
        await shard.accept(f"busy{number}", "busy.x")
        (delivery,) = await shard.take(1)
        turns.append(delivery.id.split(":")[1])
    assert turns == 3 * ["a", "b", "busy"]


async def test_good_watches_come_first(shard: Shard) -> None:
    """Others get what is left to them, whether the good ones wait or not."""
    for watch in ("good", "new", "slow", "failing"):
        await shard.watch(watch)
    await shard.prove("good", "slow", "failing")
    await shard.client.hset(f"{TAG}health:slow", "ms", 2_001)
    await shard.client.hset(f"{TAG}health:failing", "failures", 1)
    for number in range(4):
        await shard.accept(f"e{number}")
    taken = [each.id.split(":")[1] for each in await shard.take(6, others=2)]
    assert taken.count("good") == 4
    assert len(taken) == 6
    assert await shard.take(6, others=0) == []
    assert len(await shard.take(6, others=3)) == 3


async def test_a_breaker(shard: Shard) -> None:
    """It opens after some failures in a row; then one probe at a time, and the rest waits."""
    await shard.watch("w")
    for number in range(CAP + 4):
        await shard.accept(f"e{number}")
    first = await shard.take()
    assert len(first) == CAP
    for delivery in first:
        assert await shard.fail(delivery, wait_s=300.0)
    health = await shard.health("w")
    assert (health["failures"], health["openings"]) == (str(CAP), "1")
    claim = await shard.claim()
    assert claim.deliveries == ()
    assert claim.wait_s is not None
    assert 4 < claim.wait_s <= 5
    await _probe_is_due(shard)
    (probe,) = await shard.take()
    assert await shard.take() == []
    await shard.fail(probe, wait_s=300.0, probe_s=10.0)
    assert (await shard.health("w"))["openings"] == "2"
    assert await shard.take() == []
    await _probe_is_due(shard)
    (probe,) = await shard.take()
    await shard.deliver(probe)
    assert "open" not in await shard.health("w")
    assert len(await shard.take()) == 2


async def _probe_is_due(shard: Shard) -> None:
    await shard.client.hset(f"{TAG}health:w", "open", 1)
    await shard.client.zadd(f"{TAG}turns:other", {"w": 1})


async def test_after_a_breaker_it_begins_slowly(shard: Shard) -> None:
    """1, 2, 4, 8 at once: an endpoint that is back is not flooded."""
    await shard.watch("w")
    await shard.client.hset(f"{TAG}health:w", mapping={"open": 1, "failures": FAILURES, "ramp": 1})
    for number in range(40):
        await shard.accept(f"e{number}")
    rounds = []
    for _ in range(4):
        taken = await shard.take()
        rounds.append(len(taken))
        await shard.deliver(taken[0])
        for delivery in taken[1:]:
            # Only the first success of a round is the next step.
            await shard.client.hset(f"{TAG}health:w", "ramp", 2 ** len(rounds))
            await shard.deliver(delivery)
            await shard.client.hset(f"{TAG}health:w", "ramp", 2 ** len(rounds))
    assert rounds == [1, 2, 4, 8]


async def test_a_deleted_watch(shard: Shard) -> None:
    """What waits for it is cancelled, and the event is over."""
    await shard.watch("w")
    await shard.accept("evt")
    await shard.client.hdel(f"{TAG}watches:int", "w")
    assert await shard.take() == []
    assert await shard.state("evt:w:0") == "cancelled"
    assert await shard.client.zrange(f"{TAG}finished", 0, -1) == [b"evt"]


async def test_a_paused_watch(shard: Shard) -> None:
    """Its events wait; a disabled one gets none."""
    await shard.watch("w")
    await shard.client.hset(f"{TAG}health:w", "status", "paused")
    assert await shard.accept("one") == 1
    assert await shard.take() == []
    await shard.client.hset(f"{TAG}health:w", "status", "disabled")
    assert await shard.accept("two") == 0


async def test_a_watch_that_is_disabled(shard: Shard) -> None:
    """What waits is cancelled; what is in flight ends as it ends."""
    await shard.watch("w")
    await shard.watch("other")
    for number in range(CAP + 2):
        await shard.accept(f"e{number}")
    taken = await shard.take()
    await shard.queue.disable("w", "int", "answered 410")
    cancelled = f"e{CAP + 1}:w:0"
    assert await shard.state(cancelled) == "cancelled"
    told = await shard.client.hget(f"{TAG}delivery:{cancelled}", "reason")
    assert told == b"disabled"
    for delivery in taken:
        await shard.deliver(delivery)
    assert {each.id.split(":")[1] for each in await shard.take()} == {"other"}
    assert await shard.accept("later") == 1


async def test_what_failures_mean(shard: Shard) -> None:
    """The attempts since the last success, and the time since then, are told."""
    await shard.watch("w")
    await shard.accept("one")
    await shard.accept("two")
    first, second = await shard.take()
    told = await shard.queue.finish(first, "waiting", attempt(500), wait_s=9.0)
    assert told is not None
    assert told.failed == 1
    long_ago = await shard.client.hget(f"{TAG}health:w", "since")
    await shard.client.hset(f"{TAG}health:w", "since", int(long_ago) - 7 * SECOND)
    told = await shard.queue.finish(second, "dead", attempt(500), reason="expired")
    assert told is not None
    assert told.failed == 2
    assert 7 <= told.silent_s < 60


async def test_what_was_delivered(shard: Shard) -> None:
    """Deliveries of a watch, the newest first, with all their attempts."""
    await shard.watch("w")
    await shard.accept("one")
    (first,) = await shard.take()
    await shard.fail(first, wait_s=9.0)
    await shard.accept("two")
    (second,) = await shard.take()
    await shard.deliver(second)
    newest, oldest = await shard.queue.deliveries("w")
    assert (newest.id, newest.state, newest.event) == ("two:w:0", "delivered", "two")
    assert newest.ended_us >= newest.at_us > oldest.at_us
    assert newest.attempts == (attempt(),)
    assert (oldest.state, oldest.ended_us) == ("waiting", 0)
    assert oldest.attempts == (attempt(500),)
    assert await shard.queue.deliveries("w", 1) == [newest]
    assert await shard.queue.deliveries("w", before_us=newest.at_us) == [oldest]
    assert await shard.queue.delivery("none:w:0") is None
    kept = await shard.queue.event("one")
    assert kept is not None
    assert (kept.id, kept.integration, kept.type, kept.body) == ("one", "int", "a.b", BODY)
    assert (kept.at_us, kept.left) == (oldest.at_us, 1)
    assert await shard.queue.event("none") is None


async def test_one_more_time(shard: Shard) -> None:
    """A resend is a delivery of its own, whatever became of the first."""
    await shard.watch("w")
    await shard.accept("evt")
    (first,) = await shard.take()
    await shard.queue.finish(first, "dead", attempt(500), reason="exhausted")
    assert await shard.queue.resend("evt", "w") == "evt:w:1"
    assert await shard.client.zcard(f"{TAG}finished") == 0
    (again,) = await shard.take()
    assert (again.id, again.body, again.attempts) == ("evt:w:1", BODY, 0)
    await shard.deliver(again)
    assert [each.state for each in await shard.queue.deliveries("w")] == ["delivered", "dead"]
    assert await shard.client.zrange(f"{TAG}finished", 0, -1) == [b"evt"]
    assert await shard.queue.resend("none", "w") is None
    await shard.queue.disable("w", "int", "so")
    assert await shard.queue.resend("evt", "w") is None


async def test_dead_letters(shard: Shard) -> None:
    """Of an integration; what is sent again leaves the list, until that is given up as well."""
    await shard.watch("w")
    await shard.watch("w", integration="other")
    for event in ("one", "two"):
        await shard.accept(event)
        (delivery,) = await shard.take()
        await shard.queue.finish(delivery, "dead", attempt(500), reason="exhausted")
    two, one = await shard.queue.dead("int")
    assert (two.id, two.reason, one.id) == ("two:w:0", "exhausted", "one:w:0")
    assert await shard.queue.dead("int", 1) == [two]
    assert await shard.queue.dead("int", before_us=two.ended_us) == [one]
    assert await shard.queue.dead("other") == []
    await shard.queue.resend("two", "w")
    assert await shard.queue.dead("int") == [one]
    (again,) = await shard.take()
    await shard.queue.resend("two", "w")
    await shard.queue.finish(again, "dead", attempt(500), reason="exhausted")
    assert await shard.queue.dead("int") == [one], "another one is on its way"
    (again,) = await shard.take()
    await shard.queue.finish(again, "dead", attempt(500), reason="exhausted")
    assert [each.id for each in await shard.queue.dead("int")] == ["two:w:2", "one:w:0"]
    assert (await shard.queue.stats()).dead == 2
    its = [each.id for each in await shard.queue.deliveries_of("two")]
    assert its == ["two:w:0", "two:w:1", "two:w:2"]


async def test_events(shard: Shard) -> None:
    """Those of an integration, the newest first, in pages."""
    await shard.accept("one")
    await shard.accept("two", body=b"2")
    await shard.queue.accept("other", "theirs", "a.b", BODY)
    two, one = await shard.queue.events("int")
    assert (two.id, two.body, two.left, one.id) == ("two", b"2", 0, "one")
    assert await shard.queue.events("int", 1) == [two]
    assert await shard.queue.events("int", before_us=two.at_us) == [one]
    assert await shard.queue.event("two") == two


async def test_large_events(shard: Shard) -> None:
    """One reply has some of them only: a longer one would end the connection."""
    await shard.watch("w")
    body = b"x" * 1_000_000
    for number in range(24):
        await shard.accept(f"e{number}", body=body)
    assert 4 <= len(await shard.queue.events("int")) < 8
    shard.cap = 24
    found = set()
    while taken := await shard.take():
        assert len(taken) < 8
        found |= {each.id for each in taken}
    assert len(found) == 24


async def test_deliveries_by_state(shard: Shard) -> None:
    """Also where few of many are in it."""
    await shard.watch("w")
    shard.cap = 1
    await shard.accept("first")
    (first,) = await shard.take()
    await shard.queue.finish(first, "dead", attempt(500), reason="exhausted")
    await shard.client.hdel(f"{TAG}health:w", "failures")
    for number in range(1_100):
        await shard.accept(f"e{number}")
    (leased,) = await shard.take()
    assert await _in_pages(shard, "dead") == [[], [], [first.id]]
    assert await _in_pages(shard, "dead", "leased") == [[], [], [leased.id, first.id]]
    assert len(await shard.queue.deliveries("w", 7, states=["queued"])) == 7
    assert [len(page) for page in await _in_pages(shard)] == [LOOKED_AT, LOOKED_AT, 101]


async def _in_pages(shard: Shard, *states: str) -> list[list[str]]:
    pages, before_us = [], 0
    while not pages or before_us:
        page = await shard.queue.deliveries("w", 2_000, before_us, states)
        pages.append([each.id for each in page])
        before_us = page.next_us
    return pages


async def test_a_page_looks_at_few(shard: Shard) -> None:
    """However many deliveries there are, and whatever states are asked for."""
    await shard.watch("w")
    for number in range(2 * LOOKED_AT):
        await shard.client.zadd(f"{TAG}recent:w", {f"e{number}:w:0": number + 1})
        await shard.client.hset(f"{TAG}delivery:e{number}:w:0", "state", "queued")
    await shard.queue.deliveries("w", states=["dead"])
    await shard.client.config_resetstat()
    page = await shard.queue.deliveries("w", states=["dead"])
    assert (page, page.next_us) == ([], LOOKED_AT + 1)
    commands = await shard.client.info("commandstats")
    assert sum(each["calls"] for each in commands.values()) < LOOKED_AT + 20


async def test_entries_of_one_moment_are_on_one_page(shard: Shard) -> None:
    """The next page is before it; where all are of one moment, a page has as many as it may."""
    scores = {"a": 9, "b": 8, "c": 8, "d": 7}
    await shard.client.zadd(f"{TAG}recent:w", {f"{name}:w:0": at for name, at in scores.items()})
    for name in scores:
        await shard.client.hset(f"{TAG}delivery:{name}:w:0", "state", "queued")
    first = await shard.queue.deliveries("w", 2)
    assert ([each.event for each in first], first.next_us) == (["a"], 9)
    second = await shard.queue.deliveries("w", 2, first.next_us)
    assert ([each.event for each in second], second.next_us) == (["c", "b"], 8)
    last = await shard.queue.deliveries("w", 2, second.next_us)
    assert ([each.event for each in last], last.next_us) == (["d"], 0)
    (one,) = await shard.queue.deliveries("w", 1, 9)
    assert one.event == "c"


async def test_a_replay(shard: Shard) -> None:
    """What the watch takes of the range, except what it has waiting or in flight."""
    for event in ("before", "in", "last"):
        await shard.accept(event)
    await shard.accept("other", "b.x")
    await shard.watch("w")
    await shard.accept("live")
    kept = {each.id: each.at_us for each in await shard.queue.events("int")}
    replayed = await shard.queue.replay("int", "w", kept["in"], LATER_US, 10)
    assert replayed == Replayed(2, True, 0, waiting=1)
    again = await shard.queue.replay("int", "w", kept["in"], LATER_US, 10)
    assert again == Replayed(0, True, 0, waiting=3)
    replayed = await shard.queue.replay("int", "w", 0, kept["in"], 10)
    assert replayed == Replayed(1, True, 0)
    taken = [each.id for each in await shard.take()]
    assert taken == ["live:w:0", "in:w:1", "last:w:1", "before:w:1"]
    assert await shard.queue.replay("int", "none", 0, LATER_US, 10) is None
    await shard.queue.disable("w", "int", "so")
    assert await shard.queue.replay("int", "w", 0, LATER_US, 10) is None


async def test_a_replay_of_many(shard: Shard) -> None:
    """It says where it stopped; the rest is another job. Each call of the script does a part."""
    for number in range(1_200):
        await shard.accept(f"e{number}")
    await shard.watch("w")
    first = await shard.queue.replay("int", "w", 0, LATER_US, 1_100)
    assert first is not None
    assert (first.count, first.complete) == (1_100, False)
    rest = await shard.queue.replay("int", "w", first.next_us, LATER_US, 1_100)
    assert rest == Replayed(100, True, 0)
    listed = [each.split(":")[0] for page in await _in_pages(shard) for each in page]
    assert listed == [f"e{number}" for number in reversed(range(1_200))]
    assert (await shard.queue.stats()).waiting == 1_200


async def test_a_replay_without_room(shard: Shard) -> None:
    """What fits is queued; a resend has to fit as well."""
    for number in range(3):
        await shard.accept(f"e{number}")
    await shard.watch("w")
    shard.budget = (await shard.queue.stats()).bytes + 1_600
    replayed = await shard.queue.replay("int", "w", 0, LATER_US, 10)
    assert replayed is not None
    assert (replayed.count, replayed.complete) == (2, False)
    with pytest.raises(BudgetSpent):
        await shard.queue.replay("int", "w", replayed.next_us, LATER_US, 10)
    with pytest.raises(BudgetSpent):
        await shard.queue.resend("e2", "w")


async def test_replayed_deliveries_go_last(shard: Shard) -> None:
    """After the live ones of their watch, also after an attempt failed or a lease was lost.

    Those of other watches wait for one visit of it at most.
    """
    for number in range(20):
        await shard.accept(f"old{number}", "busy.x")
    await shard.watch("busy", "busy.*")
    await shard.watch("quiet", "quiet.*")
    shard.cap = 100
    await shard.queue.replay("int", "busy", 0, LATER_US, 10_000)
    await shard.accept("q1", "quiet.x")
    await shard.accept("q2", "quiet.x")
    taken = await shard.take(VISIT + 2)
    assert [each.id for each in taken[VISIT:]] == ["q1:quiet:0", "q2:quiet:0"]
    await shard.fail(taken[0])
    await shard.end_leases()
    await shard.accept("live", "busy.x")
    (first,) = await shard.take(1)
    if first.id.startswith("q"):
        (first,) = [each for each in await shard.take(3) if not each.id.startswith("q")][:1]
    assert first.id == "live:busy:0"


async def test_trim(shard: Shard) -> None:
    """Expired events go, then the oldest; what waits never does."""
    await shard.watch("w", "b.*")
    await shard.accept("waits", "b.x")
    for number in range(6):
        await shard.accept(f"e{number}", body=b"x" * 1_000)
    assert await shard.queue.trim(1_000_000) == 0
    await shard.client.zadd(f"{TAG}finished", {"e3": 1})
    assert await shard.queue.trim(1_000_000) == 1
    assert await shard.queue.event("e3") is None
    has = (await shard.queue.stats()).bytes
    assert await shard.queue.trim(has - 3_000) == 2
    assert [each.id for each in await shard.queue.events("int")] == ["e5", "e4", "e2", "waits"]
    assert await shard.queue.trim(0) == 3
    assert await shard.queue.trim(0) == 0
    assert [each.id for each in await shard.queue.events("int")] == ["waits"]


async def test_stats(shard: Shard) -> None:
    """What may be sent now tells how late it is; what is held back does not."""
    await shard.watch("w")
    assert (await shard.queue.stats()).oldest_due_s == 0.0
    await shard.accept("one")
    await shard.client.zadd(f"{TAG}heads", {"w": (await _now_us(shard.client)) - 60 * SECOND})
    assert (await shard.queue.stats()).oldest_due_s >= 60
    await shard.resources.pause(watch_of("w"))
    assert (await shard.queue.stats()).oldest_due_s == 0.0
    await shard.resources.resume(watch_of("w"))
    stats = await shard.queue.stats()
    assert stats.oldest_due_s > 0.0
    assert (stats.waiting, stats.in_flight, stats.oldest_finished_s) == (1, 0, -1.0)
    await shard.take()
    assert (await shard.queue.stats()).oldest_due_s == 0.0
    await shard.end_leases()
    assert (await shard.queue.stats()).oldest_due_s > 60, "no courier has taken what was lost"


async def test_an_event_that_was_sent_too_often(shard: Shard) -> None:
    """It is not sent once more: each step looks at all deliveries of an event."""
    await shard.watch("w")
    await shard.accept("evt")
    (first,) = await shard.take()
    await shard.deliver(first)
    await shard.client.hset(f"{TAG}event:evt", "resent", 199)
    assert await shard.queue.resend("evt", "w") == "evt:w:200"
    (last,) = await shard.take()
    await shard.deliver(last)
    with pytest.raises(ResentTooOften):
        await shard.queue.resend("evt", "w")
    assert await shard.queue.replay("int", "w", 0, 4_000_000_000_000_000, 9) == Replayed(0, True, 0)


async def test_nothing_stays_of_a_watch(shard: Shard) -> None:
    """What is in flight when it is removed may fail: it leaves no breaker, and no health."""
    await shard.watch("w")
    for number in range(FAILURES + 1):
        await shard.accept(f"e{number}")
    taken = await shard.take()
    await shard.resources.remove_watch(watch_of("w"))
    for delivery in taken:
        await shard.fail(delivery)
    assert await shard.take() == []
    assert (await shard.queue.stats()).breakers == 0
    assert not await shard.client.exists(f"{TAG}health:w")


async def test_a_reply_that_cannot_be_read(shard: Shard) -> None:
    """It is an error of the store, which those that ask expect: a courier goes on after it."""

    async def execute(*_: object) -> object:
        return [b"of another version"]

    queue = DeliveryQueue(execute, SHARD, lambda: 1_000)
    for asked in (queue.claim("token", 1, 1), queue.stats(), queue.trim(0), queue.events("int")):
        with pytest.raises(StoreDown, match="unexpected reply"):
            await asked
    await shard.watch("w")
    await shard.accept("evt")
    await shard.client.hset(f"{TAG}delivery:evt:w:0", "log", "[1, 2, 3, 4, 5]")
    with pytest.raises(StoreDown, match="unexpected reply"):
        await shard.queue.delivery("evt:w:0")


async def test_nothing_to_wait_for(shard: Shard) -> None:
    """What a claim does not ask for is not due for it: it would be made again for nothing."""
    await shard.watch("unproven")
    await shard.accept("evt")
    assert await shard.claim(others=0) == Claim((), None, 0)
    assert len((await shard.claim(others=1)).deliveries) == 1


async def test_what_could_be_sent(shard: Shard) -> None:
    """Of each watch as many as may begin: not what is later, or held back by its receiver."""

    async def due() -> int:
        return (await shard.queue.stats()).due

    for watch in ("w", "v", "p"):
        await shard.watch(watch)
    assert await due() == 0
    for number in range(CAP + 3):
        await shard.accept(f"e{number}")
    await shard.resources.pause(watch_of("p"))
    assert await due() == 2 * CAP
    taken = await shard.take(3)
    assert (await due(), len(taken)) == (2 * CAP - 3, 3)
    waits = taken[0]
    await shard.fail(waits, wait_s=60.0)
    assert await due() == 2 * CAP - 2, "its slot is free, and it is not due itself"
    watch = waits.id.split(":")[1]
    await shard.client.zremrangebyrank(f"{TAG}queue:{watch}", 0, -3)
    assert await due() == CAP + 1, "of one with few, those"


async def test_what_could_be_sent_of_many_watches(shard: Shard) -> None:
    """Only some are looked at; each of the others counts."""
    names = [f"w{number}" for number in range(50)]
    for name in names:
        await shard.watch(name)
    await shard.accept("one")
    await shard.accept("two")
    for number in range(30):
        await shard.client.zadd(f"{TAG}heads", {f"other{number}": await _now_us(shard.client)})
    assert (await shard.queue.stats()).due == 2 * 50 + 30


async def test_a_failure_after_a_watch_was_disabled(shard: Shard) -> None:
    """It is not tried again: nothing would end it."""
    await shard.watch("w")
    await shard.accept("evt")
    (delivery,) = await shard.take()
    await shard.queue.disable("w", "int", "so")
    await shard.fail(delivery, wait_s=9.0)
    assert await shard.state(delivery.id) == "cancelled"
    assert (await shard.queue.stats()).finished == 1


async def test_the_budget(store_client: Any) -> None:
    """What is over makes room, the oldest first; what waits never does."""
    shard = Shard(store_client, budget=16_600)
    await shard.watch("w")
    for number in range(3):
        assert await shard.accept(f"e{number}", body=b"x" * 2_000) == 1
    for delivery in await shard.take():
        if not delivery.id.startswith("e2"):
            await shard.deliver(delivery)
    assert await shard.accept("e3", body=b"x" * 2_000) == 1
    assert await shard.accept("e4", body=b"x" * 2_000) == 1
    assert await store_client.exists(f"{TAG}event:e0", f"{TAG}delivery:e0:w:0") == 0
    assert await store_client.exists(f"{TAG}event:e2", f"{TAG}event:e3") == 2
    await shard.accept("e5", body=b"x" * 2_000)
    with pytest.raises(BudgetSpent):
        await shard.accept("e6", body=b"x" * 2_000)
    assert await store_client.zscore(f"{TAG}seen", "e6") is None, "it may be sent again"
    assert await store_client.exists(f"{TAG}event:e2") == 1


async def test_an_account_has_a_share(store_client: Any) -> None:
    """Beyond it, its events have no room while their deliveries wait; those of others do."""
    queue = DeliveryQueue(
        store_client.execute_command, SHARD, lambda: 1_000_000, share=lambda account: 11_000
    )
    watch = json.dumps({"id": "w", "events": ["a.*"]})
    for integration in ("one", "another", "two"):
        await store_client.hset(f"{TAG}watches:{integration}", f"w-{integration}", watch)
    body = b"x" * 8_000
    assert await queue.accept("one", "e1", "a.b", body, "acme") == 1
    assert (await queue.stats()).accounts == {"acme": 10_150}
    for integration in ("one", "another"):
        with pytest.raises(BudgetSpent):
            await queue.accept(integration, "e2", "a.b", body, "acme")
    assert await queue.accept("one", "e3", "other.type", body, "acme") == 0, "nothing waits for it"
    assert await queue.accept("two", "e4", "a.b", body, "other") == 1
    claim = await queue.claim("token", 10, 10)
    attempt = Attempt(1, 1, 200, "")
    for each in claim.deliveries:
        await queue.finish(each, "delivered", attempt)
    assert (await queue.stats()).accounts == {}
    assert await queue.accept("another", "e2", "a.b", body, "acme") == 1
    with pytest.raises(BudgetSpent):
        await queue.resend("e1", "w-one", "acme")


async def test_events_of_an_older_gateway(shard: Shard) -> None:
    """They are of no account; they end as others do, and nothing stays counted."""
    await shard.watch("w")
    await shard.accept("evt")
    await shard.client.hdel(f"{TAG}event:evt", "account")
    await shard.client.delete(f"{TAG}accounts")
    await shard.client.hset(f"{TAG}pending", "int", 1_412)
    await shard.deliver((await shard.take())[0])
    assert await shard.queue.resend("evt", "w") == "evt:w:1"
    assert (await shard.queue.stats()).accounts == {}


async def test_what_a_paused_watch_holds_expires(shard: Shard) -> None:
    """As what is tried does: then it is a dead letter, and can be sent again."""
    await shard.watch("w")
    await shard.watch("other")
    await shard.resources.pause(watch_of("w"))
    for number in range(150):
        await shard.accept(f"e{number}")
    await shard.prove("other")
    while taken := await shard.take():
        for each in taken:
            await shard.deliver(each)
    assert (await shard.queue.stats()).waiting == 150
    old = await _now_us(shard.client) - EXPIRY_S * SECOND
    for number in range(149):
        await shard.client.zadd(f"{TAG}queue:w", {f"e{number}:w:0": old})
    # Its next event lets it be looked at.
    await shard.accept("last")
    while (await shard.queue.stats()).dead < 149:
        before = (await shard.queue.stats()).dead
        assert {each.id for each in await shard.take()} <= {"last:other:0"}
        assert 0 < (await shard.queue.stats()).dead - before <= 100, "some in each call"
    assert await shard.take() == []
    assert (await shard.queue.stats()).waiting == 2
    delivery = await shard.queue.delivery("e0:w:0")
    assert delivery is not None
    assert (delivery.state, delivery.reason) == ("dead", "expired")
    assert await shard.queue.resend("e0", "w") == "e0:w:1"
    await shard.resources.resume(watch_of("w"))
    taken = await shard.take()
    assert {each.id for each in taken} == {"e149:w:0", "last:w:0", "e0:w:1"}


async def test_an_event_is_not_sent_again_for_ever(shard: Shard) -> None:
    """What looks at all its deliveries has to be quick."""
    await shard.watch("w")
    await shard.accept("evt")
    await shard.client.hset(f"{TAG}event:evt", "resent", 199)
    assert await shard.queue.resend("evt", "w") == "evt:w:200"
    with pytest.raises(ResentTooOften):
        await shard.queue.resend("evt", "w")
    while taken := await shard.take():
        for each in taken:
            await shard.deliver(each)
    assert await shard.queue.replay("int", "w", 0, LATER_US, 9) == Replayed(0, True, 0)


async def test_old_events_are_dropped(shard: Shard) -> None:
    """A day after they are over, when the next one arrives."""
    await shard.watch("w")
    await shard.accept("old")
    await shard.deliver((await shard.take())[0])
    await shard.client.zadd(f"{TAG}finished", {"old": 1})
    await shard.accept("new")
    names = [name.decode() async for name in shard.client.scan_iter(f"{TAG}*")]
    assert [name for name in names if "old" in name] == []
    assert await shard.accept("old") == 0, "it is known, though it was dropped"
    assert await shard.client.zrange(f"{TAG}recent:w", 0, -1) == [b"new:w:0"]
    size = await shard.client.hget(f"{TAG}event:new", "size")
    assert await shard.client.get(f"{TAG}bytes") == size


async def test_a_server_that_lost_the_scripts(shard: Shard) -> None:
    """They are sent again."""
    await shard.watch("w")
    await shard.client.script_flush()
    assert await shard.accept("evt") == 1
    await shard.client.script_flush()
    assert len(await shard.take()) == 1


STEPS = st.sampled_from(
    [
        *("accept", "accept", "claim", "claim one", "deliver", "deliver", "fail", "kill"),
        *("lose", "resume", "pause", "delete", "probe", "resend", "replay", "disable", "trim"),
        *("rate", "expire"),
    ]
)
RATES = (None, Rate(1, 3_600 * SECOND), Rate(40, SECOND), Rate(2_000, SECOND))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(STEPS, st.integers(0, 7)), max_size=60))
async def test_nothing_is_lost(redis_server: RedisServer, steps: list[tuple[str, int]]) -> None:
    """Whatever happens in whatever order, each delivery is at one place, and all counts are true.

    At the end, with everything working, all that is not dead or cancelled is delivered.
    """
    with redis_server.client() as wiped:
        wiped.flushall()
    async with redis_client(parse_url(redis_server.url)) as client:
        shard = Shard(client, cap=3)
        held: list[Claimed] = []
        for watch in ("w0", "w1", "w2"):
            events = ("a.c",) if watch == "w2" else ("a.*",)
            assert await shard.resources.add_watch(replace(watch_of(watch), events=events))
        for number, (step, which) in enumerate(steps):
            await _take_step(shard, step, which, held, f"e{number}")
            await _is_consistent(shard)
        for watch in ("w0", "w1", "w2"):
            await shard.resources.add_watch(watch_of(watch))
            await _work_again(shard, watch)
        await shard.end_leases()
        while found := await shard.take():
            for delivery in found:
                assert await shard.deliver(delivery)
            for watch in ("w0", "w1", "w2"):
                await _work_again(shard, watch)
        await _is_consistent(shard)
        states = Counter(await _states(shard))
        assert set(states) <= {"delivered", "dead", "cancelled"}
        events = {event.decode() for event in await client.zrange(f"{TAG}finished", 0, -1)}
        accepted = {f"e{n}" for n, (step, _) in enumerate(steps) if step == "accept"}
        # Those that were dropped were over.
        assert events <= accepted
        assert "trim" in {step for step, _ in steps} or events == accepted
        await shard.queue.trim(0)
        left = {name.decode() async for name in client.scan_iter(f"{TAG}*")}
        kinds = {name.removeprefix(TAG).split(":")[0] for name in left}
        assert kinds <= {
            *("watches", "seen", "health", "counts", "bytes", "disabled"),
        }, "nothing else is left"


async def _take_step(shard: Shard, step: str, which: int, held: list[Claimed], event: str) -> None:
    watch = f"w{which % 3}"
    delivery = held.pop(which % len(held)) if held and step in _ENDS else None
    if step == "accept":
        await shard.accept(event, "a.c" if which % 2 else "a.b")
    elif step.startswith("claim"):
        held += await shard.take(1 if step == "claim one" else 5, others=which)
    elif step == "resend":
        await shard.queue.resend(f"e{which}", watch)
    elif step == "lose":
        await shard.end_leases()
    elif step == "probe":
        await _work_again(shard, watch)
    elif step == "expire":
        await _work_again(shard, watch, at_us=1)
    elif step == "rate":
        its = await shard.resources.watch("int", watch)
        new = its and replace(its, rate=RATES[which % len(RATES)])
        assert its is None or new is None or await shard.resources.replace_watch(its, new)
    elif step == "replay":
        await shard.queue.replay("int", watch, 0, LATER_US, 1 + which)
    elif step == "trim":
        await shard.queue.trim(700 * which)
    elif step == "disable":
        await shard.queue.disable(watch, "int", "so")
    elif step == "pause":
        await shard.resources.pause(watch_of(watch))
    elif step == "resume":
        await shard.resources.resume(watch_of(watch))
    elif step == "delete":
        await shard.resources.remove_watch(watch_of(watch))
    elif delivery is not None and step == "deliver":
        await shard.deliver(delivery)
    elif delivery is not None and step == "fail":
        await shard.fail(delivery, wait_s=0.001 * which, probe_s=0.001)
    elif delivery is not None and step == "kill":
        await shard.queue.finish(delivery, "dead", attempt(410), reason="gone")


_ENDS = ("deliver", "fail", "kill")


async def _work_again(shard: Shard, watch: str, at_us: int = 0) -> None:
    """Nothing holds the watch back, and all that waits is due. at_us: since then; 0: a second"""
    at_us = at_us or await _now_us(shard.client) - SECOND
    for queue in (f"{TAG}queue:{watch}", f"{TAG}replays:{watch}"):
        for delivery in await shard.client.zrange(queue, 0, -1):
            await shard.client.zadd(queue, {delivery: at_us})
    await shard.client.hdel(f"{TAG}health:{watch}", "allowed")
    await shard.resources.resume(watch_of(watch))


async def _states(shard: Shard) -> list[str]:
    found = [
        await shard.client.hget(name, "state")
        async for name in shard.client.scan_iter(f"{TAG}delivery:*")
    ]
    return [state.decode() for state in found]


async def _is_consistent(shard: Shard) -> None:
    client = shard.client
    leased = {each.decode() for each in await client.zrange(f"{TAG}leases", 0, -1)}
    waiting: set[str] = set()
    heads: dict[str, float] = {}
    breakers: set[str] = set()
    for watch in ("w0", "w1", "w2"):
        queued: dict[str, float] = {}
        for queue in ("queue", "replays"):
            found = await client.zrange(f"{TAG}{queue}:{watch}", 0, -1, withscores=True)
            assert not queued.keys() & {each.decode() for each, _ in found}
            queued |= {each.decode(): due for each, due in found}
        waiting |= queued.keys()
        mine = {each for each in leased if f":{watch}:" in each}
        health = await shard.health(watch)
        # Of one that was removed nothing is kept.
        if health or await client.hexists(f"{TAG}watches:int", watch):
            assert int(health.get("held", 0)) == len(mine)
        turns = [await client.zscore(f"{TAG}turns:{kind}", watch) for kind in ("good", "other")]
        head = await client.zscore(f"{TAG}heads", watch)
        assert turns.count(None) == (2 if head is None else 1)
        if "open" in health and health.get("status") != "disabled":
            breakers.add(watch)
        if queued and health.get("status") == "paused":
            heads[watch] = min(queued.values()) + EXPIRY_S * SECOND
        elif queued and "status" not in health and _has_room(shard, health):
            opens = float(health.get("open", 0))
            heads[watch] = max(min(queued.values()), opens, _allowed_next(health))
        elif queued and health.get("status") == "disabled":
            # What was lost with its courier: the next claims cancel it.
            assert head is not None
            heads[watch] = head
        assert head == heads.get(watch)
    assert not leased & waiting
    left: Counter[str] = Counter(each.split(":")[0] for each in leased | waiting)
    sizes, pending, finished, events = 0, 0, 0, set()
    async for name in client.scan_iter(f"{TAG}event:*"):
        event = name.decode().removeprefix(f"{TAG}event:")
        assert int(await client.hget(name, "left")) == left[event]
        size = int(await client.hget(name, "size"))
        sizes += size
        pending += size if left[event] else 0
        finished += not left[event]
        events.add(event)
    assert {each.id for each in await shard.queue.events("int", 100)} == events
    dead: set[str] = set()
    states: dict[str, dict[int, str]] = {}
    async for name in client.scan_iter(f"{TAG}delivery:*"):
        delivery = name.decode().removeprefix(f"{TAG}delivery:")
        state = (await client.hget(name, "state")).decode()
        assert (delivery in leased) == (state == "leased")
        assert (delivery in waiting) == (state in ("queued", "waiting"))
        pair, _, number = delivery.rpartition(":")
        states.setdefault(pair, {})[int(number)] = state
    # What was sent to a watch again is no dead letter, whatever becomes of that.
    for pair, its in states.items():
        if its[max(its)] == "dead":
            dead.add(f"{pair}:{max(its)}")
    assert {each.id for each in await shard.queue.dead("int", 100)} == dead
    before = await _now_us(client)
    stats = await shard.queue.stats()
    after = await _now_us(client)
    assert (stats.waiting, stats.in_flight) == (len(waiting), len(leased))
    assert (stats.dead, stats.finished, stats.bytes) == (len(dead), finished, sizes)
    assert stats.accounts == ({"": pending} if pending else {})
    assert stats.breakers == len(breakers)
    dues = [*heads.values()]
    dues += [ends for _, ends in await client.zrange(f"{TAG}leases", 0, 0, withscores=True)]
    first = min(dues, default=after)
    assert max(0, before - first) <= stats.oldest_due_s * SECOND + 1
    assert stats.oldest_due_s * SECOND <= max(0, after - first) + 1


async def _now_us(client: Any) -> int:
    seconds, microseconds = await client.time()
    return int(seconds) * SECOND + int(microseconds)


def _has_room(shard: Shard, health: dict[str, str]) -> bool:
    held = int(health.get("held", 0))
    if "open" in health:
        return held == 0
    return held < min(shard.cap, int(health.get("ramp", shard.cap)))


def _allowed_next(health: dict[str, str]) -> int:
    if "step" not in health:
        return 0
    step = int(health["step"])
    return int(health.get("allowed", 0)) + 10_000 // step * step


def watch_of(name: str) -> Watch:
    return Watch(name, "int", "https://x", ("a.*",), 1)


MIB = 1024 * 1024


@pytest.mark.parametrize(("size", "events"), [(MIB, 32), (4 * MIB - 1, 2), (12 * MIB, 2)])
async def test_a_claim_is_never_too_long_to_be_read(
    redis_server: RedisServer, shard: Shard, size: int, events: int
) -> None:
    """The connection of couriers refuses a reply of 16 MiB; an event of 12 MiB goes alone.

    An event has three times the bytes of its webhook, if it is all in letters with accents.
    """
    watches = 8 if size == MIB else 2
    shard.budget = 1024 * MIB
    for number in range(watches):
        await shard.watch(f"wat_{number}")
    await shard.prove(*(f"wat_{number}" for number in range(watches)))
    await shard.accept("small")
    for number in range(events):
        await shard.accept(f"large{number}", body=b"x" * size)
    delivered: set[str] = set()
    async with open_link(parse_url(redis_server.url)) as execute:
        queue = DeliveryQueue(execute, SHARD, lambda: shard.budget)

        async def is_connected() -> bool:
            with suppress(StoreDown):
                return bool(await execute("PING"))
            return False

        await eventually(is_connected, "the link is connected")
        while len(delivered) < watches * (events + 1):
            claimed = (await queue.claim("token", 256, 64)).deliveries
            assert claimed
            assert len(claimed) == 1 or sum(len(each.body) for each in claimed) <= 4 * MIB
            for each in claimed:
                assert await queue.finish(each, "delivered", attempt())
                delivered.add(each.id)
        assert len(await queue.events("int")) == (4 if size == MIB else 1)


async def test_what_is_too_long_to_be_read(redis_server: RedisServer, shard: Shard) -> None:
    """It is given up, and returned by nothing: the connection of couriers is for all events."""
    await shard.watch("w")
    shard.budget = 1024 * MIB
    await shard.accept("long", body=b"x" * (17 * MIB))
    await shard.accept("after")
    await shard.client.hset(f"{TAG}delivery:other:w:0", "state", "queued")
    await shard.client.hset(f"{TAG}delivery:other:w:0", "log", b"x" * (17 * MIB))
    await shard.client.zadd(f"{TAG}recent:w", {"other:w:0": 1})
    async with open_link(parse_url(redis_server.url)) as execute:
        queue = DeliveryQueue(execute, SHARD, lambda: shard.budget)

        async def is_connected() -> bool:
            with suppress(StoreDown):
                return bool(await execute("PING"))
            return False

        await eventually(is_connected, "the link is connected")
        (after,) = (await queue.claim("token", 256, 64)).deliveries
        assert after.id == "after:w:0"
        (dead,) = await queue.dead("int")
        assert (dead.id, dead.state) == ("long:w:0", "dead")
        assert dead.reason == f"the event is too long: {17 * MIB} bytes"
        assert [(each.id, each.body) for each in await queue.events("int")] == [
            ("after", BODY),
            ("long", b""),
        ]
        long = await queue.event("long")
        assert long is not None
        assert (long.body, long.left) == (b"", 0)
        listed = await queue.deliveries("w")
        assert [each.id for each in listed] == ["after:w:0", "long:w:0", "other:w:0"]
        other = await queue.delivery("other:w:0")
        assert other is not None
        assert other.attempts == ()
        assert await queue.finish(after, "delivered", attempt())
        assert (await queue.stats()).waiting == 0
        await shard.client.hset(
            f"{TAG}watches:int", "w", json.dumps({"events": ["a.*"], "x": "x" * 17 * MIB})
        )
        await queue.accept("int", "last", "a.b", BODY)
        (last,) = (await queue.claim("token", 256, 64)).deliveries
        assert (last.id, last.watch) == ("last:w:0", b"")


@pytest.mark.parametrize("member", ["x", "", "evt", "a:b", ":::", "x" * 100_000])
async def test_members_of_another_program(shard: Shard, member: str) -> None:
    """They are dropped, and what waits beside them is delivered."""
    await shard.watch("w")
    await shard.client.zadd(f"{TAG}queue:w", {member: 0})
    await shard.accept("evt")
    claim = await shard.claim()
    assert ([each.id for each in claim.deliveries], claim.faults) == (["evt:w:0"], ())
    assert await shard.client.exists(f"{TAG}queue:w") == 0
    assert (await shard.queue.stats()).waiting == 0


async def test_one_watch_that_cannot_be_read(shard: Shard) -> None:
    """Others get theirs in the same claim. It is visited again later: nothing of it is lost."""
    for watch in ("v", "w"):
        await shard.watch(watch)
    await shard.accept("evt")
    await shard.client.set(f"{TAG}replays:w", "another program's")
    claim = await shard.claim()
    assert "evt:v:0" in [each.id for each in claim.deliveries]
    assert [fault.split(": ")[0] for fault in claim.faults] == ["w"]
    assert "WRONGTYPE" in claim.faults[0]
    later = await shard.client.zscore(f"{TAG}turns:other", "w")
    assert later is not None
    assert await shard.take() == []
    await shard.client.delete(f"{TAG}replays:w")
    await shard.client.zadd(f"{TAG}turns:other", {"w": 1})
    await shard.end_leases()
    again = await shard.claim()
    assert {each.id for each in again.deliveries} == {"evt:v:0", "evt:w:0"}
    assert again.faults == ()
