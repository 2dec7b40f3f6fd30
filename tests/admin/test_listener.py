"""The admin listener's connections: how many, how long each may wait, and who makes room.

On both event loops: the gateway runs on uvloop, its other tests on asyncio's own.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from gateway.admin import listener
from gateway.admin.guard import refuse_in_json
from gateway.admin.listener import AdminServer, Room, read_body
from gateway.domain.policy import Tls
from gateway.runtime.certificates import build_context
from gateway.runtime.sockets import bind
from tests.kit.admin import TOKEN, AdminScene
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.loops import on_each_loop
from tests.kit.rude import RudeClient
from tests.kit.wire import PATIENCE_S, Wire, fetch

#: More than two kernels take in of an answer that nobody reads.
LARGE = bytes(32 * 1024 * 1024)
SLOW_HEAD = b"GET /now HTTP/1.1\r\nHost: a\r\nX-Slow: "


UNREADABLE = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "version": b"GET /now SECRET\r\n\r\n",
    "colon": b"GET /now HTTP/1.1\r\nHost: a\r\nAuthorization Bearer SECRET\r\n\r\n",
    "control": b"GET /now HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer SECRET\x00\r\n\r\n",
    "long-field": b"GET /now HTTP/1.1\r\nHost: a\r\nX: " + b"SECRET" * 2_000 + b"\r\n\r\n",
    "many-fields": b"GET /now HTTP/1.1\r\nHost: a\r\n" + b"X: SECRET\r\n" * 65 + b"\r\n",
    "long-path": b"GET /" + b"SECRET" * 2_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "length": b"POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: SECRET\r\n\r\n",
}


class Scene:
    """A server with paths to try. gate: what "/held" waits for; held: how many wait there"""

    def __init__(self, most: int, tls: ssl.SSLContext | None) -> None:
        self.gate = asyncio.Event()
        self.held = self.done = 0
        self.clients: list[RudeClient] = []
        app = web.Application(middlewares=[refuse_in_json], client_max_size=65_536)
        app.router.add_get("/now", self._now)
        app.router.add_get("/held", self._hold)
        app.router.add_post("/held", self._hold)
        app.router.add_get("/large", self._large)
        app.router.add_post("/echo", self._echo)
        self.server = AdminServer(app, tls, most)

    @property
    def port(self) -> int:
        return self.server.port

    async def _now(self, _request: web.Request) -> web.Response:
        return web.Response(text="now")

    async def _hold(self, _request: web.Request) -> web.Response:
        self.held += 1
        try:
            await self.gate.wait()
            self.done += 1
        finally:
            self.held -= 1
        return web.Response(text="held")

    async def _large(self, _request: web.Request) -> web.Response:
        return web.Response(body=LARGE)

    async def _echo(self, request: web.Request) -> web.Response:
        return web.Response(body=await read_body(request))

    async def client(self) -> RudeClient:
        """A connection, closed at the end."""
        self.clients.append(client := await RudeClient.connect(self.port))
        return client

    async def dribbler(self, head: bytes = SLOW_HEAD) -> RudeClient:
        """A client that has sent a piece of a request, and that is accepted."""
        known = len(self.server.room)
        client = await self.client()
        await client.send(head)
        most = self.server.room.most
        await eventually(lambda: len(self.server.room) >= min(known + 1, most), "it is accepted")
        return client


@asynccontextmanager
async def serving(most: int = 16, tls: ssl.SSLContext | None = None) -> AsyncIterator[Scene]:
    scene = Scene(most, tls)
    await scene.server.start(bind("127.0.0.1", 0, 1)[0])
    try:
        yield scene
    finally:
        scene.gate.set()
        await scene.server.stop()
        for client in scene.clients:
            client.close()


async def ends(client: RudeClient) -> bytes:
    """What comes until the other end closes, or resets."""
    try:
        return await client.read_to_end()
    except ConnectionResetError:
        return b"reset"


async def nobody(scene: Scene) -> None:
    await eventually(lambda: len(scene.server.room) == 0, "no connection is open")


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"G", SLOW_HEAD, b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n"])
@on_each_loop
async def test_a_head_has_a_deadline(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """From the start, or after the request before; however little or much of it has come."""
    monkeypatch.setattr(listener, "HEAD_S", 0.05)
    async with serving() as scene:
        client = await scene.client()
        if sent:
            await client.send(sent)
        answer = await ends(client)
        assert (b"200 OK" in answer) is sent.endswith(b"\r\n\r\n")
        await nobody(scene)


@on_each_loop
async def test_a_head_that_dribbles_gains_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that come one by one are no progress."""
    monkeypatch.setattr(listener, "HEAD_S", 0.3)
    async with serving() as scene:
        client = await scene.dribbler()

        async def dribble() -> None:
            while True:
                await client.send(b"x")
                await asyncio.sleep(0.01)

        dribbling = asyncio.ensure_future(dribble())
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                await dribbling
        await nobody(scene)


