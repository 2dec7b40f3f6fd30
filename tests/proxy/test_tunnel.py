"""WebSockets over real sockets, with bytes written by hand: the handshake, and the tunnel.

The gateway does not parse frames, so these tests send any bytes.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.domain import key_format
from gateway.domain.keys import Account
from gateway.domain.networks import parse_network
from gateway.domain.policy import Timeouts
from gateway.http1.websocket import accept_of
from gateway.proxy.client_connection import ClientConnection
from gateway.proxy.tunnel import CLOSING_S, Tunnel
from tests.http1.test_websocket import HOSTILE_101
from tests.kit.eventually import eventually
from tests.kit.transport import MemoryTransport
from tests.kit.upstream import Exchange, Script, build_response, echo
from tests.kit.websocket import AGREED, KEY
from tests.kit.wire import TIMEOUT_S, Header, Wire, build_request
from tests.proxy.conftest import Bench, Start

MEGABYTE = bytes(range(256)) * 4096


def handshake(
    bench: Bench, path: str = "/api/ws", *more: Header, without: str = "", auth: bool = True
) -> bytes:
    """A client's handshake, without the fields named in `without`."""
    fields = [
        ("Connection", "keep-alive, Upgrade"),
        ("Upgrade", "WebSocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY),
    ]
    kept = [field for field in fields if field[0] != without]
    return build_request("GET", path, [*(bench.auth if auth else ()), *kept, *more])


class Side:
    """The upstream's side of a tunnel: the stream of the scripted exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self.reader: asyncio.StreamReader = exchange._reader
        self.writer: asyncio.StreamWriter = exchange._writer

    async def read(self, count: int) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.reader.readexactly(count)

    async def read_end(self) -> None:
        """Wait until the gateway closes; it must send nothing before that."""
        async with asyncio.timeout(TIMEOUT_S):
            with suppress(ConnectionError):
                assert await self.reader.read() == b""


def agree(sides: asyncio.Queue[Side], early: bytes = b"") -> Script:
    """A script: switch, give the test the upstream's side, and wait for the end of the test."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(AGREED + early)
        side = Side(exchange)
        sides.put_nowait(side)
        await side.writer.wait_closed()
        raise ConnectionError

    return script


@asynccontextmanager
async def tunnel(bench: Bench, *more: Header, key: str = "") -> AsyncIterator[tuple[Wire, Side]]:
    """An open tunnel: the client's side and the upstream's."""
    sides: asyncio.Queue[Side] = asyncio.Queue()
    bench.upstream.script = agree(sides)
    opening = Bench(bench.gateway, bench.upstream, key or bench.key)
    async with await bench.connect() as wire:
        await wire.send(handshake(opening, "/api/ws", *more))
        assert (await wire.read_head()).status == 101
        async with asyncio.timeout(TIMEOUT_S):
            yield wire, await sides.get()


async def read_all(wire: Wire) -> bytes:
    """Everything up to the end of the connection."""
    data = b""
    while more := await wire.read_some():
        data += more
    return data


def connection_of(bench: Bench) -> ClientConnection:
    """The gateway's one client connection."""
    (connection,) = bench.gateway._context.connections
    return connection


async def logged(path: Path, count: int = 1) -> list[dict[str, Any]]:
    """The access log, once it has this many lines."""
    lines: list[dict[str, Any]] = []

    def has_come() -> bool:
        lines[:] = [json.loads(line) for line in path.read_text().splitlines()]
        return len(lines) >= count

    await eventually(has_come, f"{count} lines in the access log")
    assert len(lines) == count
    return lines


async def over(bench: Bench) -> None:
    """Wait until every connection is closed, and every gauge is 0."""
    metrics = bench.gateway.metrics

    def is_over() -> bool:
        return metrics.inflight == 0 and not any(metrics._connections.values())

    await eventually(is_over, f"nothing is left: {metrics.inflight}, {metrics._connections}")
    assert all(pool.busy == 0 for pool in bench.gateway._context.pools._by_server.values())


# -- the handshake --------------------------------------------------------------------------------
async def test_a_tunnel(start: Start, tmp_path: Path) -> None:
    """Handshake, bytes both ways, an end; one line in the access log has all of it."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log))
    offers = [("Sec-WebSocket-Protocol", "chat, talk"), ("Sec-WebSocket-Extensions", "x; y=1")]
    async with tunnel(bench, *offers) as (client, upstream):
        await client.send(b"up" * 1000)
        assert await upstream.read(2000) == b"up" * 1000
        upstream.writer.write(b"down")
        assert await client.read_some() == b"down"
        upstream.writer.close()
        await client.read_end()
    (line,) = await logged(log)
    assert (line["status"], line["decision"], line["reason"]) == (101, "admitted", None)
    assert (line["bytes_in"], line["bytes_out"], line["path"]) == (2000, 4, "/api/ws")
    await over(bench)
    received = bench.upstream.requests[0]
    assert received.all("Connection") == ["Upgrade"]
    assert received.all("Upgrade") == ["websocket"]
    assert received.all("Sec-WebSocket-Key") == [KEY]
    assert received.all("Sec-WebSocket-Version") == ["13"]
    assert [(name, received.maybe(name)) for name, _ in offers] == offers
    assert received.maybe("X-Gateway-Plan") == "enterprise"
    assert bench.key.encode() not in received.raw_head


async def test_the_answer_to_a_handshake(start: Start) -> None:
    """The 101 has the upstream's fields, our limits, and no framing."""
    bench = await start()
    sides: asyncio.Queue[Side] = asyncio.Queue()
    bench.upstream.script = agree(sides, early=b"first frame")
    async with await bench.connect() as wire:
        await wire.send(handshake(bench))
        head = await wire.read_head()
        assert (head.status, head.reason) == (101, "Switching Protocols")
        assert (head["Upgrade"], head["Connection"]) == ("websocket", "Upgrade")
        assert head["Sec-WebSocket-Accept"].encode() == accept_of(KEY.encode())
        assert (head["X-RateLimit-Limit"], head["X-RateLimit-Remaining"]) == ("6000", "5999")
        assert head["X-RateLimit-Reset"]
        assert head["X-RateLimit-Reset-After"]
        assert head["X-Request-Id"] == bench.upstream.requests[0].maybe("X-Request-Id")
        assert (head.maybe("Content-Length"), head.maybe("Transfer-Encoding")) == (None, None)
        assert await wire.read_some() == b"first frame"


async def test_early_frames_wait_for_the_101(start: Start) -> None:
    """Bytes that the client sends before the 101 reach the upstream through the tunnel."""
    bench = await start()
    heard = asyncio.Event()
    sides: asyncio.Queue[Side] = asyncio.Queue()

    async def script(exchange: Exchange) -> None:
        # When the client has this, all that it sent at the same time has been read.
        await exchange.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await heard.wait()
        assert not Side(exchange).reader._buffer  # type: ignore[attr-defined]
        await agree(sides)(exchange)

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(handshake(bench) + MEGABYTE[:200_000])
        assert (await wire.read_some()).startswith(b"HTTP/1.1 103 ")
        heard.set()
        assert (await wire.read_head()).status == 101
        side = await sides.get()
        assert await side.read(200_000) == MEGABYTE[:200_000]
        await wire.send(b"later")
        assert await side.read(5) == b"later"


async def test_no_tunnel_without_a_101(start: Start) -> None:
    """The upstream answers 200: the bytes that follow are the next request, checked as one."""
    bench = await start()

    async def script(exchange: Exchange) -> None:
        assert exchange.request.maybe("Upgrade") in (None, "websocket")
        await echo(exchange)

    bench.upstream.script = script
    hidden = build_request("GET", "/api/hidden")
    judged = build_request("GET", "/v1/connectors", bench.auth)
    async with await bench.connect() as wire:
        await wire.send(handshake(bench) + hidden + judged)
        answers = [await wire.read_response() for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 401, 200]
        await wire.send(b"\x81\x85nonsense\r\n\r\n")
        assert (await wire.read_response()).status == 400
        await wire.read_end()
    targets = [(one.target, one.maybe("Upgrade")) for one in bench.upstream.requests]
    assert targets == [("/api/ws", "websocket"), ("/v1/connectors", None)]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 426, 500])
