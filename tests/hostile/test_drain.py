"""SIGTERM with requests and streams in flight, and with connections about to send a request."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.hostile.conftest import Serve
from tests.kit import proc
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import Exchange, ScriptedUpstream, build_response
from tests.kit.wire import Response, Wire, WireError, build_request, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

WAITING, STREAMING, SENDING = 80, 60, 60
#: How long a drain may take: unlimited, or not at all.
LONG, BRIEF = (
    f"timeouts: {{header: 10m, body: 10m, response: 10m, drain: {drain}}}\n"
    for drain in ("10m", "1s")
)


class Held(ScriptedUpstream):
    """Completes no answer before `release`: /stream begins, and all others wait."""

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
    """A stream whose first chunk has arrived."""
    wire = await Wire.connect(gateway.port)
    await wire.send(build_request("GET", "/stream"))
    head = await wire.read_head()
    assert await wire.read_chunk() == b"first"
    return wire, head


async def drains(gateway: ServedGateway) -> None:
    """Send SIGTERM and wait until new clients are refused."""
    gateway.signal(signal.SIGTERM)

    async def is_refused() -> bool:
        try:
            await (await Wire.connect(gateway.port)).close()
        except OSError:
            return True
        return False

    await eventually(is_refused, "no new client is accepted")
    assert (await fetch(gateway.admin_port, "/readyz")).status == 503
    assert (await fetch(gateway.admin_port, "/healthz")).status == 200


async def test_nothing_in_flight_is_lost(upstream: Held, serve: Serve) -> None:
    """200 requests, answers and bodies in progress are completed; then exit 0."""
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
    """What still runs is cut off, visibly, and accounted for; the exit status is 0."""
    gateway = await serve(upstream.url, gateway=BRIEF if by == "the drain's limit" else LONG)
    streams = [await stream(gateway) for _ in range(20)]
    if by == "a second signal":
        await drains(gateway)
    # At its limit a drain may be over before anything can be asked.
    gateway.signal(signal.SIGTERM)
    assert await gateway.ended() == 0
    for wire, head in streams:
        with pytest.raises((WireError, ConnectionError)):
            await wire.read_body(head)
        await wire.close()
    assert len(gateway.log_lines()) == 20


async def test_what_was_accepted_is_answered(serve: Serve) -> None:
    """Connections that have sent nothing, half a head, or are between two requests."""
    async with ScriptedUpstream() as upstream:
        gateway = await serve(upstream.url, gateway=LONG)
        request = build_request("POST", "/x", [("Content-Length", "4")])
        opened = [await Wire.connect(gateway.port) for _ in range(30)]
        idle, silent, half = opened[:10], opened[10:20], opened[20:]
        for wire in half:
            await wire.send(request[:20])
        for wire in idle:
            assert not (await wire.request("GET", "/first")).closes
        gateway.signal(signal.SIGTERM)
        await eventually(lambda: "drain started" in gateway.output(), "the worker drains")
        for wire in idle:
            await wire.send(request + b"body")
        for wire in idle:
            answer = await wire.read_response()
            assert (answer.status, answer.closes) == (200, True)
        for wires, sent in ((silent, request), (half, request[20:])):
            for wire in wires:
                await wire.send(sent + b"body")
                answer = await wire.read_response()
                assert (answer.status, answer.closes) == (200, True)
                await wire.read_end()
        for wire in (*idle, *silent, *half):
            await wire.close()
        assert await gateway.ended() == 0
        output = gateway.output()
        assert "drain started: 30 open connections" in output
        assert "cut off" not in output


async def test_a_drain_does_not_wait_for_silent_clients(serve: Serve) -> None:
    """A connection without a request has the time for a head; an idle one has a moment."""
    async with ScriptedUpstream() as upstream:
        gateway = await serve(upstream.url, gateway="timeouts: {header: 2s, idle: 10m, drain: 10m}")
        idle, silent = await Wire.connect(gateway.port), await Wire.connect(gateway.port)
        await idle.request("GET", "/first")
        gateway.signal(signal.SIGTERM)
        await idle.read_end()
        await silent.read_end()
        assert await gateway.ended() == 0
        for wire in (idle, silent):
            await wire.close()


async def test_connections_in_the_accept_queue(serve: Serve) -> None:
    """Connections in the kernel's accept queue are answered before the port is closed."""
    async with ScriptedUpstream() as upstream:
        gateway = await serve(upstream.url, gateway=LONG)
        worker = gateway.worker_pid
        os.kill(worker, signal.SIGSTOP)
        # Of two pending signals, SIGTERM would be handled first.
        await eventually(lambda: proc.is_stopped(worker), "the worker is stopped")
        waiting = [await Wire.connect(gateway.port) for _ in range(20)]
        gateway.signal(signal.SIGTERM)
        await eventually(lambda: _is_signalled(worker), "SIGTERM is pending")
        os.kill(worker, signal.SIGCONT)
        for wire in waiting:
            await wire.send(build_request("GET", "/x"))
        for wire in waiting:
            assert (await wire.read_response()).status == 200
            await wire.close()
        assert await gateway.ended() == 0


def _is_signalled(pid: int) -> bool:
    """Is a signal pending for the process?"""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
    return int(mask, 16) != 0


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_connection_for_each_request(
    serve: Serve, redis_server: RedisServer, workers: int
) -> None:
    """Clients connect all the time: each that connects is answered, until the port is closed."""
    async with ScriptedUpstream() as upstream:
        gateway = await serve(
            upstream.url, "--workers", str(workers), store=redis_server.url, gateway=LONG
        )
        request = build_request("GET", "/x", [("Connection", "close")])
        answered = 0

        async def keep_coming() -> None:
            nonlocal answered
            while True:
                try:
                    wire = await Wire.connect(gateway.port)
                except OSError:
                    return
                async with wire:
                    await wire.send(request)
                    assert (await wire.read_response()).status == 200
                    answered += 1

        async with asyncio.TaskGroup() as clients:
            for _ in range(8):
                clients.create_task(keep_coming())
            await eventually(lambda: answered > 100, "clients are served")
            gateway.signal(signal.SIGTERM)
        assert await gateway.ended() == 0
