"""A scripted upstream: keeps every request as it arrived, and answers as the test says.

It parses less than a server should, and strictly: the gateway is what is tested. A script is a
coroutine over an `Exchange`; it waits on the test's events, never on a clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.proxy.kernel import unacknowledged_bytes
from tests.kit.listening import Listening
from tests.kit.wire import TIMEOUT_S, Header


@dataclass(slots=True)
class Received:
    """One request. connection: 0 for the first one accepted, and so on."""

    method: str
    target: str
    headers: list[Header]
    connection: int
    body: bytes = b""
    raw_head: bytes = field(default=b"", repr=False)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def maybe(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times: {values}"
        return values[0] if values else None


class Exchange:
    """What a script gets: the request, its body as it arrives, and the way to answer."""

    def __init__(
        self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.request = request
        self._reader = reader
        self._writer = writer
        self._left = int(request.maybe("Content-Length") or 0)
        self._chunked = request.maybe("Transfer-Encoding") == "chunked"

    async def read_some(self) -> bytes:
        """The next piece of the request's body; b"" at its end."""
        if self._chunked:
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            data = (await self._reader.readexactly(size + 2))[:-2]
            self._chunked = size > 0
        else:
            data = await self._reader.read(min(self._left, 65536)) if self._left else b""
            self._left -= len(data)
        self.request.body += data
        return data

    async def read_body(self) -> bytes:
        """Read the rest of the request's body; return all of it."""
        while await self.read_some():
            pass
        return self.request.body

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def unacknowledged(self) -> int:
        """How many written bytes the other end's kernel has not acknowledged."""
        transport = self._writer.transport
        return transport.get_write_buffer_size() + unacknowledged_bytes(transport)

    def close(self) -> None:
        """Close the connection once all is written."""
        self._writer.close()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._writer.transport.abort()

    def reset(self) -> None:
        """Drop the connection with a TCP reset."""
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    async def ended(self) -> None:
        """Wait until the other end closes; what it sends until then is dropped."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass


Script = Callable[[Exchange], Awaitable[None]]


def build_response(status: int = 200, body: bytes = b"", headers: Iterable[Header] = ()) -> bytes:
    """A whole response with its length."""
    fields = [*headers, ("Content-Length", str(len(body)))]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"HTTP/1.1 {status} Scripted\r\n{head}\r\n".encode() + body


def reply(status: int = 200, body: bytes = b"", headers: Iterable[Header] = ()) -> Script:
    """A script: read the whole request, then send this."""
    response = build_response(status, body, list(headers))

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.write(response)

    return script


async def echo(exchange: Exchange) -> None:
    """Answer 200 with the request line and the body's length, as JSON; without a body to HEAD."""
    body = await exchange.read_body()
    request = exchange.request
    echoed = {"method": request.method, "target": request.target, "body_bytes": len(body)}
    response = build_response(
        200, json.dumps(echoed).encode(), [("Content-Type", "application/json")]
    )
    head, blank, text = response.partition(b"\r\n\r\n")
    await exchange.write(head + blank + (b"" if request.method == "HEAD" else text))


class ScriptedUpstream(Listening):
    """Answers as its script says.

    requests: what arrived, in order; script: answers the next request
    beside:   another one, whose port it has, at this address
    """

    def __init__(
        self, script: Script = echo, beside: tuple[ScriptedUpstream, str] | None = None
    ) -> None:
        super().__init__()
        if beside is not None:
            self.port, self.host = beside[0].port, beside[1]
        self.script = script
        self.requests: list[Received] = []
        self._connections = 0
        self._arrived = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def received(self, count: int = 1) -> Received:
        """Wait until this many requests have arrived; return the last of them."""
        async with asyncio.timeout(TIMEOUT_S), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, self._connections = self._connections, self._connections + 1
        while True:
            exchange = Exchange(await _read_head(reader, connection), reader, writer)
            async with self._arrived:
                self.requests.append(exchange.request)
                self._arrived.notify_all()
            await self.script(exchange)
            await exchange.read_body()


class SecureUpstream(ScriptedUpstream):
    """The same over TLS.

    clients: the authority of clients, which need a certificate then
    names:   those that clients asked for
    """

    def __init__(
        self, script: Script, certificate: Path, key: Path, clients: Path | None = None
    ) -> None:
        super().__init__(script)
        self.names: list[str | None] = []
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate, key)
        self.tls.sni_callback = lambda _, name, __: self.names.append(name)
        if clients is not None:
            self.tls.load_verify_locations(clients)
            self.tls.verify_mode = ssl.CERT_REQUIRED


async def _read_head(reader: asyncio.StreamReader, connection: int) -> Received:
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    assert version == "HTTP/1.1", first
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    return Received(method, target, headers, connection, raw_head=raw)
