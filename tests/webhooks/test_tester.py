"""Test deliveries: what an endpoint gets, and what the customer is told about it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.webhooks.destinations import Destinations
from gateway.domain.webhooks.signatures import verify
from gateway.domain.webhooks.watches import secret_of
from gateway.manage.refusals import Refused
from gateway.webhooks import tester
from gateway.webhooks.sender import REFUSED, Sender
from gateway.webhooks.tester import MOST_OF_ACCOUNT, MOST_TESTS
from tests.kit.certificates import make_certificate
from tests.kit.courier_api import MASTER, NOW_US, WATCHES, Scene
from tests.kit.eventually import eventually
from tests.kit.listening import Served
from tests.kit.wire import Response
from tests.webhooks.test_sender import Names

TEST = "/api/webhooks/test"


class Endpoint:
    """What customers run, over TLS. answer: what it sends; None: nothing"""

    def __init__(self, folder: Path) -> None:
        files = make_certificate(folder, ["hook.test"])
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(files.certificate, files.key)
        self.server = Served(self._serve, tls=served)
        self.trusting = ssl.create_default_context(cafile=files.ca)
        self.answer = b"HTTP/1.1 204 No Content\r\n\r\n"
        self.heads: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.release = asyncio.Event()
        self.release.set()

    @property
    def url(self) -> str:
        return f"https://hook.test:{self.server.port}/hook"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
            lines = [line.split(": ", 1) for line in head.splitlines()[1:] if line]
            fields = {name.lower(): value for name, value in lines}
            self.bodies.append(await reader.readexactly(int(fields["content-length"])))
            self.heads.append(fields)
            await self.release.wait()
            writer.write(self.answer)


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[Endpoint]:
    made = Endpoint(tmp_path)
    async with made.server:
        yield made


@asynccontextmanager
async def scene_for(
    client: Any, endpoint: Endpoint, destinations: Destinations | None = None
) -> AsyncIterator[Scene]:
    allowed = destinations or Destinations(allowed=(ip_network("127.0.0.0/8"),))
    sender = Sender(lambda: allowed, tls=lambda: endpoint.trusting, resolve=Names("127.0.0.1"))
    async with Scene(client, sender) as scene:
        await scene.add_integrations()
        yield scene


async def watch_of(scene: Scene, url: str, *events: str) -> str:
    given = {"url": url, "events": events or ["pull_request.*"]}
    watch: str = (await scene.send("POST", WATCHES, given)).json()["id"]
    return watch


async def ask(scene: Scene, watch: str, **more: object) -> Response:
    return await scene.send("POST", TEST, {"watch_id": watch, **more})


async def test_a_test(store_client: Any, endpoint: Endpoint) -> None:
    """One attempt, signed as all are; its data says what it is, and nothing of it is kept."""
    async with scene_for(store_client, endpoint) as scene:
        watch = await watch_of(scene, endpoint.url)
        before = sorted([name async for name in store_client.scan_iter()])
        health = await scene.client.keys("*health*")
        answer = await ask(scene, watch)
        assert sorted([name async for name in store_client.scan_iter()]) == before
        assert await scene.client.keys("*health*") == health
    told = answer.json()
    assert told.pop("ms") >= 0
    assert (answer.status, told) == (200, {"delivered": True, "status": 204, "reason": None})
    (body,), (fields,) = endpoint.bodies, endpoint.heads
    event = json.loads(body)
    assert (event["type"], event["data"]["test"]) == ("pull_request.test", True)
    assert event["integration"] == {"id": "int_1", "provider": "github", "name": "Code"}
    assert fields["webhook-id"] == event["id"]
    secrets = [secret_of(MASTER, watch, 1)]
    for forms in (["timed"], ["standard"]):
        verify(body, fields, secrets, now_s=NOW_US / 1_000_000, forms=forms)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("events", "given", "sent"),
    [
        (["ticket.created", "incident.*"], None, "ticket.created"),
        (["incident.*"], None, "incident.test"),
        ([f"{'x' * 126}.*"], None, "webhook.test"),
        (["incident.*"], "incident.resolved", "incident.resolved"),
        (["incident.*"], "webhook.test", "webhook.test"),
    ],
)
async def test_types(
    store_client: Any, endpoint: Endpoint, events: list[str], given: str | None, sent: str
) -> None:
    async with scene_for(store_client, endpoint) as scene:
        watch = await watch_of(scene, endpoint.url, *events)
        answer = await ask(scene, watch, **({} if given is None else {"type": given}))
    assert answer.json()["delivered"] is True
    assert [json.loads(body)["type"] for body in endpoint.bodies] == [sent]


async def test_faults(store_client: Any, endpoint: Endpoint) -> None:
    """All at once; and nothing is sent."""
    async with scene_for(store_client, endpoint) as scene:
        watch = await watch_of(scene, endpoint.url)
        for given, paths in (
            ({}, ["watch_id"]),
            ({"watch_id": 1, "type": "*", "x": 1}, ["watch_id", "type", "x"]),
            ({"watch_id": watch, "type": "ticket.created"}, ["type"]),
            ({"watch_id": watch, "type": "pull_request.*"}, ["type"]),
        ):
            answer = await scene.send("POST", TEST, given)
            assert answer.status == 422
            assert [fault["path"] for fault in answer.json()["faults"]] == paths
        assert (await ask(scene, "wat_1")).status == 404
    assert endpoint.heads == []


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (b"500 No", "the answer's status is not 2xx"),
        (b"410 Gone", "the answer's status is not 2xx"),
        (b"302 Found", "the answer's status is not 2xx, and redirects are not followed"),
    ],
)
async def test_failures(store_client: Any, endpoint: Endpoint, status: bytes, reason: str) -> None:
    """They are told without what the endpoint said, and do not count for the watch."""
    endpoint.answer = b"HTTP/1.1 %b\r\nContent-Length: 6\r\nX-A: inside\r\n\r\ninside" % status
    async with scene_for(store_client, endpoint) as scene:
        watch = await watch_of(scene, endpoint.url)
        for _ in range(6):
            answer = await ask(scene, watch)
            told = answer.json()
            assert told == {
                "delivered": False,
                "status": int(status[:3]),
                "ms": told["ms"],
                "reason": reason,
            }
            assert b"inside" not in answer.body
        shown = (await scene.send("GET", f"{WATCHES}/{watch}")).json()
    assert (shown["status"], shown["failures"]) == ("active", 0)


async def test_an_address_that_is_not_allowed(store_client: Any, endpoint: Endpoint) -> None:
    """It is judged as for every delivery."""
    async with scene_for(store_client, endpoint, Destinations()) as scene:
        told = (await ask(scene, await watch_of(scene, endpoint.url))).json()
    assert (told["delivered"], told["status"], told["reason"]) == (False, None, REFUSED)
    assert endpoint.heads == []


async def test_paused_watches(store_client: Any, endpoint: Endpoint) -> None:
    """They are tested too, before they are resumed."""
    async with scene_for(store_client, endpoint) as scene:
        watch = await watch_of(scene, endpoint.url)
        await scene.send("POST", f"{WATCHES}/{watch}/pause")
        assert (await ask(scene, watch)).json()["delivered"] is True


async def test_the_watch_is_found(store_client: Any, endpoint: Endpoint) -> None:
    """In any of the account's integrations."""
    async with scene_for(store_client, endpoint) as scene:
        integration = await scene.store.integration("int_1")
        assert integration is not None
        for number in range(3, 30):
            await scene.store.add_integration(
                type(integration)(f"int_{number}", "acme", "linear", "Plans", number)
            )
        path = "/api/v1/integrations/int_29/watches"
        made = await scene.send("POST", path, {"url": endpoint.url, "events": ["ticket.*"]})
        assert (await ask(scene, made.json()["id"])).json()["delivered"] is True
    assert json.loads(endpoint.bodies[0])["integration"]["id"] == "int_29"