async def test_an_upstream_that_declines(start: Start, status: int) -> None:
    """Its refusal is an ordinary answer, and both connections can be reused."""
    bench = await start()

    async def script(exchange: Exchange) -> None:
        await exchange.write(build_response(status, b"no", [("Sec-WebSocket-Version", "13")]))

    bench.upstream.script = script
    async with await bench.connect() as wire:
        for _ in range(2):
            await wire.send(handshake(bench))
            answer = await wire.read_response()
            assert (answer.status, answer.body) == (status, b"no")
            assert answer["Sec-WebSocket-Version"] == "13"
    assert [one.connection for one in bench.upstream.requests] == [0, 0]


async def test_a_handshake_is_checked_like_every_request(start: Start) -> None:
    """Key, network, scope, route and limit: each refusal is an ordinary one, by the gateway."""
    bench = await start()
    limited = await bench.mint(plan="brisk", networks=())
    elsewhere = await bench.mint(networks=(parse_network("192.0.2.0/24"),))
    scopeless = await bench.mint(scopes=())
    cases = [
        ("gwk_nonsense", "/api/ws", 401),
        (elsewhere, "/api/ws", 403),
        (scopeless, "/v1/connectors", 403),
        (bench.key, "/nowhere", 404),
    ]
    async with await bench.connect() as wire:
        for key, path, status in cases:
            await wire.send(handshake(Bench(bench.gateway, bench.upstream, key), path))
            answer = await wire.read_response()
            assert (answer.status, answer.closes) == (status, False), path
            assert answer["X-RateLimit-Limit"]
        assert bench.upstream.requests == []
        for status in (200, 200, 429):
            await wire.send(handshake(Bench(bench.gateway, bench.upstream, limited)))
            assert (await wire.read_response()).status == status
    assert len(bench.upstream.requests) == 2


