"""A strict HTTP/1.1 client: sends bytes, and parses one response.

What a lenient client would accept (two lengths, a length with chunks, a bare LF, bytes after the
last response) is an error here, so that a test of the gateway sees what went over the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

Header = tuple[str, str]

#: The longest single wait before a test fails; no test measures it.
TIMEOUT_S = 20.0

_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-9]\d\d) ([\t -~]*)\r\n")
_HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*([\t -~\x80-\xff]*)\r\n")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})\r\n")


class WireError(AssertionError):
    """The other end sent what HTTP/1.1 does not allow."""


@dataclass(slots=True)
class Response:
    """One response. `interim`: the 1xx before it; `closes`: its connection ends."""

    status: int
    reason: str
    headers: list[Header]
    body: bytes = b""
    interim: list[Response] = field(default_factory=list)
    closes: bool = False

    def all(self, name: str) -> list[str]:
        """The values of every header of this name, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def maybe(self, name: str) -> str | None:
        """The value of a header that may come once at most."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times: {values}"
        return values[0] if values else None

    def __getitem__(self, name: str) -> str:
        """The value of a header that must come exactly once."""
        value = self.maybe(name)
        assert value is not None, f"no {name} in {self.status} {self.headers}"
        return value

    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """One connection. Reads fail after TIMEOUT_S."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1", local: str | None = None) -> Wire:
        """local: the local address"""
        own = None if local is None else (local, 0)
        async with asyncio.timeout(TIMEOUT_S):
            return cls(*await asyncio.open_connection(host, port, local_addr=own))

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(TIMEOUT_S):
            await self._writer.drain()

    async def request(
        self, method: str, target: str, headers: Iterable[Header] = (), body: bytes | None = None
    ) -> Response:
        """Send one request and read its response."""
        await self.send(build_request(method, target, headers, body))
        return await self.read_response(method)

    async def read_response(self, method: str = "GET") -> Response:
        """Read the next final response and its body. `method`: of its request; HEAD has no body."""
        response = await self.read_head()
        response.body = await self.read_body(response, method)
        return response

    async def read_head(self) -> Response:
        """Read the head of the next final response, and the interim ones before it."""
        interim: list[Response] = []
        while True:
            matched = _STATUS_LINE.fullmatch(line := await self._line())
            if matched is None:
                raise WireError(f"not a status line: {line!r}")
            head = Response(int(matched[1]), matched[2].decode(), await self._fields())
            head.closes = "close" in (head.maybe("Connection") or "").lower()
            if head.status >= 200 or head.status == 101:
                head.interim = interim
                return head
            interim.append(head)

    async def read_body(self, head: Response, method: str = "GET") -> bytes:
        """Read the body that follows this head."""
        lengths, codings = head.all("Content-Length"), head.all("Transfer-Encoding")
        if len(lengths) + len(codings) > 1:
            raise WireError(f"framed more than once: {lengths} {codings}")
        if method == "HEAD" or head.status in (101, 204, 304):
            return b""
        if codings:
            if codings != ["chunked"]:
                raise WireError(f"unknown coding {codings}")
            chunks = []
            while chunk := await self.read_chunk():
                chunks.append(chunk)
            return b"".join(chunks)
        if lengths:
            if not re.fullmatch(r"\d{1,18}", lengths[0]):
                raise WireError(f"not a length: {lengths[0]!r}")
            return await self._exactly(int(lengths[0]))
        if not head.closes:
            raise WireError("a body without an end, on a connection that stays open")
        async with asyncio.timeout(TIMEOUT_S):
            return await self._reader.read()

    async def read_chunk(self) -> bytes:
        """Read one chunk of a chunked body; b"" is the last, without trailers."""
        matched = _CHUNK_LINE.fullmatch(line := await self._line())
        if matched is None:
            raise WireError(f"not a chunk size: {line!r}")
        data = await self._exactly(int(matched[1], 16) + 2)
        if not data.endswith(b"\r\n"):
            raise WireError(f"a chunk without its end: {data[-16:]!r}")
        return data[:-2]

    async def read_some(self, most: int = 65536) -> bytes:
        """Read what comes next; b"" at the end of the connection."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self._reader.read(most)

    async def read_end(self) -> None:
        """Wait until the other end closes or resets; a byte before that is an error."""
        with contextlib.suppress(ConnectionError):
            if data := await self.read_some():
                raise WireError(f"bytes where the connection should end: {data[:80]!r}")

    async def _line(self) -> bytes:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            raise WireError(f"the connection ended in a head, after {error.partial!r}") from error

    async def _fields(self) -> list[Header]:
        fields: list[Header] = []
        while (line := await self._line()) != b"\r\n":
            if (matched := _HEADER_LINE.fullmatch(line)) is None:
                raise WireError(f"not a header line: {line!r}")
            fields.append((matched[1].decode(), matched[2].decode("latin-1").rstrip()))
        return fields

    async def _exactly(self, count: int) -> bytes:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._reader.readexactly(count)
        except asyncio.IncompleteReadError as error:
            raise WireError(
                f"{len(error.partial)} of {count} bytes of body, then the end"
            ) from error


def build_request(
    method: str, target: str, headers: Iterable[Header] = (), body: bytes | None = None
) -> bytes:
    """A careful client's request; Host and Content-Length are added if absent."""
    fields = list(headers)
    names = {name.lower() for name, _ in fields}
    if "host" not in names:
        fields.insert(0, ("Host", "gateway.test"))
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        fields.append(("Content-Length", str(len(body))))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n" + (body or b"")


def bearer(key: str) -> list[Header]:
    """The header with the key."""
    return [("Authorization", f"Bearer {key}")]


async def fetch(
    port: int,
    target: str,
    *,
    key: str | None = None,
    method: str = "GET",
    headers: Iterable[Header] = (),
    body: bytes | None = None,
) -> Response:
    """Send one request on a new connection."""
    fields = [*(bearer(key) if key else []), *headers]
    async with await Wire.connect(port) as wire:
        return await wire.request(method, target, fields, body)
