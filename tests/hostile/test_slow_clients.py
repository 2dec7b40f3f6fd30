"""1,500 slow clients of each kind: their deadlines end them, and no other client suffers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from loadtests.abuse.healthy import keep_asking
from tests.hostile.backend import Backend
from tests.hostile.conftest import Serve, abuse, at_rest
from tests.kit import proc
from tests.kit.raw_client import RawClient
from tests.kit.wire import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONNECTIONS = 1500
#: The gateway's memory for a slow connection: twice the pieces that wait for one.
MOST_BYTES_EACH = 128 * 1024

HASTY = "timeouts: {header: 2s, body: 2s, write: 2s}\n"
#: The healthy client uses another upstream than the slow ones.
ROUTES = """
routes:
  calm: {match: "* /calm", upstream: calm, auth: none}
  api:  {match: "* /**",   upstream: api,  auth: none}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def calm() -> AsyncIterator[Backend]:
    async with Backend() as backend:
        yield backend


@pytest.mark.parametrize(
    ("kind", "arguments", "status"),
    [
        ("slow-header", ("--path", "/short"), "408"),
        ("slow-body", ("--path", "/short"), "408"),
        ("slow-read", ("--path", "/long"), "200"),
    ],
)
async def test_slow_clients_end_and_harm_no_other(
    backend: Backend,
    calm: Backend,
    serve: Serve,
    kind: str,
    arguments: tuple[str, ...],
    status: str,
) -> None:
    """All healthy requests succeed meanwhile; slow ones get 408 or are cut off, and cost little."""
    upstreams = (
        f'upstreams: {{api: {{servers: ["{backend.url}"]}}, calm: {{servers: ["{calm.url}"]}}}}'
    )
    gateway = await serve(backend.url, gateway=HASTY, routes=ROUTES, upstreams=upstreams)
    pid = gateway.worker_pid
    before = await keep_asking(gateway.port, "/calm", "", lambda so_far: len(so_far.waits_s) >= 500)
    memory = proc.rss_bytes(pid)
    attack = asyncio.create_task(abuse(gateway.port, kind, CONNECTIONS, *arguments))
    during = await keep_asking(gateway.port, "/calm", "", lambda _: attack.done())
    outcome = await attack
    grown = proc.peak_rss_bytes(pid) - memory
    print(f"\n{kind}: {outcome}, {grown / CONNECTIONS / 1024:.1f} KiB of memory each")
    print(f"healthy before: {before.figures()}\nhealthy during: {during.figures()}")
    assert set(during.statuses) == {200}
    assert (outcome["opened"], outcome["ended"], outcome["held"]) == (CONNECTIONS, CONNECTIONS, 0)
    assert outcome["statuses"] == {status: CONNECTIONS}
    assert grown < CONNECTIONS * MOST_BYTES_EACH
    await at_rest(gateway)


#: What a slow reader takes at a time; each time well within the write timeout.
SIP_BYTES, SIPS = 2048, 50
LONG = "timeouts: {header: 10m, body: 10m, idle: 10m, response: 10m, write: 1s, drain: 1s}\n"


async def read_slowly(connection: socket.socket) -> None:
    """Read slowly and steadily, for several times the write timeout."""
    loop = asyncio.get_running_loop()
    for _ in range(SIPS):
        async with asyncio.timeout(TIMEOUT_S):
            assert await loop.sock_recv(connection, SIP_BYTES)
        await asyncio.sleep(0.1)


def socket_with_little_room() -> socket.socket:
    """A socket with a small receive buffer, so that the other end notices each read."""
    made = socket.socket()
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SIP_BYTES)
    return made


async def test_a_slow_and_steady_client(backend: Backend, serve: Serve) -> None:
    """A client that takes a little of an answer now and then is slow, not stalled."""
    gateway = await serve(backend.url, gateway=LONG)
    loop = asyncio.get_running_loop()
    with socket_with_little_room() as client:
        await loop.sock_connect(client, ("127.0.0.1", gateway.port))
        await loop.sock_sendall(client, b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
        await read_slowly(client)
        assert gateway.log_lines() == []


async def test_a_slow_and_steady_upstream(serve: Serve) -> None:
    """The same for a server and a request's body."""
    loop = asyncio.get_running_loop()
    with socket_with_little_room() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        gateway = await serve(f"http://127.0.0.1:{listener.getsockname()[1]}", gateway=LONG)
        client = await RawClient.connect(gateway.port)
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n"
        sending = asyncio.create_task(client.send(head + bytes(9_999_999)))
        async with asyncio.timeout(TIMEOUT_S):
            accepted, _ = await loop.sock_accept(listener)
        with accepted:
            await read_slowly(accepted)
            assert gateway.log_lines() == []
        sending.cancel()
        await asyncio.wait({sending})
        client.close()
