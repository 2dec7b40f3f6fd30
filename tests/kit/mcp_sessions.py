"""A server of MCP that holds streams open, and clients with sessions at it, for counts of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field

from tests.kit.upstream import Exchange, build_response
from tests.kit.wire import Header, Response, Wire, bearer, build_request

JSON: Header = ("Content-Type", "application/json")
SESSION = "Mcp-Session-Id"
VERSION: Header = ("MCP-Protocol-Version", "2025-11-25")
_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_EVENT = b"data: {}\n\n"
_CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)


def message(method: str, **params: object) -> bytes:
    """A request."""
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).encode()


class SessionServer:
    """The script of an upstream: gives sessions, and answers GET and calls with event streams.

    opened:  sessions that were given
    streams: how many streams are open at the server, by its session id

    The tool `quick` is answered at once; GET with "brief" in its target is a stream that ends.
    """

    def __init__(self) -> None:
        self.opened = 0
        self.streams: Counter[str] = Counter()
        self._open: list[Exchange] = []

    async def __call__(self, exchange: Exchange) -> None:
        body = await exchange.read_body()
        request = exchange.request
        if b'"initialize"' in body:
            self.opened += 1
            given = (SESSION, f"session-{self.opened}")
            await exchange.write(build_response(200, b"{}", [JSON, given]))
        elif request.method == "DELETE" or b'"quick"' in body or b'"notifications/' in body:
            await exchange.write(build_response(200, b"{}", [JSON]))
        elif "brief" in request.target:
            await exchange.write(_STREAM + _CHUNK + b"0\r\n\r\n")
        else:
            await self._hold(exchange)

    async def _hold(self, exchange: Exchange) -> None:
        session = exchange.request.maybe(SESSION) or ""
        self.streams[session] += 1
        self._open.append(exchange)
        try:
            await exchange.write(_STREAM + _CHUNK)
            await exchange.ended()
        finally:
            self._open.remove(exchange)
            self.streams[session] -= 1
        raise ConnectionError

    async def beat(self) -> None:
        """Send one more event in each open stream."""
        for exchange in list(self._open):
            with contextlib.suppress(ConnectionError):  # the client leaves at this moment
                await exchange.write(_CHUNK)


@dataclass
class OpenStream:
    """A stream that a client holds open."""

    wire: Wire
    head: Response
    unread: bytes = b""

    @property
    def is_open(self) -> bool:
        return self.head.status == 200

    async def event(self) -> None:
        """Wait for one more event."""
        while len(self.unread) < len(_EVENT):
            chunk = await self.wire.read_chunk()
            assert chunk, "the stream has ended"
            self.unread += chunk
        assert self.unread.startswith(_EVENT)
        self.unread = self.unread[len(_EVENT) :]

    async def end(self) -> None:
        """Wait until the gateway ends it; events that come before are dropped."""
        while await self.wire.read_some():
            pass

    async def close(self) -> None:
        await self.wire.close()


@dataclass
class SessionClient:
    """A client with one session; each of its requests has a connection of its own.

    key:  the text of its key; id: of its session, as the gateway gave it
    """

    key: str
    path: str = "/mcp"
    id: str = ""
    streams: list[OpenStream] = field(default_factory=list)

    @property
    def headers(self) -> list[Header]:
        own = [(SESSION, self.id)] if self.id else []
        return [*bearer(self.key), JSON, VERSION, *own]

    async def begin(self, port: int) -> SessionClient:
        """Initialize the session."""
        answer = await self.post(port, message("initialize"))
        assert answer.status == 200, answer.body
        self.id = answer[SESSION]
        return self

    async def post(self, port: int, body: bytes, method: str = "POST") -> Response:
        """One request that is answered at once."""
        async with await Wire.connect(port) as wire:
            return await wire.request(method, self.path, self.headers, body or None)

    async def call(self, port: int) -> Response:
        return await self.post(port, message("tools/call", name="quick"))

    async def open(self, port: int, method: str = "GET") -> OpenStream:
        """Open a stream: GET listens, POST calls a tool."""
        wire = await Wire.connect(port)
        body = message("tools/call", name="slow") if method == "POST" else None
        await wire.send(build_request(method, self.path, self.headers, body))
        stream = OpenStream(wire, await wire.read_head())
        if stream.is_open:
            self.streams.append(stream)
            await stream.event()
        else:
            stream.head.body = await wire.read_body(stream.head)
            await wire.close()
        return stream

    async def close(self) -> None:
        """Close all streams."""
        streams, self.streams = self.streams, []
        await asyncio.gather(*(stream.close() for stream in streams))
