"""One connection to an upstream server: a request out, its response in, and again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from gateway.errors import UPSTREAM_CLOSED, UPSTREAM_INVALID
from gateway.http1.framing import BodyReader
from gateway.http1.response import MOST_HEAD_BYTES, ResponseHead, parse_response_head

if TYPE_CHECKING:
    from gateway.proxy.exchange import Exchange
    from gateway.proxy.pool import ServerPool

#: Interim responses before a final one; a server that sends more is broken or hostile.
MOST_INTERIM = 16


class UpstreamConnection(asyncio.Protocol):
    """The protocol of one connection: one exchange at a time, and silence between them."""

    __slots__ = (
        "_head",
        "_held",
        "_interim",
        "_known_head",
        "_known_raw",
        "_paused",
        "_reader",
        "exchange",
        "idle_since",
        "pool",
        "reused",
        "transport",
        "was_heard",
    )

    transport: asyncio.Transport

    def __init__(self, pool: ServerPool) -> None:
        self.pool = pool
        self.exchange: Exchange | None = None
        self.idle_since = 0.0
        #: It has carried an exchange before, so the server may close it at any moment.
        self.reused = False
        #: A byte of this exchange's response has come.
        self.was_heard = False
        self._paused = False
        self._held = b""
        self._interim = 0
        self._head: ResponseHead | None = None
        self._reader: BodyReader | None = None
        #: The last head and what it meant: the same bytes mean the same again.
        self._known_raw = b""
        self._known_head: ResponseHead | None = None

    # -- the exchange's side ----------------------------------------------------------------------
    def begin(self, exchange: Exchange) -> None:
        """Carry this exchange from now on."""
        self.exchange = exchange
        self.was_heard = False
        self._interim = 0
        self._head = None
        self._reader = None

    def hold(self) -> None:
        """The client takes no more for now."""
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def let_go(self) -> None:
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def finish(self, reusable: bool) -> None:
        """The exchange is over, in a good way or not; back to the pool, or closed."""
        self.exchange = None
        self.let_go()
        self.reused = True
        if self._held or self.transport.is_closing():
            reusable = False
        self.pool.give_back(self, reusable)

    def close(self) -> None:
        self.transport.abort()

    # -- asyncio's side ---------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            # Nobody asked: whatever this is, no client may see it.
            self.close()
            return
        self.was_heard = True
        if self._head is not None:
            self._body(exchange, data)
            return
        if self._held:
            data = self._held + data
            self._held = b""
        self._heads(exchange, data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.forget(self)
        exchange = self.exchange
        if exchange is None:
            return
        if self._reader is not None:
            self._reader.end()
            if self._reader.done:
                self._over(exchange, reusable=False)
                return
        self.exchange = None
        self.pool.busy -= 1
        exchange.upstream_lost(self, UPSTREAM_CLOSED)

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.pause_request()

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.resume_request()

    # -- reading ----------------------------------------------------------------------------------
    def _heads(self, exchange: Exchange, data: bytes) -> None:
        """Read heads until the final one; `data` starts where one starts."""
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._held = data
                if len(data) > MOST_HEAD_BYTES:
                    self._invalid(exchange, f"the head is longer than {MOST_HEAD_BYTES} bytes")
                return
            raw, rest = data[: end + 2], data[end + 4 :]
            if raw == self._known_raw and self._known_head is not None:
                head = self._known_head
            else:
                parsed = parse_response_head(raw)
                if isinstance(parsed, str):
                    self._invalid(exchange, parsed)
                    return
                head = parsed
                self._known_raw, self._known_head = raw, head
            if head.status >= 200:
                break
            self._interim += 1
            if head.status == 101 or self._interim > MOST_INTERIM:
                self._invalid(exchange, "an unsolicited or endless interim response")
                return
            if head.status != 100:
                exchange.pass_interim(head)
            data = rest
        self._head = head
        self._reader = reader = head.reader(exchange.method)
        if reader is None:
            self._held = rest
            exchange.respond(head, None, b"")
            self._over(exchange, reusable=head.keep)
            return
        payload, rest = reader.feed(rest)
        if reader.fault is not None:
            self._invalid(exchange, reader.fault)
            return
        self._held = rest
        exchange.respond(head, reader, payload)
        if reader.done:
            self._over(exchange, reusable=head.keep)

    def _body(self, exchange: Exchange, data: bytes) -> None:
        reader, head = self._reader, self._head
        assert reader is not None
        assert head is not None
        payload, self._held = reader.feed(data)
        if payload:
            exchange.relay(payload)
        if reader.fault is not None:
            self._invalid(exchange, reader.fault)
        elif reader.done:
            self._over(exchange, reusable=head.keep)

    def _over(self, exchange: Exchange, reusable: bool) -> None:
        # An exchange that is over may have been ended by its client while the answer was passed on.
        if self.exchange is exchange:
            reusable = reusable and exchange.is_sent
            self.finish(reusable)
            exchange.complete()

    def _invalid(self, exchange: Exchange, words: str) -> None:
        if self.exchange is exchange:
            self._held = b""
            self.finish(reusable=False)
            exchange.upstream_invalid(UPSTREAM_INVALID, words)
