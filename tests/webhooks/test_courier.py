"""Couriers over a real Redis and real receivers: what arrives, what is signed, what fails."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from gateway import tasks
from gateway.domain.ports import StoreDown
from gateway.domain.webhooks.destinations import Destinations
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.domain.webhooks.signatures import verify
from gateway.domain.webhooks.watches import Rate, Watch, secret_of
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.queue import (
    LEASE_S,
    RENEW_S,
    SHARDS,
    Claim,
    Claimed,
    DeliveryQueue,
    tag_of,
)
from gateway.stores.webhooks.records import write_watch
from gateway.stores.webhooks.resources import Resources
from gateway.webhooks.courier import LOOK_S, Courier
from gateway.webhooks.sender import Answer, Sender
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.listening import Served

MASTER = b"m" * 32
SHARD = 3
TAG = tag_of(SHARD)
BODY = b'{"id":"evt","type":"a.b"}'


class Receiver:
    """A customer's endpoint: records what arrives, and answers as it is told.

    statuses: of the next answers; then 200
    hanging:  the beginning of paths that are never answered
    """

    def __init__(self, folder: Path) -> None:
        files = make_certificate(folder, ["127.0.0.1"])
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(files.certificate, files.key)
        self.trust = ssl.create_default_context(cafile=files.ca)
        self.server = Served(self._serve, tls=served)
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.hanging = ""
        self.hold = asyncio.Event()
        self.hold.set()

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.server.port}/{path}"

    def ids(self, path: str) -> Counter[str]:
        """How often each event has arrived at this path."""
        return Counter(head["webhook-id"] for at, head, _ in self.received if at == f"/{path}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = [line.split(": ", 1) for line in lines[1:] if line]
            headers = {name.lower(): value for name, value in pairs}
            body = await reader.readexactly(int(headers["content-length"]))
            self.received.append((lines[0].split()[1], headers, body))
            await self.hold.wait()
            if self.hanging and lines[0].split()[1].startswith(self.hanging):
                continue
            status = self.statuses.pop(0) if self.statuses else 200
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nok" % status)


class Bench:
    """A receiver, a queue, and a sender that trusts the receiver."""

    def __init__(self, client: Any, receiver: Receiver, sender: Sender) -> None:
        self.client = client
        self.receiver = receiver
        self.sender = sender
        self.queue = DeliveryQueue(executing(client), SHARD, lambda: 10_000_000)

    async def watch(
        self, name: str, *, url: str = "", integration: str = "int", **more: Any
    ) -> Watch:
        watch = Watch(name, integration, url or self.receiver.url(name), ("a.*",), 1, **more)
        await self.client.hset(f"{TAG}watches:{integration}", name, write_watch(watch))
        return watch

    async def accept(self, *events: str) -> None:
        for event in events:
            await self.queue.accept("int", event, "a.b", BODY)

    async def states(self) -> Counter[str]:
        found = [
            await self.client.hget(name, "state")
            async for name in self.client.scan_iter(f"{TAG}delivery:*")
        ]
        return Counter(state.decode() for state in found)

    async def become(self, **states: int) -> None:
        async def have() -> bool:
            return await self.states() == Counter(states)

        await eventually(have, f"the deliveries are {states}")

    @asynccontextmanager
    async def courier(self, **more: Any) -> AsyncIterator[Courier]:
        courier = Courier([self.queue], self.sender, MASTER, **more)
        running = tasks.spawn(courier.run(), "courier")
        try:
            yield courier
        finally:
            await tasks.end(running)


@pytest.fixture
async def bench(store_client: Any, tmp_path: Path) -> AsyncIterator[Bench]:
    receiver = Receiver(tmp_path)
    loopback = Destinations(allowed=(ip_network("127.0.0.0/8"),))
    async with receiver.server, Sender(lambda: loopback, tls=lambda: receiver.trust) as sender:
        yield Bench(store_client, receiver, sender)


async def test_a_delivery(bench: Bench) -> None:
    """The bytes of the event, signed in both forms with the watch's secret, once."""
    await bench.watch("w")
    await bench.accept("evt_1", "evt_2")
    async with bench.courier() as courier:
        await bench.become(delivered=2)
    assert courier.metrics.deliveries["delivered"] == 2
    assert bench.receiver.ids("w") == {"evt_1": 1, "evt_2": 1}
    _, headers, body = bench.receiver.received[0]
    assert body == BODY
    assert headers["content-type"] == "application/json"
    now_s = int(headers["webhook-timestamp"])
    for form in ("timed", "standard"):
        secret = secret_of(MASTER, "w", 1)
        assert verify(body, headers, [secret], now_s=now_s, forms=[form]) == form  # type: ignore[list-item]


