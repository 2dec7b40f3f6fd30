"""Watches of an account: what can be done, and what every fault says."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from gateway.domain.webhooks.destinations import Destinations
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import MOST_WATCHES, Health, secret_of
from gateway.manage.audit_log import Actor
from gateway.manage.problems import Changed, Conflict, Invalid, NotThere
from gateway.manage.watches import Watches, status_words
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.webhooks.queue import Attempt, Claimed, DeliveryQueue, shard_of
from gateway.stores.webhooks.resources import Resources
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer

MASTER = b"m" * 32
ACTOR = Actor("key 7h3k", "api")
GIVEN = {"url": "https://hook.example/", "events": ["pull_request.*"]}
NOW_US = 1_800_000_000_000_000


class Bench:
    def __init__(self, client: Any) -> None:
        self.client = client
        self.store = Resources(client.execute_command)
        self.audit = MemoryAuditStore()
        self.destinations = Destinations()
        self.watches = Watches(
            self.store, self.audit, MASTER, lambda: NOW_US, lambda: self.destinations
        )

    async def actions(self) -> list[str]:
        entries = await self.audit.entries(before=None, count=50)
        return [entry.event.action for entry in reversed(entries)]


@pytest.fixture
async def bench(redis_server: RedisServer):
    client = redis_client(parse_url(redis_server.url))
    made = Bench(client)
    await made.store.add_integration(Integration("int_1", "acme", "github", "Code", 1))
    await made.store.add_integration(Integration("int_2", "other", "github", "Theirs", 1))
    yield made
    await client.aclose()


async def test_a_watch(bench: Bench) -> None:
    """Created with its secret, listed, changed, removed; each change is in the audit log."""
    made, secret = await bench.watches.create(ACTOR, "acme", "int_1", GIVEN)
    watch = made.watch
    assert secret == secret_of(MASTER, watch.id, 1)
    assert (made.health.state, watch.events) == ("active", ("pull_request.*",))
    assert await bench.watches.list("acme", "int_1") == [made]
    change = {"events": ["ticket.created"], "form": "body-only"}
    edited = await bench.watches.edit(ACTOR, "acme", "int_1", watch.id, change)
    assert (edited.watch.events, edited.watch.url) == (("ticket.created",), watch.url)
    assert await bench.watches.get("acme", "int_1", watch.id) == edited
    await bench.watches.remove(ACTOR, "acme", "int_1", watch.id)
    assert await bench.watches.list("acme", "int_1") == []
    assert await bench.actions() == ["watch.create", "watch.edit", "watch.remove"]
    for entry in await bench.audit.entries(before=None, count=50):
        assert "whsec" not in str(entry)


async def test_another_accounts(bench: Bench) -> None:
    """It does not exist for this one, whatever it asks for."""
    made, _ = await bench.watches.create(ACTOR, "other", "int_2", GIVEN)
    its = made.watch.id
    watches = bench.watches
    for call in (
        watches.create(ACTOR, "acme", "int_2", GIVEN),
        watches.list("acme", "int_2"),
        watches.get("acme", "int_2", its),
        watches.get("acme", "int_1", its),
        watches.edit(ACTOR, "acme", "int_2", its, {}),
        watches.rotate(ACTOR, "acme", "int_2", its),
        watches.pause(ACTOR, "acme", "int_2", its),
        watches.resume(ACTOR, "acme", "int_2", its),
        watches.remove(ACTOR, "acme", "int_2", its),
        watches.get("acme", "int_3", its),
    ):
        with pytest.raises(NotThere):
            await call
    assert [each.id for each in await watches.integrations("acme")] == ["int_1"]


async def test_secrets(bench: Bench) -> None:
    """A new one each time; the one before is known by its version."""
    made, first = await bench.watches.create(ACTOR, "acme", "int_1", GIVEN)
    rotated, second = await bench.watches.rotate(ACTOR, "acme", "int_1", made.watch.id)
    assert first != second
    assert rotated.watch.secrets(MASTER, NOW_US) == (second, first)


async def test_pause_and_resume(bench: Bench) -> None:
    """Both may be repeated; a disabled watch is resumed, not paused."""
    made, _ = await bench.watches.create(ACTOR, "acme", "int_1", GIVEN)
    args = (ACTOR, "acme", "int_1", made.watch.id)
    for _ in range(2):
        assert (await bench.watches.pause(*args)).health.state == "paused"
    for _ in range(2):
        assert (await bench.watches.resume(*args)).health.state == "active"
    assert await bench.actions() == ["watch.create", "watch.pause", "watch.resume"]
    queue = DeliveryQueue(bench.client.execute_command, shard_of("int_1"), lambda: 1_000_000)
    await queue.disable(made.watch.id, made.watch.integration, "it answered 410 Gone")
    with pytest.raises(Conflict, match="410 Gone"):
        await bench.watches.pause(*args)
    assert (await bench.watches.resume(*args)).health.state == "active"


@pytest.mark.parametrize("is_resumed", [True, False])
async def test_a_receiver_that_is_repaired(bench: Bench, is_resumed: bool) -> None:
    """What waits for a failing watch is sent now, once it is resumed or has another URL."""
    made, _ = await bench.watches.create(ACTOR, "acme", "int_1", GIVEN)
    args = (ACTOR, "acme", "int_1", made.watch.id)
    queue = DeliveryQueue(bench.client.execute_command, shard_of("int_1"), lambda: 1_000_000)
    await queue.accept("int_1", "evt", "pull_request.merged", b"{}")
    (claimed,) = (await queue.claim("one", 9, 9)).deliveries
    await queue.finish(claimed, "waiting", Attempt(1, 2, 500, ""), wait_s=3600.0)
    failing = (await bench.watches.get("acme", "int_1", made.watch.id)).health
    assert (failing.state, failing.waiting) == ("failing", 1)
    await bench.watches.edit(*args, {"events": ["pull_request.merged"]})
    assert (await queue.claim("two", 9, 9)).deliveries == (), "its URL is the same"
    if is_resumed:
        view = await bench.watches.resume(*args)
    else:
        view = await bench.watches.edit(*args, {"url": "https://other.example/"})
    assert (view.health.state, view.health.waiting) == ("active", 1)
    assert view.health.next_us < failing.next_us
    (claimed,) = await _claimed(queue)
    assert (claimed.id, claimed.attempts) == (f"evt:{made.watch.id}:0", 1)


async def _claimed(queue: DeliveryQueue) -> tuple[Claimed, ...]:
    found: list[tuple[Claimed, ...]] = []

    async def claims() -> bool:
        found.append((await queue.claim("later", 9, 9)).deliveries)
        return bool(found[-1])

    await eventually(claims, "a delivery that is due")
    return found[-1]


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({}, ["url: found nothing", "events: found nothing"]),
        ({**GIVEN, "url": 7, "events": "x.y"}, ["url: found a number", "events: found 'x.y'"]),
        ({**GIVEN, "url": "http://hook.example/"}, ["url: found a URL that does not begin"]),
        ({**GIVEN, "url": "https://u:p@hook.example/"}, ["url: found a URL with a user"]),
        ({**GIVEN, "events": []}, ["events: found 0 entries"]),
        ({**GIVEN, "events": ["a.*", "*", 7]}, ["events[1]: found '*'", "events[2]: found a num"]),
        ({**GIVEN, "form": "none"}, ["form: found 'none'"]),
        ({**GIVEN, "rate": "10/day"}, ["rate: found '10/day', expected a rate such as 10/second"]),
        ({**GIVEN, "rate": "0/hour"}, ["rate: found '0/hour', expected an amount from 1"]),
        ({**GIVEN, "rate": 10}, ["rate: found a number"]),
        ({**GIVEN, "secret": "x"}, ["secret: found an unknown field"]),
    ],
)
async def test_faults(bench: Bench, given: dict[str, object], faults: list[str]) -> None:
    """All of them are named."""
    with pytest.raises(Invalid) as error:
        await bench.watches.create(ACTOR, "acme", "int_1", given)
    found = [str(fault) for fault in error.value.faults]
    assert len(found) == len(faults)
    for fault, begins in zip(found, faults, strict=True):
        assert fault.startswith(begins)


async def test_a_rate(bench: Bench) -> None:
    """It is set, changed and removed like other fields, and holds at once."""
    made, _ = await bench.watches.create(
        ACTOR, "acme", "int_1", {**GIVEN, "rate": " 1 / hour", "form": "timed"}
    )
    args = (ACTOR, "acme", "int_1", made.watch.id)
    assert str(made.watch.rate) == "1/hour"
    queue = DeliveryQueue(bench.client.execute_command, shard_of("int_1"), lambda: 1_000_000)
    for event in ("one", "two"):
        await queue.accept("int_1", event, "pull_request.merged", b"{}")
    assert len((await queue.claim("one", 9, 9)).deliveries) == 1
    waits = (await bench.watches.get("acme", "int_1", made.watch.id)).health
    assert (waits.state, waits.waiting) == ("active", 1)
    assert waits.next_us == waits.allowed_us > 0
    assert (await queue.claim("two", 9, 9)).deliveries == ()
    same = await bench.watches.edit(*args, {"url": "https://other.example/"})
    assert same.health.next_us == waits.next_us, "another URL is no way around it"
    changed = await bench.watches.edit(*args, {"rate": None})
    assert (changed.watch.rate, changed.health.allowed_us) == (None, 0)
    assert len((await queue.claim("three", 9, 9)).deliveries) == 1
    entries = await bench.audit.entries(before=None, count=1)
    before, after = entries[0].event.before, entries[0].event.after
    assert before is not None
    assert after is not None
    assert (before["rate"], after["rate"]) == ("1/hour", None)
    assert changed.version != same.version


INSIDE = "https://10.0.0.1:8443/hook"


async def test_an_address_that_is_not_allowed(bench: Bench) -> None:
    """It is a fault of the URL, told with the others, unless the settings allow it."""
    with pytest.raises(Invalid) as error:
        await bench.watches.create(ACTOR, "acme", "int_1", {"url": INSIDE, "events": []})
    assert [str(fault) for fault in error.value.faults] == [
        "url: found an address that deliveries may not go to, expected an https:// URL of a public "
        "host",
        "events: found 0 entries, expected 1 to 50",
    ]
    made, _ = await bench.watches.create(ACTOR, "acme", "int_1", GIVEN)
    ids = (ACTOR, "acme", "int_1", made.watch.id)
    with pytest.raises(Invalid, match="may not go to"):
        await bench.watches.edit(*ids, {"url": INSIDE})
    bench.destinations = Destinations(allowed=(ip_network("10.0.0.0/8"),))
    await bench.watches.create(ACTOR, "acme", "int_1", {**GIVEN, "url": INSIDE})
    assert (await bench.watches.edit(*ids, {"url": INSIDE})).watch.url == INSIDE


async def test_an_address_that_was_allowed(bench: Bench) -> None:
    """What else the watch has can be changed, also by a form that sends its URL."""
    bench.destinations = Destinations(allowed=(ip_network("10.0.0.0/8"),))
    made, _ = await bench.watches.create(ACTOR, "acme", "int_1", {**GIVEN, "url": INSIDE})
    bench.destinations = Destinations()
    ids = (ACTOR, "acme", "int_1", made.watch.id)
    edited = await bench.watches.edit(*ids, {"url": INSIDE, "events": ["a.b"]})
    assert (edited.watch.url, edited.watch.events) == (INSIDE, ("a.b",))
    with pytest.raises(Invalid, match="may not go to"):
        await bench.watches.edit(*ids, {"url": f"{INSIDE}s"})


async def test_the_most(bench: Bench) -> None:
    for _ in range(MOST_WATCHES):
        await bench.watches.create(ACTOR, "acme", "int_1", GIVEN)
    with pytest.raises(Conflict, match="50 watches"):
        await bench.watches.create(ACTOR, "acme", "int_1", GIVEN)


async def test_a_change_meanwhile(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = await bench.watches.create(ACTOR, "acme", "int_1", GIVEN)

    async def changed(*_: object) -> bool:
        return False

    monkeypatch.setattr(bench.store, "replace_watch", changed)
    with pytest.raises(Changed):
        await bench.watches.rotate(ACTOR, "acme", "int_1", made.watch.id)


async def test_another_webhook_key(bench: Bench) -> None:
    """No secret is made that the couriers would not sign with; what needs none goes on."""
    made, _ = await bench.watches.create(ACTOR, "acme", "int_1", GIVEN)
    other = Watches(bench.store, bench.audit, b"o" * 32, lambda: NOW_US, Destinations)
    with pytest.raises(Conflict, match="not that of the store's couriers"):
        await other.create(ACTOR, "acme", "int_1", GIVEN)
    with pytest.raises(Conflict, match="not that of the store's couriers"):
        await other.rotate(ACTOR, "acme", "int_1", made.watch.id)
    assert (await other.pause(ACTOR, "acme", "int_1", made.watch.id)).health.state == "paused"


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (Health("active", "", 0, 0, 0, 5, 0, 0, 0), "active"),
        (
            Health("failing", "", 0, 0, 1, 0, 0, 0, 2_000_000),
            "failing since 1970-01-01T00:00:02Z, 1 failed attempt",
        ),
        (
            Health("disabled", "it answered 410 Gone", 0, 0, 3, 0, 0, 9_000_000, 2_000_000),
            "disabled since 1970-01-01T00:00:09Z, after 3 failed attempts since "
            "1970-01-01T00:00:02Z, because it answered 410 Gone",
        ),
        (Health("disabled", "", 0, 0, 0, 0, 0, 0, 0), "disabled"),
    ],
)
def test_the_status_in_words(health: Health, words: str) -> None:
    """Since when and why, as far as it is known."""
    assert status_words(health) == words