async def test_bad_handshakes(start: Start) -> None:
    """A malformed one gets 400, another version 426 with the supported one; then it ends."""
    bench = await start()
    cases: list[tuple[bytes, int, str]] = [
        (handshake(bench, without="Sec-WebSocket-Key"), 400, "BAD_REQUEST"),
        (handshake(bench, "/api/ws", ("Sec-WebSocket-Key", "x")), 400, "BAD_REQUEST"),
        (handshake(bench, "/api/ws", ("Content-Length", "5")) + b"hello", 400, "BAD_REQUEST"),
        (
            handshake(bench, "/api/ws", ("Transfer-Encoding", "chunked")) + b"0\r\n\r\n",
            400,
            "BAD_REQUEST",
        ),
        (handshake(bench, auth=False, without="Sec-WebSocket-Key"), 400, "BAD_REQUEST"),
        (handshake(bench, without="Sec-WebSocket-Version"), 426, "WEBSOCKET_VERSION_NOT_SUPPORTED"),
    ]
    for sent, status, code in cases:
        async with await bench.connect() as wire:
            await wire.send(sent + build_request("GET", "/api/next", bench.auth))
            answer = await wire.read_response()
            assert (answer.status, answer.json()["code"]) == (status, code)
            assert answer.closes
            assert answer["X-RateLimit-Limit"]
            assert answer.maybe("Sec-WebSocket-Version") == ("13" if status == 426 else None)
            assert answer.maybe("Upgrade") == ("websocket" if status == 426 else None)
            await wire.read_end()
    assert bench.upstream.requests == []


