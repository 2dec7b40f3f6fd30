"""WebSockets with a client and a server of other projects, through a real gateway."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from redis.asyncio import Redis
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websocket
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.typing import Subprotocol

from gateway.domain import key_format
from gateway.domain.limits import UNITS_US, Limit
from gateway.stores.keys.store import RedisKeyStore
from tests.end_to_end.conftest import Serve, Site, add_key
from tests.end_to_end.test_observed import counted
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.policies import write_policies
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.upstream import Exchange
from tests.kit.wire import TIMEOUT_S, Wire, bearer, build_request

pytestmark = pytest.mark.asyncio(loop_scope="session")

MEGABYTE = bytes(range(256)) * 4096
Handler = Callable[[ServerConnection], Awaitable[None]]


async def echo(connection: ServerConnection) -> None:
    """Send every message back, until the connection ends in any way."""
    with suppress(ConnectionClosed):
        async for message in connection:
            await connection.send(message)


@dataclass
class Backend:
    """A WebSocket server. handler: for the next connection."""

    server: Server
    handler: Handler = echo
    opened: list[ServerConnection] = field(default_factory=list)

    @property
    def port(self) -> int:
        (socket,) = self.server.sockets
        port: int = socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass
class Line:
    """A gateway in front of a WebSocket server. keys: the ids of those that a test has used."""

    gateway: ServedGateway
    backend: Backend
    site: Site
    keys: set[str] = field(default_factory=set)

    @asynccontextmanager
    async def open(
        self, key: str, path: str = "/api/ws", scheme: str = "ws", **options: Any
    ) -> AsyncIterator[ClientConnection]:
        """Open a client's connection through the gateway."""
        options = {"proxy": None, "open_timeout": TIMEOUT_S, **options}
        if parsed := key_format.parse(key.encode()):
            self.keys.add(parsed.id)
        url = f"{scheme}://127.0.0.1:{self.gateway.port}{path}"
        async with connect(url, additional_headers=dict(bearer(key)), **options) as client:
            yield client

    async def change(self, key: str, **fields: Any) -> None:
        """Change these fields of a key's record."""
        parsed = key_format.parse(key.encode())
        assert parsed is not None
        record = await self.site.keys.get(parsed.id)
        assert record is not None
        await self.site.keys.replace(record, replace(record, **fields))

    async def logged(self, count: int = 1) -> list[dict[str, Any]]:
        """The access log's lines of the test's WebSockets, once there are this many."""
        lines: list[dict[str, Any]] = []

        def is_ours(line: dict[str, Any]) -> bool:
            return line["status"] == 101 and line["key_id"] in self.keys

        def has_come() -> bool:
            lines[:] = filter(is_ours, self.gateway.log_lines())
            return len(lines) >= count

        await eventually(has_come, f"{count} lines in the access log")
        assert len(lines) == count
        return lines


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Backend]:
    """A WebSocket server on a free port, with the subprotocol `talk`."""
    made: list[Backend] = []

    async def handle(connection: ServerConnection) -> None:
        made[0].opened.append(connection)
        await made[0].handler(connection)

    def select(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return next((name for name in offered if name == "talk"), None)

    options: dict[str, Any] = {"select_subprotocol": select, "close_timeout": 1, "ssl": tls}
    async with serve_websocket(handle, "127.0.0.1", 0, **options) as server:
        made.append(Backend(server))
        yield made[0]


@pytest_asyncio.fixture(loop_scope="session")
async def backend() -> AsyncIterator[Backend]:
    """A WebSocket server without TLS."""
    async with serving() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def _pair(
    _site: Site, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[ServedGateway, Backend]]:
    folder = tmp_path_factory.mktemp("websocket")
    async with serving() as backend:
        policies = write_policies(folder / "policies", backend.url)
        async with ServedGateway(folder, policies, _site.store) as gateway:
            yield gateway, backend


@pytest_asyncio.fixture(loop_scope="session")
async def line(site: Site, _pair: tuple[ServedGateway, Backend]) -> Line:
    """One gateway for these tests, in front of a WebSocket server that echoes."""
    gateway, backend = _pair
    backend.handler = echo
    backend.opened.clear()
    return Line(gateway, backend, site)


async def test_messages(line: Line) -> None:
    """Text and bytes, small and of a megabyte, are echoed unchanged."""
    async with line.open(await line.site.key()) as client:
        for message in ("hello", "", "é" * 1000, b"\x00\xff", MEGABYTE):
            await client.send(message)
            assert await client.recv() == message
    (entry,) = await line.logged()
    assert entry["bytes_in"] > 0
    assert entry["bytes_out"] > 0
    assert (entry["decision"], entry["reason"], entry["path"]) == ("admitted", None, "/api/ws")


async def test_what_the_handshake_settles(line: Line) -> None:
    """The client gets compression, the subprotocol and the gateway's headers."""
    offered = ["chat", "talk"]
    async with line.open(await line.site.key(), subprotocols=offered) as client:
        assert client.subprotocol == "talk"
        assert client.response is not None
        assert "permessage-deflate" in client.response.headers["Sec-WebSocket-Extensions"]
        assert client.response.headers["X-RateLimit-Remaining"] == "59"
        assert client.response.headers["X-Request-Id"]
        text = "again and again " * 60_000
        await client.send(text)
        assert await client.recv() == text
    (entry,) = await line.logged()
    assert entry["bytes_in"] < len(text) / 10
    (seen,) = line.backend.opened
    assert seen.request is not None
    assert seen.request.headers["X-Gateway-Plan"] == "free"
    assert "Authorization" not in seen.request.headers


@pytest.mark.parametrize("compression", ["deflate", None])
async def test_fragments_and_pings(line: Line, compression: str | None) -> None:
    """Fragments arrive in order, and a ping from either side gets its pong."""
    async with line.open(await line.site.key(), compression=compression) as client:
        await client.send(["one ", "two ", "three"])
        assert await client.recv() == "one two three"
        async with asyncio.timeout(TIMEOUT_S):
            await (await client.ping(b"there?"))
            (server,) = line.backend.opened
            await (await server.ping(b"here?"))


@pytest.mark.parametrize("who", ["client", "server", "neither"])
async def test_over_tls(site: Site, serve: Serve, tmp_path: Path, who: str) -> None:
    """TLS on both sides: messages, and an end by either side, with or without a close frame."""
    made = make_certificate(tmp_path / "tls", ["127.0.0.1"])
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(made.certificate, made.key)
    ours = ssl.create_default_context(cafile=str(made.ca))
    async with serving(theirs) as backend:
        gateway = await serve(
            tls=f"tls: {{certificate: {made.certificate}, key: {made.key}}}\n",
            upstreams=f"upstreams:\n  api:\n    servers: ['https://127.0.0.1:{backend.port}']\n"
            f"    ca: {made.ca}\n",
        )
        line = Line(gateway, backend, site)
        async with line.open(await site.key(), scheme="wss", ssl=ours) as client:
            for message in ("hello", MEGABYTE):
                await client.send(message)
                assert await client.recv() == message
            (server,) = backend.opened
            if who == "neither":
                client.transport.abort()
            else:
                await (client if who == "client" else server).close(4321, "enough")
            await asyncio.wait_for(server.wait_closed(), TIMEOUT_S)
        assert server.close_code == (1006 if who == "neither" else 4321)
        await line.logged()


@pytest.mark.parametrize("who", ["client", "server"])
async def test_close_codes(line: Line, who: str) -> None:
    """Whichever side closes, both get the code and the reason."""
    async with line.open(await line.site.key()) as client:
        await client.send("x")
        await client.recv()
        (server,) = line.backend.opened
        closing = client if who == "client" else server
        await closing.close(4321, "enough")
        await asyncio.wait_for(server.wait_closed(), TIMEOUT_S)
        await asyncio.wait_for(client.wait_closed(), TIMEOUT_S)
    for side in (client, server):
        assert (side.close_code, side.close_reason) == (4321, "enough")
    (entry,) = await line.logged()
    assert entry["reason"] is None


async def test_many_at_once(line: Line) -> None:
    """A hundred tunnels, each with its own messages, and none remains."""
    key = await line.site.key("enterprise")

    async def talk(number: int) -> None:
        async with line.open(key) as client:
            for turn in range(5):
                message = f"{number}:{turn}" * 1000
                await client.send(message)
                assert await client.recv() == message

    async with asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(talk(number))
    assert len(await line.logged(100)) == 100

    async def none_left() -> bool:
        metrics = await line.gateway.metrics()
        return "gateway_inflight_requests 0" in metrics.replace(".0\n", "\n")

    await eventually(none_left, "nothing is in flight")


async def test_a_refused_handshake(line: Line) -> None:
    """Without a key, or over a limit, the client gets an ordinary answer."""
    with pytest.raises(InvalidStatus) as refused:
        async with line.open("gwk_production_nonsense"):
            pass
    assert refused.value.response.status_code == 401
    key = await line.site.key(limits={"plan": Limit("plan", "rate", 2, UNITS_US["hour"])})
    for _ in range(2):
        async with line.open(key):
            pass
    with pytest.raises(InvalidStatus) as refused:
        async with line.open(key):
            pass
    assert refused.value.response.status_code == 429
    assert int(refused.value.response.headers["Retry-After"]) > 0


async def test_a_slow_reader_fills_nothing(line: Line) -> None:
    """64 MB for a client that does not read: the gateway's memory stays small."""
    digest = hashlib.sha256()

    async def flood(connection: ServerConnection) -> None:
        for number in range(64):
            message = number.to_bytes(4, "big") + MEGABYTE
            digest.update(message)
            await connection.send(message)

    line.backend.handler = flood
    process = psutil.Process(line.gateway.worker_pid)
    async with line.open(
        await line.site.key(), compression=None, max_size=2**21, max_queue=1
    ) as client:
        (server,) = line.backend.opened
        before = process.memory_info().rss
        # The server cannot write any more: its buffer has been constant for a while.
        held, unmoved = 0, 0

        def is_full() -> bool:
            nonlocal held, unmoved
            size = server.transport.get_write_buffer_size()
            unmoved = unmoved + 1 if size and size == held else 0
            held = size
            return unmoved >= 20

        await eventually(is_full, "all between is full")
        most = process.memory_info().rss
        got = hashlib.sha256()
        async for message in client:
            assert isinstance(message, bytes)
            got.update(message)
            most = max(most, process.memory_info().rss)
    assert got.digest() == digest.digest()
    assert most - before < 16 * 2**20


CHANGES: list[dict[str, Any]] = [
    {"status": "revoked"},
    {"status": "suspended"},
    {"expires_us": 1},
    {"scopes": ()},
]


@pytest.mark.parametrize("fields", CHANGES, ids=str)
async def test_a_changed_key_ends_its_tunnel(line: Line, fields: dict[str, Any]) -> None:
    """Revoked, suspended, expired or narrowed in the store: only that key's tunnel ends."""
    key = await line.site.key(scopes=("connectors:read",))
    other = await line.site.key(scopes=("connectors:read",))
    path = "/v1/connectors"
    async with line.open(key, path) as client, line.open(other, path) as spared:
        await client.send("x")
        await client.recv()
        await line.change(key, **fields)
        with pytest.raises(ConnectionClosedError):
            await asyncio.wait_for(client.recv(), TIMEOUT_S)
        await spared.send("still here")
        assert await spared.recv() == "still here"
    entries = await line.logged(2)
    reasons = {entry["reason"] for entry in entries}
    assert None in reasons
    assert len(reasons) == 2


async def test_a_revoked_key_ends_its_events(site: Site) -> None:
    """A stream of events ends like a tunnel, at both gateways of the store."""
    key = await site.key()

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"
        )
        await exchange.ended()
        raise ConnectionError

    site.upstream.script = script
    parsed = key_format.parse(key.encode())
    assert parsed is not None
    async with (
        await Wire.connect(site.gateway.port) as one,
        await Wire.connect(site.other.port) as two,
    ):
        for wire in (one, two):
            await wire.send(build_request("GET", "/api/events", bearer(key)))
            await wire.read_head()
            assert await wire.read_chunk() == b"data: 1\n\n"
        record = await site.keys.get(parsed.id)
        assert record is not None
        await site.keys.replace(record, replace(record, status="revoked"))
        for wire in (one, two):
            await wire.read_end()