@on_each_loop
async def test_a_body_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """408, and the connection ends: where the next request would start, nobody knows."""
    monkeypatch.setattr(listener, "BODY_S", 0.05)
    monkeypatch.setattr(listener, "_LINGER_S", 0.05)
    async with serving() as scene:
        client = await scene.dribbler(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"
        )
        answer = await ends(client)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"REQUEST_TIMEOUT" in answer
        await nobody(scene)


@on_each_loop
async def test_an_answer_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not take it is hung up on, and what was not sent is given up."""
    monkeypatch.setattr(listener, "WRITE_S", 0.05)
    async with serving() as scene:
        client = await scene.client()
        await client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
        await eventually(lambda: len(scene.server.room) == 1, "it is accepted")
        await nobody(scene)
        assert len(await ends(client)) < len(LARGE)


@on_each_loop
async def test_an_answer_that_is_taken_comes_whole() -> None:
    """However large, one after the other on one connection."""
    async with serving() as scene, await Wire.connect(scene.port) as wire:
        for _ in range(2):
            assert len((await wire.request("GET", "/large")).body) == len(LARGE)
        assert (await wire.request("GET", "/now")).body == b"now"


# -- room ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", [b"", SLOW_HEAD, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"]
)
@on_each_loop
async def test_one_that_waits_makes_room(sent: bytes) -> None:
    """A request that comes at once is answered while all connections wait for heads or bodies."""
    async with serving(most=4) as scene:
        clients = [await scene.dribbler(sent or b"\r\n") for _ in range(4)]
        assert (await fetch(scene.port, "/now")).body == b"now"
        assert len(scene.server.room) <= 4
        reading = [asyncio.ensure_future(ends(client)) for client in clients]
        ended, others = await asyncio.wait(reading, return_when="FIRST_COMPLETED")
        assert [one.result() for one in ended] in ([b""], [b"reset"])
        for one in others:
            one.cancel()
        await asyncio.wait(others)
        await eventually(lambda: len(scene.server.room) == 3, "the others are left")


class FakeConnection:
    """One that only notes that it was closed."""

    def __init__(self) -> None:
        self.is_dropped = False

    def drop(self) -> None:
        self.is_dropped = True


def test_whoever_has_waited_longest_goes_first() -> None:
    """Since it last had to wait, not since it came; and nobody who is worked for."""
    room = Room(3)
    one, two, three = connections = [FakeConnection() for _ in range(3)]
    for connection in connections:
        assert room.has_place(0.0)
        room.entered(connection, "192.0.2.7")  # type: ignore[arg-type]
    room.works(one)  # type: ignore[arg-type]
    room.works(two)  # type: ignore[arg-type]
    room.waits(one)  # type: ignore[arg-type]
    for expected in ([three], [three, one]):
        assert room.has_place(0.0)
        assert [each for each in connections if each.is_dropped] == sorted(
            expected, key=connections.index
        )
        room.entered(new := FakeConnection(), "192.0.2.7")  # type: ignore[arg-type]
        room.works(new)  # type: ignore[arg-type]
    assert not room.has_place(0.0)
    assert not two.is_dropped
    room.left(two)  # type: ignore[arg-type]
    room.left(two)  # type: ignore[arg-type]
    assert room.has_place(0.0)


def test_the_address_with_the_most_connections_makes_room() -> None:
    """A flood from one address, or from one network of IPv6, closes its own connections."""
    for flood in (["192.0.2.7"], ["2001:db8::1", "2001:db8::ffff:2"]):
        room = Room(4)
        probe, scraper, *crowd = [FakeConnection() for _ in range(50)]
        room.entered(probe, "198.51.100.1")  # type: ignore[arg-type]
        room.entered(scraper, "2001:db8:1::1")  # type: ignore[arg-type]
        for number, connection in enumerate(crowd):
            assert room.has_place(0.0)
            room.entered(connection, flood[number % len(flood)])  # type: ignore[arg-type]
            assert len(room) <= 4
        assert [each.is_dropped for each in (probe, scraper)] == [False, False]
        assert [each.is_dropped for each in crowd] == [True] * 46 + [False] * 2


@on_each_loop
async def test_a_thousand_of_them_keep_nobody_out() -> None:
    """Each of many requests is answered, and there are never more connections than there may be."""
    async with serving(most=8) as scene:
        for number in range(200):
            await (await scene.client()).send(SLOW_HEAD)
            if number % 20 == 0:
                assert (await fetch(scene.port, "/now")).status == 200
            assert len(scene.server.room) <= 8
        for client in scene.clients:
            client.close()
        await nobody(scene)


@on_each_loop
async def test_who_is_worked_for_is_not_closed() -> None:
    """A new connection is refused instead, and the others get their answers."""
    async with serving(most=2) as scene:
        held = [asyncio.ensure_future(fetch(scene.port, "/held")) for _ in range(2)]
        await eventually(lambda: scene.held == 2, "both are worked for")
        refused = await scene.client()
        assert await ends(refused) in (b"", b"reset")
        scene.gate.set()
        assert [answer.body for answer in await asyncio.gather(*held)] == [b"held", b"held"]
        assert (await fetch(scene.port, "/now")).status == 200


@on_each_loop
async def test_who_does_not_read_makes_room() -> None:
    """An answer that is not taken keeps its connection no longer than others need it."""
    async with serving(most=1) as scene:
        client = await scene.client()
        await client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        await client.read_until(b"200 OK")
        assert (await fetch(scene.port, "/now")).status == 200


@on_each_loop
async def test_a_full_room_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not with each connection of a flood."""
    async with serving(most=1) as scene:
        for _ in range(5):
            await scene.dribbler()
        await fetch(scene.port, "/now")
    lines = [line for line in caplog.messages if "all 1 connections" in line]
    assert len(lines) == 1


