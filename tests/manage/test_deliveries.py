"""Events and deliveries of an account: what can be seen and done, and what every fault says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.domain.webhooks.deliveries import ALL, Filter
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import Watch
from gateway.manage.audit_log import Actor
from gateway.manage.deliveries import (
    Deliveries,
    delivery_as_json,
    delivery_states,
    event_as_json,
    event_view_as_json,
    read_filter,
)
from gateway.manage.problems import Conflict, Full, Invalid, NotThere
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.queue import (
    SHARDS,
    Attempt,
    Claimed,
    DeliveryQueue,
    Replayed,
    shard_of,
    tag_of,
)
from gateway.stores.webhooks.resources import Resources
from tests.kit.redis_server import RedisServer

ACTOR = Actor("key 7h3k", "api")
NOW_US = 1_800_000_000_000_000
LATER_US = 4_000_000_000_000_000
BODY = b'{"id":"evt"}'


class Bench:
    def __init__(self, client: Any) -> None:
        self.client = client
        self.budget = 1_000_000
        self.store = Resources(executing(client))
        self.audit = MemoryAuditStore()
        self.queues = [
            DeliveryQueue(executing(client), shard, lambda: self.budget) for shard in range(SHARDS)
        ]
        self.queue = self.queues[shard_of("int_1")]
        self.deliveries = Deliveries(self.store, self.queues, self.audit, lambda: NOW_US)

    async def accept(self, event: str, body: bytes = BODY) -> None:
        await self.queue.accept("int_1", event, "a.b", body)

    async def take(self) -> Claimed:
        (found,) = (await self.queue.claim("token", 1, 1)).deliveries
        return found

    async def give_up(self) -> None:
        attempt = Attempt(NOW_US, 7, 500, "no")
        await self.queue.finish(await self.take(), "dead", attempt, reason="exhausted")

    async def actions(self) -> list[str]:
        entries = await self.audit.entries(before=None, count=50)
        return [entry.event.action for entry in reversed(entries)]


@pytest.fixture
async def bench(redis_server: RedisServer) -> AsyncIterator[Bench]:
    client = redis_client(parse_url(redis_server.url))
    made = Bench(client)
    await made.store.add_integration(Integration("int_1", "acme", "github", "Code", 1))
    await made.store.add_integration(Integration("int_2", "other", "github", "Theirs", 1))
    await made.store.add_watch(Watch("wat_1", "int_1", "https://x.example/", ("a.*",), 1))
    yield made
    await client.aclose()


async def test_what_became_of_an_event(bench: Bench) -> None:
    """Its deliveries with their attempts, for its account and for operators."""
    await bench.accept("evt_1")
    await bench.give_up()
    for account in ("acme", None):
        view = await bench.deliveries.event(account, "int_1", "evt_1")
        (delivery,) = view.deliveries
        assert await bench.deliveries.events(account, "int_1") == [view.event]
        assert await bench.deliveries.of_watch(account, "int_1", "wat_1") == [delivery]
        assert await bench.deliveries.of_watch(account, "int_1", "wat_1", ["queued"]) == []
        assert await bench.deliveries.dead(account, "int_1") == [delivery]
        assert await bench.deliveries.delivery(account, "int_1", "wat_1", delivery.id) == delivery
        assert await bench.deliveries.event_views(account, "int_1") == [view]
    assert delivery_states(view.deliveries) == [("dead", 1)]
    shown = event_view_as_json(view)
    assert shown["event"] == {"id": "evt"}
    assert (shown["type"], shown["open_deliveries"]) == ("a.b", 0)
    assert shown["deliveries"] == [delivery_as_json(delivery)]
    assert delivery_as_json(delivery) | {"created": "", "ended": ""} == {
        "id": "evt_1:wat_1:0",
        "event": "evt_1",
        "watch": "wat_1",
        "state": "dead",
        "reason": "exhausted",
        "created": "",
        "ended": "",
        "attempts": [{"at": "2027-01-15T08:00:00Z", "status": 500, "ms": 7, "answer": "no"}],
    }


async def test_what_is_not_over(bench: Bench) -> None:
    """It has no end; an event of others' writing may be no JSON."""
    await bench.accept("evt_1", b"{")
    (delivery,) = await bench.deliveries.of_watch("acme", "int_1", "wat_1", ["queued", "dead"])
    shown = delivery_as_json(delivery)
    assert (shown["ended"], shown["reason"], shown["attempts"]) == (None, None, [])
    (event,) = await bench.deliveries.events("acme", "int_1")
    assert event_as_json(event)["event"] is None


