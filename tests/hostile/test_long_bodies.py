"""Bodies longer than any buffer, with a receiver that stops reading for a while."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.hostile.conftest import LONG, Serve
from tests.kit import proc
from tests.kit.upstream import Exchange, ScriptedUpstream, build_response
from tests.kit.wire import Wire, build_request

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1024 * 1024
#: A gigabyte where HOSTILE_FULL=1.
BODY_BYTES = (1024 if os.environ.get("HOSTILE_FULL") == "1" else 128) * MIB
PIECE = bytes(range(256)) * 256
STALLS = 4
#: What may be in the kernels' buffers of the two connections.
MOST_UNDER_WAY = 48 * MIB
MOST_GROWTH = 32 * MIB
UNBOUNDED = f"{LONG}bounds: {{body: 2GiB}}\n"


@dataclass
class Flow:
    """How far each end is, and the checksum of what it has seen."""

    sent: int = 0
    sent_sum: int = 0
    taken: int = 0
    taken_sum: int = 0

    def send(self, data: bytes) -> None:
        self.sent += len(data)
        self.sent_sum = zlib.crc32(data, self.sent_sum)

    def take(self, data: bytes) -> None:
        self.taken += len(data)
        self.taken_sum = zlib.crc32(data, self.taken_sum)

    async def stall(self) -> None:
        """Read nothing until nothing more is sent, because all buffers are full."""
        unmoved, last = 0, -1
        while unmoved < 5 and self.sent < BODY_BYTES:
            await asyncio.sleep(0.02)
            unmoved, last = (unmoved + 1 if self.sent == last else 0), self.sent
        assert self.sent - self.taken < MOST_UNDER_WAY

    def is_time_to_stall(self, stalls: int) -> bool:
        return stalls < STALLS and self.taken >= stalls * BODY_BYTES // STALLS

    def assert_whole(self) -> None:
        assert (self.taken, self.taken_sum) == (BODY_BYTES, self.sent_sum)


@pytest_asyncio.fixture(loop_scope="session")
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as upstream:
        yield upstream


async def test_a_long_answer_leaves_memory_flat(upstream: ScriptedUpstream, serve: Serve) -> None:
    """The upstream is paused while the client reads nothing; every byte arrives in the end."""
    flow = Flow()

    async def script(exchange: Exchange) -> None:
        await exchange.write(f"HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n".encode())
        while flow.sent < BODY_BYTES:
            await exchange.write(PIECE)
            flow.send(PIECE)

    upstream.script = script
    gateway = await serve(upstream.url)
    pid = gateway.worker_pid
    memory = proc.rss_bytes(pid)
    async with await Wire.connect(gateway.port) as wire:
        await wire.send(build_request("GET", "/long"))
        assert (await wire.read_head()).status == 200
        stalls = 0
        while flow.taken < BODY_BYTES:
            if flow.is_time_to_stall(stalls):
                stalls += 1
                await flow.stall()
            flow.take(await wire.read_some())
    grown = proc.peak_rss_bytes(pid) - memory
    print(f"\n{BODY_BYTES // MIB} MiB down: {grown / MIB:.1f} MiB of memory more")
    flow.assert_whole()
    assert grown < MOST_GROWTH


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_a_long_request_leaves_memory_flat(
    upstream: ScriptedUpstream, serve: Serve, chunked: bool
) -> None:
    """The client is paused while the upstream reads nothing; every byte arrives in the end."""
    flow = Flow()

    async def script(exchange: Exchange) -> None:
        stalls = 0
        while flow.taken < BODY_BYTES:
            if flow.is_time_to_stall(stalls):
                stalls += 1
                await flow.stall()
            flow.take(await exchange.read_some())
            exchange.request.body = b""  # which would otherwise grow to all of it
        await exchange.read_body()
        await exchange.write(build_response(200, b"taken"))

    upstream.script = script
    gateway = await serve(upstream.url, gateway=UNBOUNDED)
    pid = gateway.worker_pid
    memory = proc.rss_bytes(pid)
    framing = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(BODY_BYTES))
    async with await Wire.connect(gateway.port) as wire:
        await wire.send(build_request("POST", "/long", [framing]))
        while flow.sent < BODY_BYTES:
            await wire.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if chunked else PIECE)
            flow.send(PIECE)
        if chunked:
            await wire.send(b"0\r\n\r\n")
        assert (await wire.read_response()).body == b"taken"
    grown = proc.peak_rss_bytes(pid) - memory
    print(f"\n{BODY_BYTES // MIB} MiB up: {grown / MIB:.1f} MiB of memory more")
    flow.assert_whole()
    assert grown < MOST_GROWTH
