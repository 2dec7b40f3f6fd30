"""Answers of endpoints by their bytes: whole, byte by byte, and what ends the connection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from gateway.http1.response import MOST_HEAD_BYTES
from gateway.webhooks.endpoint import (
    MOST_READ,
    MOST_RECEIVED,
    PIECE,
    Closed,
    EndedEarly,
    EndpointConnection,
    NotHttp,
    Reply,
)

REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


class Wire(asyncio.Transport):
    """The endpoint's end. sent: what it got; written: called after each part"""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.aborted = False
        self.written: Callable[[], None] = lambda: None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)
        self.written()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == PIECE

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def connected() -> tuple[EndpointConnection, Wire]:
    connection, wire = EndpointConnection(), Wire()
    connection.connection_made(wire)
    return connection, wire


async def answered(
    *parts: bytes, lost: bool = False, reset: bool = False
) -> tuple[Reply | Exception, EndpointConnection, Wire]:
    """What becomes of a request whose answer comes in these parts."""
    connection, wire = connected()
    asking = asyncio.ensure_future(connection.ask(REQUEST))
    await asyncio.sleep(0)
    for part in parts:
        connection.data_received(part)
    if lost or reset:
        connection.connection_lost(ConnectionResetError() if reset else None)
    assert wire.sent == REQUEST
    (found,) = await asyncio.gather(asking, return_exceptions=True)
    assert isinstance(found, Reply | Exception)
    return found, connection, wire


def by_byte(answer: bytes) -> list[bytes]:
    return [answer[at : at + 1] for at in range(len(answer))]


ANSWERS = [
    (OK + b"Content-Length: 2\r\n\r\nok", Reply(200, b"ok", ""), True),
    (OK + b"Content-Length: 0\r\n\r\n", Reply(200, b"", ""), True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", Reply(204, b"", ""), True),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", Reply(304, b"", ""), True),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", Reply(200, b"ok", ""), True),
    (OK + b"Connection: close\r\nContent-Length: 1\r\n\r\nx", Reply(200, b"x", ""), False),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", Reply(200, b"x", ""), False),
    (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        + (OK + b"Content-Length: 2\r\n\r\nok"),
        Reply(200, b"ok", ""),
        True,
    ),
    (
        b"HTTP/1.1 503 X\r\nretry-after:  7 \r\nContent-Length: 0\r\n\r\n",
        Reply(503, b"", "7"),
        True,
    ),
]


@pytest.mark.parametrize(("answer", "reply", "is_usable"), ANSWERS)
async def test_answers(answer: bytes, reply: Reply, is_usable: bool) -> None:
    for parts in ([answer], by_byte(answer)):
        found, connection, wire = await answered(*parts)
        assert found == reply
        assert (connection.is_usable, wire.aborted) == (is_usable, not is_usable)


async def test_one_after_the_other() -> None:
    connection, wire = connected()
    for number in range(3):
        asking = asyncio.ensure_future(connection.ask(REQUEST))
        await asyncio.sleep(0)
        connection.data_received(OK + b"Content-Length: 1\r\n\r\n%d" % number)
        assert await asking == Reply(200, b"%d" % number, "")
    assert wire.sent == 3 * REQUEST


@pytest.mark.parametrize("end", ["lost", "reset"])
async def test_an_answer_that_ends_with_its_connection(end: str) -> None:
    """However it ends: what was to be said, its head has said."""
    found, connection, _ = await answered(OK + b"\r\nsome", **{end: True})
    assert found == Reply(200, b"some", "")
    assert not connection.is_usable


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", Closed),
        (b"HTTP/1.1 2", EndedEarly),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Closed),
        (OK + b"Content-Length: 9\r\n\r\nx", EndedEarly),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nx", EndedEarly),
    ],
)
async def test_it_closes(answer: bytes, error: type[Exception]) -> None:
    for parts in ([answer], by_byte(answer)):
        found, connection, wire = await answered(*parts, lost=True)
        assert type(found) is error
        assert wire.aborted
        assert not connection.is_usable


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 17 + OK + b"\r\n",
        OK + b"X: " + MOST_HEAD_BYTES * b"x",
        OK + b"X: " + MOST_HEAD_BYTES * b"x" + b"\r\n\r\n",
        OK + b"X: a\nY: b\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        OK + b"Transfer-Encoding: gzip\r\n\r\n",
    ],
)
async def test_what_is_no_http(answer: bytes) -> None:
    """The connection ends at once, whatever else would come."""
    found, connection, wire = await answered(answer)
    assert type(found) is NotHttp
    assert wire.aborted
    assert not connection.is_usable


