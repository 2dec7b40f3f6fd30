"""One connection to an upstream server: sends a request, reads its response, and again.

The server is not trusted. Bytes that are not exactly one response end the connection. Every byte is
scanned once, and a partial head is kept up to a bound.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

from gateway.domain.balance import Health
from gateway.domain.upstreams import Server
from gateway.errors import UPSTREAM_CLOSED, UPSTREAM_INVALID, Refusal
from gateway.http1.field_lines import bare_lf
from gateway.http1.framing import MANY_CHUNKS, BodyReader, ChunkedReader
from gateway.http1.response import MOST_HEAD_BYTES, ResponseHead
from gateway.http1.response_parser import HeadParser
from gateway.http1.websocket import switch_fault
from gateway.observe.metrics import Metrics
from gateway.proxy.kernel import unacknowledged_bytes, unread_bytes
from gateway.proxy.tls import TlsTransport

#: Interim responses before a final one; a server that sends more is broken or hostile.
MOST_INTERIM = 16

#: The beginning of every supported response.
_BEGINNING = b"HTTP/1."
_TOO_LONG = f"the head is longer than {MOST_HEAD_BYTES} bytes"

#: The most that one read returns: an answer of 64 KB and its head come in one, which takes a sixth
#: less CPU time than three. uvloop's own buffer has 256 KB, all of which would wait in memory for a
#: slow client. One buffer for all connections: it is emptied before the next one is read.
READ_BYTES: Final = 72 * 1024
_BUFFER: Final = bytearray(READ_BYTES)
_VIEW: Final = memoryview(_BUFFER)
#: For all connections: what a head means depends on nothing else.
_HEADS: Final = HeadParser()
#: Unsent bytes of a request's body; beyond this, reading from the client pauses.
MOST_UNSENT_BYTES: Final = 32 * 1024
#: A longer head is not cached: an idle connection keeps little.
MOST_KEPT_BYTES: Final = 4 * 1024


class UpstreamExchange(Protocol):
    """An exchange, as its upstream connection uses it."""

    method: str
    reader: BodyReader | None
    is_sent: bool

    @property
    def websocket_key(self) -> bytes:
        """The key of the WebSocket handshake; b"": the request is none."""
        ...

    @property
    def head_bytes(self) -> int:
        """The length of the request's head as sent."""
        ...

    @property
    def takes_more(self) -> bool:
        """Can more of the answer be written to the client?"""
        ...

    def pause_request(self) -> None:
        """The server takes no more of the request for now."""
        ...

    def resume_request(self) -> None: ...

    def pass_interim(self, head: ResponseHead) -> None:
        """Pass on a 1xx other than 100."""
        ...

    def respond(self, head: ResponseHead, reader: BodyReader | None, payload: bytes) -> None:
        """Pass on the final head. reader: of the body; None: payload is all of it"""
        ...

    def switch(self, head: ResponseHead, early: bytes) -> None:
        """The server agreed to a WebSocket. early: what it sent after its head"""
        ...

    def relay(self, payload: bytes) -> None:
        """Pass on a part of the body."""
        ...

    def complete(self) -> None:
        """The answer is complete; the connection is in its pool again, or closed."""
        ...

    def upstream_lost(self, upstream: UpstreamConnection, refusal: Refusal) -> None:
        """The connection closed before the answer was complete."""
        ...

    def upstream_invalid(self, refusal: Refusal, words: str) -> None:
        """The answer is not valid HTTP; the connection was closed."""
        ...


class Owner(Protocol):
    """The pool of a server, as its connections use it."""

    name: str
    server: Server
    label: str
    tag: str
    metrics: Metrics
    health: Health
    response_s: float

    def give_back(self, connection: UpstreamConnection, reusable: bool) -> None:
        """Take a connection back after its exchange."""
        ...

    def lost(self, connection: UpstreamConnection, *, is_failure: bool) -> None:
        """Note that it closed during its exchange. is_failure: a failure of the server"""
        ...

    def remove(self, connection: UpstreamConnection) -> None:
        """Remove a closed connection."""
        ...

    def failed(self) -> None:
        """Count a failure: the answer was invalid, or late."""
        ...

    def answered(self, status: int, waited_s: float) -> None:
        """Note the head of an answer of a server in doubt. waited_s: since the request was sent"""
        ...


