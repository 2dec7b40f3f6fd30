"""One connection of the admin listener: its deadlines, and what its client may send."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.admin import connection as module
from tests.kit.admin import TOKEN, AdminScene
from tests.kit.admin_listener import LARGE, SLOW_HEAD, all_closed, read_to_end, serving
from tests.kit.eventually import eventually
from tests.kit.loops import on_each_loop
from tests.kit.raw_client import RawClient
from tests.kit.wire import TIMEOUT_S, Wire

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


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"G", SLOW_HEAD, b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n"])
@on_each_loop
async def test_a_head_has_a_deadline(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """From the connection's start, or the previous request; however much has arrived."""
    monkeypatch.setattr(module, "HEAD_S", 0.05)
    async with serving() as scene:
        client = await scene.client()
        if sent:
            await client.send(sent)
        answer = await read_to_end(client)
        assert (b"200 OK" in answer) is sent.endswith(b"\r\n\r\n")
        await all_closed(scene)


@on_each_loop
async def test_a_head_that_dribbles_gains_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single bytes do not extend the deadline."""
    monkeypatch.setattr(module, "HEAD_S", 0.3)
    async with serving() as scene:
        client = await scene.slow_client()

        async def send_slowly() -> None:
            while True:
                await client.send(b"x")
                await asyncio.sleep(0.01)

        sending = asyncio.ensure_future(send_slowly())
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(TIMEOUT_S):
                await sending
        await all_closed(scene)


@on_each_loop
async def test_a_body_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """408, and the connection ends: where the next request would start is unknown."""
    monkeypatch.setattr(module, "BODY_S", 0.05)
    monkeypatch.setattr(module, "_LINGER_S", 0.05)
    async with serving() as scene:
        client = await scene.slow_client(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"
        )
        answer = await read_to_end(client)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"REQUEST_TIMEOUT" in answer
        await all_closed(scene)


@on_each_loop
async def test_an_answer_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not read is disconnected, and the unsent bytes are dropped."""
    monkeypatch.setattr(module, "WRITE_S", 0.05)
    async with serving() as scene:
        client = await scene.client()
        await client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
        await eventually(lambda: len(scene.server.connections) == 1, "it is accepted")
        await all_closed(scene)
        assert len(await read_to_end(client)) < len(LARGE)


@on_each_loop
async def test_an_answer_that_is_taken_comes_whole() -> None:
    """Whatever its size, one after the other on one connection."""
    async with serving() as scene, await Wire.connect(scene.port) as wire:
        for _ in range(2):
            assert len((await wire.request("GET", "/large")).body) == len(LARGE)
        assert (await wire.request("GET", "/now")).body == b"now"