@pytest.mark.parametrize("framing", [b"Content-Length: 100000\r\n\r\n", b"\r\n"])
async def test_little_is_read(framing: bytes) -> None:
    found, _, wire = await answered(OK + framing, *(MOST_READ * [b"xy"]))
    assert found == Reply(200, MOST_READ // 2 * b"xy", "")
    assert wire.aborted


async def test_chunks_of_little() -> None:
    """Their extensions count as well: a body of some bytes may come in as many megabytes."""
    chunk = b"1;%b\r\nx\r\n" % (200 * b"e")
    found, _, wire = await answered(
        OK + b"Transfer-Encoding: chunked\r\n\r\n", *(MOST_RECEIVED // len(chunk) * [chunk])
    )
    assert isinstance(found, Reply)
    assert len(found.body) < MOST_READ
    assert wire.aborted


@pytest.mark.parametrize("more", [b"x", OK])
async def test_bytes_after_the_answer(more: bytes) -> None:
    """They would be taken for the next answer: in the same part, in the next one, or while idle."""
    answer = OK + b"Content-Length: 2\r\n\r\nok"
    for parts in ([answer + more], [answer, more]):
        found, connection, wire = await answered(*parts)
        assert found == Reply(200, b"ok", "")
        assert wire.aborted
        assert not connection.is_usable
    _, connection, wire = await answered(answer)
    assert not wire.aborted
    connection.data_received(more)
    assert wire.aborted
    with pytest.raises(Closed):
        await connection.ask(REQUEST)


async def test_a_request_that_is_cancelled() -> None:
    """The connection has ended, whatever was read: also all of an answer, at the same moment."""
    ends = b"", b"HTTP/1.1 2", OK + b"Content-Length: 9\r\n\r\nx"
    for answer in (*ends, OK + b"Content-Length: 2\r\n\r\nok"):
        connection, wire = connected()
        asking = asyncio.ensure_future(connection.ask(REQUEST))
        await asyncio.sleep(0)
        connection.data_received(answer)
        asking.cancel()
        await asyncio.wait([asking])
        assert wire.aborted
        assert not connection.is_usable


async def test_a_connection_that_is_closing(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sent on it, and nobody waits for its end."""
    connection, wire = connected()
    wire.abort()
    with pytest.raises(Closed):
        await connection.ask(REQUEST)
    assert wire.sent == b""
    connection.connection_lost(None)
    del connection
    gc.collect()
    assert caplog.text == ""


async def test_an_answer_before_the_whole_request_was_taken() -> None:
    """The rest of the request would be read as the next one."""
    connection, wire = connected()
    asking = asyncio.ensure_future(connection.ask(REQUEST))
    await asyncio.sleep(0)
    connection.pause_writing()
    connection.data_received(OK + b"Content-Length: 0\r\n\r\n")
    assert (await asking).status == 200
    assert wire.aborted


BODY = bytes(range(256)) * (3 * PIECE // 256) + b"end"


async def test_a_large_request_is_written_as_it_is_taken() -> None:
    """While the endpoint takes nothing, at most a piece waits in the transport; then the rest."""
    connection, wire = connected()
    wire.written = connection.pause_writing
    asking = asyncio.ensure_future(connection.ask(REQUEST, BODY))
    for piece in range(1, 5):
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(wire.sent) == len(REQUEST) + min(piece * PIECE, len(BODY))
        connection.resume_writing()
    assert wire.sent == REQUEST + BODY
    connection.data_received(OK + b"Content-Length: 0\r\n\r\n")
    assert (await asking).status == 200
    assert connection.is_usable


@pytest.mark.parametrize("end", [OK + b"Content-Length: 0\r\n\r\n", b"SSH-2.0", b""])
async def test_a_large_request_is_answered_early(end: bytes) -> None:
    """The rest is not written, and the connection ends. An empty end: it closes."""
    connection, wire = connected()
    connection.pause_writing()
    asking = asyncio.ensure_future(connection.ask(REQUEST, BODY))
    await asyncio.sleep(0)
    if end:
        connection.data_received(end)
    else:
        connection.connection_lost(None)
    await asyncio.wait([asking])
    assert len(wire.sent) == len(REQUEST) + PIECE
    assert wire.aborted
    assert not connection.is_usable


async def test_a_large_request_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of its body: the connection ends, and nothing is left that nobody awaits."""
    connection, wire = connected()
    connection.pause_writing()
    asking = asyncio.ensure_future(connection.ask(REQUEST, BODY))
    await asyncio.sleep(0)
    connection.connection_lost(ConnectionResetError())
    asking.cancel()
    await asyncio.wait([asking])
    assert wire.aborted
    del connection, asking
    gc.collect()
    assert caplog.text == ""
