"""Notices from the worker that warns, or the courier that disables a watch, to the event."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from gateway import tasks
from gateway.domain.identity import Identity
from gateway.domain.keys import Account
from gateway.domain.limits import Decision, Limit, Standing
from gateway.domain.ports import StoreDown
from gateway.domain.warnings import LimitWarning
from gateway.domain.webhooks.destinations import Destinations
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.signatures import verify
from gateway.domain.webhooks.watches import Watch, secret_of
from gateway.observe.limit_warnings import LimitWarnings
from gateway.observe.metrics import Metrics
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.redis.errors import translating
from gateway.stores.warnings import writer as writer_module
from gateway.stores.warnings.store import WarningScript
from gateway.stores.warnings.writer import WarningWriter
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.notices import NoticeStore
from gateway.stores.webhooks.queue import SHARDS, DeliveryQueue, shard_of, tag_of
from gateway.stores.webhooks.resources import INTEGRATIONS, Resources
from gateway.webhooks import notices as module
from gateway.webhooks.courier import Courier
from gateway.webhooks.notices import OPERATORS_S, Notices
from gateway.webhooks.sender import Sender
from tests.kit.eventually import eventually
from tests.suites.keys import plain_key
from tests.webhooks.test_courier import MASTER, Receiver

NOW_US = 1_800_000_000_123_456
HOUR_US = 3_600_000_000
OURS = Integration("int_ours", "acme", "gateway", "Limits", 1)
OTHERS = Integration("int_others", "other", "gateway", "Limits", 1)
OPERATOR = Integration("int_operator", "ops", "operator", "All watches", 1)
CODE = Integration("int_code", "acme", "github", "Code", 1)
#: All are in different shards, so that one that is full is no other's.
assert len({shard_of(each.id) for each in (OURS, OTHERS, OPERATOR, CODE)}) == 4

Execute = Callable[..., Any]


def warning(count: int = 0, account: str = "acme", level: int = 80) -> LimitWarning:
    name = f"gw:limit:{{{account}}}:key:{count}:search:rate:60000000"
    return LimitWarning(
        *(name, level, "search", "free", str(count), NOW_US + count, 60_000_000),
        account=account,
        amount=10,
        used=9,
    )


class Site:
    """A store with integrations, each with a watch; and couriers' notices on it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.resources = Resources(executing(client))
        self.script = WarningScript(executing(client))
        self.store = NoticeStore(executing(client))
        self.queues = self.queues_of(executing(client))

    @staticmethod
    def queues_of(execute: Execute, budget: int = 10_000_000) -> list[DeliveryQueue]:
        return [DeliveryQueue(execute, shard, lambda: budget) for shard in range(SHARDS)]

    def notices(
        self, execute: Execute | None = None, queues: list[DeliveryQueue] | None = None, **more: Any
    ) -> Notices:
        execute = execute or executing(self.client)
        resources = translating(Resources(execute))
        queues = queues or self.queues_of(execute)
        return Notices(NoticeStore(execute), resources, queues, **more)

    async def set_up(self, *integrations: Integration, url: str = "https://hook.example/x") -> None:
        for each in integrations:
            assert await self.resources.add_integration(each)
            patterns = ("limit.*", "watch.disabled")
            await self.resources.add_watch(Watch(f"wat-{each.id}", each.id, url, patterns, 1))

    async def disable(self, integration: Integration = CODE) -> None:
        queue = self.queues[shard_of(integration.id)]
        await queue.disable(f"wat-{integration.id}", integration.id, "it answered 410 Gone")

    async def events(self) -> Counter[tuple[str, str]]:
        """How many events of which type each integration has. Each has one delivery."""
        found: Counter[tuple[str, str]] = Counter()
        async for name in self.client.scan_iter("gw:{hooks:*}:event:*"):
            integration, kind = await self.client.hmget(name, "integration", "type")
            found[integration.decode(), kind.decode()] += 1
        deliveries = [name async for name in self.client.scan_iter("gw:{hooks:*}:delivery:*")]
        assert len(deliveries) == found.total()
        return found

    async def body(self, integration: Integration) -> dict[str, Any]:
        """Its only event."""
        (name,) = await self.client.keys(f"{tag_of(shard_of(integration.id))}event:*")
        read: dict[str, Any] = json.loads(await self.client.hget(name, "body"))
        return read

    async def are_left(self) -> bool:
        """Do any notices wait?"""
        shards = [await self.store.disabled(shard, 0, 1) for shard in range(SHARDS)]
        return bool(await self.store.limits(0, 1)) or any(shards)