@pytest.mark.parametrize(
    "lines",
    [
        b"GET /api/x HTTP/1.1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
        b"Connection: Upgrade, HTTP2-Settings\r\n",
        b"GET /api/x HTTP/1.1\r\nUpgrade: TLS/1.0\r\nConnection: Upgrade\r\n",
        b"GET /api/x HTTP/1.1\r\nUpgrade: websocket, h2c\r\nConnection: Upgrade\r\n",
        b"GET /api/x HTTP/1.1\r\nUpgrade: websocket\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n",
        b"GET /api/x HTTP/1.1\r\nUpgrade: websocket\r\n",
        b"GET /api/x HTTP/1.0\r\nUpgrade: websocket\r\nConnection: Upgrade, keep-alive\r\n",
        b"HEAD /api/x HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        b"POST /api/x HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        b"POST /api/x HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Content-Length: 0\r\n",
    ],
)
async def test_other_upgrades_are_not_forwarded(start: Start, lines: bytes) -> None:
    """The request is forwarded as a plain one, and a 101 to it is invalid."""
    bench = await start()
    rest = b"Host: a\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\napiKey: %b\r\n\r\n"
    request = lines + rest % (KEY.encode(), bench.key.encode())
    method = lines.split(b" ")[0].decode()
    async with await bench.connect() as wire:
        await wire.send(request)
        assert (await wire.read_response(method)).status == 200
        bench.upstream.script = agree(asyncio.Queue())
        await wire.send(request)
        assert (await wire.read_response(method)).status == 502
    for received in bench.upstream.requests:
        assert b"pgrade" not in received.raw_head
        assert received.maybe("Connection") is None
        assert received.maybe("HTTP2-Settings") is None


@pytest.mark.parametrize("raw", HOSTILE_101)
@pytest.mark.parametrize("byte_by_byte", [False, True])
async def test_hostile_101(start: Start, raw: bytes, byte_by_byte: bool) -> None:
    """A 101 that does not answer this handshake: 502, no tunnel, the upstream dropped."""
    bench = await start()
    dropped = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        sent = raw + b"\r\nframes for nobody"
        try:
            for at in range(0, len(sent), 1 if byte_by_byte else len(sent)):
                await exchange.write(sent[at : at + (1 if byte_by_byte else len(sent))])
                await asyncio.sleep(0)
        except ConnectionError:
            pass  # the gateway had read enough
        await exchange.ended()
        dropped.set()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(handshake(bench) + build_request("GET", "/api/next", bench.auth))
        answer = await wire.read_response()
        assert (answer.status, answer.json()["code"]) == (502, "UPSTREAM_INVALID_RESPONSE")
        async with asyncio.timeout(TIMEOUT_S):
            await dropped.wait()
        # The bytes after the handshake are no frame, but a request, and checked as one.
        assert (await bench.upstream.received(2)).target == "/api/next"
        assert (await wire.read_response()).status == 502


async def test_a_handshake_on_a_connection_that_just_closed(start: Start) -> None:
    """It is sent again, like every GET that the server did not receive."""
    bench = await start()
    sides: asyncio.Queue[Side] = asyncio.Queue()
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200

        async def hang_up(exchange: Exchange) -> None:
            bench.upstream.script = agree(sides)
            exchange.abort()

        bench.upstream.script = hang_up
        await wire.send(handshake(bench))
        assert (await wire.read_head()).status == 101
        await wire.send(b"x")
        assert await (await sides.get()).read(1) == b"x"


# -- ends -----------------------------------------------------------------------------------------
async def test_the_client_ends(start: Start, tmp_path: Path) -> None:
    """The upstream reads all that was sent, then the end, and may still answer; then both close."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log))
    async with tunnel(bench) as (client, upstream):
        await client.send(MEGABYTE)
        client._writer.write_eof()
        assert await upstream.read(len(MEGABYTE)) == MEGABYTE
        await upstream.read_end()
        upstream.writer.write(b"good-bye")
        upstream.writer.close()
        assert await read_all(client) == b"good-bye"
    (line,) = await logged(log)
    assert (line["bytes_in"], line["bytes_out"], line["reason"]) == (len(MEGABYTE), 8, None)
    await over(bench)


async def test_the_upstream_ends(start: Start, tmp_path: Path) -> None:
    """The client reads all that was sent, then the end, and may still answer; then both close."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log))
    async with tunnel(bench) as (client, upstream):
        upstream.writer.write(MEGABYTE)
        upstream.writer.write_eof()
        assert await read_all(client) == MEGABYTE
        await client.send(b"good-bye")
        assert await upstream.read(8) == b"good-bye"
        await client.close()
        await upstream.read_end()
    (line,) = await logged(log)
    assert (line["bytes_in"], line["bytes_out"], line["reason"]) == (8, len(MEGABYTE), None)
    await over(bench)