# -- what cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize("sent", UNREADABLE.values(), ids=UNREADABLE)
@on_each_loop
async def test_what_cannot_be_read_is_not_repeated(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """400 in the words of all refusals, with their headers; no line and no trace in the log."""
    caplog.set_level(logging.DEBUG)
    async with serving() as scene:
        client = await scene.client()
        await client.send(sent)
        head, _, body = (await ends(client)).partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
        assert json.loads(body)["code"] == "BAD_REQUEST"
        assert b"Content-Security-Policy: " in head
        assert b"Server: gateway" in head
        assert b"SECRET" not in head + body
        assert "SECRET" not in caplog.text
        assert [line for line in caplog.messages if "admin" in line or "handling" in line] == []


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab",
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
@on_each_loop
async def test_who_goes_amid_a_body_is_no_fault(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has nothing of it, whether they hang up or reset."""
    async with serving() as scene:
        for reset in (False, True):
            client = await scene.dribbler(sent)
            if reset:
                client.reset()
            else:
                client.close()
            await nobody(scene)
    assert caplog.messages == []


@on_each_loop
async def test_what_is_read_for_nobody_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Where the client has gone a handler that only reads ends; one that changes things goes on."""
    async with serving() as scene:
        head = b" /held HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
        reader, changer = await scene.client(), await scene.client()
        await reader.send(b"GET" + head)
        await changer.send(b"POST" + head)
        await eventually(lambda: scene.held == 2, "both are worked for")
        reader.close()
        changer.close()
        await nobody(scene)
        await eventually(lambda: scene.held == 1, "one of them has ended")
        scene.gate.set()
        await eventually(lambda: scene.held == 0, "the other one, too")
        assert scene.done == 1
    assert caplog.records == []


@on_each_loop
async def test_chunks_that_cannot_be_read_are_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """400, and nothing in the log."""
    async with serving() as scene:
        client = await scene.client()
        await client.send(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nXX\r\n"
        )
        answer = await ends(client)
        assert b" 400 " in answer.partition(b"\r\n")[0]
    assert caplog.messages == []


@on_each_loop
async def test_a_body_is_not_unpacked() -> None:
    """What is packed is what was sent, of whatever size it would be."""
    packed = gzip.compress(bytes(10_000_000))
    async with serving() as scene, await Wire.connect(scene.port) as wire:
        answer = await wire.request("POST", "/echo", [("Content-Encoding", "gzip")], packed)
        assert (answer.status, answer.body) == (200, packed)


@on_each_loop
async def test_a_body_that_is_too_large_is_told() -> None:
    """413, also for whoever goes on sending it."""
    async with serving() as scene, await Wire.connect(scene.port) as wire:
        answer = await wire.request("POST", "/echo", body=bytes(1_000_000))
        assert (answer.status, answer.json()["code"]) == (413, "BODY_TOO_LARGE")


# -- memory ----------------------------------------------------------------------------------------

KIB = 1_024
NOW = b"GET /now HTTP/1.1"
ECHO = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
UPGRADE = NOW + b"\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"


def head_of(size: int, line: bytes = NOW, fields: int = 40) -> bytes:
    """A whole head of so many bytes."""
    empty = len(line + b"\r\nHost: a\r\n\r\n") + len(b"X: \r\n") * fields
    each, rest = divmod(size - empty, fields)
    sizes = [each + rest, *[each] * (fields - 1)]
    lines = [line, b"Host: a", *(b"X: " + b"x" * count for count in sizes), b"", b""]
    return b"\r\n".join(lines)


@pytest.mark.parametrize("piece", [1_000, 20_000, 32 * KIB])
@on_each_loop
async def test_a_head_is_read_up_to_32_kib(piece: int) -> None:
    """In whatever pieces it comes, one after the other on one connection."""
    head = head_of(32 * KIB)
    async with serving() as scene:
        client = await scene.client()
        for _ in range(2):
            for start in range(0, len(head), piece):
                await client.send(head[start : start + piece])
            assert (await client.read_until(b"\r\n\r\nnow")).startswith(b"HTTP/1.1 200 ")


TOO_LARGE = {
    "whole": (head_of(32 * KIB + 1), 0),
    "unended": (head_of(34 * KIB)[:-4], 0),
    "huge": (head_of(256 * KIB), 0),
    "empty-lines": (b"\r\n" * 20_000, 0),
    "of-a-body": (head_of(60 * KIB, b"POST /echo HTTP/1.1"), 0),
    "behind-another": (head_of(100) + head_of(60 * KIB), 1),
    "behind-a-body": (ECHO + head_of(100 * KIB)[:-4], 1),
    "behind-an-upgrade": (UPGRADE + head_of(60 * KIB), 1),
}


@pytest.mark.parametrize(("sent", "answered"), TOO_LARGE.values(), ids=TOO_LARGE)
@on_each_loop
async def test_a_head_that_is_too_large_is_refused(
    sent: bytes, answered: int, caplog: pytest.LogCaptureFixture
) -> None:
    """431 after the answers to what came before, and the end; whether it is complete or not."""
    async with serving() as scene:
        client = await scene.client()
        await client.send(sent)
        answers = await client.read_until(b"HEADERS_TOO_LARGE")
        assert answers.count(b"HTTP/1.1 200 ") == answered
        assert b" 431 " in answers
        client.close()
        await nobody(scene)
    assert caplog.messages == []


@on_each_loop
async def test_what_is_sent_ahead_has_a_greatest_size() -> None:
    """Requests that come before their turn end the connection, once the one under way is done."""
    async with serving() as scene:
        client = await scene.client()
        await client.send(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
        await eventually(lambda: scene.held == 1, "it is worked for")
        (connection,) = scene.server.room._open
        for _ in range(20):
            await client.send(head_of(20 * KIB))
        await eventually(lambda: connection._close, "it was too much")
        assert len(connection._messages) <= 8
        scene.gate.set()
        answers = await ends(client)
        assert answers.count(b" 200 OK") == 1
        await nobody(scene)


FORM = b"POST /console/sign-in HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded"
API = b" /admin/v1/keys HTTP/1.1\r\nAuthorization: Bearer " + TOKEN.encode()
#: The head of a request, without Host; its body, None: a byte of nine; the status of the answer.
KINDS = {
    "200": (b"GET /healthz HTTP/1.1", b"", b"200"),
    "page": (b"GET /console/sign-in HTTP/1.1", b"", b"200"),
    "api": (b"GET" + API, b"", b"200"),
    "303": (b"GET /console/keys HTTP/1.1", b"", b"303"),
    "303-form": (FORM, b"name=anna&token=" + TOKEN.encode(), b"303"),
    "400": (b"GET /nothing HTTP/1.1\r\nX \x01: y", b"", b"400"),
    "400-behind": (b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\nX \x01", b"", b"400"),
    "400-chunks": (FORM + b"\r\nTransfer-Encoding: chunked", b"2\r\nab\r\nXX\r\n", b"400"),
    "401": (b"GET /admin/v1/keys HTTP/1.1", b"", b"401"),
    "404": (b"GET /nothing HTTP/1.1", b"", b"404"),
    "404-static": (b"GET /console/static/nothing HTTP/1.1", b"", b"404"),
    "404-with-a-body": (b"POST /nothing HTTP/1.1", b"x" * 2_000, b"404"),
    "405": (b"POST /healthz HTTP/1.1", b"", b"405"),
    "413": (FORM, b"x" * 70_000, b"413"),
    "415": (b"POST /console/sign-in HTTP/1.1", b"x" * 20, b"415"),
    "417": (b"GET /healthz HTTP/1.1\r\nExpect: nothing", b"", b"417"),
    "422": (b"POST" + API + b"\r\nContent-Type: application/json", b"{}", b"422"),
    "431": (b"GET /healthz HTTP/1.1" + (b"\r\nX: " + b"x" * 8_000) * 5, b"", b"431"),
    "gone": (FORM + b"\r\nContent-Length: 9", None, b""),
    "gone-api": (b"POST" + API + b"\r\nContent-Length: 9", None, b""),
}


def requests_in_memory() -> int:
    return sum(isinstance(each, web.BaseRequest) for each in gc.get_objects())


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(("head", "body", "status"), KINDS.values(), ids=KINDS)
@on_each_loop
async def test_an_answered_request_is_freed(
    tmp_path: Path, head: bytes, body: bytes | None, status: bytes
) -> None:
    """At once, without the garbage collector, which leaves gigabytes of large heads for later."""
    lines = [head, b"Host: 127.0.0.1"]
    if body and b"chunked" not in head:
        lines.append(b"Content-Length: %d" % len(body))
    before = requests_in_memory()
    async with AdminScene(tmp_path) as scene:
        for _ in range(5):
            client = await RudeClient.connect(scene.server.port)
            await client.send(b"\r\n".join([*lines, b"", b"x" if body is None else body]))
            if body is None:
                await eventually(lambda: requests_in_memory() > before, "it is worked for")
            else:
                await client.read_until(b" " + status + b" ")
            client.close()
            await eventually(lambda: len(scene.server.room) == 0, "it is closed")
        await eventually(lambda: requests_in_memory() == before, "all are freed")


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's context and a client's."""
    made = make_certificate(tmp_path, ["127.0.0.1"])
    server = build_context(Tls(str(made.certificate), str(made.key)))
    return server, ssl.create_default_context(cafile=made.ca)


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


async def asked_by_tls(port: int, client: ssl.SSLContext) -> bytes:
    """The whole answer to GET /now; the other end closes properly."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    writer.write(b"GET /now HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer


@on_each_loop
async def test_it_speaks_tls(tls: Contexts) -> None:
    """Where it is given a context; who speaks clear text then gets no answer to it."""
    server, client = tls
    async with serving(tls=server) as scene:
        assert (await asked_by_tls(scene.port, client)).endswith(b"\r\n\r\nnow")
        clear = await scene.client()
        await clear.send(b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"HTTP/1.1" not in await ends(clear)
        await nobody(scene)


@on_each_loop
async def test_a_handshake_has_a_deadline(monkeypatch: pytest.MonkeyPatch, tls: Contexts) -> None:
    """As a head has."""
    monkeypatch.setattr(listener, "HEAD_S", 0.05)
    async with serving(tls=tls[0]) as scene:
        client = await scene.dribbler(b"\x16\x03\x01")
        assert b"HTTP" not in await ends(client)
        await nobody(scene)


@on_each_loop
async def test_a_handshake_counts_and_makes_room(
    tls: Contexts, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections that never get to speak are bounded too, and keep nobody out."""
    server, client = tls
    async with serving(most=4, tls=server) as scene:
        for _ in range(4):
            await scene.dribbler(b"\x16\x03\x01")
        for _ in range(8):
            await scene.client()
        assert (await asked_by_tls(scene.port, client)).endswith(b"now")
        assert len(scene.server.room) <= 4
        for each in scene.clients:
            each.close()
        await nobody(scene)
    assert [line for line in caplog.messages if "connections are in use" not in line] == []


# -- the end ---------------------------------------------------------------------------------------


@on_each_loop
async def test_a_stop_ends_all(tls: Contexts) -> None:
    """Those that wait, those that are worked for, and those amid their handshake."""
    async with serving() as scene:
        waiting = await scene.dribbler()
        held = await scene.client()
        await held.send(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
        await eventually(lambda: scene.held == 1, "it is worked for")
        await scene.server.stop()
        for client in (waiting, held):
            assert b"200" not in await ends(client)
    async with serving(tls=tls[0]) as scene:
        client = await scene.dribbler(b"\x16\x03\x01")
        await scene.server.stop()
        assert b"HTTP" not in await ends(client)


@on_each_loop
async def test_it_can_be_stopped_again_and_before_it_starts() -> None:
    """Taking things down in order must not depend on how far they came up."""
    async with serving() as scene:
        await scene.server.stop()
    await Scene(1, None).server.stop()
