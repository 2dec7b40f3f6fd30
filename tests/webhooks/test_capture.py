"""Capturing webhooks over HTTP: what each one is answered, and what is kept."""

from __future__ import annotations

import asyncio
import hmac
import io
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway import tasks
from gateway.domain.ports import StoreDown
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.signatures import sign
from gateway.domain.webhooks.watches import Watch
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.queue import SHARDS, DeliveryQueue, shard_of, tag_of
from gateway.stores.webhooks.resources import Resources
from gateway.webhooks.capture import LARGE, Capture
from gateway.webhooks.known import KnownIntegrations
from gateway.webhooks.sealing import Sealer
from gateway.webhooks.spool import Spool
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.kit.store_proxy import StoreProxy
from tests.kit.wire import Wire, build_request

SEALER = Sealer(b"m" * 32)
ADDRESS = "0123456789abcdef" * 2
SECRET = "a secret of GitHub"
NOW_US = 1_800_000_000_000_000
TAG = tag_of(shard_of("int_1"))
INTEGRATION = Integration(
    *("int_1", "acme", "github", "Code", 1, ADDRESS), sealed=SEALER.seal("int_1", [SECRET])
)
PULL_REQUEST = {
    "action": "opened",
    "pull_request": {"id": 1, "number": 2, "title": "x", "state": "open", "user": {"id": 3}},
    "repository": {"id": 4, "name": "a", "full_name": "acme/a"},
}


def server_of(capture: Capture) -> TestServer:
    application = web.Application()
    application.router.add_post("/hooks/{capture}", capture.serve)
    return TestServer(application)


class Bench:
    def __init__(self, client: Any, budget: int = 1_000_000) -> None:
        self.client = client
        self.store = Resources(executing(client))
        self.queues = [
            DeliveryQueue(executing(client), each, lambda: budget) for each in range(SHARDS)
        ]
        self.most_bytes = 200_000
        self.capture = Capture(
            *(self.store, self.queues, SEALER, lambda: NOW_US), most_bytes=lambda: self.most_bytes
        )
        self.server = server_of(self.capture)

    async def send(
        self, body: bytes, address: str = ADDRESS, secret: str = SECRET, **headers: str
    ) -> tuple[int, dict[str, str]]:
        """The status and the answer; a refusal has the form of the gateway's errors."""
        mac = hmac.digest(secret.encode(), body, "sha256").hex()
        given = {"X-Hub-Signature-256": f"sha256={mac}", "X-GitHub-Event": "pull_request"}
        given["X-Request-Id"] = "worker-1"
        async with aiohttp.ClientSession() as session:
            url = self.server.make_url(f"/hooks/{address}")
            async with session.post(
                url, data=io.BytesIO(body), headers={**given, **headers}
            ) as answer:
                if answer.status == 503:
                    assert answer.headers["Retry-After"] == "30"
                told = await answer.json()
        assert told["request_id"] == "worker-1"
        names = {"result"} if answer.status == 202 else {"error", "code"}
        assert set(told) == {"message", "request_id", *names}
        return answer.status, told


@pytest.fixture
async def bench(store_client: Any) -> AsyncIterator[Bench]:
    made = Bench(store_client)
    await made.store.add_integration(INTEGRATION)
    async with made.server:
        yield made


async def test_a_webhook(bench: Bench) -> None:
    """It is kept as an event; sent again, it is the same one."""
    body = json.dumps(PULL_REQUEST).encode()
    for _ in range(2):
        status, told = await bench.send(body, **{"X-GitHub-Delivery": "d-1"})
        assert (status, told["result"]) == (202, "captured")
        assert told["message"].endswith("; 0 deliveries are queued.")
    names = [name.decode() async for name in bench.client.scan_iter(f"{TAG}event:*")]
    assert len(names) == 1
    kept = json.loads(await bench.client.hget(names[0], "body"))
    assert (kept["type"], kept["data"]["number"]) == ("pull_request.opened", 2)
    assert kept["integration"] == {"id": "int_1", "provider": "github", "name": "Code"}
    assert names[0] == f"{TAG}event:{kept['id']}"
    assert bench.capture.results["github", "captured"] == 2


