"""The tests' client is strict: no test would notice what it lets pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.kit.rows import each_row
from tests.kit.upstream import Exchange, ScriptedUpstream, build_response, echo
from tests.kit.wire import Wire, WireError, build_request, fetch


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as running:
        yield running


async def read(upstream: ScriptedUpstream, answer: bytes, method: str = "GET") -> bytes:
    """The body that the client reads from this answer."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(answer)
        exchange.close()

    upstream.script = script
    return (await fetch(upstream.port, "/", method=method)).body


@each_row(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", b"hi"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    ],
)
async def test_sound_answers_are_read(
    upstream: ScriptedUpstream, answer: bytes, body: bytes
) -> None:
    """Each way to frame a body."""
    assert await read(upstream, answer) == body


@each_row(
    "answer",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n0\r\nA: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"",
    ],
)
async def test_unsound_answers_are_errors(upstream: ScriptedUpstream, answer: bytes) -> None:
    """A bare LF, a body without an end, framed twice, or truncated: each is an error."""
    with pytest.raises(WireError):
        await read(upstream, answer)


async def test_an_answer_to_head_has_no_body(upstream: ScriptedUpstream) -> None:
    """A length is stated and no body follows."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    assert await read(upstream, answer, method="HEAD") == b""


async def test_bytes_after_the_end_are_an_error(upstream: ScriptedUpstream) -> None:
    """Bytes where the connection should end are an error."""
    async with await Wire.connect(upstream.port) as wire:
        await wire.request("GET", "/")
        await wire.send(build_request("GET", "/"))
        with pytest.raises(WireError):
            await wire.read_end()


async def test_headers_are_counted() -> None:
    """A header that must come once is an error if it comes twice or not at all."""
    async with ScriptedUpstream() as upstream:

        async def script(exchange: Exchange) -> None:
            await exchange.write(build_response(200, b"", [("A", "1"), ("a", "2")]))

        upstream.script = script
        answer = await fetch(upstream.port, "/")
        assert answer.all("A") == ["1", "2"]
        assert answer.maybe("B") is None
        for name in ("A", "B"):
            with pytest.raises(AssertionError):
                answer[name]


async def test_the_upstream_keeps_what_arrives(upstream: ScriptedUpstream) -> None:
    """Requests of several connections, with their bodies, in order."""
    upstream.script = echo
    async with await Wire.connect(upstream.port) as wire:
        chunked = [("Transfer-Encoding", "chunked")]
        await wire.send(build_request("POST", "/a", chunked) + b"2\r\nhi\r\n0\r\n\r\n")
        assert (await wire.read_response()).json() == {
            "method": "POST",
            "target": "/a",
            "body_bytes": 2,
        }
        await wire.request("PUT", "/b", body=b"hello")
    await fetch(upstream.port, "/c")
    assert (await asyncio.wait_for(upstream.received(3), 5)).target == "/c"
    kept = [(each.target, each.body, each.connection) for each in upstream.requests]
    assert kept == [("/a", b"hi", 0), ("/b", b"hello", 0), ("/c", b"", 1)]