# -- what cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize("sent", UNREADABLE.values(), ids=UNREADABLE)
@on_each_loop
async def test_invalid_requests_are_not_repeated(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """400 like all refusals, with their headers; the log has nothing of it."""
    caplog.set_level(logging.DEBUG)
    async with serving() as scene:
        client = await scene.client()
        await client.send(sent)
        head, _, body = (await read_to_end(client)).partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
        assert json.loads(body)["code"] == "BAD_REQUEST"
        assert b"Content-Security-Policy: " in head
        assert b"Server: gateway" in head
        request_id = json.loads(body)["request_id"].encode()
        assert b"\r\nX-Request-Id: %b\r\n" % request_id in head
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
async def test_closing_within_a_body_is_no_fault(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is logged, whether the client closes or resets."""
    async with serving() as scene:
        for reset in (False, True):
            client = await scene.slow_client(sent)
            if reset:
                client.reset()
            else:
                client.close()
            await all_closed(scene)
    assert caplog.messages == []


@on_each_loop
async def test_reading_for_a_closed_client_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Once the client closes, a handler that only reads is cancelled; others are not."""
    async with serving() as scene:
        head = b" /held HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
        reader, changer = await scene.client(), await scene.client()
        await reader.send(b"GET" + head)
        await changer.send(b"POST" + head)
        await eventually(lambda: scene.held == 2, "both are in progress")
        reader.close()
        changer.close()
        await all_closed(scene)
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
        answer = await read_to_end(client)
        assert b" 400 " in answer.partition(b"\r\n")[0]
    assert caplog.messages == []


@on_each_loop
async def test_a_body_is_not_unpacked() -> None:
    """A compressed body is kept as it was sent."""
    packed = gzip.compress(bytes(10_000_000))
    async with serving() as scene, await Wire.connect(scene.port) as wire:
        answer = await wire.request("POST", "/echo", [("Content-Encoding", "gzip")], packed)
        assert (answer.status, answer.body) == (200, packed)


@on_each_loop
async def test_a_body_that_is_too_large_is_refused() -> None:
    """413, also for a client that continues sending it."""
    async with serving() as scene, await Wire.connect(scene.port) as wire:
        answer = await wire.request("POST", "/echo", body=bytes(1_000_000))
        assert (answer.status, answer.json()["code"]) == (413, "BODY_TOO_LARGE")


# -- memory ----------------------------------------------------------------------------------------

KIB = 1_024
NOW = b"GET /now HTTP/1.1"
ECHO = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
UPGRADE = NOW + b"\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"


def head_of(size: int, line: bytes = NOW, fields: int = 40) -> bytes:
    """A whole head of this size."""
    empty = len(line + b"\r\nHost: a\r\n\r\n") + len(b"X: \r\n") * fields
    each, rest = divmod(size - empty, fields)
    sizes = [each + rest, *[each] * (fields - 1)]
    lines = [line, b"Host: a", *(b"X: " + b"x" * count for count in sizes), b"", b""]
    return b"\r\n".join(lines)


@pytest.mark.parametrize("piece", [1_000, 20_000, 32 * KIB])
@on_each_loop
async def test_a_head_is_read_up_to_32_kib(piece: int) -> None:
    """In pieces of any size, one after the other on one connection."""
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
    """431 after the answers to earlier requests, then a close; whether it is complete or not."""
    async with serving() as scene:
        client = await scene.client()
        await client.send(sent)
        answers = await client.read_until(b'"}')
        head, _, body = answers.rpartition(b"\r\n\r\n")
        error = json.loads(body)
        assert error["code"] == "HEADERS_TOO_LARGE"
        assert b"\r\nX-Request-Id: %b\r\n" % error["request_id"].encode() in head
        assert answers.count(b"HTTP/1.1 200 ") == answered
        assert b" 431 " in answers
        # A refusal has the security headers of every answer.
        assert b"\r\nX-Content-Type-Options: nosniff\r\n" in head + b"\r\n"
        client.close()
        await all_closed(scene)
    assert caplog.messages == []


@on_each_loop
async def test_pipelined_bytes_are_bounded() -> None:
    """Too many pipelined bytes end the connection once the request in progress is answered."""
    async with serving() as scene:
        client = await scene.client()
        await client.send(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
        await eventually(lambda: scene.held == 1, "it is in progress")
        (connection,) = scene.server.connections._open
        for _ in range(20):
            await client.send(head_of(20 * KIB))
        await eventually(lambda: connection._close, "it was too much")
        assert len(connection._messages) <= 8
        scene.gate.set()
        answers = await read_to_end(client)
        assert answers.count(b" 200 OK") == 1
        await all_closed(scene)


FORM = b"POST /console/sign-in HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded"
API = b" /admin/v1/keys HTTP/1.1\r\nAuthorization: Bearer " + TOKEN.encode()
#: The head of a request, without Host; its body, None: one of nine bytes; the answer's status.
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


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """The number of requests in memory, which the garbage collector does not free meanwhile."""
    made: list[weakref.ref[web.BaseRequest]] = []
    init = web.BaseRequest.__init__

    def note(request: web.BaseRequest, *values: Any, **options: Any) -> None:
        made.append(weakref.ref(request))
        init(request, *values, **options)

    monkeypatch.setattr(web.BaseRequest, "__init__", note)
    gc.disable()
    yield lambda: sum(request() is not None for request in made)
    gc.enable()


@pytest.mark.parametrize(("head", "body", "status"), KINDS.values(), ids=KINDS)
@on_each_loop
async def test_an_answered_request_is_freed(
    tmp_path: Path,
    in_memory: Callable[[], int],
    head: bytes,
    body: bytes | None,
    status: bytes,
) -> None:
    """At once, without the garbage collector, which leaves gigabytes of large heads for later."""
    lines = [head, b"Host: 127.0.0.1"]
    if body and b"chunked" not in head:
        lines.append(b"Content-Length: %d" % len(body))
    async with AdminScene(tmp_path) as scene:
        for _ in range(5):
            client = await RawClient.connect(scene.server.port)
            await client.send(b"\r\n".join([*lines, b"", b"x" if body is None else body]))
            if body is None:
                await eventually(lambda: in_memory() > 0, "it is in progress")
            else:
                await client.read_until(b" " + status + b" ")
            client.close()
            await eventually(lambda: len(scene.server.connections) == 0, "it is closed")
        await eventually(lambda: in_memory() == 0, "all are freed")
