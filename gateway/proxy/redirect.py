"""Connections of plain HTTP that are redirected to https: one request, one answer, and the end.

They count among the worker's client connections, with the same bounds and deadlines; each keeps at
most one head. Nothing that a client sends is forwarded, looked up or logged.
"""

from __future__ import annotations

import asyncio
from math import inf
from time import perf_counter
from typing import Final, cast

from gateway.domain.networks import Address, is_within, limit_subject, parse_address
from gateway.errors import (
    BAD_PROXY_HEADER,
    HEADERS_TOO_LARGE,
    REQUEST_TIMEOUT,
    TOO_MANY_CONNECTIONS,
    Refusal,
)
from gateway.http1.redirect import Redirect, read_redirect
from gateway.proxy.answers import REASONS, extra_fields, refusal_body
from gateway.proxy.connections import HEAVY_BYTES, Entry
from gateway.proxy.context import Context
from gateway.proxy.kernel import reset_on_close
from gateway.proxy.proxy_protocol import Header, read_header

#: Of a request line, beside its target.
_LINE_SLACK: Final = 64
#: How long a connection lingers after its answer, for a client that is still sending.
LINGER_S: Final = 2.0
_STATUS: Final = 308


class RedirectConnection(asyncio.Protocol):
    """One connection. port: of the https listener."""

    __slots__ = (
        "_answered",
        "_buffer",
        "_context",
        "_is_proxied",
        "_loop",
        "_port",
        "_started",
        "_subject",
        "deadline",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, context: Context, port: int) -> None:
        self._context = context
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._started = perf_counter()
        self._answered = False
        #: A PROXY protocol header comes first.
        self._is_proxied = False
        #: What the connection is counted under; None: it is not counted.
        self._subject: str | None = None
        self.deadline = inf

    # -- called by asyncio ------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        context, policy = self._context, self._context.gate.policy
        context.connections.add(self)
        self.deadline = self._loop.time() + policy.timeouts.header_s
        peer = transport.get_extra_info("peername")
        if peer is None:  # reset before it was accepted
            self.transport.abort()
            return
        address = parse_address(peer[0])
        self._is_proxied = policy.proxy_protocol and is_within(address, policy.trusted_proxies)
        self._enter(address)

    def data_received(self, data: bytes) -> None:
        if self._answered or self.transport.is_closing():
            return
        seen = len(self._buffer)
        self._buffer += data
        if self._is_proxied:
            if not self._read_proxy_header():
                return
            seen = 0
        start = 2 if self._buffer.startswith(b"\r\n") else 0
        end = self._buffer.find(b"\r\n\r\n", max(start, seen - 3))
        bounds = self._context.gate.policy.bounds
        most = bounds.url_bytes + bounds.headers_bytes + _LINE_SLACK
        if (end if end >= 0 else len(self._buffer)) > most:
            self._refuse(HEADERS_TOO_LARGE)
        elif end >= 0:
            self._answer(self._buffer[start : end + 4])
        elif len(self._buffer) > HEAVY_BYTES:
            self._context.connections.mark(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._buffer, self.deadline = b"", inf
        self._context.connections.discard(self)
        self._leave()

    # -- called by `Connections` and those that iterate over it -----------------------------------
    @property
    def is_busy(self) -> bool:
        """No request of it is in progress: each is answered at once."""
        return False

    def held_bytes(self) -> int:
        return len(self._buffer) + self.transport.get_write_buffer_size()

    def is_known(self) -> bool:
        return False

    def shed(self) -> None:
        reset_on_close(self.transport)
        self.transport.abort()

    def check_deadline(self, now: float) -> None:
        if now < self.deadline:
            return
        if self._buffer and not self._answered and not self._is_proxied:
            self._refuse(REQUEST_TIMEOUT)
        else:
            self.transport.abort()

    def failed(self) -> None:
        self.transport.abort()

    def drain(self) -> bool:
        return not self._answered

    def tear_down(self) -> None:
        self.transport.abort()

    # -- the client's address ---------------------------------------------------------------------
    def _enter(self, address: Address) -> None:
        """Count it for this address, and enforce the bounds on connections."""
        policy = self._context.gate.policy
        self._leave()
        self._subject = limit_subject(address, policy.ipv6_prefix)
        is_trusted = is_within(address, policy.trusted_proxies)
        entry = self._context.connections.enter(self._subject, policy.bounds, is_trusted=is_trusted)
        if entry is not Entry.SERVED:
            self._context.metrics.refused(TOO_MANY_CONNECTIONS.reason)
            self.transport.abort()

    def _leave(self) -> None:
        if self._subject is not None:
            self._context.connections.leave(self._subject)
            self._subject = None

    def _read_proxy_header(self) -> bool:
        """Read the PROXY protocol header; False: it is incomplete, or the connection has ended."""
        header = read_header(self._buffer)
        if isinstance(header, str):
            self._refuse(BAD_PROXY_HEADER)
        if not isinstance(header, Header):
            return False
        self._is_proxied = False
        self._buffer = self._buffer[header.length :]
        if header.source is not None:
            self._enter(parse_address(header.source[0]))
        return not self.transport.is_closing()

    # -- answers ----------------------------------------------------------------------------------
    def _answer(self, head: bytes) -> None:
        found = read_redirect(head, self._port)
        if isinstance(found, Redirect):
            self._send(_STATUS, b"Location: %b\r\n" % found.location, b"", found.method)
        else:
            self._refuse(found)

    def _refuse(self, refusal: Refusal) -> None:
        context, policy = self._context, self._context.gate.policy
        context.metrics.refused(refusal.reason)
        request_id = context.next_id()
        bounds = policy.bounds
        name = f"{bounds.headers_bytes} bytes in {bounds.header_count} lines"
        body = refusal_body(
            refusal,
            None,
            name,
            request_id=request_id.decode("ascii"),
            error_docs=policy.error_docs,
        )
        lines = b"Content-Type: application/json\r\nX-Request-Id: %b\r\n" % request_id
        self._send(refusal.status, lines + extra_fields(refusal, None), body, "")

    def _send(self, status: int, lines: bytes, body: bytes, method: str) -> None:
        context = self._context
        self._buffer, self._answered = b"", True
        self.transport.write(
            b"HTTP/1.1 %d %b\r\n%b%bContent-Length: %d\r\nConnection: close\r\n\r\n%b"
            % (
                *(status, REASONS[status], context.date_field.line(context.clock_us()), lines),
                *(len(body), body),
            )
        )
        duration_s = perf_counter() - self._started
        context.metrics.ended("", method, status, "gateway", duration_s, None, None)
        # A client that is still sending can read the answer before a reset.
        self.transport.write_eof()
        self.deadline = self._loop.time() + LINGER_S
