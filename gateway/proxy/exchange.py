"""One request and its response: from the gate to the last byte, and into the account.

Its phases are those of `http1.phases`. It stands between one client connection and one upstream
connection and holds either back while the other is slow. Nothing of a body is kept but what has
arrived before there was a place to put it.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import Final, Protocol

from gateway.domain.limits import Decision
from gateway.domain.policy import Policy
from gateway.errors import (
    BAD_CHUNK,
    BODY_TOO_LARGE,
    INTERNAL,
    RATE_LIMITED,
    STORE_UNAVAILABLE,
    UPSTREAM_TIMEOUT,
    Refusal,
)
from gateway.http1.framing import (
    LAST_CHUNK,
    MANY_CHUNKS,
    BodyReader,
    ChunkedReader,
    LengthReader,
    chunk,
)
from gateway.http1.head import Fields
from gateway.http1.phases import Event, Phase, Steps
from gateway.http1.response import ResponseHead
from gateway.proxy import own, reply
from gateway.proxy.client import Client
from gateway.proxy.client_states import Held
from gateway.proxy.connection_cache import ConnectionCache
from gateway.proxy.context import Context
from gateway.proxy.forward import request_head
from gateway.proxy.request import Request
from gateway.proxy.tunnel import Side, Tunnel
from gateway.proxy.upstream_connection import UpstreamConnection
from gateway.routing import Requested

log = logging.getLogger("gateway.proxy")

#: RFC 9110, 9.2.2. Acting twice on one of these is as good as once.
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})

_ADMITTED = Steps(Event.ADMITTED)
_CONNECTED = Steps(Event.CONNECTED)
_RESENT = Steps(Event.RESENT)
_RESPONDED = Steps(Event.RESPONDED)
_SWITCHED = Steps(Event.SWITCHED)
_ANSWERED = Steps(Event.ANSWERED)
_COMPLETED = Steps(Event.COMPLETED)
_ABANDONED = Steps(Event.ABANDONED)


class Framing:
    """How the answer's body is framed for the client."""

    AS_IS: Final = 0
    CHUNKED: Final = 1
    UNTIL_CLOSE: Final = 2


class ClientSide(Side, Protocol):
    """The client connection, as an exchange knows it."""

    transport: asyncio.Transport
    context: Context
    cache: ConnectionCache

    @property
    def takes_more(self) -> bool:
        """Has it room for more of the answer?"""
        ...

    def write(self, data: bytes) -> None: ...

    def hold(self, why: int = Held.UPSTREAM) -> None:
        """Read no more from the client, until every reason is let go."""
        ...

    def let_go(self, why: int = Held.UPSTREAM) -> None: ...

    def pass_a_turn(self) -> None:
        """Read on in the next turn of the loop, after all others had theirs."""
        ...

    def await_body(self, seen: int) -> None:
        """More of the request's body is due. seen: bytes of it that have come"""
        ...

    def await_upstream(self, seconds: float) -> None:
        """The answer's first byte is due within this time, or room for more of the request."""
        ...

    def relaying(self) -> None:
        """The answer has begun."""
        ...

    def take_early(self) -> bytes:
        """Hand over what has come; from here on a tunnel reads the connection."""
        ...

    def may_discard(self, exchange: Exchange) -> bool:
        """Is what is left of its body short and sure to come, so that it can be read away?"""
        ...

    def exchange_over(self, exchange: Exchange) -> None:
        """The answer is out."""
        ...

    def tear_down(self) -> None:
        """Close at once, and so that what has been sent cannot look complete."""
        ...


