"""One client connection: reads heads, runs one exchange at a time, sends answers in order.

Its states are those of `client_states`. It has one deadline, for whatever it waits for;
`deadlines` checks it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from math import inf
from time import perf_counter
from typing import Final, cast

from gateway.domain.policy import Policy
from gateway.errors import (
    BAD_PROXY_HEADER,
    BODY_TOO_LARGE,
    BUFFERS_FULL,
    KEY_MISSING,
    REQUEST_TIMEOUT,
    STORE_UNAVAILABLE,
    TOO_MANY_CONNECTIONS,
    Refusal,
)
from gateway.http1.framing import BodyReader, ChunkedReader, LengthReader
from gateway.http1.head import Fields, received_credential
from gateway.http1.phases import Phase
from gateway.proxy.client import Client
from gateway.proxy.client_states import Event, PauseReason, State, steps
from gateway.proxy.connection_cache import ConnectionCache
from gateway.proxy.connections import HEAVY_BYTES, Entry
from gateway.proxy.context import Context
from gateway.proxy.cross_origin import checked
from gateway.proxy.exchange import Exchange, Framing
from gateway.proxy.intake import HEAD_SLACK_BYTES, Intake
from gateway.proxy.kernel import AckProgress, end_if_gone, has_hung_up, reset_on_close
from gateway.proxy.mcp_exchange import McpExchange, TracedMcpExchange
from gateway.proxy.proxy_protocol import Header, read_header
from gateway.proxy.recheck import recheck
from gateway.proxy.tls import TlsTransport
from gateway.proxy.traced_exchange import TracedExchange
from gateway.routing import Requested, refused

log = logging.getLogger("gateway.proxy")

#: The most that one read of a socket returns: of heads, and of a body.
HEAD_READ_BYTES: Final = 16 * 1024
BODY_READ_BYTES: Final = 64 * 1024
#: Pipelined bytes that may wait during an exchange; beyond this, reading from the client pauses.
MOST_AHEAD_BYTES: Final = 16 * 1024
#: Unsent bytes of answers; beyond this, reading from the upstream pauses.
MOST_UNSENT_BYTES: Final = 32 * 1024
#: An unused body of up to this size is read and discarded; for a longer one the connection closes.
MOST_DISCARD_BYTES: Final = 64 * 1024
#: How long a connection lingers after its last answer.
LINGER_S: Final = 2.0
#: A body's deadline is extended after this many bytes: one byte at a time is not progress.
PROGRESS_BYTES: Final = 1024
#: How long an idle connection may still send a request while the worker drains.
LAST_REQUEST_S: Final = 1.0
#: A decision that takes longer than this is a fault of the gateway.
MOST_JUDGING_S: Final = 10.0

#: All connections are read into this buffer, and the bytes copied out before the next read: a
#: connection keeps only its own unprocessed bytes.
_BUFFER: Final = bytearray(BODY_READ_BYTES)
_VIEW: Final = memoryview(_BUFFER)
_HEAD_VIEW: Final = _VIEW[:HEAD_READ_BYTES]


_PROXIED: Final = steps(Event.PROXIED)
_INTRODUCED: Final = steps(Event.INTRODUCED)
_BEGUN: Final = steps(Event.BEGUN)
_QUEUED: Final = steps(Event.QUEUED)
_RESUMED: Final = steps(Event.RESUMED)
_ANSWERED: Final = steps(Event.ANSWERED)
_LEFT_OVER: Final = steps(Event.LEFT_OVER)
_DISCARDED: Final = steps(Event.DISCARDED)
_LAST_ANSWERED: Final = steps(Event.LAST_ANSWERED)
_CLOSED: Final = steps(Event.CLOSED)


class ClientConnection(asyncio.BufferedProtocol):
    """The protocol of one client connection."""

    __slots__ = (
        "_ack_progress",
        "_advancing",
        "_at",
        "_buffer",
        "_discarding",
        "_intake",
        "_last_seen",
        "_loop",
        "_pause_reasons",
        "_progress",
        "_state",
        "_subject",
        "_write_paused",
        "cache",
        "client",
        "context",
        "deadline",
        "exchange",
        "transport",
    )

    transport: asyncio.Transport
    client: Client

    def __init__(self, context: Context) -> None:
        self.context = context
        self.exchange: Exchange | None = None
        self.deadline = inf
        self._loop = asyncio.get_running_loop()
        #: Unprocessed bytes begin at `_at` of this.
        self._buffer = b""
        self._at = 0
        #: The subject that the connection is counted under; None: it is not counted.
        self._subject: str | None = None
        self._intake = Intake(context.gate)
        self._advancing = False
        #: The last progress of a relayed answer: its exchange, bytes passed, and the time.
        self._last_seen: tuple[Exchange, int, float] | None = None
        self._state: int = State.READY
        self._discarding: BodyReader | None = None
        self._write_paused = False
        #: Detects progress while writing to the client or the upstream is paused.
        self._ack_progress: AckProgress | None = None
        #: Why reading is paused: bits of `PauseReason`.
        self._pause_reasons = 0
        self.cache = ConnectionCache()
        #: The body's deadline is extended when this many bytes have arrived.
        self._progress = 0

    # -- called by asyncio ------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=MOST_UNSENT_BYTES)
        context, policy = self.context, self.context.gate.policy
        context.connections.add(self)
        # This includes the TLS handshake.
        self._wait(policy.timeouts.header_s)
        peer = transport.get_extra_info("peername")
        if peer is None:  # reset before it was accepted: the kernel has no address any more
            self._abort()
            return
        end_if_gone(self.transport, policy.timeouts.write_s)
        self._set_client(peer[0], policy)
        if policy.proxy_protocol and self.client.is_trusted and self._state == State.READY:
            self._state = _PROXIED[self._state]
            if isinstance(self.transport, TlsTransport):
                self.transport.expect_preamble(self._read_before_tls)

    def handshake_begins(self) -> None:
        """Have the memory that TLS uses for the connection counted."""
        self.context.connections.mark(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read, no larger than what may be kept."""
        exchange = self.exchange
        if exchange is None:
            if not self._buffer:
                return _HEAD_VIEW
        elif (reader := exchange.reader) is not None and not reader.done:
            return _VIEW[: max(reader.wanted, HEAD_READ_BYTES)]
        return _HEAD_VIEW[: max(self._most_ahead() - len(self._buffer), 1)]

    def _most_ahead(self) -> int:
        """How many unprocessed bytes it may keep: a whole head while it waits for one."""
        if self._state != State.READY or self._write_paused:
            return MOST_AHEAD_BYTES
        bounds = self.context.gate.policy.bounds
        return bounds.url_bytes + bounds.headers_bytes + HEAD_SLACK_BYTES

    def buffer_updated(self, nbytes: int) -> None:
        data = _VIEW[:nbytes].tobytes()
        if self._state:  # it is not READY
            if self.exchange is not None:
                self._during(self.exchange, data)
                return
            data = self._set_aside(data)
            if not data:
                return
        has_begun = not self._buffer
        self._buffer = data if has_begun else self._buffer + data
        if not self._state and not self._write_paused and self._advance(1):
            self._queue()
        if self._buffer:
            self._limit_ahead()
            self._await_head(has_begun)

    def eof_received(self) -> bool:
        # A client that closed looks like one that only stopped sending. To wait and see would leave
        # its exchange running, so the exchange is abandoned, as nginx does it. At once: a close
        # would wait for the unsent bytes to be read, by a client that may not read.
        if self.exchange is not None:
            self.exchange.abandon("client_gone")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = _CLOSED[self._state]
        self.deadline = inf
        self._buffer = b""
        self._last_seen = None  # it refers to the exchange, which refers to the connection
        self.context.connections.discard(self)
        if self._subject is not None:
            self.context.connections.leave(self._subject)
        if self.exchange is not None:
            self.exchange.abandon("client_gone")

    def pause_writing(self) -> None:
        self._write_paused = True
        self._ack_progress = None
        self._wait(self.context.gate.policy.timeouts.write_s)
        self.context.connections.mark(self)
        exchange = self.exchange
        # The end of an answer is written when its upstream connection may serve another exchange.
        if (
            exchange is not None
            and exchange.upstream is not None
            and exchange.upstream.exchange is exchange
        ):
            exchange.upstream.pause()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self.exchange is None:
            self._wait(self.context.gate.policy.timeouts.idle_s)
            self._serve()
            if self._buffer:
                self._await_head(True)
        elif self.exchange.upstream is not None:
            self.deadline = inf
            self.exchange.upstream.resume()

    # -- called by the exchange -------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def pause(self, reason: int = PauseReason.UPSTREAM) -> None:
        """Pause reading from the client, until `resume` was called for every reason."""
        is_first = not self._pause_reasons
        self._pause_reasons |= reason  # before `mark`, which may end the exchange and resume
        if is_first and not self.transport.is_closing():
            self.transport.pause_reading()
            self.context.connections.mark(self)

    def resume(self, reason: int = PauseReason.UPSTREAM) -> None:
        """Remove these reasons; resume reading if none is left."""
        if self._pause_reasons & reason:
            self._pause_reasons &= ~reason
            if not self._pause_reasons and not self.transport.is_closing():
                self.transport.resume_reading()

    def yield_turn(self) -> None:
        """Pause reading until the next turn of the loop, after the other connections."""
        self.pause(PauseReason.TURN)
        self._loop.call_soon(self.resume, PauseReason.TURN)

    @property
    def takes_more(self) -> bool:
        """Can more of the answer be written?"""
        return not self._write_paused

    def await_body(self, seen: int) -> None:
        """Set the deadline for more of the request's body. seen: bytes of it so far.

        Not every byte extends the deadline: a slow enough body would keep its connection for ever.
        """
        if seen >= self._progress or self.deadline == inf:
            self._progress = seen + PROGRESS_BYTES
            self._wait(self.context.gate.policy.timeouts.body_s)

    def collecting(self, kept: int) -> None:
        """Set the same deadline, and have what is kept of the body counted. kept: bytes of it"""
        self.await_body(kept)
        if kept > HEAVY_BYTES:
            self.context.connections.mark(self)

    def keeping(self, kept: int) -> None:
        """Have what is kept of an answer counted. kept: bytes of it"""
        if kept > HEAVY_BYTES:
            self.context.connections.mark(self)

    def await_nothing(self) -> None:
        """There is no deadline here: the gate decides, or a connection is being opened."""
        self.deadline = inf

    def await_upstream(self, seconds: float) -> None:
        """Set the deadline for the answer's first byte, or for the upstream to take more."""
        self.deadline = self._loop.time() + seconds

    def relaying(self) -> None:
        """The answer has begun. It has no deadline as long as the client reads it."""
        if not self._write_paused:
            self.deadline = inf
        elif self.exchange is not None and self.exchange.upstream is not None:
            self.exchange.upstream.pause()

    def take_early(self) -> bytes:
        """Return the unprocessed bytes; a tunnel reads the connection from here on."""
        self.deadline = inf
        early = self._rest()
        self.resume(PauseReason.AHEAD)
        return early

    def may_discard(self, exchange: Exchange) -> bool:
        """Is the rest of its body short and certain to arrive, so that it can be discarded?"""
        reader = exchange.reader
        return (
            isinstance(reader, LengthReader)
            and reader.left <= MOST_DISCARD_BYTES
            and not exchange.fields.expects
        )

    def exchange_over(self, exchange: Exchange) -> None:
        """The answer was sent: go on to the next request, or close."""
        self.exchange = None
        if self._pause_reasons:
            self.resume(PauseReason.REQUEST | PauseReason.UPSTREAM)
        if exchange.fields is not self._intake.fields:
            # The head was large: an idle connection keeps little.
            self.cache.clear()
        reader = exchange.reader
        if not exchange.keep:
            is_unread = reader is not None and not reader.done
            self._close(linger=is_unread or exchange.refusal is not None)
            return
        if reader is not None and not reader.done:
            _, self._buffer = reader.feed(self._rest())
        if reader is None or reader.done:
            self._state = _ANSWERED[self._state]
        else:
            self._discarding = reader
            self._state = _LEFT_OVER[self._state]
        if not self._write_paused:
            self.deadline = self._loop.time() + self.context.gate.policy.timeouts.idle_s
        if self._buffer and not self._advancing:
            self._serve()
            if self._buffer and self.exchange is None:
                self._await_head(True)

    def tear_down(self) -> None:
        """Close at once, so that a partial answer cannot look complete."""
        exchange = self.exchange
        if exchange is not None and not exchange.is_over:
            # The gateway stops. `abandon` accounts for the exchange and calls this again.
            exchange.abandon("draining")
            return
        self.exchange = None
        if exchange is not None and (exchange.framing == Framing.UNTIL_CLOSE or self._write_paused):
            # A close would end this body properly; only a reset says that it is incomplete. And
            # for a client that does not read, the kernel would keep unsent bytes after a close.
            reset_on_close(self.transport)
        self._abort()

    @property
    def is_busy(self) -> bool:
        """Does it carry a request?"""
        return self.exchange is not None

    def held_bytes(self) -> int:
        """Bytes that this process holds for the connection and its exchange."""
        held = len(self._buffer) + self.transport.get_write_buffer_size()
        if isinstance(self.transport, TlsTransport):
            held += self.transport.held_bytes()
        exchange = self.exchange
        if exchange is not None:
            held += sum(map(len, exchange.pending))
            held += exchange.kept_bytes
            if exchange.body is not None:
                held += len(exchange.body)
            if exchange.upstream is not None:
                held += exchange.upstream.transport.get_write_buffer_size()
        return held

    def is_known(self) -> bool:
        """Was its last request admitted by a valid key?"""
        return self.cache.identity is not None

    def shed(self) -> None:
        """Close it, after an answer if possible: the worker's connections hold too many bytes."""
        exchange = self.exchange
        if exchange is None:
            reset_on_close(self.transport)
            self._abort()
        elif exchange.phase < Phase.WAITING and not self.transport.get_write_buffer_size():
            # It is in no upstream's hands, so it may be sent again; and an answer needs no memory.
            exchange.answer_refusal(BUFFERS_FULL)
        else:
            exchange.abandon("shed")

    # -- the client's address ---------------------------------------------------------------------
    def _set_client(self, address: str, policy: Policy) -> None:
        """Set the client's address, and enforce the bounds on connections."""
        # Before the handshake there is no object of it.
        is_tls = self.transport.get_extra_info("sslcontext") is not None
        tls = partial(self.transport.get_extra_info, "ssl_object") if is_tls else None
        self.client = client = Client(address, "https" if is_tls else "http", policy, tls)
        self._subject = client.subject
        entry = self.context.connections.enter(
            self._subject, policy.bounds, is_trusted=client.is_trusted
        )
        if entry is Entry.SERVED:
            return
        if entry is Entry.REFUSED and not is_tls:
            self._refuse_unread(TOO_MANY_CONNECTIONS)
        else:
            # An answer over TLS would cost a handshake.
            self.context.metrics.refused(TOO_MANY_CONNECTIONS.reason)
            self._abort()

    def _read_preamble(self) -> bool:
        """Read the PROXY protocol header; False: it is incomplete, or no request may follow."""
        header = read_header(self._buffer)
        if isinstance(header, str):
            self._refuse_unread(BAD_PROXY_HEADER)
            return False
        if not isinstance(header, Header):
            return False
        self._buffer = self._buffer[header.length :]
        self._introduce(header)
        return self.exchange is None

    def _read_before_tls(self, data: bytes) -> int:
        """Read the PROXY protocol header that precedes a handshake; its length; 0: incomplete."""
        header = read_header(data)
        if isinstance(header, str):
            # There is no TLS yet by which it could be answered.
            self.context.metrics.refused(BAD_PROXY_HEADER.reason)
            self._abort()
        if not isinstance(header, Header):
            return 0
        self._introduce(header)
        return header.length

    def _introduce(self, header: Header) -> None:
        self._state = _INTRODUCED[self._state]
        if header.source is not None:
            if self._subject is not None:
                self.context.connections.leave(self._subject)
            self._set_client(header.source[0], self.context.gate.policy)

    # -- reading heads ----------------------------------------------------------------------------
    def _rest(self) -> bytes:
        """Take the unprocessed bytes."""
        rest = self._buffer[self._at :]
        self._buffer, self._at = b"", 0
        return rest

    def _await_head(self, has_begun: bool) -> None:
        """Set the deadline for a head, if its first bytes just arrived (has_begun)."""
        if has_begun and self.exchange is None and not self._write_paused:
            self._wait(self.context.gate.policy.timeouts.header_s)

    def _during(self, exchange: Exchange, data: bytes) -> None:
        """Process bytes that arrive during an exchange: of its body, or of the next request."""
        if exchange.reader is not None and not exchange.reader.done:
            data = exchange.feed(data)
            if not data:
                return
        self._buffer += data
        self._limit_ahead()

    def _set_aside(self, data: bytes) -> bytes:
        """Process bytes that belong to no request; return the others."""
        if self._state >= State.LINGERING:
            return b""
        if self._state == State.DISCARDING:
            return self._discard(data)
        if self._state == State.PREAMBLE:
            has_begun = not self._buffer
            self._buffer += data
            if self._read_preamble():
                return self._rest()
            self._await_head(has_begun)
            return b""
        return data

    def _discard(self, data: bytes) -> bytes:
        """Discard the rest of a body; return what follows it."""
        reader = self._discarding
        assert reader is not None
        _, data = reader.feed(data)
        if reader.fault is not None:
            self._abort()
            return b""
        if reader.done:
            self._discarding = None
            self._state = _DISCARDED[self._state]
        return data

    def _limit_ahead(self) -> None:
        """Pause reading while enough pipelined bytes wait; never in the middle of the next head.

        There too if the client does not read its answers: in all, it may hold little memory.
        """
        ahead = len(self._buffer)
        if ahead > HEAVY_BYTES:
            self.context.connections.mark(self)
        if self._is_free() and self.transport.get_write_buffer_size() < MOST_AHEAD_BYTES:
            self.resume(PauseReason.AHEAD)
        elif ahead >= MOST_AHEAD_BYTES:
            self.pause(PauseReason.AHEAD)
        elif ahead < MOST_AHEAD_BYTES // 2:
            self.resume(PauseReason.AHEAD)

    def _serve(self) -> None:
        """Begin the next pipelined request."""
        if self._is_free() and self._advance(1):
            self._queue()
        self._limit_ahead()

    def _queue(self) -> None:
        """Add the connection to the backlog: it has more pipelined requests."""
        self._state = _QUEUED[self._state]
        self.context.backlog.add(self)

    def serve_queued(self, most: int) -> bool:
        """Serve at most `most` pipelined requests; True: there are more."""
        if self._state != State.QUEUED:
            return False  # it was closed meanwhile
        self._state = _RESUMED[self._state]
        more = self._is_free() and self._advance(most)
        if more:
            self._state = _QUEUED[self._state]
        self._limit_ahead()
        return more

    def _advance(self, most: int) -> bool:
        """Begin at most `most` requests, while each ends at once; True: more can begin.

        Call it only if `_is_free`.
        """
        if self._advancing:
            return False
        self._advancing = True
        try:
            while self._buffer:
                if not most:
                    return True
                most -= 1
                taken = self._intake.read(self._buffer, self._at)
                if taken is None:
                    return False
                if isinstance(taken, Refusal):
                    self._refuse_head(taken)
                    return False
                requested, fields, at = taken
                if at == len(self._buffer):
                    self._buffer = b""
                else:
                    self._at = at
                begin = self._start if fields.bare else self._begin
                begin(requested, fields, self.context.gate.policy)
                if not self._buffer or not self._is_free():
                    return False
        except Exception:
            self.failed()
        finally:
            self._advancing = False
            if self._at:
                self._buffer, self._at = self._buffer[self._at :], 0
        return False

    def failed(self) -> None:
        """Handle an unexpected exception: only this request fails."""
        if self.exchange is not None and not self.exchange.is_over:
            self.exchange.failed()
        else:
            log.exception("client connection failed")
            self._abort()

    def _is_free(self) -> bool:
        """Can a request begin now?"""
        return (
            self._state == State.READY
            and not self._write_paused
            and not self.transport.is_closing()
        )

    def _begin(self, requested: Requested, fields: Fields, policy: Policy) -> None:
        reader: BodyReader | None = None
        if fields.fault is not None:
            self._start(refused(requested, fields.fault), fields, policy)
            return
        if isinstance(fields.websocket, Refusal) and requested.method == "GET":
            self._start(refused(requested, fields.websocket), fields, policy)
            return
        if fields.counted is not None:
            requested = checked(requested, fields, self.client, self.context.gate)
        if fields.chunked:
            reader = ChunkedReader()
        elif fields.length is not None:
            if fields.length > (requested.route.body_bytes or policy.bounds.body_bytes):
                self._start(refused(requested, BODY_TOO_LARGE), fields, policy)
                return
            reader = LengthReader(fields.length)
        exchange = self._start(requested, fields, policy, reader)
        is_due = self._buffer and self.exchange is exchange
        if is_due and reader is not None and not reader.done:
            self._buffer = exchange.feed(self._rest())

    def _start(
        self,
        requested: Requested,
        fields: Fields,
        policy: Policy,
        reader: BodyReader | None = None,
    ) -> Exchange:
        client = self.client
        if client.policy is not policy:
            client.use(policy)
        # Only a trusted proxy names another address. Most clients are none: this saves a call.
        if client.is_trusted:
            ip, subject = client.origin(fields)
        else:
            ip, subject = client.ip, client.subject
        context = self.context
        begin: type[Exchange] = Exchange if context.tracer is None else TracedExchange
        mcp = requested.route.mcp
        if mcp is not None:
            begin = McpExchange if context.tracer is None else TracedMcpExchange
        exchange = self.exchange = begin(
            self, policy, requested, fields, reader, client, ip, subject
        )
        self._state = _BEGUN[self._state]
        context.metrics.inflight += 1
        self.deadline = inf
        if mcp is not None and isinstance(reader, LengthReader):
            self._feed_whole(exchange, reader.left)
        context.gate.judge(exchange)
        return exchange

    def _feed_whole(self, exchange: Exchange, length: int) -> None:
        """Feed a body that came with its head: the gate, which needs it, may decide at once."""
        if length <= len(self._buffer) - self._at:
            self._buffer = exchange.feed(self._rest())

    def _refuse_head(self, refusal: Refusal) -> None:
        """Refuse a head; if a key was received with it, the answer reports its limits."""
        self._refuse_unread(refusal, received_credential(self._rest()))

    def _refuse_unread(self, refusal: Refusal, credential: bytes | Refusal = KEY_MISSING) -> None:
        """Refuse bytes that are not a request; nothing after them can be one."""
        self._rest()
        requested = refused(Requested("", 1, ""), refusal)
        fields = Fields(close=True, credential=credential)
        self._start(requested, fields, self.context.gate.policy)

    # -- ends -------------------------------------------------------------------------------------
    def check_deadline(self, now: float) -> None:
        """Act if the deadline has passed."""
        exchange = self.exchange
        if exchange is not None:
            self._check_exchange(exchange, now)
        else:
            self._last_seen = None
            if self.context.draining and self._is_idle():
                # Its last answer may have begun before the drain, without `Connection: close`.
                self.deadline = min(self.deadline, now + LAST_REQUEST_S)
        if (
            self._write_paused
            or self._pause_reasons
            or self._state == State.LINGERING
            or self.transport.is_closing()
        ):
            self._check_progress()
        exchange = self.exchange
        if exchange is not None and exchange.is_out_of_time:
            exchange.end_late()
            return
        if now < self.deadline:
            return
        if exchange is None:
            if self._buffer and self._state < State.LINGERING and not self._write_paused:
                self._refuse_head(self._intake.fault or REQUEST_TIMEOUT)
            else:
                self._abort()
        elif self._write_paused:
            exchange.abandon("write_stalled")
        elif exchange.phase != Phase.READING and (exchange.is_sent or self._pause_reasons):
            exchange.response_is_late()
        else:
            exchange.refuse_in_body(REQUEST_TIMEOUT)

    def _check_exchange(self, exchange: Exchange, now: float) -> None:
        """Check, a few times a second, for faults of the exchange that cause no event."""
        if exchange.phase >= Phase.RELAYING:
            recheck(exchange, self.context.gate)
            if exchange.tunnel is None:
                exchange.tick(now)
                self._check_silence(exchange, now)
            elif not exchange.is_over:
                exchange.tunnel.check(now)
        elif exchange.phase == Phase.JUDGING and (
            perf_counter() - exchange.judged_from > MOST_JUDGING_S
        ):
            log.error("request %s: no decision in time", exchange.request_id.decode("ascii"))
            exchange.answer_refusal(STORE_UNAVAILABLE)
        if self._pause_reasons and not exchange.is_over and has_hung_up(self.transport):
            exchange.abandon("client_gone")

    def _check_silence(self, exchange: Exchange, now: float) -> None:
        """Abandon the exchange if the upstream stays silent within its answer."""
        passed = exchange.passed_bytes
        last = self._last_seen
        if last is None or last[:2] != (exchange, passed) or self._write_paused:
            self._last_seen = exchange, passed, now
        elif now - last[2] >= exchange.policy.timeouts.stream_s:
            exchange.abandon("upstream_silent")

    def _check_progress(self) -> None:
        """Extend the deadline while the receiver takes bytes: it is slow, not stalled.

        The receiver is the client, or the upstream for a request's body.
        """
        exchange, transport = self.exchange, self.transport
        if exchange is None:
            if self._pause_reasons:
                self._limit_ahead()
            if not transport.get_write_buffer_size():
                return
        elif not self._write_paused:
            upstream = exchange.upstream
            if upstream is None or not upstream.is_stalled:
                return
            transport = upstream.transport
        if self._ack_progress is None:
            self._ack_progress = AckProgress()
        if self._ack_progress.has_advanced(transport):
            self._wait(self.context.gate.policy.timeouts.write_s)

    def drain(self) -> bool:
        """Begin to drain: close after the request in progress; True: there is, or may be, one.

        A connection without a whole request yet is answered if that arrives within the deadline
        for a head. An idle one may have its next request on the way, and is answered if that
        arrives soon.
        """
        if self._state in {State.BUSY, State.LINGERING}:
            return True
        if self._is_idle():
            self._wait(LAST_REQUEST_S)
            return False
        return True

    def _is_idle(self) -> bool:
        """Was a request answered, and has no byte arrived since?"""
        return (
            self._state == State.READY
            and self._intake.has_read
            and not self._buffer
            and not self._write_paused
        )

    def _wait(self, seconds: float) -> None:
        self.deadline = self._loop.time() + seconds

    def _close(self, linger: bool) -> None:
        """Close; if the client may still be sending, linger so that it can read the answer."""
        self._rest()
        if not linger or not self.transport.can_write_eof():
            # The deadline for unsent bytes; after it, a client that does not read is cut off.
            self._wait(self.context.gate.policy.timeouts.write_s)
            self._state = _CLOSED[self._state]
            self.transport.close()
            return
        self._state = _LAST_ANSWERED[self._state]
        self.transport.write_eof()
        self._wait(LINGER_S)

    def _abort(self) -> None:
        """Close at once; unsent bytes are lost."""
        self._state = _CLOSED[self._state]
        self.transport.abort()