async def test_another_accounts(bench: Bench) -> None:
    """It does not exist for this one, whatever it asks for."""
    await bench.accept("evt_1")
    its = bench.deliveries
    for call in (
        its.events("other", "int_1"),
        its.event("other", "int_1", "evt_1"),
        its.of_watch("other", "int_1", "wat_1"),
        its.delivery("other", "int_1", "wat_1", "evt_1:wat_1:0"),
        its.dead("other", "int_1"),
        its.resend(ACTOR, "other", "int_1", "wat_1", "evt_1"),
        its.replay(ACTOR, "other", "int_1", "wat_1", 0, LATER_US),
        its.events(None, "int_3"),
    ):
        with pytest.raises(NotThere, match="integration"):
            await call
    assert await bench.actions() == []


async def test_what_is_not_there(bench: Bench) -> None:
    """Also what is there under another integration or watch."""
    await bench.accept("evt_1")
    same_shard = next(
        name for name in (f"int_x{n}" for n in range(999)) if shard_of(name) == shard_of("int_1")
    )
    await bench.store.add_integration(Integration(same_shard, "acme", "github", "X", 1))
    await bench.store.add_watch(Watch("wat_2", same_shard, "https://x.example/", ("a.*",), 1))
    its = bench.deliveries
    with pytest.raises(NotThere, match="event"):
        await its.event("acme", "int_1", "evt_2")
    with pytest.raises(NotThere, match="event"):
        await its.event("acme", same_shard, "evt_1")
    with pytest.raises(NotThere, match="event"):
        await its.resend(ACTOR, "acme", same_shard, "wat_2", "evt_1")
    with pytest.raises(NotThere, match="watch"):
        await its.of_watch("acme", "int_1", "wat_2")
    for delivery in ("evt_1:wat_1:0", "evt_1:wat_2:0", "evt_1", "a:wat_2:b:c"):
        with pytest.raises(NotThere, match="delivery"):
            await its.delivery("acme", same_shard, "wat_2", delivery)


async def test_a_resend(bench: Bench) -> None:
    """It leaves the dead letters, and is in the audit log."""
    await bench.accept("evt_1")
    await bench.give_up()
    made = await bench.deliveries.resend(ACTOR, "acme", "int_1", "wat_1", "evt_1")
    assert made == "evt_1:wat_1:1"
    assert (await bench.take()).id == made
    assert await bench.deliveries.dead("acme", "int_1") == []
    assert await bench.actions() == ["watch.resend"]


async def test_a_replay(bench: Bench) -> None:
    for number in range(3):
        await bench.accept(f"evt_{number}")
        await bench.give_up()
    _, second, _ = await bench.deliveries.events("acme", "int_1")
    replay = bench.deliveries.replay
    made = await replay(ACTOR, "acme", "int_1", "wat_1", second.at_us, LATER_US)
    assert made == Replayed(2, True, 0)
    made = await replay(ACTOR, "acme", "int_1", "wat_1", second.at_us, LATER_US)
    assert made == Replayed(0, True, 0, waiting=2)
    assert await bench.actions() == ["watch.replay"]
    (entry,) = await bench.audit.entries(before=None, count=50)
    assert entry.event.after is not None
    assert entry.event.after["deliveries"] == 2
    with pytest.raises(Invalid, match="to: found 2026-"):
        await replay(ACTOR, "acme", "int_1", "wat_1", second.at_us, second.at_us)


async def test_what_cannot_be_sent_again_now(bench: Bench) -> None:
    """Where there is no room, or the watch is disabled."""
    await bench.accept("evt_1")
    await bench.give_up()
    its = bench.deliveries
    for problem, words in ((Full, "no room"), (Conflict, "is disabled: resume it")):
        bench.budget = 100 if problem is Full else 1_000_000
        with pytest.raises(problem, match=words):
            await its.resend(ACTOR, "acme", "int_1", "wat_1", "evt_1")
        with pytest.raises(problem, match=words):
            await its.replay(ACTOR, "acme", "int_1", "wat_1", 0, LATER_US)
        await bench.queue.disable("wat_1", "int_1", "so")
    assert await bench.actions() == []


async def test_what_was_sent_too_often(bench: Bench) -> None:
    """A conflict that says so: to resume a watch, or to wait for room, would not help."""
    await bench.accept("evt_1")
    await bench.client.hset(f"{tag_of(shard_of('int_1'))}event:evt_1", "resent", 200)
    with pytest.raises(Conflict, match="sent again as often as one may be"):
        await bench.deliveries.resend(ACTOR, "acme", "int_1", "wat_1", "evt_1")