class UpstreamConnection(asyncio.BufferedProtocol):
    """The protocol of one connection: one exchange at a time, and no bytes between them."""

    __slots__ = (
        "_excess",
        "_filled",
        "_head",
        "_interim",
        "_known_head",
        "_known_raw",
        "_partial",
        "_paused",
        "_reader",
        "_tls",
        "exchange",
        "has_response",
        "idle_since",
        "is_bound",
        "is_stalled",
        "never_received",
        "opened",
        "pool",
        "reused",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, pool: Owner) -> None:
        self.pool = pool
        self.exchange: UpstreamExchange | None = None
        self.opened = 0.0
        self.idle_since = 0.0
        #: It had an exchange before, so the server may close it at any moment.
        self.reused = False
        #: A byte of this exchange's response was received.
        self.has_response = False
        #: The server closed before it received a byte of this exchange's request.
        self.never_received = False
        #: Its server may take whoever sends the next request for the client of this one.
        self.is_bound = False
        #: It takes no more of the request for now.
        self.is_stalled = False
        #: The last read filled the buffer, so more bytes may be waiting: they would be taken for
        #: the answer to the next request.
        self._filled = False
        self._tls: TlsTransport | None = None
        self._paused = False
        #: An incomplete head.
        self._partial = bytearray()
        #: Bytes after the end of the response; never passed on.
        self._excess = b""
        self._interim = 0
        self._head: ResponseHead | None = None
        self._reader: BodyReader | None = None
        #: The last head, and the same parsed.
        self._known_raw = b""
        self._known_head: ResponseHead | None = None

    # -- called by the exchange -------------------------------------------------------------------
    def begin(self, exchange: UpstreamExchange) -> None:
        """Begin this exchange."""
        self.exchange = exchange
        self.has_response = False
        self._interim = 0
        self._head = None
        self._reader = None

    def sent(self) -> None:
        """The whole request was sent, as far as it can be: the time of its answer begins."""

    def _waited_s(self, exchange: UpstreamExchange) -> float:
        """How long the server has had the whole request, in seconds; 0.0: that is not measured."""
        return 0.0

    def pause(self) -> None:
        """Pause reading: the client takes no more for now."""
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def _resume_after_turn(self) -> None:
        """Resume reading after the turn of other connections."""
        if self.exchange is None or self.exchange.takes_more:
            self.resume()

    def finish(self, reusable: bool) -> None:
        """End the exchange; return the connection to the pool, which closes it unless reusable."""
        self.exchange = None
        if self._paused:
            self.resume()
        self.reused = True
        if (
            self._excess
            or self._partial
            or self.is_stalled
            or self.is_bound
            or self.transport.is_closing()
            or (self._filled and unread_bytes(self.transport) > 0)
            or (self._tls is not None and self._tls.has_unread())
        ):
            reusable = False
        self.pool.give_back(self, reusable)

    def close(self) -> None:
        self.transport.abort()

    # -- called by asyncio ------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=MOST_UNSENT_BYTES)
        self._tls = transport if isinstance(transport, TlsTransport) else None
        self.opened = asyncio.get_running_loop().time()
        self.pool.metrics.connections("upstream", "open", 1)

    def get_buffer(self, sizehint: int) -> bytearray:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        data = _VIEW[:nbytes].tobytes()
        self._filled = nbytes == READ_BYTES
        exchange = self.exchange
        if exchange is None or self._head is not None or self._partial:
            self.data_received(data)
        else:
            self.has_response = True
            self._heads(exchange, data)

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            # No request asked for this data, so no client may get it.
            self.close()
            return
        self.has_response = True
        if self._head is not None:
            self._body(exchange, data)
            return
        if not self._partial:
            self._heads(exchange, data)
            return
        # Only new bytes can complete the head or make it invalid: no byte is scanned twice.
        fresh = max(len(self._partial) - 3, 0)
        self._partial += data
        if self._partial.find(b"\r\n\r\n", fresh) < 0:
            self._check_partial(exchange, fresh)
        else:
            data = bytes(self._partial)
            self._partial.clear()
            self._heads(exchange, data)

    def eof_received(self) -> bool:
        exchange = self.exchange
        if exchange is not None and not self.has_response:
            self.never_received = self._has_received_nothing(exchange)
        return False

    def _has_received_nothing(self, exchange: UpstreamExchange) -> bool:
        """Has the server's kernel acknowledged no byte of a request without a body?"""
        if self._tls is not None or exchange.reader is not None:
            return False
        sent = exchange.head_bytes
        unsent = self.transport.get_write_buffer_size()
        return unsent + unacknowledged_bytes(self.transport) >= sent

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.remove(self)
        exchange = self.exchange
        if exchange is None:
            return
        # A reset does not complete a body, not even one that ends with its connection.
        if self._reader is not None and exc is None:
            self._reader.end()
            if self._reader.done:
                self._over(exchange, reusable=False)
                return
        self.exchange = None
        # A server may close an idle connection at any moment: that is no failure.
        is_failure = self._head is None and (self.has_response or not self.reused)
        self.pool.lost(self, is_failure=is_failure)
        exchange.upstream_lost(self, UPSTREAM_CLOSED)

    def pause_writing(self) -> None:
        self.is_stalled = True
        if self.exchange is not None:
            self.exchange.pause_request()

    def resume_writing(self) -> None:
        self.is_stalled = False
        if self.exchange is not None:
            self.exchange.resume_request()

    # -- reading ----------------------------------------------------------------------------------
    def _heads(self, exchange: UpstreamExchange, data: bytes) -> None:
        """Read heads until the final one. data: begins with a head"""
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._partial += data
                self._check_partial(exchange, 0)
                return
            if end > MOST_HEAD_BYTES:
                self._invalid(exchange, _TOO_LONG)
                return
            raw, rest = data[: end + 2], data[end + 4 :]
            if raw == self._known_raw and self._known_head is not None:
                head = self._known_head
            else:
                parsed = _HEADS.parse(raw)
                if isinstance(parsed, str):
                    self._invalid(exchange, parsed)
                    return
                head = parsed
                if len(raw) <= MOST_KEPT_BYTES:
                    self._known_raw, self._known_head = raw, head
            if head.status >= 200:
                break
            if head.status == 101 and (key := exchange.websocket_key):
                self._switch(exchange, key, raw, head, rest)
                return
            self._interim += 1
            if head.status == 101 or self._interim > MOST_INTERIM:
                self._invalid(exchange, "an unsolicited or endless interim response")
                return
            if head.status != 100:
                exchange.pass_interim(head)
            data = rest
        health = self.pool.health
        # As `Health.is_doubted`, without its call, which would be 1 % of a request.
        if health.counted or health.failures or health.probing:
            self.pool.answered(head.status, self._waited_s(exchange))
        self._head = head
        if head.sized and head.length == len(rest) and exchange.method != "HEAD":
            # The common case: the whole body is here, and needs no reader.
            exchange.respond(head, None, rest)
            self._over(exchange, reusable=head.keep)
            return
        self._reader = reader = head.reader(exchange.method)
        if reader is None:
            self._excess = rest
            exchange.respond(head, None, b"")
            # RFC 9110, 8.6: a server "MUST NOT send a Content-Length header field" in a 204. One
            # that announces a body may send it, during the next request.
            announced = head.status == 204 and (head.chunked or head.length)
            self._over(exchange, reusable=head.keep and not announced)
            return
        payload, rest = reader.feed(rest)
        if reader.fault is not None:
            self._invalid(exchange, reader.fault)
            return
        self._excess = rest
        exchange.respond(head, reader, payload)
        if reader.done:
            self._over(exchange, reusable=head.keep)

    def _switch(
        self, exchange: UpstreamExchange, key: bytes, raw: bytes, head: ResponseHead, rest: bytes
    ) -> None:
        """Check the 101; if it is valid, a tunnel takes over this connection."""
        fault = switch_fault(raw, head, key)
        if fault is not None:
            self._invalid(exchange, fault)
            return
        if self.pool.health.is_doubted:
            self.pool.answered(head.status, self._waited_s(exchange))
        self._head = head
        exchange.switch(head, rest)

    def _check_partial(self, exchange: UpstreamExchange, fresh: int) -> None:
        """Refuse an incomplete head that cannot become valid. fresh: index of the new bytes"""
        partial = self._partial
        if len(partial) > MOST_HEAD_BYTES:
            self._invalid(exchange, _TOO_LONG)
        elif not partial.startswith(_BEGINNING) and not _BEGINNING.startswith(partial):
            self._invalid(exchange, "the head does not begin with HTTP/1.")
        elif bare_lf(partial, fresh):
            # RFC 9112, 2.2 lets a recipient accept it as a line end; hops differ in that.
            self._invalid(exchange, "a line of the head ends in a bare LF")

    def _body(self, exchange: UpstreamExchange, data: bytes) -> None:
        reader, head = self._reader, self._head
        assert reader is not None
        assert head is not None
        payload, self._excess = reader.feed(data)
        if isinstance(reader, ChunkedReader) and reader.chunks >= MANY_CHUNKS:
            self.pause()
            asyncio.get_running_loop().call_soon(self._resume_after_turn)
        if payload:
            exchange.relay(payload)
        if reader.fault is not None:
            self._invalid(exchange, reader.fault)
        elif reader.done:
            self._over(exchange, reusable=head.keep)

    def _over(self, exchange: UpstreamExchange, reusable: bool) -> None:
        # The client may have ended the exchange while the answer was passed on.
        if self.exchange is exchange:
            reusable = reusable and exchange.is_sent
            self.finish(reusable)
            exchange.complete()

    def _invalid(self, exchange: UpstreamExchange, words: str) -> None:
        if self.exchange is exchange:
            if self._head is None:
                self.pool.failed()
            self._partial.clear()
            self.finish(reusable=False)
            exchange.upstream_invalid(UPSTREAM_INVALID, words)


class TimedConnection(UpstreamConnection):
    """One to a server whose answers are counted. Others do without its cost."""

    __slots__ = ("_sent",)

    def begin(self, exchange: UpstreamExchange) -> None:
        super().begin(exchange)
        self.sent()

    def sent(self) -> None:
        self._sent = asyncio.get_running_loop().time()

    def _waited_s(self, exchange: UpstreamExchange) -> float:
        # An answer that comes before the request was sent is not late, however slow the client is.
        return asyncio.get_running_loop().time() - self._sent if exchange.is_sent else 0.0