@pytest.mark.parametrize("who", ["client", "upstream"])
async def test_a_side_that_never_ends(start: Start, who: str, tmp_path: Path) -> None:
    """One side has ended and the other is silent: both are closed after a moment."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log))
    async with tunnel(bench) as (client, upstream):
        writer = client._writer if who == "client" else upstream.writer
        writer.write_eof()
        await over_but_for_the_streams(bench)
    (line,) = await logged(log)
    assert (line["status"], line["reason"]) == (101, None)


async def over_but_for_the_streams(bench: Bench) -> None:
    await eventually(lambda: bench.gateway.metrics.inflight == 0, "the tunnel is over")


@pytest.mark.parametrize(
    ("who", "reason"), [("client", "client_gone"), ("upstream", "upstream_truncated")]
)
async def test_a_reset(start: Start, tmp_path: Path, who: str, reason: str) -> None:
    """A reset of one side closes the other, and the log says which side it was."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log))
    async with tunnel(bench) as (client, upstream):
        reset(client._writer if who == "client" else upstream.writer)
        if who == "client":
            await upstream.reader.read()
        else:
            await client.read_end()
    (line,) = await logged(log)
    assert (line["status"], line["reason"]) == (101, reason)
    await over(bench)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset."""
    sock = writer.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def test_silence_ends(start: Start, tmp_path: Path) -> None:
    """After the policy's time without bytes from either side, both are closed."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log), timeouts={"tunnel_s": 0.3})
    async with tunnel(bench) as (client, upstream):
        await client.read_end()
        await upstream.read_end()
    (line,) = await logged(log)
    assert (line["status"], line["reason"]) == (101, "tunnel_silent")
    await over(bench)


@pytest.mark.usefixtures("no_ticks")
async def test_no_other_deadline_bounds_a_tunnel(start: Start) -> None:
    """The deadlines of heads, bodies and answers do not end a tunnel with traffic."""
    bench = await start()
    async with tunnel(bench) as (client, upstream):
        late = asyncio.get_running_loop().time() + Timeouts().tunnel_s - 1
        connection_of(bench).check_deadline(late)
        await client.send(b"still here")
        assert await upstream.read(10) == b"still here"
        connection_of(bench).check_deadline(late + Timeouts().tunnel_s - 1)
        upstream.writer.write(b"me too")
        assert await client.read_some() == b"me too"


# -- backpressure ---------------------------------------------------------------------------------
async def test_a_slow_client_pauses_the_upstream(start: Start) -> None:
    """32 MB for a client that does not read: little is kept here; later all arrive."""
    bench = await start()
    async with tunnel(bench) as (client, upstream):
        upstream.writer.write(MEGABYTE * 32)
        connection = connection_of(bench)
        exchange = connection.exchange
        assert exchange is not None
        assert exchange.upstream is not None
        incoming = exchange.upstream.transport
        await eventually(lambda: not incoming.is_reading(), "the upstream is paused")
        assert connection.transport.get_write_buffer_size() < 1_000_000
        left = len(MEGABYTE) * 32
        while left:
            data = await client.read_some(1_000_000)
            left -= len(data)
            assert connection.transport.get_write_buffer_size() < 1_000_000
        await client.send(b"and back")
        assert await upstream.read(8) == b"and back"


async def test_a_slow_upstream_pauses_the_client(start: Start) -> None:
    """The same in the other direction."""
    bench = await start()
    async with tunnel(bench) as (client, upstream):
        client._writer.write(MEGABYTE * 32)
        connection = connection_of(bench)
        exchange = connection.exchange
        assert exchange is not None
        assert exchange.upstream is not None
        outgoing = exchange.upstream.transport
        await eventually(lambda: not connection.transport.is_reading(), "the client is paused")
        assert outgoing.get_write_buffer_size() < 1_000_000
        for _ in range(32):
            assert await upstream.read(len(MEGABYTE)) == MEGABYTE
            assert outgoing.get_write_buffer_size() < 1_000_000
        upstream.writer.write(b"and back")
        assert await client.read_some() == b"and back"