async def send_generic(bench: Bench, number: int, *ids: str) -> str:
    """The event of a webhook of its own body id, with these values of the header x-delivery-id."""
    body = json.dumps({"id": f"body-{number}", "type": "build.done", "data": {}}).encode()
    signed = sign(body, [SECRET], event_id="std", now_s=NOW_US // 1_000_000)
    headers = [*signed.items(), *(("X-Delivery-ID", each) for each in ids)]
    async with aiohttp.ClientSession() as session:
        url = bench.server.make_url(f"/hooks/{ADDRESS}")
        async with session.post(url, data=body, headers=headers) as answer:
            assert answer.status == 202
            return str((await answer.json())["message"]).split()[2]


async def test_the_header_with_the_id(bench: Bench) -> None:
    """A resend is known by it. One that is missing, sent twice or odd counts as none."""
    its = replace(INTEGRATION, kind="generic")
    await bench.store.replace_integration(INTEGRATION, its)
    without = [await send_generic(bench, number, "h-1") for number in (1, 2)]
    assert len(set(without)) == 2
    await bench.store.replace_integration(its, replace(its, id_header="x-delivery-id"))
    known = await send_generic(bench, 1, "h-1")
    assert await send_generic(bench, 2, "h-1") == known
    assert await send_generic(bench, 2, "h-2") != known
    for odd in ((), ("h-1", "h-1"), ("h-1", "h-2"), ("",), ("h 1",), ("x" * 201,), ("x" * 4_000,)):
        assert await send_generic(bench, 1, *odd) == without[0], odd


@pytest.mark.parametrize("watches", [1, 2])
async def test_how_many_deliveries_are_queued(bench: Bench, watches: int) -> None:
    """The provider is told, in words that fit the number."""
    for number in range(watches):
        url = "https://hooks.example/"
        await bench.store.add_watch(Watch(f"wat_{number}", "int_1", url, ("pull_request.*",), 1))
    _, told = await bench.send(json.dumps(PULL_REQUEST).encode(), **{"X-GitHub-Delivery": "d"})
    queued = "1 delivery is queued." if watches == 1 else "2 deliveries are queued."
    assert told["message"].endswith(f"; {queued}")


@pytest.mark.parametrize(
    ("body", "given", "status", "code", "counted"),
    [
        (b"{}", {"secret": "another"}, 401, "INVALID_SIGNATURE", ("github", "unverified")),
        (b"{", {"secret": "another"}, 401, "INVALID_SIGNATURE", ("github", "unverified")),
        (b"{", {}, 400, "BODY_NOT_JSON", ("github", "not_json")),
        (b"{}", {"X-GitHub-Event": "star"}, 202, None, ("github", "ignored")),
        (b"{}", {"address": "f" * 32}, 404, "NOT_FOUND", ("", "unknown")),
        (b"{}", {"address": "F" * 32}, 404, "NOT_FOUND", ("", "unknown")),
        (b"{}", {"address": "x"}, 404, "NOT_FOUND", ("", "unknown")),
        (b"x" * 200_001, {}, 413, "BODY_TOO_LARGE", ("github", "body_too_large")),
    ],
)
async def test_what_is_not_kept(
    bench: Bench,
    body: bytes,
    given: dict[str, str],
    status: int,
    code: str | None,
    counted: tuple[str, str],
) -> None:
    found, told = await bench.send(body, **given)
    assert (found, told.get("code")) == (status, code)
    assert bench.capture.results == {counted: 1}
    assert [name async for name in bench.client.scan_iter(f"{TAG}event:*")] == []
    assert "int_1" not in told["message"]


async def test_the_words_of_a_refusal(bench: Bench) -> None:
    """They say what is wrong, as far as a stranger may know it."""
    _, told = await bench.send(b"{}", secret="another")
    assert told["message"].endswith("Reason: the signature does not fit the body and the secret.")
    bench.most_bytes = 10
    _, told = await bench.send(b"x" * 11)
    assert told["message"].endswith("At most: 10 bytes.")
    bench.most_bytes = 11
    assert (await bench.send(b"x" * 11))[1]["code"] == "BODY_NOT_JSON"
    bench.most_bytes = 101
    _, told = await bench.send(b"[" * 101)
    assert told["message"] == (
        "The body is not JSON. Reason: found 101 levels of arrays and objects at byte 101, "
        "expected at most 100."
    )


async def test_an_event_that_is_too_large(bench: Bench) -> None:
    """The bound is that of the event as well, which may be larger than its webhook."""
    title = "é" * 1_000
    payload = {**PULL_REQUEST, "pull_request": {"title": title, "state": "open"}}
    body = json.dumps(payload, ensure_ascii=False).encode()
    bench.most_bytes = len(body) + 1_000
    status, told = await bench.send(body)
    assert (status, told["code"]) == (413, "BODY_TOO_LARGE")
    assert told["message"].startswith("Its event would have 6")
    assert told["message"].endswith(f"At most: {bench.most_bytes} bytes.")
    assert bench.capture.results == {("github", "body_too_large"): 1}
    assert [name async for name in bench.client.scan_iter(f"{TAG}event:*")] == []


async def test_a_body_that_does_not_come(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """408 after the time for a body."""
    monkeypatch.setattr("gateway.webhooks.requests.BODY_S", 0.05)
    head = build_request("POST", f"/hooks/{ADDRESS}", [("Content-Length", "100")])
    assert bench.server.port is not None
    async with await Wire.connect(bench.server.port) as wire:
        await wire.send(head + b"{")
        answer = await wire.read_response()
    assert (answer.status, answer.json()["code"]) == (408, "REQUEST_TIMEOUT")
    assert bench.capture.results == {("github", "request_timeout"): 1}


async def test_a_paused_integration(bench: Bench) -> None:
    """Its address is not there."""
    await bench.store.replace_integration(INTEGRATION, replace(INTEGRATION, is_paused=True))
    assert (await bench.send(b"{}"))[0] == 404


async def test_without_room(store_client: Any) -> None:
    """The provider may send it again."""
    bench = Bench(store_client, budget=100)
    await bench.store.add_integration(INTEGRATION)
    async with bench.server:
        status, told = await bench.send(json.dumps(PULL_REQUEST).encode())
    assert (status, told["code"]) == (503, "EVENTS_FULL")


async def test_records_that_cannot_be_read(bench: Bench) -> None:
    """503: they may be mended."""
    sealed = SEALER.seal("int_2", [SECRET])
    await bench.store.replace_integration(INTEGRATION, replace(INTEGRATION, sealed=sealed))
    assert (await bench.send(b"{}"))[0] == 503
    await bench.client.hset("gw:{keys}:hooks:integrations", "int_1", "{}")
    status, told = await bench.send(b"{}")
    assert (status, told["code"]) == (503, "SERVICE_UNAVAILABLE")


@pytest.fixture
async def outage(redis_server: RedisServer, tmp_path: Path) -> AsyncIterator[Outage]:
    async with StoreProxy(redis_server.port) as proxy:
        client = redis_client(parse_url(proxy.url))
        made = Outage(client, proxy, tmp_path)
        await made.store.add_integration(INTEGRATION)
        await made.known.load()
        async with made.server:
            yield made
        await made.spool.close()
        await client.aclose()


class Outage(Bench):
    """A store that can be cut off, and what capture has for that."""

    def __init__(self, client: Any, proxy: StoreProxy, folder: Path) -> None:
        super().__init__(client)
        self.proxy = proxy
        self.known = KnownIntegrations(self.store)
        self.spool = Spool(folder, 0, lambda: 10_000, pause_s=0.01)
        self.capture = Capture(
            *(self.store, self.queues, SEALER, lambda: NOW_US), self.known, self.spool
        )
        self.server = server_of(self.capture)

    async def is_empty(self) -> bool:
        with suppress(StoreDown):
            await self.store._execute("FLUSHALL")
            return True
        return False

    async def events(self) -> int:
        return len(await self.queues[shard_of("int_1")].events("int_1"))


async def test_an_outage(outage: Outage) -> None:
    """Webhooks are verified and kept, and accepted once the store is available."""
    body = json.dumps(PULL_REQUEST).encode()
    assert (await outage.send(body, **{"X-GitHub-Delivery": "d-0"}))[1]["result"] == "captured"
    outage.proxy.cut()
    for number in range(1, 4):
        status, told = await outage.send(body, **{"X-GitHub-Delivery": f"d-{number}"})
        assert (status, told["result"]) == (202, "spooled")
    assert (await outage.send(body, secret="another"))[0] == 401
    assert (await outage.send(body, address="f" * 32))[0] == 503, "it may be a new one"
    assert outage.spool.count == 3
    running = tasks.spawn(outage.spool.run(outage.capture.accept_spooled), "spool")
    outage.proxy.pass_on()
    await eventually(lambda: outage.spool.bytes == 0, "all were accepted")
    await tasks.end(running)
    assert await outage.events() == 4
    assert outage.spool.replayed == 3


async def test_an_outage_without_room(outage: Outage) -> None:
    """The provider may send it again."""
    outage.proxy.cut()
    large = {**PULL_REQUEST, "pull_request": {"title": "x" * 20_000, "state": "open"}}
    status, told = await outage.send(json.dumps(large).encode())
    assert (status, told["code"]) == (503, "EVENTS_FULL")
    assert outage.spool.count == 0


async def test_an_outage_is_logged_once(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever comes meanwhile; the next line says how many webhooks it stands for."""
    outage.capture._throttle = LogThrottle(3_600.0)
    outage.proxy.cut()
    for _ in range(4):
        assert (await outage.send(b"{}", address="f" * 32))[0] == 503
    assert caplog.text.count("a webhook cannot be captured: the store is unavailable") == 1
    large = {**PULL_REQUEST, "pull_request": {"title": "x" * 20_000, "state": "open"}}
    for _ in range(3):
        assert (await outage.send(json.dumps(large).encode()))[0] == 503
    assert caplog.text.count("a webhook of int_1 cannot be kept: the file has 0 bytes") == 1
    outage.capture._throttle._every_s = 0.0
    assert (await outage.send(b"{}", address="f" * 32))[0] == 503
    assert "(3 such webhooks were suppressed)" in caplog.text


async def test_changes_before_an_outage(outage: Outage) -> None:
    """What was loaded last holds; with the store available, it is asked."""
    body = json.dumps(PULL_REQUEST).encode()
    paused = replace(INTEGRATION, is_paused=True)
    await outage.store.replace_integration(INTEGRATION, paused)
    assert (await outage.send(body))[0] == 404
    await outage.known.load()
    outage.proxy.cut()
    assert (await outage.send(body))[0] == 404
    outage.proxy.pass_on()
    await outage.store.replace_integration(paused, replace(paused, capture="e" * 32))
    await outage.client.hset("gw:{keys}:hooks:integrations", "bad", "{}")
    await outage.known.load()
    assert outage.known.captures_to(ADDRESS) is None
    assert outage.known.captures_to("e" * 32) == replace(paused, capture="e" * 32)


async def test_without_a_spool(store_client: Any) -> None:
    """An outage is said."""
    bench = Bench(store_client)
    await bench.store.add_integration(INTEGRATION)
    bench.queues[shard_of("int_1")] = Unavailable(executing(store_client), 1, lambda: 1)
    async with bench.server:
        status, told = await bench.send(json.dumps(PULL_REQUEST).encode())
    assert (status, told["code"]) == (503, "SERVICE_UNAVAILABLE")


class Unavailable(DeliveryQueue):
    """The store went away after the integration was read."""

    async def accept(self, *_: object) -> int:
        raise StoreDown("the store is unavailable")


async def test_large_webhooks_are_read_in_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a time, and no account has all turns; small ones wait for none."""
    read: list[str] = []

    def captured(integration: Integration, *_: object) -> None:
        read.append(integration.account)

    monkeypatch.setattr("gateway.webhooks.capture.captured", captured)

    def send(account: str, size: int) -> asyncio.Task[Any]:
        its = replace(INTEGRATION, account=account)
        return asyncio.create_task(bench.capture._read(its, bytes(size), lambda _: ""))

    large = [send("acme", LARGE + 1) for _ in range(3)] + [send("other", LARGE + 1)]
    await send("small", LARGE)
    assert read == ["acme", "small"]
    await asyncio.gather(*large)
    assert read == ["acme", "small", "other", "acme", "acme"]


async def test_a_large_webhook_that_is_refused(bench: Bench) -> None:
    """The next one is read all the same."""
    body = json.dumps({**PULL_REQUEST, "more": "x" * LARGE}).encode()
    assert (await bench.send(body, secret="another secret"))[0] == 401
    assert (await bench.send(body))[0] == 202


async def test_a_store_that_comes_back_without_its_data(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    """What was spooled waits until its integration is there again, as from a backup."""
    outage.proxy.cut()
    assert (await outage.send(json.dumps(PULL_REQUEST).encode()))[1]["result"] == "spooled"
    outage.proxy.pass_on()
    await eventually(outage.is_empty, "the store has lost everything")
    running = tasks.spawn(outage.spool.run(outage.capture.accept_spooled), "spool")
    await eventually(lambda: "has lost its integrations" in caplog.text, "it is told")
    assert outage.spool.count == 1
    await outage.store.add_integration(INTEGRATION)
    await eventually(lambda: outage.spool.bytes == 0, "it was accepted")
    await tasks.end(running)
    assert await outage.events() == 1


async def test_an_integration_that_was_removed(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    """What was spooled for it is dropped, and the log says so."""
    await outage.store.has_mark("of the webhook key")
    outage.proxy.cut()
    assert (await outage.send(json.dumps(PULL_REQUEST).encode()))[1]["result"] == "spooled"
    outage.proxy.pass_on()

    async def is_removed() -> bool:
        with suppress(StoreDown):
            await outage.store.remove_integration(INTEGRATION)
            return True
        return False

    await eventually(is_removed, "the integration is removed")
    running = tasks.spawn(outage.spool.run(outage.capture.accept_spooled), "spool")
    await eventually(lambda: outage.spool.bytes == 0, "nothing waits")
    await tasks.end(running)
    assert await outage.events() == 0
    assert "a webhook of int_1 is dropped: it was removed" in caplog.text
