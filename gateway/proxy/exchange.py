"""One request and its response: from the gate to the last byte, and into the account.

Its phases are those of `http1.phases`. It stands between one client connection and one upstream
connection and holds either back while the other is slow. Nothing of a body is kept but what has
arrived before there was a place to put it.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING

from gateway.domain.limits import Check, Decision
from gateway.domain.policy import Policy, Route
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
from gateway.observe.metrics import Source
from gateway.proxy import own, reply
from gateway.proxy.forward import request_head
from gateway.proxy.tunnel import Tunnel

if TYPE_CHECKING:
    from gateway.domain.admission import Grant
    from gateway.domain.ports import Identity
    from gateway.http1.requested import Requested
    from gateway.proxy.context import Context
    from gateway.proxy.downstream import Downstream
    from gateway.proxy.upstream import UpstreamConnection

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


class Exchange:
    """See the module. `source` is who answered: "gateway" or "upstream"; `status` 0 until then."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "check",
        "client_ip",
        "conn",
        "context",
        "decision",
        "fields",
        "grant",
        "identity",
        "is_sent",
        "keep",
        "method",
        "minor",
        "pending",
        "phase",
        "policy",
        "reader",
        "request_id",
        "requested",
        "route",
        "source",
        "started",
        "status",
        "subject",
        "to_client",
        "tunnel",
        "upstream",
        "upstream_name",
        "upstream_s",
        "upstream_started",
        "verdict",
    )

    def __init__(
        self,
        conn: Downstream,
        policy: Policy,
        requested: Requested,
        fields: Fields,
        reader: BodyReader | None,
        client_ip: str,
        subject: str,
    ) -> None:
        self.conn = conn
        self.context: Context = conn.context
        self.policy = policy
        self.requested = requested
        self.route: Route = requested.route
        self.method = requested.method
        self.minor = requested.minor
        self.fields = fields
        self.client_ip = client_ip
        #: What limits per address count the client under.
        self.subject = subject
        self.request_id = fields.request_id or self.context.next_id()
        self.started = perf_counter()
        self.phase: int = Phase.JUDGING
        #: The request's body and what of it has arrived early; None: there is none.
        self.reader = reader
        self.pending: list[bytes] = []
        #: The whole request has been given to the upstream.
        self.is_sent = reader is None
        self.keep = (not fields.close) if requested.minor else fields.keep
        # What the gate finds out.
        self.identity: Identity | None = None
        self.grant: Grant | None = None
        self.check: Check | None = None
        self.decision: Decision | None = None
        #: The refusal to give, or given.
        self.verdict: Refusal | None = None
        # What came of it.
        self.status = 0
        self.source: Source = "gateway"
        self.bytes_in = 0
        self.bytes_out = 0
        self.upstream: UpstreamConnection | None = None
        self.upstream_name: str | None = None
        self.upstream_started = 0.0
        self.upstream_s: float | None = None
        #: How the answer's body is framed for the client; None: it has none, or it is passed as is.
        self.to_client: str | None = None
        #: What the connection has become, where that is a WebSocket.
        self.tunnel: Tunnel | None = None

    @property
    def is_over(self) -> bool:
        return self.phase == Phase.OVER

    @property
    def websocket_key(self) -> bytes:
        """The key of the WebSocket handshake that the request is; b"": it is none.

        RFC 6455, 4.1: "The method of the request MUST be GET".
        """
        key = self.fields.websocket
        return key if isinstance(key, bytes) and self.method == "GET" else b""

    def header(self, name: str) -> str:
        """A field of the request, for limits that are counted per header; "" where it is absent."""
        return self.conn.client.counted(self.fields, name)

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
            verdict = self.verdict
            if decision is None:
                self.answer_refusal(verdict or STORE_UNAVAILABLE)
                return
            plan = "" if self.grant is None else self.grant.plan
            self.context.accounting.decided(check, plan, decision, self.identity)
            if check.cost and not decision.allowed:
                self.answer_refusal(RATE_LIMITED)
            elif verdict is not None:
                self.answer_refusal(verdict)
            elif self.requested.own:
                own.answer(self)
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
                self.conn.hold("request")
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
            self.verdict = self.verdict or refusal
            self.conn.hold("request")
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
        self.conn.hold("upstream")
        if self.phase == Phase.WAITING:
            self.conn.await_upstream(self.policy.timeouts.write_s)

    def resume_request(self) -> None:
        self.conn.let_go("upstream")
        self._await_more()

    # -- towards the upstream ---------------------------------------------------------------------
    def connect(self) -> None:
        """Admitted: find a connection."""
        self.phase = _ADMITTED[self.phase]
        self.upstream_started = perf_counter()
        self.context.pools.serve(self)

    def connected(self, upstream: UpstreamConnection) -> None:
        """Send the head and what there is of the body."""
        self.phase = _CONNECTED[self.phase]
        self.upstream = upstream
        self.upstream_name = upstream.pool.name
        upstream.begin(self)
        reader = self.reader
        upstream.transport.write(request_head(self, upstream.pool.server))
        if reader is None:
            if not upstream.is_stalled:
                self.conn.await_upstream(upstream.pool.response_s)
            return
        payload = b"".join(self.pending)
        # A body that is all here is kept until the answer begins: it may have to be sent again.
        self.pending = [payload] if reader.done else []
        if self.fields.expects and not payload and not reader.done:
            # RFC 9110, 10.1.1: the expectation is met here; it is not passed on.
            self.conn.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._send_body(payload, reader.done)
        self.conn.let_go("request")

    # -- the answer -------------------------------------------------------------------------------
    def pass_interim(self, head: ResponseHead) -> None:
        """Pass on a 1xx other than 100; HTTP/1.0 has none."""
        if self.minor:
            self.conn.write(reply.interim_head(head))

    def respond(self, head: ResponseHead, reader: BodyReader | None, payload: bytes) -> None:
        """The upstream's head is whole: pass it on with what there is of the body."""
        self.phase = _RESPONDED[self.phase]
        self.status = head.status
        self.source = "upstream"
        request = self.reader
        if request is not None:
            self.pending = []
        keep = self.keep and not self.context.draining and (request is None or request.done)
        framing = head.framing
        if reader is not None and not isinstance(reader, LengthReader):
            framing = b""
            if self.minor:
                self.to_client = "chunked"
                framing = b"Transfer-Encoding: chunked\r\n"
            else:
                self.to_client = "close"
                keep = False
        self.keep = keep
        self.bytes_out += len(payload)
        body = chunk(payload) if payload and self.to_client == "chunked" else payload
        self.conn.transport.write(reply.relayed(self, head, framing, body))
        self.conn.relaying()

    def switch(self, head: ResponseHead, early: bytes) -> None:
        """The upstream agreed on a WebSocket. early: what it sent behind its head."""
        assert self.upstream is not None
        self.phase = _SWITCHED[self.phase]
        self.status = head.status
        self.source = "upstream"
        self.keep = False
        self.bytes_out += len(early)
        self.conn.write(reply.switched_head(self, head) + early)
        self.tunnel = Tunnel(self, self.upstream)
        self.tunnel.open(self.conn.take_early())

    def relay(self, payload: bytes) -> None:
        """Pass on a part of the answer's body."""
        self.bytes_out += len(payload)
        self.conn.write(chunk(payload) if self.to_client == "chunked" else payload)

    def complete(self) -> None:
        """The answer is whole."""
        self.upstream = None
        now = perf_counter()
        self.upstream_s = now - self.upstream_started
        if self.to_client == "chunked":
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
            self.context.pools.connect_afresh(self)
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
        if self.reader is None:
            return self.method in _IDEMPOTENT or upstream.was_unreached
        # With a body, all of it has to be here still.
        return self.method in _IDEMPOTENT and self.reader.done and bool(self.pending)

    def upstream_invalid(self, refusal: Refusal, words: str) -> None:
        """The upstream sent what is not HTTP."""
        left_out = self.context.complaints.left_out(self.upstream_name, perf_counter())
        if left_out is not None:
            more = f" (and {left_out} times before)" if left_out else ""
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
        if self.upstream_started:
            self.upstream_s = perf_counter() - self.upstream_started
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
                self.upstream_s = perf_counter() - self.upstream_started
            upstream, self.upstream = self.upstream, None
            upstream.finish(reusable=False)

    # -- answers of our own -----------------------------------------------------------------------
    def answer_refusal(self, refusal: Refusal) -> None:
        """Say no."""
        if self.phase == Phase.OVER:
            return
        self.verdict = refusal
        if refusal.closes:
            self.keep = False
        self._end_request()
        data, self.bytes_out = reply.refusal(self, refusal)
        self._answer(refusal.status, data)

    def answer(self, status: int, body: bytes) -> None:
        """Answer from here, with the limits' fields, and be over."""
        self._end_request()
        self.bytes_out = 0 if self.method == "HEAD" else len(body)
        self._answer(status, reply.own_answer(self, status, body))

    def _end_request(self) -> None:
        """An answer of our own comes first: can the connection stay, with what is still to come?"""
        if self.context.draining:
            self.keep = False
        if self.reader is not None and not self.reader.done and not self.conn.may_discard(self):
            self.keep = False

    def _answer(self, status: int, data: bytes) -> None:
        self.status = status
        self.source = "gateway"
        self.conn.transport.write(data)
        self._end(_ANSWERED, perf_counter())

    def _give_back(self) -> None:
        """Hold no lease any more, if the request held one."""
        check = self.check
        if check is not None and check.lease:
            self.context.gate.limiter.release(check)

    def _end(self, steps: Steps, now: float) -> None:
        if self.check is not None and self.check.lease:
            self._give_back()
        self.context.accounting.ended(self, None, now)
        self.phase = steps[self.phase]
        self.conn.exchange_over(self)
