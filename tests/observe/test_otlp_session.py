"""What a collector answers is bounded, however it answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("requests", reason="the extra otel is not installed")

from requests import Session
from requests.exceptions import RequestException

from gateway.observe import otlp_session as module
from gateway.observe.otlp_session import MOST_ANSWER_BYTES, bounded_session
from tests.kit.listening import Listening

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Answering(Listening):
    """Answers every request alike. written: bytes of bodies that were taken"""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await self._answer(writer)
            await writer.drain()


async def post(session: Session, server: Answering) -> tuple[int, bytes]:
    answer = await asyncio.to_thread(session.post, f"http://127.0.0.1:{server.port}/", timeout=10)
    return answer.status_code, answer.content


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(bytes(65536))
        await writer.drain()


async def chunked(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\nx\r\n" * 1000)
        await writer.drain()


@pytest.mark.parametrize("answer", [endless, chunked])
async def test_an_answer_without_an_end(answer: Answer) -> None:
    """It took 200 MB of memory in each second."""
    async with Answering(answer) as server:
        with bounded_session() as session, pytest.raises(RequestException, match="4096 bytes"):
            await post(session, server)


async def test_an_answer_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not hold the thread: all its time is bounded."""
    passed = itertools.count(step=3.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(passed))

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nfive bytes")

    async with Answering(answer) as server:
        with bounded_session() as session, pytest.raises(RequestException, match="10 s"):
            await post(session, server)


async def test_a_redirect() -> None:
    """It is a failure: the spans would count as exported, though nobody has them."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")

    async with Answering(answer) as server:
        with bounded_session() as session, pytest.raises(RequestException, match="status 307"):
            await post(session, server)
        assert server.connections == 1


async def test_ordinary_answers() -> None:
    """They are read as they are, and their connection is used again."""
    body = b"x" * MOST_ANSWER_BYTES

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with Answering(answer) as server:
        with bounded_session() as session:
            for _ in range(3):
                assert await post(session, server) == (400, body)
        assert server.connections == 1