@pytest.mark.parametrize("who", ["client", "upstream"])
async def test_a_side_that_takes_nothing(start: Start, tmp_path: Path, who: str) -> None:
    """A side that takes nothing for longer than the policy allows is cut off."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log), timeouts={"write_s": 0.5})
    async with tunnel(bench) as (client, upstream):
        writer = upstream.writer if who == "client" else client._writer
        writer.write(MEGABYTE * 32)
        await over_but_for_the_streams(bench)
        writer.transport.abort()
    (line,) = await logged(log)
    assert (line["status"], line["reason"]) == (101, "write_stalled")


# -- the key changes ------------------------------------------------------------------------------
async def change(bench: Bench, key: str, **fields: Any) -> None:
    """Change these fields of a key's record."""
    parsed = key_format.parse(key.encode())
    assert parsed is not None
    record = await bench.gateway.keys.get(parsed.id)
    assert record is not None
    await bench.gateway.keys.replace(record, replace(record, **fields))


CHANGES = [
    ({"status": "revoked"}, "key_revoked"),
    ({"status": "suspended"}, "key_suspended"),
    ({"expires_us": 1}, "key_expired"),
    ({"networks": (parse_network("192.0.2.0/24"),)}, "ip_not_allowed"),
    ({"permissions": {}}, "insufficient_permission"),
    ({"plan": "gone"}, "plan_unknown"),
    ({"digest": b"another"}, "key_unknown"),
]
TICKETS = {"permissions": {"ticketing": ("write",)}, "scopes": ()}


@pytest.mark.parametrize(("fields", "reason"), CHANGES)
async def test_an_invalid_key_ends_its_tunnel(
    start: Start, tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    """Revoked, suspended, expired or narrowed: both sides are closed, and the log says why."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log))
    key = await bench.mint(**TICKETS)
    sides: asyncio.Queue[Side] = asyncio.Queue()
    bench.upstream.script = agree(sides)
    async with await bench.connect() as client:
        await client.send(handshake(Bench(bench.gateway, bench.upstream, key), "/v1/tickets/ws"))
        assert (await client.read_head()).status == 101
        upstream = await sides.get()
        await change(bench, key, **fields)
        await client.read_end()
        await upstream.read_end()
    (line,) = await logged(log)
    assert (line["status"], line["reason"]) == (101, reason)
    await over(bench)


@pytest.mark.parametrize(("fields", "reason"), CHANGES[:3])
async def test_an_invalid_key_ends_its_stream(
    start: Start, tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    """A streamed answer is aborted as well, and does not look complete."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log))
    dropped = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"
        )
        await exchange.ended()
        dropped.set()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/events", bench.auth))
        await wire.read_head()
        assert await wire.read_chunk() == b"data: 1\n\n"
        await change(bench, bench.key, **fields)
        await wire.read_end()
        async with asyncio.timeout(TIMEOUT_S):
            await dropped.wait()
    (line,) = await logged(log)
    assert (line["status"], line["reason"]) == (200, reason)


async def test_a_removed_service_ends_its_tunnels(start: Start, tmp_path: Path) -> None:
    """The account's services count like the key's fields."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log))
    await bench.gateway.keys.put_account(Account("acme", ("scm",)))
    bench.upstream.script = agree(asyncio.Queue())
    async with await bench.connect() as client:
        await client.send(handshake(bench, "/v1/scm/ws"))
        assert (await client.read_head()).status == 101
        await bench.gateway.keys.put_account(Account("acme", ()))
        await client.read_end()
    (line,) = await logged(log)
    assert line["reason"] == "service_not_enabled"


async def test_a_valid_key_keeps_its_tunnel(start: Start) -> None:
    """A change that removes nothing has no effect on the tunnel."""
    bench = await start()
    async with tunnel(bench) as (client, upstream):
        exchange = connection_of(bench).exchange
        assert exchange is not None
        before = exchange.identity
        await change(bench, bench.key, name="renamed", plan="pro")
        await eventually(lambda: exchange.identity is not before, "the change is loaded")
        assert exchange.identity is not None
        assert exchange.identity.record.name == "renamed"
        await client.send(b"still here")
        assert await upstream.read(10) == b"still here"


async def test_a_key_that_expires_by_the_clock(start: Start, tmp_path: Path) -> None:
    """The tunnel ends when the key expires, without any change."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log))
    gate = bench.gateway._context.gate
    now_us = gate.clock_us
    key = await bench.mint(expires_us=now_us() + 60_000_000)
    async with tunnel(bench, key=key) as (client, _):
        gate.clock_us = lambda: now_us() + 61_000_000
        await client.read_end()
    (line,) = await logged(log)
    assert line["reason"] == "key_expired"