@pytest.fixture
def site(store_client: Any) -> Site:
    return Site(store_client)


async def test_limits(site: Site) -> None:
    """The account's integration has an event of each; what was taken is gone."""
    await site.set_up(OURS, OTHERS, OPERATOR, CODE)
    for number in range(3):
        await site.script.warn(warning(number))
    await site.script.warn(warning(level=100))
    await site.script.warn(warning(account="other"))
    await site.notices().take()
    assert await site.events() == {
        ("int_ours", "limit.near"): 3,
        ("int_ours", "limit.reached"): 1,
        ("int_others", "limit.near"): 1,
    }
    assert not await site.are_left()


async def test_a_disabled_watch(site: Site) -> None:
    """The account and the operators are told, and nobody else."""
    second = replace(OPERATOR, id="int_second", account="acme")
    await site.set_up(OURS, OTHERS, OPERATOR, second, CODE)
    await site.disable()
    await site.notices().take()
    told = Counter((each.id, "watch.disabled") for each in (OURS, OPERATOR, second))
    assert await site.events() == told
    body = await site.body(OPERATOR)
    assert body["integration"]["provider"] == "operator"
    assert body["data"] == {
        "account": "acme",
        "watch_id": "wat-int_code",
        "integration_id": "int_code",
        "provider": "github",
        "host": "hook.example",
        "reason": "it answered 410 Gone",
    }
    assert not await site.are_left()


async def test_the_audit_log(site: Site) -> None:
    """It has each disabled watch once, whoever looks, and however often."""
    audit = MemoryAuditStore()
    await site.set_up(OURS, CODE)
    await site.disable()
    couriers = [site.notices(audit=audit) for _ in range(3)]
    await asyncio.gather(*(courier.take() for courier in couriers))
    (entry,) = await audit.entries(before=None, count=9)
    assert (entry.event.actor, entry.event.action) == ("courier", "watch.disable")
    assert entry.event.subject == "watch:wat-int_code"
    assert entry.event.after == {"status": "disabled", "reason": "it answered 410 Gone"}


async def test_a_watch_of_notices_that_is_disabled(site: Site) -> None:
    """It is not told of itself; other watches of the integration are."""
    await site.set_up(OURS)
    await site.resources.add_watch(
        Watch("second", OURS.id, "https://second.example/", ("watch.*",), 1)
    )
    await site.disable(OURS)
    await site.notices().take()
    assert await site.events() == {("int_ours", "watch.disabled"): 1}
    tag = tag_of(shard_of(OURS.id))
    assert await site.client.exists(f"{tag}queue:second") == 1
    assert await site.client.exists(f"{tag}queue:wat-{OURS.id}") == 0


async def test_a_watch_that_was_removed_since(site: Site) -> None:
    """It is still told of, without a host; not if its integration was removed."""
    await site.set_up(OURS, CODE)
    await site.disable()
    (watch,) = await site.resources.watches(CODE.id)
    await site.resources.remove_watch(watch)
    await site.notices().take()
    assert (await site.body(OURS))["data"]["host"] == ""
    await site.disable()
    await site.resources.remove_integration(CODE)
    await site.notices().take()
    assert (await site.events()).total() == 1
    assert not await site.are_left()


@pytest.mark.parametrize("which", ["paused", "removed", "unreadable", "of another account"])
async def test_no_receiver(site: Site, which: str) -> None:
    """Notices of an account whose integration takes none are dropped."""
    await site.set_up(OURS)
    await site.script.warn(warning())
    if which == "paused":
        assert await site.resources.replace_integration(OURS, replace(OURS, is_paused=True))
    elif which == "removed":
        await site.resources.remove_integration(OURS)
    elif which == "unreadable":
        await site.client.hset(INTEGRATIONS, OURS.id, "{")
    else:
        assert await site.resources.replace_integration(OURS, replace(OURS, account="other"))
    await site.notices().take()
    assert not await site.events()
    assert not await site.are_left()


# -- couriers that die, and several at a time -----------------------------------------------------


class Killed(BaseException):
    """The courier ends here, and nothing of it is left."""


