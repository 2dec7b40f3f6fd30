"""The admin listener: its answers, start and stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway import errors
from gateway.admin import listener
from gateway.admin.access import Access
from gateway.admin.app import AdminDeps, build_admin
from gateway.admin.listener import AdminServer
from gateway.admin.readiness import Readiness
from gateway.admin.sessions import Sessions
from gateway.observe.exposition import render
from gateway.observe.metrics import Metrics
from gateway.runtime.sockets import bind
from gateway.stores.admin import MemoryAdminStore
from tests.kit.eventually import eventually
from tests.kit.wire import Wire, fetch

READY = Readiness(True, {"store": "ok", "policies": "ok"})
DRAINING = Readiness(False, {"store": "ok", "listener": "draining"})


class Scene:
    """A listener on a free port, and its readiness."""

    def __init__(self) -> None:
        self.metrics = Metrics("1.2.3")
        self.readiness: Callable[[], Readiness] = lambda: READY
        token = "correct-horse-battery"
        deps = AdminDeps(Access(token), Sessions(token, MemoryAdminStore()), management=None)
        self.scrapes = 0
        self.server = AdminServer(build_admin(self.scrape, self.ask, deps))

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        self.scrapes += 1
        return render(self.metrics.snapshot(), accept, [])

    async def ask(self) -> Readiness:
        return self.readiness()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}{path}"


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    await scene.server.start(bind("127.0.0.1", 0, 1)[0])
    yield scene
    await scene.server.stop()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_metrics_are_served_as_text(scene: Scene, client: aiohttp.ClientSession) -> None:
    """A scrape without preferences gets the text format, with the current values."""
    scene.metrics.refused("key_unknown")
    async with client.get(scene.url("/metrics")) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {each.name: each for each in text_string_to_metric_families(await answer.text())}
    assert families["gateway_refusals"].samples[0].value == 1


async def test_metrics_are_served_as_asked(scene: Scene, client: aiohttp.ClientSession) -> None:
    """Prometheus asks for OpenMetrics, and gets it."""
    accept = {"Accept": "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"}
    async with client.get(scene.url("/metrics"), headers=accept) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        assert (await answer.text()).endswith("# EOF\n")


async def test_a_live_process_says_ok(scene: Scene, client: aiohttp.ClientSession) -> None:
    """Liveness does not depend on readiness: a restart would not cure an absent store."""
    scene.readiness = lambda: DRAINING
    async with client.get(scene.url("/healthz")) as answer:
        assert (answer.status, await answer.text()) == (200, "ok")


@pytest.mark.parametrize(("readiness", "status"), [(READY, 200), (DRAINING, 503)])
async def test_readiness_shows_its_checks(
    scene: Scene, client: aiohttp.ClientSession, readiness: Readiness, status: int
) -> None:
    """The status is for load balancers, the checks are for people."""
    scene.readiness = lambda: readiness
    async with client.get(scene.url("/readyz")) as answer:
        assert answer.status == status
        expected = {"ready": readiness.ready, "checks": dict(readiness.checks)}
        assert await answer.json() == expected


async def test_readiness_is_asked_at_each_probe(
    scene: Scene, client: aiohttp.ClientSession
) -> None:
    """No answer is cached."""
    statuses = []
    for readiness in (READY, DRAINING, READY):
        scene.readiness = lambda now=readiness: now  # type: ignore[misc]
        async with client.get(scene.url("/readyz")) as answer:
            statuses.append(answer.status)
    assert statuses == [200, 503, 200]


async def test_a_flood_of_scrapes_is_one(scene: Scene, client: aiohttp.ClientSession) -> None:
    """A hundred at once cost a few scrapes, even if their Accept headers differ."""

    async def ask(number: int) -> None:
        accept = f"application/openmetrics-text; version=1.0.{number}, text/plain; q=0.{number}"
        async with client.get(scene.url("/metrics"), headers={"Accept": accept}) as answer:
            assert answer.headers["Content-Type"] == (
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
            )

    await asyncio.gather(*(ask(number) for number in range(100)))
    assert scene.scrapes < 20


async def refusal(answer: aiohttp.ClientResponse) -> tuple[int, object]:
    body = await answer.json()
    assert body.pop("request_id") == answer.headers["X-Request-Id"]
    return answer.status, body


def worded(refusal: errors.Refusal) -> tuple[int, object]:
    body = {"error": refusal.error, "message": refusal.message, "code": refusal.code}
    return refusal.status, body


@pytest.mark.parametrize("path", ["/metrics/", "/keys", "/administration", "/readyz/../x"])
async def test_anything_else_is_not_found(
    scene: Scene, client: aiohttp.ClientSession, path: str
) -> None:
    """A 404 like that of the gateway."""
    async with client.get(scene.url(path)) as answer:
        assert await refusal(answer) == worded(errors.NOT_FOUND)


async def test_only_reading_is_allowed(scene: Scene, client: aiohttp.ClientSession) -> None:
    """The refusal names the allowed methods."""
    async with client.post(scene.url("/metrics")) as answer:
        assert await refusal(answer) == worded(errors.METHOD_NOT_ALLOWED)
        assert set(answer.headers["Allow"].split(", ")) == {"GET", "HEAD"}


async def test_an_internal_error_is_worded_and_logged(
    scene: Scene, client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """The client does not get the cause; the log has it."""

    def broken() -> Readiness:
        raise RuntimeError("broken pump")

    scene.readiness = broken
    async with client.get(scene.url("/readyz")) as answer:
        assert await refusal(answer) == worded(errors.INTERNAL)
        assert "pump" not in await answer.text()
    request_id = answer.headers["X-Request-Id"]
    assert f"the admin listener failed at GET /readyz (request {request_id})" in caplog.text
    assert "broken pump" in caplog.text


async def test_stop_frees_the_port() -> None:
    """The port is free again, and a second stop does nothing."""
    scene = Scene()
    await scene.server.start(bind("127.0.0.1", 0, 1)[0])
    port = scene.server.port
    assert port > 0
    await scene.server.stop()
    await scene.server.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


async def test_a_server_that_never_started_can_be_stopped() -> None:
    """A failed start may call it for parts that have not started."""
    never = Scene().server
    await never.stop()
    assert len(never.connections) == 0


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    """A socket, of which a serving process gets a copy."""
    with bind("127.0.0.1", 0, 1)[0][0] as bound:
        yield bound


async def test_leaving(bound: socket.socket) -> None:
    """Connected clients get one more answer, which closes; no others are accepted."""
    scene, successor = Scene(), Scene()
    await scene.server.start([bound.dup()])
    async with await Wire.connect(scene.server.port) as wire:
        assert not (await wire.request("GET", "/healthz")).closes
        leaving = asyncio.gather(scene.server.leave())
        await eventually(lambda: scene.server._leaving, "it begins")
        async with await Wire.connect(bound.getsockname()[1]) as other:  # waits in the socket
            answer = await wire.request("GET", "/readyz")
            assert (answer.status, answer.closes) == (200, True)
            await wire.read_end()
            await leaving
            await scene.server.stop()
            await successor.server.start([bound])
            assert (await other.request("GET", "/healthz")).status == 200
            await successor.server.stop()


async def test_leaving_a_client_that_stays(
    bound: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without a further request delays the end only briefly."""
    monkeypatch.setattr(listener, "_STOP_S", 0.05)
    scene = Scene()
    await scene.server.start([bound.dup()])
    async with await Wire.connect(scene.server.port) as wire:
        await wire.request("GET", "/healthz")
        async with asyncio.timeout(20):
            await scene.server.leave()
        await scene.server.stop()
        await wire.read_end()


async def test_leaving_loses_no_connection(bound: socket.socket) -> None:
    """Of two processes that accept from one socket, each answers all that it has accepted."""
    scene, successor = Scene(), Scene()
    await scene.server.start([bound.dup()])
    await successor.server.start([bound.dup()])
    asking = [asyncio.create_task(fetch(scene.server.port, "/healthz")) for _ in range(200)]
    await scene.server.leave()
    assert {answer.status for answer in await asyncio.gather(*asking)} == {200}
    await scene.server.stop()
    await successor.server.stop()