async def test_a_suspended_account(bench: Bench) -> None:
    """Its watches are paused, with the reason, and what arrives waits; others get theirs."""
    suspended = {"acme"}

    async def is_suspended(account: str) -> bool:
        return account in suspended

    async def health() -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = await bench.client.hgetall(f"{TAG}health:w")
        return found

    async def is_paused() -> bool:
        return (await health()).get(b"status") == b"paused"

    await bench.watch("w")
    await bench.watch("other", integration="its")
    async with bench.courier(is_suspended=is_suspended):
        await bench.queue.accept("int", "one", "a.b", BODY, "acme")
        await bench.queue.accept("its", "two", "a.b", BODY, "other")
        await eventually(is_paused, "the watch is paused")
        await bench.become(queued=1, delivered=1)
        its = await health()
        assert (its[b"why"], its[b"held"]) == (b"its account is suspended", b"0")
        # No claim takes what comes now.
        await bench.queue.accept("int", "three", "a.b", BODY, "acme")
        assert await bench.client.zcard(f"{TAG}queue:w") == 2
        assert bench.receiver.ids("w") == {}
        suspended.clear()
        held = Claimed("one:w:0", "", b"", "int", b"", 0, 1, True, 0, "acme")
        await bench.queue.restore(held)
        await bench.become(delivered=3)
    assert bench.receiver.ids("w") == {"one": 1, "three": 1}
    assert bench.receiver.ids("other") == {"two": 1}
    assert b"status" not in await health()


async def test_an_account_that_is_resumed_meanwhile(bench: Bench) -> None:
    """A watch that is held just after its account was resumed does not stay so."""
    answers = [True, False]

    async def is_suspended(account: str) -> bool:
        return answers.pop(0) if answers else False

    await bench.watch("w")
    await bench.queue.accept("int", "one", "a.b", BODY, "acme")
    async with bench.courier(is_suspended=is_suspended):
        await bench.become(delivered=1)


async def test_what_comes_while_it_runs(bench: Bench) -> None:
    """It is told, or looks."""
    await bench.watch("w")
    async with bench.courier() as courier:
        await bench.accept("one")
        courier.wake(0)
        await bench.become(delivered=1)
        await bench.accept("two")
        await bench.become(delivered=2)


async def test_a_failure_is_tried_again(bench: Bench) -> None:
    """When its wait is over, with the same id; all attempts are kept."""
    await bench.watch("w")
    bench.receiver.statuses = [500]
    await bench.accept("evt")
    async with bench.courier() as courier:
        await bench.become(waiting=1)
        assert courier.metrics.deliveries["failed"] == 1
        (due,) = await bench.client.zrange(f"{TAG}queue:w", 0, -1, withscores=True)
        now = (await bench.client.time())[0]
        assert 3 < due[1] / 1_000_000 - now < 7, "5 s, a fifth more or less"
        await bench.client.zadd(f"{TAG}queue:w", {due[0]: 1})
        await bench.client.zadd(f"{TAG}turns:other", {"w": 1})
        await bench.become(delivered=1)
    assert bench.receiver.ids("w") == {"evt": 2}
    log = await bench.client.hget(f"{TAG}delivery:evt:w:0", "log")
    assert len(log.split(b"\n")) == 2