class Mortal:
    """Sends commands until one: the courier dies before the store gets it, or before it is told."""

    def __init__(self, execute: Execute, last: int, *, is_sent: bool) -> None:
        self._execute = execute
        self._left = last
        self._is_sent = is_sent

    async def __call__(self, *words: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._is_sent:
            raise Killed
        answer = await self._execute(*words)
        if self._left == 0:
            raise Killed
        return answer


@pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
async def test_a_courier_that_dies(site: Site, is_sent: bool) -> None:
    """At any of its commands: another one takes what is left, and each event is there once."""
    whole = {
        ("int_ours", "limit.near"): 2,
        ("int_others", "limit.near"): 1,
        ("int_ours", "watch.disabled"): 1,
        ("int_operator", "watch.disabled"): 1,
    }
    deaths = 0
    while True:
        await site.client.flushdb()
        await site.set_up(OURS, OTHERS, OPERATOR, CODE)
        for each in (warning(0), warning(1), warning(account="other")):
            await site.script.warn(each)
        await site.disable()
        mortal = Mortal(executing(site.client), deaths + 1, is_sent=is_sent)
        try:
            await site.notices(mortal).take()
        except Killed:
            deaths += 1
        else:
            break
        await site.notices().take()
        assert await site.events() == whole, f"after a death at command {deaths}"
        assert not await site.are_left()
    assert await site.events() == whole
    assert deaths > SHARDS, "it has died in every part"


async def test_several_couriers(site: Site) -> None:
    """While workers write: none is lost, and none is there twice."""
    await site.set_up(OURS, OTHERS, OPERATOR, CODE)
    couriers = [site.notices() for _ in range(4)]

    async def warn_of(numbers: range, account: str) -> None:
        for number in numbers:
            await site.script.warn(warning(number, account))

    for round_number in range(3):
        numbers = range(round_number * 40, round_number * 40 + 40)
        await asyncio.gather(
            *(warn_of(numbers, account) for account in ("acme", "other")),
            *(courier.take() for courier in couriers),
        )
    await asyncio.gather(*(courier.take() for courier in couriers))
    assert await site.events() == {
        ("int_ours", "limit.near"): 120,
        ("int_others", "limit.near"): 120,
    }
    assert not await site.are_left()


async def test_a_shard_without_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its notices wait and hold up no others; nobody is told twice."""
    monkeypatch.setattr(module, "_BATCH", 2)
    await site.set_up(OURS, OTHERS, OPERATOR, CODE)
    for number in range(5):
        await site.script.warn(warning(number))
    await site.script.warn(warning(9, "other"))
    await site.disable()
    queues = list(site.queues)
    full = shard_of(OURS.id)
    queues[full] = site.queues_of(executing(site.client), 0)[full]
    notices = site.notices(queues=queues)
    for _ in range(2):
        await notices.take()
        told = {("int_others", "limit.near"): 1, ("int_operator", "watch.disabled"): 1}
        assert await site.events() == told
    queues[full] = site.queues[full]
    await site.notices(queues=queues).take()
    whole = {**told, ("int_ours", "limit.near"): 5, ("int_ours", "watch.disabled"): 1}
    assert await site.events() == whole
    assert not await site.are_left()


async def test_a_shard_that_is_away(site: Site) -> None:
    """As one without room, also where it cannot be read."""
    tag = tag_of(shard_of(OURS.id))
    away = True

    async def execute(*words: Any) -> Any:
        if away and any(str(word).startswith(tag) for word in words):
            raise StoreDown("away")
        return await executing(site.client)(*words)

    others_code = replace(CODE, id="int_c", account="other")
    assert shard_of(others_code.id) != shard_of(OURS.id)
    await site.set_up(OURS, OTHERS, CODE, others_code)
    for number in range(3):
        await site.script.warn(warning(number))
    await site.script.warn(warning(9, "other"))
    await site.disable(CODE)
    await site.disable(others_code)
    notices = site.notices(execute)
    await notices.take()
    told = {("int_others", "limit.near"): 1, ("int_others", "watch.disabled"): 1}
    assert await site.events() == told
    away = False
    await notices.take()
    whole = {**told, ("int_ours", "limit.near"): 3, ("int_ours", "watch.disabled"): 1}
    assert await site.events() == whole
    assert not await site.are_left()


async def test_operators_are_cached(site: Site) -> None:
    """For some seconds, as all integrations are read to find them; and only if they are needed."""
    asked: Counter[str] = Counter()
    now_s = 0.0

    async def execute(*words: Any) -> Any:
        asked[str(words[0])] += 1
        return await executing(site.client)(*words)

    await site.set_up(CODE)
    notices = site.notices(execute, monotonic_s=lambda: now_s)
    await notices.take()
    assert asked["HGETALL"] == 0
    for _ in range(2):
        await site.disable()
        await notices.take()
        await site.client.delete(f"{tag_of(shard_of(CODE.id))}health:wat-{CODE.id}")
    assert asked["HGETALL"] == 1
    await site.set_up(OPERATOR)
    now_s += OPERATORS_S
    await site.disable()
    await notices.take()
    assert asked["HGETALL"] == 2
    assert await site.events() == {("int_operator", "watch.disabled"): 1}


async def test_dropped(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged and counted, by one courier."""
    monkeypatch.setattr("gateway.stores.warnings.store.MOST_WAITING", 1)
    await site.set_up(OURS)
    for number in range(3):
        await site.script.warn(warning(number))
    couriers = site.notices(), site.notices()
    with caplog.at_level(logging.WARNING):
        for each in couriers:
            await each.take()
    assert [each.dropped for each in couriers] == [2, 0]
    assert [record.getMessage() for record in caplog.records] == [
        "2 notices were dropped, as too many waited"
    ]


async def test_it_goes_on_after_an_outage(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once."""
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    failures = 0

    async def execute(*words: Any) -> Any:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise StoreDown("away")
        return await executing(site.client)(*words)

    await site.set_up(OURS)
    await site.script.warn(warning())
    notices = site.notices(execute)
    with pytest.raises(StoreDown):
        await notices.take()
    running = tasks.spawn(notices.run(), "notices")
    try:

        async def are_taken() -> bool:
            return not await site.are_left()

        await eventually(are_taken, "the notice is taken")
    finally:
        await tasks.end(running)
    assert await site.events() == {("int_ours", "limit.near"): 1}
    assert len([record for record in caplog.records if "cannot be read" in record.message]) == 1


# -- all of it ------------------------------------------------------------------------------------


class Rig:
    """A worker's warnings, a courier, and a customer's endpoint."""

    def __init__(self, site: Site, receiver: Receiver, sender: Sender) -> None:
        self.site = site
        self.receiver = receiver
        self.sender = sender
        self.warned = LimitWarnings()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        writer = WarningWriter(self.warned, self.site.script.warn, Metrics("test"))
        courier = Courier(self.site.queues, self.sender, MASTER)
        running = [
            tasks.spawn(each, "part of a courier")
            for each in (courier.run(), self.site.notices().run())
        ]
        writer.start()
        try:
            yield
        finally:
            await writer.stop()
            await tasks.end(*running)

    def types(self, path: str) -> list[str]:
        return [json.loads(body)["type"] for at, _, body in self.receiver.received if at == path]


@pytest.fixture
async def rig(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(writer_module, "EVERY_S", 0.01)
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    receiver = Receiver(tmp_path)
    loopback = Destinations(allowed=(ip_network("127.0.0.0/8"),))
    async with receiver.server, Sender(lambda: loopback, tls=lambda: receiver.trust) as sender:
        yield Rig(site, receiver, sender)


async def test_a_worker_s_warning_is_delivered(rig: Rig) -> None:
    """Signed as all events are."""
    await rig.site.set_up(OURS, url=rig.receiver.url("limits"))
    limit = Limit("search", "rate", 10, HOUR_US)
    identity = Identity(plain_key("a" * 12), Account("acme"))
    decision = Decision(True, 0, None, NOW_US, ())
    async with rig.running():
        rig.warned.note(80, "gw:x", limit, Standing(1, 5_000_000), decision, "free", identity)
        await eventually(lambda: bool(rig.receiver.received), "the event arrives")
    ((path, headers, body),) = rig.receiver.received
    assert path == "/limits"
    record = json.loads(body)
    assert record["type"] == "limit.near"
    assert record["integration"] == {"id": "int_ours", "provider": "gateway", "name": "Limits"}
    assert record["data"] == {
        "account": "acme",
        "limit": "search",
        "level": 80,
        "per": "key",
        "key_id": "a" * 12,
        "plan": "free",
        "amount": 10,
        "used": 9,
        "used_percent": 90,
        "window_seconds": 3600,
        "resets": "2027-01-15T08:00:05.123Z",
    }
    secret = secret_of(MASTER, f"wat-{OURS.id}", 1)
    assert verify(body, headers, [secret], now_s=int(headers["webhook-timestamp"]))


async def test_a_watch_that_a_courier_disables(rig: Rig) -> None:
    """Its account and the operators are told by their own watches."""
    await rig.site.set_up(CODE, url=rig.receiver.url("code"))
    await rig.site.set_up(OURS, url=rig.receiver.url("ours"))
    await rig.site.set_up(OPERATOR, url=rig.receiver.url("operator"))
    rig.receiver.statuses = [410]
    await rig.site.queues[shard_of(CODE.id)].accept(CODE.id, "evt", "limit.x", b"{}")
    async with rig.running():
        await eventually(lambda: len(rig.receiver.received) >= 3, "both are told")
    assert rig.types("/ours") == rig.types("/operator") == ["watch.disabled"]