async def test_an_outage_ends_no_tunnel(site: Site, serve: Serve, backend: Backend) -> None:
    """Redis is killed and restarted: the tunnel continues, then its key is checked again."""
    server = RedisServer(*DURABLE).start()
    try:
        async with Redis(port=server.port) as store:
            key, _ = await add_key(RedisKeyStore(store), "enterprise")
        gateway = await serve(upstream=backend.url, store=server.url)
        line = Line(gateway, backend, site)

        async def store_is(up: int) -> bool:
            return await counted(gateway, "gateway_store_up") == up

        async with line.open(key) as client:
            for up in (1, 0, 1):
                if not up:
                    server.kill()
                elif not await store_is(1):
                    await asyncio.to_thread(server.start)
                await eventually(lambda up=up: store_is(up), f"gateway_store_up is {up}")
                await client.send(f"store {up}")
                assert await client.recv() == f"store {up}"
            async with Redis(port=server.port) as store:
                keys = RedisKeyStore(store)
                (record,) = await keys.records()
                await keys.replace(record, replace(record, status="revoked"))
            with pytest.raises(ConnectionClosedError):
                await asyncio.wait_for(client.recv(), TIMEOUT_S)
    finally:
        server.stop()


async def test_seconds_of_draining(site: Site, serve: Serve, backend: Backend) -> None:
    """After SIGTERM a tunnel continues until the drain's end, and is then closed; exit 0."""
    gateway = await serve(upstream=backend.url, gateway="timeouts: {drain: 3s}\n")
    line = Line(gateway, backend, site)
    async with line.open(await site.key()) as client:
        gateway.signal(signal.SIGTERM)

        async def is_draining() -> bool:
            try:
                await (await Wire.connect(gateway.port)).close()
            except OSError:
                return True
            return False

        await eventually(is_draining, "no new connection is accepted")
        await client.send("still here")
        assert await client.recv() == "still here"
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(client.recv(), TIMEOUT_S)
    assert await gateway.ended() == 0
    (entry,) = await line.logged()
    assert entry["reason"] == "draining"


async def test_draining_waits_for_a_close_frame(site: Site, serve: Serve, backend: Backend) -> None:
    """A tunnel that is closed in time gets its close frame, and the drain ends at once."""
    gateway = await serve(upstream=backend.url, gateway="timeouts: {drain: 10m}\n")
    line = Line(gateway, backend, site)
    async with line.open(await site.key()) as client:
        gateway.signal(signal.SIGTERM)
        await client.send("still here")
        assert await client.recv() == "still here"
        await client.close(1000, "bye")
    assert client.close_code == 1000
    assert await gateway.ended() == 0