async def test_too_many_at_once(store_client: Any, endpoint: Endpoint) -> None:
    """503 for those beyond the bounds, to be tried again; those in progress go on."""
    endpoint.release.clear()
    async with scene_for(store_client, endpoint) as scene:
        watch = await watch_of(scene, endpoint.url)
        held = [asyncio.create_task(ask(scene, watch)) for _ in range(MOST_OF_ACCOUNT)]
        await eventually(lambda: len(endpoint.heads) == MOST_OF_ACCOUNT, "all tests have been sent")
        answer = await ask(scene, watch)
        assert (answer.status, answer["Retry-After"]) == (503, "1")
        assert answer.json()["code"] == "TOO_MANY_TESTS"
        endpoint.release.set()
        assert {each.json()["delivered"] for each in await asyncio.gather(*held)} == {True}
        assert (await ask(scene, watch)).json()["delivered"] is True


async def test_no_account_has_all_tests() -> None:
    """Others test while one has as many as it may; all of them together have a bound as well."""
    waiting: list[str] = []
    release = asyncio.Event()

    class Held(tester.Tester):
        async def _test(self, account: str, watch_id: str, wanted: str | None) -> tester.Tested:
            waiting.append(account)
            await release.wait()
            return tester.Tested(200, 1, None)

    held = Held(*(None,) * 5)  # type: ignore[arg-type]

    def test(account: str) -> asyncio.Task[tester.Tested]:
        return asyncio.create_task(held.test(account, {"watch_id": "wat_1"}))

    accounts = [f"acme{number % 5}" for number in range(5 * (MOST_OF_ACCOUNT + 1))]
    asked = [test(each) for each in accounts]
    await asyncio.sleep(0)
    assert len(waiting) == MOST_TESTS
    assert max(Counter(waiting).values()) == MOST_OF_ACCOUNT
    release.set()
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert len([each for each in ended if isinstance(each, Refused)]) == len(asked) - MOST_TESTS
    assert await test("acme0") == tester.Tested(200, 1, None)