def disabled(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The watches that were disabled, and why, as the log says."""
    return re.findall(r"watch (\S+) was disabled: (.*)", caplog.text)


async def test_gone(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """410 ends the delivery and the watch."""
    await bench.watch("w")
    bench.receiver.statuses = [410]
    await bench.accept("evt")
    async with bench.courier():
        await eventually(lambda: bool(disabled(caplog)), "the watch is disabled")
        await bench.become(dead=1)
    assert disabled(caplog) == [("w", "it answered 410 Gone")]


async def test_many_that_are_gone(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """One line of the log stands for many; how many there were is in the next one."""
    for name in ("v", "w", "x"):
        await bench.watch(name)
    bench.receiver.statuses = [410, 410, 410]
    await bench.accept("evt")
    async with bench.courier() as courier:
        courier._throttle = LogThrottle(3_600.0)
        await eventually(lambda: courier.metrics.watches_disabled == 3, "they are disabled")
    assert caplog.text.count("was disabled: it answered 410 Gone") == 1


async def test_several_attempts_that_find_it_gone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """They were in flight at the same time: the watch is disabled once, and counts once."""
    await bench.watch("w")
    bench.receiver.hold.clear()
    bench.receiver.statuses = [410, 410, 410]
    await bench.accept("one", "two", "three")
    async with bench.courier() as courier:
        courier._throttle = LogThrottle(0.0)
        await eventually(lambda: len(bench.receiver.received) == 3, "all are in flight")
        bench.receiver.hold.set()
        await eventually(lambda: courier.in_flight == 0, "all have ended")
        assert courier.metrics.watches_disabled == 1
    assert [watch for watch, _ in disabled(caplog)] == ["w"]
    await bench.become(dead=3)


async def test_a_long_silence(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Ten failures and no success for 120 hours disable it."""
    await bench.watch("w")
    since = (await bench.client.time())[0] * 1_000_000 - 121 * 3600 * 1_000_000
    await bench.client.hset(f"{TAG}health:w", mapping={"tried": 9, "since": since})
    bench.receiver.statuses = [500]
    await bench.accept("evt")
    async with bench.courier() as courier:
        await eventually(lambda: bool(disabled(caplog)), "the watch is disabled")
        assert courier.metrics.watches_disabled == 1
    assert disabled(caplog) == [("w", "no success for 121 hours")]
    await bench.become(cancelled=1)


async def test_records_that_cannot_be_read(bench: Bench) -> None:
    """They fail their own deliveries, and no others."""
    await bench.watch("w")
    await bench.client.hset(f"{TAG}watches:int", "bad", '{"events": ["a.*"]}')
    await bench.accept("evt")
    async with bench.courier():
        await bench.become(delivered=1, waiting=1)
    log = await bench.client.hget(f"{TAG}delivery:evt:bad:0", "log")
    assert b"the record of the watch cannot be read" in log


async def test_an_attempt_that_crashes(bench: Bench) -> None:
    """It has failed, and is tried again like others."""
    await bench.watch("w")
    await bench.accept("evt")

    async def crash(*_: object) -> Answer:
        raise RuntimeError("a fault of the sender")

    bench.sender.send = crash  # type: ignore[method-assign]
    async with bench.courier() as courier:
        await bench.become(waiting=1)
    assert courier.metrics.deliveries["failed"] == 1
    log = await bench.client.hget(f"{TAG}delivery:evt:w:0", "log")
    assert b"the gateway could not make the attempt" in log


async def test_slots_that_are_freed_at_once(bench: Bench) -> None:
    """All deliveries in flight end in one turn of the loop: their slots are used again."""
    ends = asyncio.Barrier(4)

    class Together(DeliveryQueue):
        async def finish(self, *arguments: Any, **more: Any) -> Any:
            finished = await super().finish(*arguments, **more)
            await ends.wait()
            return finished

    bench.queue = Together(executing(bench.client), SHARD, lambda: 10_000_000)
    await bench.watch("w")
    await bench.accept(*(f"e{number}" for number in range(12)))
    # A watch that answers well has all slots.
    await bench.client.hset(f"{TAG}health:w", mapping={"proven": 1, "ms": 0})
    async with bench.courier(settings=lambda: WebhookSettings(slots=4)):
        await bench.become(delivered=12)


async def test_watches_that_hang(bench: Bench) -> None:
    """They hold a quarter of the slots at most: others are delivered all the while."""
    good = [f"good{number}" for number in range(3)]
    for name in good:
        await bench.watch(name)
        # On a busy machine an answer may take a second; a slow watch is not good.
        await bench.client.hset(f"{TAG}health:{name}", mapping={"proven": 1, "ms": 0})
    async with Served(_silent) as hanging:
        for number in range(6):
            await bench.watch(f"hangs{number}", url=f"https://127.0.0.1:{hanging.port}/")
        await bench.accept(*(f"e{number}" for number in range(20)))
        async with bench.courier(settings=lambda: WebhookSettings(slots=8)):
            for name in good:
                arrived = _arrived(bench, name, 20)
                await eventually(arrived, f"{name} has all events")

            async def has_room() -> bool:
                # What has arrived at the good ones may not be recorded yet.
                return (await bench.states())["leased"] <= 2

            await eventually(has_room, "a quarter of the slots is used")


async def test_the_next_of_the_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins as soon as one of those slots is free, and nothing is asked for before that."""
    monkeypatch.setattr("gateway.webhooks.courier.LOOK_S", 3_600.0)
    claims = 0
    claim = bench.queue.claim

    async def counted(*arguments: Any) -> Any:
        nonlocal claims
        claims += 1
        return await claim(*arguments)

    monkeypatch.setattr(bench.queue, "claim", counted)
    for number in range(4):
        await bench.watch(f"new{number}")
    bench.receiver.hold.clear()
    await bench.accept("evt")
    async with bench.courier(settings=lambda: WebhookSettings(slots=8)) as courier:
        await eventually(lambda: len(bench.receiver.received) == 2, "two are in flight")
        await eventually(lambda: claims == 2, "it has seen that there is no slot for more")
        courier.wake(0)
        await eventually(lambda: claims == 3, "it has looked once more")
        bench.receiver.hold.set()
        await bench.become(delivered=4)


async def test_good_watches_that_begin_to_hang(bench: Bench) -> None:
    """They had all slots. Others are delivered before a single attempt of theirs has ended."""
    for number in range(6):
        await bench.watch(f"hangs{number}")
    await bench.watch("well", integration="other")
    for name in (*(f"hangs{number}" for number in range(6)), "well"):
        await bench.client.hset(f"{TAG}health:{name}", mapping={"proven": 1, "ms": 0})
    bench.receiver.hanging = "/hangs"
    settings = WebhookSettings(slots=32)
    loopback = Destinations(allowed=(ip_network("127.0.0.0/8"),))
    async with Sender(
        lambda: loopback, tls=lambda: bench.receiver.trust, total_s=600.0
    ) as bench.sender:
        async with bench.courier(settings=lambda: settings) as courier:
            await bench.accept(*(f"e{number}" for number in range(30)))
            await eventually(lambda: courier.in_flight >= 32, "all slots are used")
            for number in range(20):
                await bench.queue.accept("other", f"other{number}", "a.b", BODY)
            await eventually(_arrived(bench, "well", 20), "the other one has all events")
            assert courier.in_flight <= 2 * 32
        assert courier.metrics.deliveries["failed"] == 0


async def test_large_events_of_watches_that_hang(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they hold of the courier's memory is bounded, and others are delivered meanwhile."""
    most, size = 200_000, 20_000
    monkeypatch.setattr("gateway.webhooks.courier.MOST_BYTES", most)
    for number in range(6):
        await bench.watch(f"hangs{number}")
    await bench.watch("well", integration="other")
    for name in (*(f"hangs{number}" for number in range(6)), "well"):
        await bench.client.hset(f"{TAG}health:{name}", mapping={"proven": 1, "ms": 0})
    bench.receiver.hanging = "/hangs"
    loopback = Destinations(allowed=(ip_network("127.0.0.0/8"),))
    async with Sender(
        lambda: loopback, tls=lambda: bench.receiver.trust, total_s=600.0
    ) as bench.sender:
        for number in range(10):
            await bench.queue.accept("int", f"e{number}", "a.b", size * b"x")
        async with bench.courier() as courier:
            await eventually(lambda: courier.in_flight >= most // size, "there is no room for more")
            for number in range(20):
                await bench.queue.accept("other", f"other{number}", "a.b", BODY)
            await eventually(_arrived(bench, "well", 20), "the other one has all events")
            assert courier._bytes.all <= 2 * most
            assert courier.in_flight < 6 * 8, "without the bound all of them would be"
        assert (courier._bytes.all, courier._slots.all) == (0, 0)
        assert (courier._bytes.slow, courier._bytes.others) == (0, 0)


async def test_large_events_of_new_watches(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold a quarter of the bytes, as of the slots."""
    monkeypatch.setattr("gateway.webhooks.courier.MOST_BYTES", 100_000)
    for number in range(8):
        await bench.watch(f"new{number}")
    bench.receiver.hold.clear()
    await bench.queue.accept("int", "evt", "a.b", 12_000 * b"x")
    await bench.watch("good", integration="other")
    await bench.client.hset(f"{TAG}health:good", mapping={"proven": 1, "ms": 0})
    async with bench.courier() as courier:
        await eventually(lambda: len(bench.receiver.received) == 8, "those of one claim are sent")
        await bench.queue.accept("int", "more", "a.b", 12_000 * b"x")
        await bench.queue.accept("other", "small", "a.b", BODY)
        await eventually(lambda: bool(bench.receiver.ids("good")), "a good one has its event")
        assert courier.in_flight == 9
        bench.receiver.hold.set()
        await bench.become(delivered=17)


async def test_one_slot(bench: Bench) -> None:
    """It is used again and again."""
    await bench.watch("w")
    await bench.accept("one", "two", "three")
    async with bench.courier(settings=lambda: WebhookSettings(slots=1)):
        await bench.become(delivered=3)


def _arrived(bench: Bench, name: str, count: int) -> Callable[[], bool]:
    return lambda: len(bench.receiver.ids(name)) == count


async def _silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_an_error_of_one_shard(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A fault of the gateway: others are delivered, and it is logged with where it was raised."""
    await bench.watch("w")

    async def fails(*_: object) -> None:
        raise RuntimeError("a fault of the gateway")

    faulty = DeliveryQueue(executing(bench.client), 4, lambda: 1)
    faulty.claim = fails  # type: ignore[method-assign, assignment]
    running = tasks.spawn(Courier([faulty, bench.queue], bench.sender, MASTER).run(), "courier")
    await eventually(lambda: "a fault of the gateway" in caplog.text, "it is logged")
    await bench.accept("evt")
    await bench.become(delivered=1)
    await tasks.end(running)
    assert "Traceback" in caplog.text


async def test_a_courier_that_stops(bench: Bench) -> None:
    """It ends what is in flight, and claims nothing more."""
    await bench.watch("w")
    bench.receiver.hold.clear()
    await bench.accept("one")
    courier = Courier([bench.queue], bench.sender, MASTER)
    running = tasks.spawn(courier.run(), "courier")
    await eventually(lambda: bool(bench.receiver.received), "it is in flight")
    courier.stop()
    await bench.accept("two")
    bench.receiver.hold.set()
    await asyncio.wait_for(running, 20)
    await bench.become(delivered=1, queued=1)


async def test_leases_are_renewed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an attempt lasts: another courier would make it as well."""
    monkeypatch.setattr("gateway.webhooks.courier.RENEW_S", 0.01)
    await bench.watch("w")
    bench.receiver.hold.clear()
    await bench.accept("evt")

    async def ends() -> float:
        return float(await bench.client.zscore(f"{TAG}leases", "evt:w:0") or 0)

    async with bench.courier():
        await eventually(lambda: bool(bench.receiver.received), "it is in flight")
        first = await ends()

        async def is_renewed() -> bool:
            return await ends() > first

        await eventually(is_renewed, "its lease ends later")
        bench.receiver.hold.set()
        await bench.become(delivered=1)


async def test_a_lost_lease_that_is_claimed_again(bench: Bench) -> None:
    """By the same courier: when its first attempt ends, the second one's lease is still renewed."""
    ends = [asyncio.Event(), asyncio.Event()]
    begun: list[asyncio.Event] = []

    async def send(*_: object) -> Answer:
        begun.append(ends[len(begun)])
        await begun[-1].wait()
        return Answer(200, 5, "ok")

    async def lease() -> float:
        return float(await bench.client.zscore(f"{TAG}leases", "evt:w:0") or 0)

    bench.sender.send = send  # type: ignore[method-assign]
    await bench.watch("w")
    await bench.accept("evt")
    async with bench.courier() as courier:
        await eventually(lambda: len(begun) == 1, "it is in flight")
        await bench.client.zadd(f"{TAG}leases", {"evt:w:0": 1})
        await eventually(lambda: len(begun) == 2, "it is claimed again")
        ends[0].set()
        await eventually(lambda: courier.in_flight == 1, "the first attempt has ended")
        before = await lease()
        await courier._renew_of(courier._shards[0])
        assert await lease() > before
        ends[1].set()
        await bench.become(delivered=1)


def test_how_long_leases_are() -> None:
    """What a dead courier had is sent again within 20 s; two renewals may fail before that."""
    assert LEASE_S + LOOK_S < 20
    assert LEASE_S >= 3 * RENEW_S


async def test_a_courier_that_dies(bench: Bench) -> None:
    """Another one delivers what it had, when the leases end: nothing is lost."""
    await bench.watch("w")
    bench.receiver.hold.clear()
    await bench.accept("one", "two")
    async with bench.courier() as courier:
        await eventually(lambda: len(bench.receiver.received) == 2, "both are in flight")
    assert courier.in_flight == 0, "attempts end with it"
    bench.receiver.hold.set()
    await bench.become(leased=2)
    for delivery in await bench.client.zrange(f"{TAG}leases", 0, -1):
        await bench.client.zadd(f"{TAG}leases", {delivery: 1})
    async with bench.courier() as courier:
        await bench.become(delivered=2)
        assert courier.metrics.leases_lost == 2
    assert bench.receiver.ids("w") == {"one": 2, "two": 2}


async def test_two_couriers(bench: Bench) -> None:
    """They share the work: each delivery is made once."""
    for number in range(5):
        await bench.watch(f"w{number}")
    async with bench.courier() as one, bench.courier() as two:
        await bench.accept(*(f"e{number}" for number in range(40)))
        await bench.become(delivered=200)
    assert sum(each.metrics.deliveries["delivered"] for each in (one, two)) == 200
    for number in range(5):
        assert bench.receiver.ids(f"w{number}") == {f"e{event}": 1 for event in range(40)}


async def test_two_couriers_share_a_rate(bench: Bench) -> None:
    """Of a watch. Meanwhile others are delivered, and couriers wait until its next attempt."""
    rate, integration = Rate(8, 1_000_000), "int_4"
    began: list[int] = []
    claims = 0

    class Noting(DeliveryQueue):
        async def claim(self, *arguments: Any) -> Claim:
            nonlocal claims
            claims += 1
            claim = await super().claim(*arguments)
            for each in claim.deliveries:
                if ":paced:" in each.id:
                    # A lease of a claim begins with it.
                    ends = await bench.client.zscore(f"{TAG}leases", each.id)
                    began.append(int(ends) - int(LEASE_S * 1_000_000))
            return claim

    bench.queue = Noting(executing(bench.client), SHARD, lambda: 10_000_000)
    for name, its, events in (("paced", rate, 12), ("slow", Rate(1, 3_600_000_000), 3)):
        url = bench.receiver.url(name)
        watch = Watch(name, integration, url, (f"{name}.*",), 1, rate=its)
        assert await Resources(executing(bench.client)).add_watch(watch)
        for number in range(events):
            await bench.queue.accept(integration, f"{name}{number}", f"{name}.b", BODY)
    await bench.watch("free")
    await bench.accept(*(f"e{number}" for number in range(12)))
    async with bench.courier() as one, bench.courier() as two:
        await bench.become(delivered=25, queued=2)
    assert sum(each.metrics.deliveries["delivered"] for each in (one, two)) == 25
    assert len(began) == 12
    pairs = zip(began, began[rate.amount :], strict=False)
    assert all(later - first >= rate.period_us for first, later in pairs)
    assert claims < 240


async def test_a_store_that_is_away(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """All shards say so in one line, and go on when it is back."""
    await bench.watch("w")
    await bench.accept("evt_1")
    away = asyncio.Event()
    failures = 0

    async def execute(*words: Any) -> Any:
        nonlocal failures
        if not away.is_set():
            failures += 1
            raise StoreDown("the store is not connected")
        return await executing(bench.client)(*words)

    queues = [DeliveryQueue(execute, shard, lambda: 10_000_000) for shard in range(SHARDS)]
    running = tasks.spawn(Courier(queues, bench.sender, MASTER).run(), "courier")
    try:
        await eventually(lambda: failures >= SHARDS, "all shards have failed")
        away.set()
        await bench.become(delivered=1)
    finally:
        await tasks.end(running)
    assert len([record for record in caplog.records if "cannot be claimed" in record.message]) == 1


async def test_slots_are_of_all_shards(bench: Bench) -> None:
    """Shards claim one after the other, so that together they fill no more slots than there are."""
    bench.receiver.hold.clear()
    queues = [
        DeliveryQueue(executing(bench.client), shard, lambda: 10_000_000) for shard in range(SHARDS)
    ]
    for shard, queue in enumerate(queues):
        watch = Watch(f"w{shard}", f"i{shard}", bench.receiver.url(f"w{shard}"), ("a.*",), 1)
        await bench.client.hset(f"{tag_of(shard)}watches:i{shard}", watch.id, write_watch(watch))
        health = {"proven": 1, "ms": 0}
        await bench.client.hset(f"{tag_of(shard)}health:w{shard}", mapping=health)
        for number in range(4):
            await queue.accept(f"i{shard}", f"evt-{shard}-{number}", "a.b", BODY)
    courier = Courier(queues, bench.sender, MASTER, lambda: WebhookSettings(slots=8))
    running = tasks.spawn(courier.run(), "courier")
    try:
        await eventually(lambda: len(bench.receiver.received) == 8, "all slots are used")
        assert courier.in_flight == 8
        bench.receiver.hold.set()
        delivered = courier.metrics.deliveries
        await eventually(lambda: delivered["delivered"] == 4 * SHARDS, "all are delivered")
        courier.stop()
        await asyncio.wait_for(running, 20)
    finally:
        await tasks.end(running)
