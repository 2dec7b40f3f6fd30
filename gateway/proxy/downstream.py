"""One client connection: heads in, one exchange at a time, answers out in order.

A connection is idle, reading a head, carrying an exchange, reading away the rest of a body that
nobody wants, or lingering: it has answered for the last time and reads on a little, so that the
client gets to see the answer before a reset (RFC 9112, 9.6).

One deadline, looked at by `deadlines`, covers whatever it is waiting for.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final, cast

from gateway.domain.networks import Address, parse_address
from gateway.domain.policy import Policy
from gateway.errors import (
    BAD_PROXY_HEADER,
    BODY_TOO_LARGE,
    DRAINING,
    REQUEST_TIMEOUT,
    TOO_MANY_CONNECTIONS,
    Refusal,
)
from gateway.http1.framing import BodyReader, ChunkedReader, LengthReader
from gateway.http1.head import Fields
from gateway.http1.phases import Phase
from gateway.http1.proxy_protocol import Header, read_header
from gateway.http1.requested import Requested
from gateway.proxy.client import Client
from gateway.proxy.exchange import Exchange
from gateway.proxy.intake import Intake
from gateway.proxy.kernel import has_hung_up, reset_on_close
from gateway.proxy.recheck import recheck

if TYPE_CHECKING:
    from gateway.proxy.context import Context
    from gateway.proxy.gate import Pass
    from gateway.proxy.reply import Told

#: Pipelined bytes that may wait while an exchange is under way; beyond, the client is held back.
MOST_AHEAD_BYTES: Final = 64 * 1024
#: Bytes of an answer that may wait here for the client; beyond, the upstream is held back.
MOST_UNSENT_BYTES: Final = 32 * 1024
#: A body that nobody wants is read away up to this size; a longer one costs its connection.
MOST_DISCARD_BYTES: Final = 64 * 1024
#: How long a connection lingers after its last answer.
LINGER_S: Final = 2.0
#: A body's deadline moves on with each so many bytes: one byte at a time is not progress.
PROGRESS_BYTES: Final = 1024
#: Connections beyond the bound are told so, up to this share of it; further ones are just closed.
TOLD_SHARE: Final = 16


class Downstream(asyncio.Protocol):
    """The protocol of one client connection."""

    __slots__ = (
        "_advancing",
        "_buffer",
        "_discarding",
        "_holds",
        "_intake",
        "_lingering",
        "_loop",
        "_preamble",
        "_progress",
        "_write_paused",
        "client",
        "context",
        "deadline",
        "exchange",
        "key_digest",
        "key_fields",
        "key_id",
        "passed",
        "told",
        "transport",
    )

    transport: asyncio.Transport
    client: Client

    def __init__(self, context: Context) -> None:
        self.context = context
        self.exchange: Exchange | None = None
        self.deadline = inf
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._intake = Intake(context.gate)
        self._advancing = False
        self._discarding: BodyReader | None = None
        self._lingering = False
        self._write_paused = False
        self._holds: set[str] = set()
        #: What the gate found out about the last request that it let pass.
        self.passed: Pass | None = None
        #: What was told to it when it was last limited.
        self.told: Told | None = None
        #: What the gate made of the last block's credential.
        self.key_fields: Fields | None = None
        self.key_id: str | None = None
        self.key_digest = b""
        #: A PROXY protocol header is still to come.
        self._preamble = False
        #: Bytes of the body at which its deadline moves on again.
        self._progress = 0

    # -- asyncio's side ---------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=MOST_UNSENT_BYTES)
        context, policy = self.context, self.context.gate.policy
        context.connections.add(self)
        context.metrics.connections("downstream", "open", 1)
        self._wait(policy.timeouts.header_s)
        self._come_from(parse_address(transport.get_extra_info("peername")[0]), policy)
        self._preamble = policy.proxy_protocol and self.client.is_trusted

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is not None:
            self._during(exchange, data)
        elif self._lingering:
            pass
        else:
            if self._discarding is not None:
                _, data = self._discarding.feed(data)
                if self._discarding.fault is not None:
                    self.transport.abort()
                    return
                if not self._discarding.done:
                    return
                self._discarding = None
            was_empty = not self._buffer
            self._buffer += data
            if self._preamble and not self._read_preamble():
                self._await_head(was_empty)
                return
            self._advance()
            if self._buffer:
                self._await_head(was_empty)

    def eof_received(self) -> bool:
        # A client that closed looks just like one that only stopped sending; waiting to find out
        # would leave its exchange running, so what it asked for is given up, as nginx does. At
        # once: closing would first wait until a client that reads nothing has taken what is unsent.
        if self.exchange is not None:
            self.exchange.abandon("client_gone")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.deadline = inf
        self.context.connections.discard(self)
        self._leave_address()
        if self.context.draining and not self.context.connections:
            self.context.drained.set()
        self.context.metrics.connections("downstream", "open", -1)
        if self.exchange is not None:
            self.exchange.abandon("client_gone")

    def pause_writing(self) -> None:
        self._write_paused = True
        self._wait(self.context.gate.policy.timeouts.write_s)
        if self.exchange is not None and self.exchange.upstream is not None:
            self.exchange.upstream.hold()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self.exchange is None:
            self._wait(self.context.gate.policy.timeouts.idle_s)
            self.let_go("ahead")
            self._advance()
        elif self.exchange.upstream is not None:
            self.deadline = inf
            self.exchange.upstream.let_go()

    # -- the exchange's side ----------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def hold(self, why: str) -> None:
        """Read no more from the client, until every reason is let go."""
        if not self._holds and not self.transport.is_closing():
            self.transport.pause_reading()
        self._holds.add(why)

    def let_go(self, why: str) -> None:
        if why in self._holds:
            self._holds.discard(why)
            if not self._holds and not self.transport.is_closing():
                self.transport.resume_reading()

    def await_body(self, seen: int) -> None:
        """More of the request's body is due. seen: bytes of it that have come.

        The deadline does not move with every byte: a body that drips would hold its place for ever.
        """
        if seen >= self._progress or self.deadline == inf:
            self._progress = seen + PROGRESS_BYTES
            self._wait(self.context.gate.policy.timeouts.body_s)

    def await_upstream(self, seconds: float) -> None:
        """The answer's first byte is due within this time, or room for more of the request."""
        self.deadline = self._loop.time() + seconds

    def relaying(self) -> None:
        """The answer has begun. It may take as long as it likes, if the client takes it."""
        if not self._write_paused:
            self.deadline = inf
        elif self.exchange is not None and self.exchange.upstream is not None:
            self.exchange.upstream.hold()

    def take_early(self) -> bytes:
        """Hand over what has come; from here on a tunnel reads the connection."""
        early, self._buffer = self._buffer, b""
        self.deadline = inf
        self.let_go("ahead")
        return early

    def may_discard(self, exchange: Exchange) -> bool:
        """Is what is left of its body short and sure to come, so that it can be read away?"""
        reader = exchange.reader
        return (
            isinstance(reader, LengthReader)
            and reader.left <= MOST_DISCARD_BYTES
            and not exchange.fields.expects
        )

    def exchange_over(self, exchange: Exchange) -> None:
        """The answer is out: on to the next request, or good-bye."""
        self.exchange = None
        if self._holds:
            for why in tuple(self._holds):
                self.let_go(why)
        reader = exchange.reader
        unread = reader is not None and not reader.done
        if not exchange.keep or self.context.draining:
            self._close(linger=unread or exchange.verdict is not None)
            return
        if reader is not None and unread:
            _, self._buffer = reader.feed(self._buffer)
            self._discarding = None if reader.done else reader
        self.deadline = self._loop.time() + self.context.gate.policy.timeouts.idle_s
        if self._buffer:
            self._advance()
            if self._buffer and self.exchange is None:
                self._wait(self.context.gate.policy.timeouts.header_s)

    def tear_down(self) -> None:
        """Close at once, and so that what has been sent cannot look complete."""
        exchange = self.exchange
        if exchange is not None and not exchange.is_over:
            # Cut off by the gateway's end. It has to be accounted for first, and comes back here.
            exchange.abandon(DRAINING.reason)
            return
        self.exchange = None
        if exchange is not None and (exchange.to_client == "close" or self._write_paused):
            # A close would end this body in good order; only a reset says that it is cut short. And
            # for a client that takes nothing, the kernel would keep what is unsent after a close.
            reset_on_close(self.transport)
        self.transport.abort()

    # -- where it comes from ----------------------------------------------------------------------
    def _come_from(self, address: Address, policy: Policy) -> None:
        """Take this address for the other end's, and hold it to the bounds on connections."""
        context, bounds = self.context, policy.bounds
        scheme = "http" if self.transport.get_extra_info("ssl_object") is None else "https"
        self.client = client = Client(address, scheme, policy)
        of_address = context.per_address[client.ip] = context.per_address.get(client.ip, 0) + 1
        if len(context.connections) > bounds.connections + bounds.connections // TOLD_SHARE:
            context.metrics.refused(TOO_MANY_CONNECTIONS.reason)
            self.transport.abort()
        elif len(context.connections) > bounds.connections or (
            of_address > bounds.connections_per_address and not client.is_trusted
        ):
            self._refuse_unread(TOO_MANY_CONNECTIONS)

    def _leave_address(self) -> None:
        per_address, ip = self.context.per_address, self.client.ip
        per_address[ip] -= 1
        if not per_address[ip]:
            del per_address[ip]

    def _read_preamble(self) -> bool:
        """Read the PROXY protocol header off the buffer; False: no request can follow, or yet."""
        header = read_header(self._buffer)
        if isinstance(header, str):
            self._preamble = False
            self._refuse_unread(BAD_PROXY_HEADER)
            return False
        if not isinstance(header, Header):
            return False
        self._preamble = False
        self._buffer = self._buffer[header.length :]
        if header.source is not None:
            self._leave_address()
            self._come_from(parse_address(header.source[0]), self.context.gate.policy)
        return self.exchange is None

    # -- reading heads ----------------------------------------------------------------------------
    def _await_head(self, has_begun: bool) -> None:
        """Bytes are left that no exchange has taken up. has_begun: they are the first of a head."""
        if self.exchange is None and has_begun:
            self._wait(self.context.gate.policy.timeouts.header_s)
        if len(self._buffer) > MOST_AHEAD_BYTES:
            self.hold("ahead")

    def _during(self, exchange: Exchange, data: bytes) -> None:
        """Bytes that come while an exchange is under way: of its body, or of what follows."""
        if exchange.reader is not None and not exchange.reader.done:
            data = exchange.feed(data)
        self._buffer += data
        if len(self._buffer) > MOST_AHEAD_BYTES:
            self.hold("ahead")

    def _advance(self) -> None:
        """Take up requests from the buffer, while one can be: an exchange may end at once."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._buffer and self.exchange is None and self._is_free():
                taken = self._intake.read(self._buffer)
                if taken is None:
                    break
                if isinstance(taken, Refusal):
                    self._refuse_unread(taken)
                    break
                requested, fields, self._buffer = taken
                begin = self._start if fields.bare else self._begin
                begin(requested, fields, self.context.gate.policy)
        finally:
            self._advancing = False

    def _is_free(self) -> bool:
        """May a request be taken up, now that no exchange is under way?"""
        return not (
            self._lingering
            or self._write_paused
            or self._discarding is not None
            or self.transport.is_closing()
        )

    def _begin(self, requested: Requested, fields: Fields, policy: Policy) -> None:
        reader: BodyReader | None = None
        if isinstance(fields.websocket, Refusal) and requested.method == "GET":
            self._start(_refused(requested, fields.websocket), fields, policy)
            return
        if fields.chunked:
            reader = ChunkedReader()
        elif fields.length is not None:
            if fields.length > policy.bounds.body_bytes:
                self._start(_refused(requested, BODY_TOO_LARGE), fields, policy)
                return
            reader = LengthReader(fields.length)
        exchange = self._start(requested, fields, policy, reader)
        if self._buffer and self.exchange is exchange and reader is not None and not reader.done:
            rest, self._buffer = self._buffer, b""
            self._buffer = exchange.feed(rest) + self._buffer

    def _start(
        self,
        requested: Requested,
        fields: Fields,
        policy: Policy,
        reader: BodyReader | None = None,
    ) -> Exchange:
        client = self.client
        if client.policy is not policy:
            client.take_up(policy)
        # Who is not trusted speaks for itself alone: most do, and it costs no call.
        if client.is_trusted:
            ip, subject = client.origin(fields)
        else:
            ip, subject = client.ip, client.subject
        exchange = self.exchange = Exchange(self, policy, requested, fields, reader, ip, subject)
        context = self.context
        context.metrics.inflight += 1
        self.deadline = inf
        context.gate.judge(exchange)
        return exchange

    def _refuse_unread(self, refusal: Refusal) -> None:
        """Refuse what could not be read as a request; nothing after it can be, either."""
        self._buffer = b""
        requested = _refused(Requested("", 1, ""), refusal)
        self._start(requested, Fields(close=True), self.context.gate.policy)

    # -- ends -------------------------------------------------------------------------------------
    def check_deadline(self, now: float) -> None:
        """Act if what the connection waits for has not come in time."""
        exchange = self.exchange
        if exchange is not None and exchange.phase >= Phase.RELAYING:
            recheck(exchange)
            if exchange.tunnel is not None and not exchange.is_over:
                exchange.tunnel.check(now)
        if exchange is not None and self._holds and has_hung_up(self.transport):
            exchange.abandon("client_gone")
        if now < self.deadline:
            return
        exchange = self.exchange
        if exchange is None:
            if self._buffer and not self._lingering and not self._write_paused:
                self._refuse_unread(REQUEST_TIMEOUT)
            else:
                self.transport.abort()
        elif self._write_paused:
            exchange.abandon("write_stalled")
        elif exchange.is_sent or self._holds:
            exchange.response_is_late()
        else:
            exchange.refuse_in_body(REQUEST_TIMEOUT)

    def drain(self) -> None:
        """Close if idle; an exchange that is under way closes it when it is over."""
        if self.exchange is None and not self._lingering:
            self.transport.close()

    def _wait(self, seconds: float) -> None:
        self.deadline = self._loop.time() + seconds

    def _close(self, linger: bool) -> None:
        """Close; where the client may still be sending, let it read the answer first."""
        self._buffer = b""
        if not linger or not self.transport.can_write_eof():
            # What is still unsent may take so long; a client that reads nothing is then cut off.
            self._wait(self.context.gate.policy.timeouts.write_s)
            self.transport.close()
            return
        self._lingering = True
        self.transport.write_eof()
        self._wait(LINGER_S)


def _refused(requested: Requested, refusal: Refusal) -> Requested:
    return Requested(requested.method, requested.minor, requested.path, refusal=refusal)
