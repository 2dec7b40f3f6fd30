"""SIGTERM with 200 requests and streams in flight; and what ends a drain early."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.hostile.conftest import Serve
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.upstream import Exchange, ScriptedUpstream, build_response
from tests.kit.wire import Response, Wire, WireError, build_request, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

WAITING, STREAMING, SENDING = 80, 60, 60
#: How long a drain may take: for ever, or not at all.
LONG, BRIEF = (
    f"timeouts: {{header: 10m, body: 10m, response: 10m, drain: {drain}}}\n"
    for drain in ("10m", "1s")
)


class Held(ScriptedUpstream):
    """Answers nothing to its end before `release`: /stream begins, and everything else waits."""

    def __init__(self) -> None:
        super().__init__(self._held)
        self.release = asyncio.Event()

    async def _held(self, exchange: Exchange) -> None:
        if exchange.request.target == "/stream":
            await exchange.write(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
            )
            await self.release.wait()
            await exchange.write(b"6\r\nsecond\r\n0\r\n\r\n")
            return
        await self.release.wait()
        body = await exchange.read_body()
        await exchange.write(build_response(200, body or b"waited"))


@pytest_asyncio.fixture(loop_scope="session")
async def upstream() -> AsyncIterator[Held]:
    upstream = Held()
    async with upstream:
        yield upstream


async def stream(gateway: ServedGateway) -> tuple[Wire, Response]:
    """A stream of which the first chunk has arrived."""
    wire = await Wire.connect(gateway.port)
    await wire.send(build_request("GET", "/stream"))
    head = await wire.read_head()
    assert await wire.read_chunk() == b"first"
    return wire, head


async def drains(gateway: ServedGateway) -> None:
    """Send SIGTERM and wait until new clients are sent away."""
    gateway.signal(signal.SIGTERM)

    async def turned_away() -> bool:
        try:
            await (await Wire.connect(gateway.port)).close()
        except OSError:
            return True
        return False

    await eventually(turned_away, "nobody new is accepted")
    assert (await fetch(gateway.admin_port, "/readyz")).status == 503
    assert (await fetch(gateway.admin_port, "/healthz")).status == 200


async def test_nothing_in_flight_is_lost(upstream: Held, serve: Serve) -> None:
    """200 requests, answers and bodies on their way come to their ends; then exit 0."""
    gateway = await serve(upstream.url, gateway=LONG)
    waiting = [await Wire.connect(gateway.port) for _ in range(WAITING)]
    for wire in waiting:
        await wire.send(build_request("GET", "/waits"))
    sending = [await Wire.connect(gateway.port) for _ in range(SENDING)]
    for wire in sending:
        await wire.send(build_request("POST", "/sends", [("Content-Length", "10")]) + b"first")
    streams = [await stream(gateway) for _ in range(STREAMING)]
    await upstream.received(WAITING + SENDING + STREAMING)
    await drains(gateway)
    upstream.release.set()
    for wire in sending:
        await wire.send(b"later")
    for wires, body in ((waiting, b"waited"), (sending, b"firstlater")):
        for wire in wires:
            answer = await wire.read_response()
            assert (answer.status, answer.body, answer.closes) == (200, body, True)
            await wire.read_end()
            await wire.close()
    for wire, head in streams:
        assert await wire.read_body(head) == b"second"
        await wire.read_end()
        await wire.close()
    assert await gateway.ended() == 0
    assert [line["status"] for line in gateway.log_lines()] == [200] * 200


@pytest.mark.parametrize("by", ["a second signal", "the drain's limit"])
async def test_a_drain_ends_early(upstream: Held, serve: Serve, by: str) -> None:
    """What still runs is cut, visibly, and accounted for; the exit status is 0 all the same."""
    gateway = await serve(upstream.url, gateway=BRIEF if by == "the drain's limit" else LONG)
    streams = [await stream(gateway) for _ in range(20)]
    await drains(gateway)
    if by == "a second signal":
        gateway.signal(signal.SIGTERM)
    assert await gateway.ended() == 0
    for wire, head in streams:
        with pytest.raises((WireError, ConnectionError)):
            await wire.read_body(head)
        await wire.close()
    assert len(gateway.log_lines()) == 20