async def test_faults(bench: Bench) -> None:
    its = bench.deliveries
    for most in (0, 201):
        with pytest.raises(Invalid, match=f"limit: found {most}, expected 1 to 200"):
            await its.events("acme", "int_1", most)
    with pytest.raises(Invalid, match="state: found 'lost', expected one of queued, "):
        await its.of_watch("acme", "int_1", "wat_1", ["dead", "lost"])


async def test_by_type_and_time(bench: Bench) -> None:
    """Events by when they were accepted, deliveries by when they were made, and dead letters by
    when they were given up."""
    await bench.accept("evt_1")
    await bench.queue.accept("int_1", "evt_2", "a.c.d", BODY)
    await bench.give_up()
    await bench.give_up()
    its = bench.deliveries
    second, first = await its.of_watch("acme", "int_1", "wat_1")
    assert first.ended_us > second.at_us

    async def listed(wanted: Filter, *states: str) -> list[int]:
        events = await its.events("acme", "int_1", wanted=wanted)
        views = await its.event_views("acme", "int_1", wanted=wanted)
        assert [view.event for view in views] == events
        made = await its.of_watch("acme", "int_1", "wat_1", states, wanted=wanted)
        return [len(events), len(made), len(await its.dead("acme", "int_1", wanted=wanted))]

    assert await listed(ALL) == [2, 2, 2]
    assert await listed(Filter("a.c.*")) == [1, 1, 1]
    assert await listed(Filter("a.b"), "dead") == [1, 1, 1]
    assert await listed(Filter("a.*"), "queued") == [2, 0, 2]
    assert await listed(Filter(from_us=second.at_us)) == [1, 1, 2]
    assert await listed(Filter(to_us=second.at_us)) == [1, 1, 0]
    assert await listed(Filter("a.b", from_us=second.at_us)) == [0, 0, 1]


def test_a_filter() -> None:
    """As a request has it: nothing, or a type, and times as those of a replay."""
    assert read_filter({}) == ALL
    given = {"type": "pull_request.*", "from": "1970-01-02", "to": "1970-01-02T00:00:00.000001Z"}
    assert read_filter(given) == Filter("pull_request.*", 86_400_000_000, 86_400_000_001)
    assert read_filter({"to": "1970-01-01"}) == Filter(to_us=0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"type": ""}, "type: found '', expected a type such as \"pull_request.merged\""),
        *(
            ({"type": each}, "type: found")
            for each in ("*", "a", "a.*.b", "A.b", "a.b,c.d", "a.b\n")
        ),
        ({"type": "x." * 5_000 + "*"}, "type: found '[x.]+…'"),
        ({"type": ["a.b"]}, "type: found a list"),
        ({"from": "yesterday"}, "from: found 'yesterday', expected a time"),
        ({"to": "2026-12-31T12:00:00"}, "to: found .*no time zone"),
        ({"from": "2026-12-31", "to": "2026-12-31"}, "to: .*expected a time after 2026-12-31T"),
        ({"from": "9999-12-31", "to": "0001-01-01"}, "to: .*expected a time after 9999-12-31T"),
        ({"type": "a", "from": "1", "to": "2"}, "type: .*; from: .*; to: "),
    ],
)
def test_faults_of_a_filter(given: dict[str, object], words: str) -> None:
    with pytest.raises(Invalid, match=words) as error:
        read_filter(given)
    assert len(str(error.value)) < 500


async def test_a_watch_whose_record_cannot_be_read(bench: Bench) -> None:
    """What was delivered to it can be seen."""
    await bench.accept("evt_1")
    await bench.client.hset(f"{tag_of(shard_of('int_1'))}watches:int_1", "wat_1", "{}")
    assert len(await bench.deliveries.of_watch("acme", "int_1", "wat_1")) == 1


async def test_the_share_of_an_account(bench: Bench) -> None:
    """What is sent again has to fit into it, whoever asks."""
    asked: set[str] = set()

    def share(account: str) -> int:
        asked.add(account)
        return 1

    shard = shard_of("int_1")
    await bench.queue.accept("int_1", "evt", "a.b", BODY, "acme")
    await bench.give_up()
    bench.queues[shard] = DeliveryQueue(
        executing(bench.client), shard, lambda: 1_000_000, share=share
    )
    for account in ("acme", None):
        its = (ACTOR, account, "int_1", "wat_1")
        with pytest.raises(Full):
            await bench.deliveries.resend(*its, "evt")
        with pytest.raises(Full):
            await bench.deliveries.replay(*its, 0, LATER_US)
    assert asked == {"acme"}