class Exchange(Request):
    """A request that is carried out.

    reader:   reads the request's body; None: there is none
    pending:  what of the body has arrived early
    is_sent:  the whole request has been given to the upstream
    upstream: the connection that carries it
    framing:  how the answer's body is framed for the client
    tunnel:   what the connection has become, where that is a WebSocket
    """

    __slots__ = (
        "conn",
        "context",
        "framing",
        "is_sent",
        "pending",
        "phase",
        "reader",
        "tunnel",
        "upstream",
    )

    def __init__(
        self,
        conn: ClientSide,
        policy: Policy,
        requested: Requested,
        fields: Fields,
        reader: BodyReader | None,
        client: Client,
        client_ip: str,
        subject: str,
    ) -> None:
        self.policy = policy
        self.requested = requested
        self.route = requested.route
        self.method = requested.method
        self.minor = minor = requested.minor
        self.fields = fields
        self.client = client
        self.cache = conn.cache
        self.client_ip = client_ip
        self.subject = subject
        self.conn = conn
        self.context = context = conn.context
        self.request_id = fields.request_id or context.next_id()
        self.started = perf_counter()
        self.identity = None
        self.grant = None
        self.check = None
        self.decision = None
        self.refusal = None
        self.keep = (not fields.close) if minor else fields.keep
        self.status = 0
        self.source = "gateway"
        self.bytes_in = 0
        self.bytes_out = 0
        self.upstream_name = None
        self.upstream_from = 0.0
        self.upstream_s = None
        self.phase: int = Phase.JUDGING
        self.reader = reader
        self.pending: list[bytes] = []
        self.is_sent = reader is None
        self.upstream: UpstreamConnection | None = None
        self.framing: int = Framing.AS_IS
        self.tunnel: Tunnel | None = None

    @property
    def is_over(self) -> bool:
        return self.phase == Phase.OVER

    @property
    def head_bytes(self) -> int:
        """The length of the head that its upstream was sent."""
        assert self.upstream is not None
        server = self.upstream.pool.server
        return len(request_head(self, server))

    @property
    def takes_more(self) -> bool:
        """Has the client room for more of the answer?"""
        return self.conn.takes_more

    # -- judged -----------------------------------------------------------------------------------
    def decided(self, decision: Decision | None) -> None:
        """The limiter has spoken; None: it could not be asked."""
        if self.phase == Phase.OVER:
            self._give_back()
            return
        try:
            check = self.check
            assert check is not None
            self.decision = decision
            refusal = self.refusal
            if decision is None:
                self.answer_refusal(refusal or STORE_UNAVAILABLE)
                return
            if check.cost:
                plan = "" if self.grant is None else self.grant.plan
                self.context.accounting.decided(check, plan, decision, self.identity)
                if not decision.allowed:
                    self.answer_refusal(RATE_LIMITED)
                    return
            if refusal is not None:
                self.answer_refusal(refusal)
            elif self.requested.own:
                own.answer(self, self.context)
            else:
                self.connect()
        except Exception:
            self.failed()

    # -- the request's body -----------------------------------------------------------------------
    def feed(self, data: bytes) -> bytes:
        """Take bytes of the client's; give back what lies beyond the body."""
        reader = self.reader
        assert reader is not None
        payload, rest = reader.feed(data)
        self.bytes_in += len(payload)
        if reader.fault is not None:
            self.refuse_in_body(BAD_CHUNK)
            return b""
        if isinstance(reader, ChunkedReader) and reader.chunks >= MANY_CHUNKS:
            self.conn.pass_a_turn()
        if self.bytes_in > self.policy.bounds.body_bytes:
            self.refuse_in_body(BODY_TOO_LARGE)
            return b""
        if self.phase < Phase.WAITING:
            self.pending.append(payload)
            if not reader.done:
                self.conn.hold(Held.REQUEST)
        else:
            if reader.done and self.bytes_in == len(payload):
                self.pending.append(payload)  # all of it at once: as in `connected`
            self._send_body(payload, reader.done)
        return rest

    def _await_more(self) -> None:
        """Set the deadline for whatever is next, while no answer has begun."""
        upstream = self.upstream
        if self.phase == Phase.WAITING and upstream is not None and not upstream.is_stalled:
            if self.is_sent:
                self.conn.await_upstream(upstream.pool.response_s)
            else:
                self.conn.await_body(self.bytes_in)

    def refuse_in_body(self, refusal: Refusal) -> None:
        """The body went wrong: the upstream has a part of it and must not take it for the whole."""
        if self.phase == Phase.JUDGING:
            # What the answer tells of the limits is being asked for: it waits for that.
            self.refusal = self.refusal or refusal
            self.conn.hold(Held.REQUEST)
            return
        self._drop_upstream()
        if self.phase == Phase.RELAYING:
            self.abandon(refusal.reason)
        else:
            self.answer_refusal(refusal)

    def _send_body(self, payload: bytes, done: bool) -> None:
        if self.upstream is None:
            return
        data = payload
        if isinstance(self.reader, ChunkedReader):
            data = (chunk(payload) if payload else b"") + (LAST_CHUNK if done else b"")
        if data:
            self.upstream.transport.write(data)
        self.is_sent = done
        self._await_more()

    def pause_request(self) -> None:
        """The upstream takes no more for now."""
        self.conn.hold(Held.UPSTREAM)
        if self.phase == Phase.WAITING:
            self.conn.await_upstream(self.policy.timeouts.write_s)

    def resume_request(self) -> None:
        self.conn.let_go(Held.UPSTREAM)
        self._await_more()

    # -- towards the upstream ---------------------------------------------------------------------
    def connect(self) -> None:
        """Admitted: find a connection."""
        self.phase = _ADMITTED[self.phase]
        self.upstream_from = perf_counter()
        self.context.pools.serve(self.route.upstream, self)

    def connected(self, upstream: UpstreamConnection) -> None:
        """Send the head and what there is of the body."""
        self.phase = _CONNECTED[self.phase]
        self.upstream = upstream
        pool = upstream.pool
        self.upstream_name = pool.name
        upstream.begin(self)
        reader = self.reader
        upstream.transport.write(request_head(self, pool.server))
        if reader is None:
            if not upstream.is_stalled:
                self.conn.await_upstream(pool.response_s)
            return
        payload = b"".join(self.pending)
        # A body that is all here is kept until the answer begins: it may have to be sent again.
        self.pending = [payload] if reader.done else []
        if self.fields.expects and not payload and not reader.done:
            # RFC 9110, 10.1.1: the expectation is met here; it is not passed on.
            self.conn.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._send_body(payload, reader.done)
        self.conn.let_go(Held.REQUEST)

    # -- the answer -------------------------------------------------------------------------------
    def pass_interim(self, head: ResponseHead) -> None:
        """Pass on a 1xx other than 100; HTTP/1.0 has none."""
        if self.minor:
            self.conn.write(reply.interim_head(head))

    def respond(self, head: ResponseHead, reader: BodyReader | None, payload: bytes) -> None:
        """The upstream's head is whole: pass it on with what there is of the body."""
        self.phase = _RESPONDED[self.phase]
        body_reader = self.reader
        self.status = head.status
        self.source = "upstream"
        if body_reader is not None:
            self.pending = []
        keep = self.keep and not self.context.draining and (body_reader is None or body_reader.done)
        framing = head.framing
        if reader is not None and not isinstance(reader, LengthReader):
            framing = b""
            if self.minor:
                self.framing = Framing.CHUNKED
                framing = b"Transfer-Encoding: chunked\r\n"
            else:
                self.framing = Framing.UNTIL_CLOSE
                keep = False
        self.keep = keep
        self.bytes_out += len(payload)
        body = chunk(payload) if payload and self.framing == Framing.CHUNKED else payload
        self.conn.transport.write(reply.relayed(self, self.context, head, framing, body))
        self.conn.relaying()

    def switch(self, head: ResponseHead, early: bytes) -> None:
        """The upstream agreed on a WebSocket. early: what it sent behind its head."""
        assert self.upstream is not None
        self.phase = _SWITCHED[self.phase]
        self.status = head.status
        self.source = "upstream"
        self.keep = False
        self.bytes_out += len(early)
        self.conn.write(reply.switched_head(self, self.context, head) + early)
        self.tunnel = Tunnel(self, self.conn, self.upstream)
        self.tunnel.open(self.conn.take_early())

    def relay(self, payload: bytes) -> None:
        """Pass on a part of the answer's body."""
        self.bytes_out += len(payload)
        self.conn.write(chunk(payload) if self.framing == Framing.CHUNKED else payload)

    def tunnel_over(self) -> None:
        """Both sides of the tunnel have ended: all that will come has been passed on."""
        upstream = self.upstream
        assert upstream is not None
        self.upstream = None
        upstream.finish(reusable=False)
        self.complete()

    def complete(self) -> None:
        """The answer is whole."""
        self.upstream = None
        now = perf_counter()
        self.upstream_s = now - self.upstream_from
        if self.framing == Framing.CHUNKED:
            self.conn.write(LAST_CHUNK)
        if self.reader is not None and not self.reader.done:
            self.keep = False
        self._end(_COMPLETED, now)

    # -- what can go wrong ------------------------------------------------------------------------
    def upstream_lost(self, upstream: UpstreamConnection, refusal: Refusal) -> None:
        """The upstream closed before its answer was whole."""
        self.upstream = None
        if self.phase == Phase.RELAYING:
            self.abandon("upstream_truncated")
        elif self._may_repeat(upstream):
            self.phase = _RESENT[self.phase]
            self.context.pools.connect_afresh(self.route.upstream, self)
        else:
            self.fail(refusal)

    def _may_repeat(self, upstream: UpstreamConnection) -> bool:
        """Can the request be sent once more, after its connection closed unheard?

        Servers close idle connections at any moment, this one maybe before the request reached it.
        RFC 9110, 9.2.2: a proxy "MUST NOT automatically retry non-idempotent requests"; unless it
        knows that nobody acted on one: here, as the server's kernel acknowledged nothing of it.
        """
        if not upstream.reused or upstream.was_heard:
            return False
        is_idempotent = self.method in _IDEMPOTENT
        if self.reader is None:
            return is_idempotent or upstream.was_unreached
        # With a body, all of it has to be here still.
        return is_idempotent and self.reader.done and bool(self.pending)

    def upstream_invalid(self, refusal: Refusal, words: str) -> None:
        """The upstream sent what is not HTTP."""
        suppressed = self.context.throttle.suppressed(self.upstream_name, perf_counter())
        if suppressed is not None:
            more = f" (and {suppressed} times before)" if suppressed else ""
            log.warning("upstream %s: invalid response: %s%s", self.upstream_name, words, more)
        self.upstream = None
        if self.phase == Phase.RELAYING:
            self.abandon(refusal.reason)
        else:
            self.fail(refusal)

    def response_is_late(self) -> None:
        """No byte of an answer came in time."""
        if self.phase == Phase.RELAYING:
            self.abandon(UPSTREAM_TIMEOUT.reason)
            return
        if self.upstream is not None:
            self.upstream.pool.failed()
        self._drop_upstream()
        self.fail(UPSTREAM_TIMEOUT)

    def failed(self) -> None:
        """To be called where an exception was caught that should not have come: say so, and go on.

        Whoever asked is answered, or cut off where half an answer is out; nobody is left waiting.
        """
        log.exception("request %s failed", self.request_id.decode("ascii"))
        try:
            if self.phase < Phase.RELAYING:
                self._drop_upstream()
                self.decision = None  # it may be what is wrong
                self.answer_refusal(INTERNAL)
            else:
                self.abandon(INTERNAL.reason)
        except Exception:
            log.exception("request %s cannot be answered either", self.request_id.decode("ascii"))
            self.conn.transport.abort()

    def fail(self, refusal: Refusal) -> None:
        """No answer can be had: say so."""
        if self.upstream_from:
            self.upstream_s = perf_counter() - self.upstream_from
        self.answer_refusal(refusal)

    def abandon(self, reason: str) -> None:
        """Nobody can be told any more: the client is gone, or half an answer is out.

        The client connection is torn down, so that half an answer never looks like a whole one.
        """
        if self.is_over:
            return
        self._drop_upstream()
        self._give_back()
        self.context.accounting.ended(self, reason, perf_counter())
        self.phase = _ABANDONED[self.phase]
        self.conn.tear_down()

    def _drop_upstream(self) -> None:
        if self.upstream is not None:
            if self.upstream_s is None:
                self.upstream_s = perf_counter() - self.upstream_from
            upstream, self.upstream = self.upstream, None
            upstream.finish(reusable=False)

    # -- answers of our own -----------------------------------------------------------------------
    def answer_refusal(self, refusal: Refusal) -> None:
        """Say no."""
        if self.phase == Phase.OVER:
            return
        self.refusal = refusal
        if refusal.closes or self.context.draining:
            self.keep = False
        if self.reader is not None:
            self._end_request(self.reader)
        self.status = refusal.status
        data, self.bytes_out = reply.refusal(self, self.context, refusal)
        self.conn.transport.write(data)
        self._end(_ANSWERED, perf_counter())

    def answer(self, status: int, body: bytes) -> None:
        """Answer from here, with the limits' fields, and be over."""
        if self.context.draining:
            self.keep = False
        if self.reader is not None:
            self._end_request(self.reader)
        self.status = status
        self.bytes_out = 0 if self.method == "HEAD" else len(body)
        self.conn.transport.write(reply.own_answer(self, self.context, status, body))
        self._end(_ANSWERED, perf_counter())

    def _end_request(self, reader: BodyReader) -> None:
        """The answer comes before the whole body: can the connection stay open after it?"""
        if not reader.done and not self.conn.may_discard(self):
            self.keep = False

    def _give_back(self) -> None:
        """Hold no lease any more, if the request held one."""
        check = self.check
        if check is not None and check.lease:
            self.context.gate.limiter.release(check)

    def _end(self, steps: Steps, now: float) -> None:
        check = self.check
        if check is not None and check.lease:
            self._give_back()
        self.context.accounting.ended(self, None, now)
        self.phase = steps[self.phase]
        self.conn.exchange_over(self)