async def test_an_open_route_has_no_key_to_lose(start: Start) -> None:
    """A tunnel on a route without keys stays open, whatever changes of keys there are."""
    bench = await start(timeouts={"tunnel_s": 60.0})
    sides: asyncio.Queue[Side] = asyncio.Queue()
    bench.upstream.script = agree(sides)
    async with await bench.connect() as client:
        await client.send(handshake(bench, "/public/ws", auth=False))
        assert (await client.read_head()).status == 101
        side = await sides.get()
        for connection in tuple(bench.gateway._context.connections):
            connection.check_deadline(asyncio.get_running_loop().time())
        await client.send(b"x")
        assert await side.read(1) == b"x"


# -- the gateway ends -----------------------------------------------------------------------------
async def test_draining_waits_for_tunnels(start: Start) -> None:
    """A tunnel that ends in time is not cut off."""
    bench = await start(timeouts={"drain_s": 60.0})
    async with tunnel(bench) as (client, upstream):
        stopping = asyncio.create_task(bench.gateway.stop())
        await eventually(lambda: bench.gateway._context.draining, "it drains")
        await client.send(b"still here")
        assert await upstream.read(10) == b"still here"
        assert not stopping.done()
        upstream.writer.close()
        await client.read_end()
        await asyncio.wait_for(stopping, TIMEOUT_S)


async def test_a_drain_has_an_end(start: Start, tmp_path: Path) -> None:
    """One that does not end in time is closed, and accounted for."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log), timeouts={"drain_s": 0.1})
    async with tunnel(bench) as (client, upstream):
        await asyncio.wait_for(bench.gateway.stop(), TIMEOUT_S)
        await client.read_end()
        await upstream.read_end()
    (line,) = await logged(log)
    assert (line["status"], line["reason"]) == (101, "draining")
    assert bench.gateway.metrics.inflight == 0


# -- without sockets ------------------------------------------------------------------------------
class TunnelEnd(MemoryTransport):
    """One side's transport. log: its calls, in order, and what is written.

    tls: it cannot end in one direction only
    """

    def __init__(self, tls: bool) -> None:
        super().__init__(half_closes=not tls)
        self.log: list[Any] = []

    def write(self, data: Any) -> None:
        self.log.append(("write", bytes(data)))


class FakeExchange(SimpleNamespace):
    """The part of an exchange that a tunnel uses."""

    def __init__(self, client_tls: bool = False, upstream_tls: bool = False, **more: Any) -> None:
        self.client, self.server = TunnelEnd(client_tls), TunnelEnd(upstream_tls)
        self.ends: list[str] = []
        super().__init__(
            policy=SimpleNamespace(timeouts=Timeouts(write_s=30.0, tunnel_s=300.0)),
            bytes_in=0,
            bytes_out=0,
            **more,
        )
        sides: list[Any] = [
            SimpleNamespace(
                transport=transport,
                pause=transport.pause_reading,
                resume=transport.resume_reading,
                connection_lost=lambda exc: None,
            )
            for transport in (self.client, self.server)
        ]
        self.tunnel = Tunnel(self, *sides)  # type: ignore[arg-type]
        self.tunnel.open(b"")

    @property
    def is_over(self) -> bool:
        return bool(self.ends)

    def tunnel_over(self) -> None:
        self.ends.append("complete")

    def abandon(self, reason: str) -> None:
        self.ends.append(reason)


def test_a_tls_side_is_closed_where_it_cannot_be_half_closed() -> None:
    """It is closed at the other side's end, after all bytes: a proper end."""
    exchange = FakeExchange(client_tls=True, upstream_tls=True)
    exchange.client.protocol.data_received(b"last words")
    assert exchange.client.protocol.eof_received() is False
    assert exchange.server.log == [("write", b"last words"), "close"]
    exchange.server.protocol.connection_lost(None)
    assert exchange.ends == ["complete"]


