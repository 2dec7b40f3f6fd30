"""Clients without a key that pipeline requests: they are served in turns, and hold few bytes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import struct
from pathlib import Path

import pytest

from loadtests.abuse.healthy import keep_asking
from tests.end_to_end.test_observed import counted
from tests.hostile.backend import Backend
from tests.hostile.conftest import LONG, Serve, abuse, at_rest
from tests.kit import proc
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import Exchange, ScriptedUpstream, echo
from tests.kit.wire import Wire, build_request
from tests.proxy.test_upstream_connection import HIDDEN, filling

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROUTES = 'routes:\n  keyed: {match: "* /**", upstream: api}\n'
#: A connection that sends and does not read: 64 KiB, and the allocator's overhead.
MOST_BYTES_EACH = 96 * 1024


async def test_a_worker_serves_all_clients(
    backend: Backend, serve: Serve, redis_server: RedisServer
) -> None:
    """Six connections flood it: a healthy client is answered all the time."""
    gateway = await serve(backend.url, "--workers", "2", routes=ROUTES, store=redis_server.url)
    pids = set(gateway.worker_pids())
    attack = asyncio.create_task(
        abuse(gateway.port, "pipeline", 6, "--path", "/v1/x", "--seconds", "8")
    )
    healthy = await keep_asking(gateway.port, "/health", "", lambda _: attack.done())
    outcome = await attack
    print(f"\nflood: {outcome}\nhealthy: {healthy.figures()}")
    assert set(healthy.statuses) == {200}
    assert outcome["opened"] == outcome["held"] == 6
    assert set(outcome["statuses"]) == {"200", "401", "429"}
    assert set(gateway.worker_pids()) == pids
    await at_rest(gateway)


async def test_a_client_that_never_reads_holds_little(backend: Backend, serve: Serve) -> None:
    """The bytes kept for such a connection are bounded, and it is closed in the end."""
    connections = 400
    gateway = await serve(backend.url, routes=ROUTES)
    pid = gateway.worker_pid
    await keep_asking(gateway.port, "/health", "", lambda so_far: len(so_far.waits_s) >= 500)
    memory = proc.rss_bytes(pid)
    attack = asyncio.create_task(
        abuse(gateway.port, "pipeline-unread", connections, "--seconds", "5")
    )
    healthy = await keep_asking(gateway.port, "/health", "", lambda _: attack.done())
    grown = proc.peak_rss_bytes(pid) - memory
    print(f"\n{grown / connections / 1024:.1f} KiB each; healthy: {healthy.figures()}")
    assert set(healthy.statuses) == {200}
    assert (await attack)["held"] == connections
    assert grown < connections * MOST_BYTES_EACH
    await at_rest(gateway)


async def test_the_budget_of_all(backend: Backend, serve: Serve) -> None:
    """Together they hold no more than the policy allows: some are cut off and counted."""
    budget = 2 * 1024 * 1024
    gateway = await serve(
        backend.url, routes=ROUTES, gateway=f"{LONG}bounds: {{memory: {budget}}}\n"
    )
    pid = gateway.worker_pid
    await keep_asking(gateway.port, "/health", "", lambda so_far: len(so_far.waits_s) >= 500)
    memory = proc.rss_bytes(pid)
    outcome = await abuse(gateway.port, "pipeline-unread", 400, "--seconds", "5")
    grown = proc.peak_rss_bytes(pid) - memory
    shed = await counted(gateway, "gateway_connections_shed_total")
    print(f"\n{grown / 1024:.0f} KiB in all; {shed} cut off")
    # Some may be cut off when the clients have stopped counting.
    assert 0 < outcome["ended"] <= shed
    assert "bounds.memory" in gateway.output()
    # An idle connection takes some KiB that the budget does not count.
    assert grown < 4 * budget + 400 * 8 * 1024
    await at_rest(gateway)


async def test_an_answer_that_hides_another(serve: Serve) -> None:
    """uvloop reads on after a full read; bytes that come then answer no request."""
    async with ScriptedUpstream() as upstream:
        gateway = await serve(upstream.url)
        worker = gateway.worker_pid

        async def script(exchange: Exchange) -> None:
            if exchange.request.target != "/1":
                await echo(exchange)
                return
            # All of it is there for the worker at once: later bytes cannot be distinguished from
            # the answer to the next request.
            os.kill(worker, signal.SIGSTOP)
            try:
                await eventually(lambda: proc.is_stopped(worker), "the worker is stopped")
                await exchange.write(filling() + HIDDEN)
                await eventually(lambda: not exchange.unacknowledged(), "all of it has arrived")
            finally:
                os.kill(worker, signal.SIGCONT)

        upstream.script = script
        async with await Wire.connect(gateway.port) as wire:
            for _ in range(12):
                await wire.send(build_request("GET", "/1") + build_request("GET", "/2"))
                assert (await wire.read_response()).status == 200
                assert (await wire.read_response()).json()["target"] == "/2"


@pytest.mark.parametrize("is_tls", [False, True])
async def test_clients_that_reset_at_once(
    backend: Backend, serve: Serve, tmp_path: Path, is_tls: bool
) -> None:
    """A client that resets before it is accepted leaves nothing behind, and no log line."""
    made = make_certificate(tmp_path / "tls", ["localhost"])
    tls = f"tls: {{certificate: {made.certificate}, key: {made.key}}}\n" if is_tls else ""
    gateway = await serve(backend.url, routes=ROUTES, gateway=f"{LONG}{tls}")
    os.kill(gateway.worker_pid, signal.SIGSTOP)
    try:
        await eventually(lambda: proc.is_stopped(gateway.worker_pid), "the worker is stopped")
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", gateway.port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        os.kill(gateway.worker_pid, signal.SIGCONT)
    await at_rest(gateway)
    opened = proc.descriptors(gateway.worker_pid)
    assert opened < 100
    assert "Traceback" not in gateway.output()


async def test_handshakes_that_never_end(backend: Backend, serve: Serve, tmp_path: Path) -> None:
    """They count against the budget from their first byte: the oldest make room for new ones."""
    made = make_certificate(tmp_path / "tls", ["localhost"])
    settings = (
        f"bounds: {{memory: 2MiB}}\ntls: {{certificate: {made.certificate}, key: {made.key}}}\n"
    )
    gateway = await serve(backend.url, routes=ROUTES, gateway=f"{LONG}{settings}")
    context = ssl.create_default_context(cafile=made.ca)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
            client.sendall(b"\x16")

        async def some_are_cut_off() -> bool:
            return await counted(gateway, "gateway_connections_shed_total") > 100

        await eventually(some_are_cut_off, "the budget holds")
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", gateway.port, ssl=context, server_hostname="localhost"
        )
        writer.write(build_request("GET", "/health"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
    await at_rest(gateway)