def test_after_its_end_a_tunnel_does_nothing() -> None:
    """Whatever a connection still reports, the tunnel ends once."""
    exchange = FakeExchange()
    assert exchange.client.protocol.eof_received() is True
    assert exchange.client.protocol.eof_received() is False
    assert exchange.server.protocol.eof_received() is False
    assert exchange.ends == ["complete"]
    before = list(exchange.client.log), list(exchange.server.log)
    for transport in (exchange.client, exchange.server):
        transport.protocol.data_received(b"x")
        transport.protocol.pause_writing()
        transport.protocol.resume_writing()
        assert transport.protocol.eof_received() is False
        transport.protocol.connection_lost(None)
    assert (exchange.client.log, exchange.server.log) == before
    assert exchange.ends == ["complete"]


def test_paused_writes_pause_the_other_side() -> None:
    """Pausing writes of one side pauses reading from the other."""
    exchange = FakeExchange()
    exchange.client.protocol.pause_writing()
    exchange.client.protocol.resume_writing()
    assert exchange.server.log == ["pause_reading", "resume_reading"]
    exchange.server.protocol.pause_writing()
    exchange.server.protocol.resume_writing()
    assert exchange.client.log == ["pause_reading", "resume_reading"]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        # At each check: the time, whether bytes came, what waits for the client.
        ([(0, True, 0), (299, False, 0)], []),
        ([(0, True, 0), (300, False, 0)], ["tunnel_silent"]),
        ([(0, True, 0), (299, True, 0), (598, False, 0)], []),
        ([(0, True, 9), (29, False, 9)], []),
        ([(0, True, 9), (30, False, 9)], ["write_stalled"]),
        ([(0, True, 9), (29, True, 9), (30, True, 9)], ["write_stalled"]),
        ([(0, True, 9), (29, False, 8), (58, False, 8)], []),
        ([(0, True, 9), (29, False, 8), (59, False, 8)], ["write_stalled"]),
        ([(0, True, 9), (29, False, 0), (58, False, 9), (59, False, 9)], ["write_stalled"]),
        ([(0, True, 0), (29, True, 9), (31, False, 9)], ["write_stalled"]),
        ([(0, True, 9), *((t, False, 900 - t) for t in range(1, 800, 10))], []),
    ],
)
def test_the_clock_of_a_tunnel(looks: list[tuple[int, bool, int]], expected: list[str]) -> None:
    """Silence counts from the last byte in either direction, a stall from the last byte taken."""
    exchange = FakeExchange()
    exchange.tunnel.has_moved = False
    for now, moved, waiting in looks:
        assert not exchange.ends
        if moved:
            exchange.server.protocol.data_received(b"x")
        exchange.client.unsent_bytes = waiting
        exchange.tunnel.check(float(now))
    assert exchange.ends == expected


def test_an_open_end_has_a_moment() -> None:
    """After one side's end the other may go on sending; a silent one has CLOSING_S."""
    exchange = FakeExchange()
    exchange.client.protocol.eof_received()
    exchange.tunnel.check(10.0)
    exchange.tunnel.check(10.0 + CLOSING_S - 0.1)
    exchange.server.protocol.data_received(b"talking on")
    exchange.tunnel.check(20.0)
    exchange.tunnel.check(20.0 + CLOSING_S - 0.1)
    assert exchange.ends == []
    exchange.tunnel.check(20.0 + CLOSING_S)
    assert exchange.ends == ["complete"]
