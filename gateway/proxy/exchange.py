"""One request and its response: from the gate to the last byte, and its accounting.

Its phases are those of `http1.phases`. It connects one client connection and one upstream
connection, and pauses either while the other is slow. It keeps the part of the body that arrived
before the upstream connection was there, and a whole one that may have to be sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import ClassVar, Final, Protocol

from gateway.domain.identity import Grant
from gateway.domain.limits import Check, Decision
from gateway.domain.policy import Policy
from gateway.domain.translation import Translation
from gateway.domain.upstreams import Server
from gateway.errors import (
    BAD_CHUNK,
    BODY_TOO_LARGE,
    COST_EXCEEDS_LIMIT,
    INTERNAL,
    RATE_LIMITED,
    REQUEST_TIMEOUT,
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
from gateway.proxy.client_states import PauseReason
from gateway.proxy.connection_cache import ConnectionCache
from gateway.proxy.context import Context
from gateway.proxy.forward import binds_connection, request_head
from gateway.proxy.request import JSON, Request
from gateway.proxy.translation import translated_head
from gateway.proxy.tunnel import Side, Tunnel
from gateway.proxy.upstream_connection import UpstreamConnection
from gateway.proxy.whole_body import AT_ONCE_BYTES, WholeBody
from gateway.routing import Requested

log = logging.getLogger("gateway.proxy")

#: RFC 9110, 9.2.2: the effect of sending one of these twice is the same as once.
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})

#: RFC 9110, 10.1.1: the gateway meets the expectation, and does not forward it.
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

#: The first part of a request's body is written together with the head up to this length: a second
#: write costs more than the copy.
MOST_JOINED_BYTES: Final = 16 * 1024

_BODY_NEEDED = Steps(Event.BODY_NEEDED)
_BODY_READ = Steps(Event.BODY_READ)
ADMITTED: Final = Steps(Event.ADMITTED)
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
    """The client connection, as an exchange uses it."""

    transport: asyncio.Transport
    context: Context
    cache: ConnectionCache

    @property
    def takes_more(self) -> bool:
        """Can more of the answer be written?"""
        ...

    def write(self, data: bytes) -> None: ...

    def pause(self, reason: int = PauseReason.UPSTREAM) -> None:
        """Pause reading from the client, until `resume` was called for every reason."""
        ...

    def resume(self, reason: int = PauseReason.UPSTREAM) -> None: ...

    def yield_turn(self) -> None:
        """Pause reading until the next turn of the loop, after the other connections."""
        ...

    def await_body(self, seen: int) -> None:
        """Set the deadline for more of the request's body. seen: bytes of it so far"""
        ...

    def collecting(self, kept: int) -> None:
        """Set the same deadline, and have what is kept of the body counted. kept: bytes of it"""
        ...

    def keeping(self, kept: int) -> None:
        """Have what is kept of an answer counted. kept: bytes of it"""
        ...

    def await_nothing(self) -> None:
        """There is no deadline here: the gate decides, or a connection is being opened."""
        ...

    def await_upstream(self, seconds: float) -> None:
        """Set the deadline for the answer's first byte, or for the upstream to take more."""
        ...

    def relaying(self) -> None:
        """The answer has begun."""
        ...

    def take_early(self) -> bytes:
        """Return the unprocessed bytes; a tunnel reads the connection from here on."""
        ...

    def may_discard(self, exchange: Exchange) -> bool:
        """Is the rest of its body short and certain to arrive, so that it can be discarded?"""
        ...

    def exchange_over(self, exchange: Exchange) -> None:
        """The answer was sent."""
        ...

    def tear_down(self) -> None:
        """Close at once, so that a partial answer cannot look complete."""
        ...


class Exchange(Request):
    """Carries a request out.

    reader:   reads the request's body; None: there is none
    body:     collects the request's body, if the decision depends on it; None: it does not
    pending:  body bytes that may still have to be sent, or sent again
    is_sent:  the whole request was written to the upstream
    upstream: its upstream connection
    framing:  how the answer's body is framed for the client
    tunnel:   of a WebSocket; None: there is none
    mcp:      what was read of it, on a route with `mcp` alone
    resent:   how often it was sent again, by the route's `retries`
    """

    #: Builds the head for one of the upstream's servers.
    build_head: ClassVar[Callable[[Request, Server], bytes]] = request_head

    __slots__ = (
        "body",
        "conn",
        "context",
        "framing",
        "is_sent",
        "mcp",
        "pending",
        "phase",
        "reader",
        "resent",
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
        self.detail = ""
        self.keep = (not fields.close) if minor else fields.keep
        self.status = 0
        self.source = "gateway"
        self.bytes_in = 0
        self.bytes_out = 0
        self.sent_to = None
        self.upstream_from = 0.0
        self.upstream_s = None
        self.phase: int = Phase.JUDGING
        self.reader = reader
        self.body: WholeBody | None = None
        self.pending: list[bytes] = []
        self.is_sent = reader is None
        self.upstream: UpstreamConnection | None = None
        self.framing: int = Framing.AS_IS
        self.tunnel: Tunnel | None = None
        self.resent = 0

    @property
    def is_over(self) -> bool:
        return self.phase == Phase.OVER

    @property
    def judged_from(self) -> float:
        """When the last decision about it began, by `time.perf_counter`."""
        return self.started if self.body is None else self.body.ended

    @property
    def head_bytes(self) -> int:
        """The length of the head that was sent to the upstream."""
        assert self.upstream is not None
        server = self.upstream.pool.server
        return len(self.build_head(server))

    @property
    def takes_more(self) -> bool:
        """Can more of the answer be written to the client?"""
        return self.conn.takes_more

    @property
    def kept_bytes(self) -> int:
        """Bytes of the answer that are kept before they are passed on."""
        return 0

    @property
    def is_out_of_time(self) -> bool:
        """Has the route's timeout for the whole request passed? A WebSocket has none."""
        total_s = self.route.total_s
        return (
            total_s is not None
            and self.phase < Phase.TUNNEL
            and perf_counter() - self.started > total_s
        )

    # -- the decision -----------------------------------------------------------------------------
    def decided(self, decision: Decision | None) -> None:
        """Act on the limiter's decision; None: it was unavailable."""
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
                plan, grant = "", self.grant
                if grant is not None:
                    plan = grant.plan
                    if grant.candidates:
                        self.context.accounting.compared(check, grant.candidates, decision)
                self.context.accounting.decided(check, plan, decision, self.identity)
                if not decision.allowed:
                    # A fault of the request, whose key was not valid either, stays its answer.
                    self.answer_refusal(self.requested.refusal or self._limited(check, decision))
                    return
            if refusal is not None:
                self.answer_refusal(refusal)
            elif self.requested.own:
                own.answer(self, self.context)
            else:
                self.connect()
        except Exception:
            self.failed()

    def _limited(self, check: Check, decision: Decision) -> Refusal:
        """Why the limiter refused it: for now, or for ever."""
        if decision.retry_us is not None:
            return RATE_LIMITED
        limit = check.limits[decision.governing]
        self.detail = f"It counts {check.cost} units; {limit.name} admits at most {limit.peak}."
        return COST_EXCEEDS_LIMIT

    # -- the request's body -----------------------------------------------------------------------
    def feed(self, data: bytes) -> bytes:
        """Process bytes from the client; return those that follow the body."""
        reader = self.reader
        assert reader is not None
        payload, rest = reader.feed(data)
        self.bytes_in += len(payload)
        if reader.fault is not None:
            self.refuse_in_body(BAD_CHUNK)
            return b""
        if isinstance(reader, ChunkedReader) and reader.chunks >= MANY_CHUNKS:
            self.conn.yield_turn()
        if self.bytes_in > (self.route.body_bytes or self.policy.bounds.body_bytes):
            self.refuse_in_body(BODY_TOO_LARGE)
            return b""
        if self.phase == Phase.READING:
            self._collect(payload)
        elif self.phase < Phase.WAITING:
            self.pending.append(payload)
            if not reader.done:
                self.conn.pause(PauseReason.REQUEST)
        else:
            if reader.done and self.bytes_in == len(payload):
                self.pending.append(payload)  # a whole body may be sent again: as in `connected`
            self._send_body(payload, reader.done)
        return rest

    def whole_body(self, most: int, too_large: Refusal) -> bytes | Refusal | None:
        reader, fields = self.reader, self.fields
        begun = b"".join(self.pending)
        if len(begun) > most or (fields.length is not None and fields.length > most):
            return too_large
        if reader is None or (
            reader.done and (self.body is not None or len(begun) <= AT_ONCE_BYTES)
        ):
            return begun
        self.phase = _BODY_NEEDED[self.phase]
        self.body = WholeBody(most, too_large)
        self.pending = []
        if fields.expects and not begun:
            self.conn.write(_CONTINUE)
        self.conn.resume(PauseReason.REQUEST)
        self._collect(begun)
        return None

    def puts_off(self) -> bool:
        self.phase = _BODY_NEEDED[self.phase]
        self._judge_soon()
        return True

    def message_check(self, granted: Grant) -> Check | None:
        raise AssertionError("its route reads no messages")

    def _collect(self, payload: bytes) -> None:
        """Keep a part of the body that the decision depends on."""
        body, reader = self.body, self.reader
        assert body is not None
        assert reader is not None
        if not body.add(payload):
            self.refuse_in_body(body.too_large)
            return
        self.conn.collecting(len(body))
        if reader.done and self.phase == Phase.READING:  # else it was shed for what it holds
            self.pending = [body.take()]
            self._judge_soon()

    def _judge_soon(self) -> None:
        """Have the gate decide, in a later turn of the loop: others are served before."""
        self.conn.await_nothing()
        self.context.collected.add(self)

    def serve_queued(self, most: int) -> bool:
        """Have the gate decide now, as the whole body has arrived, or is faulty."""
        if self.phase == Phase.READING:  # else it was abandoned meanwhile
            self._judge()
        return False

    def _judge(self) -> None:
        body = self.body
        assert body is not None
        body.ended = perf_counter()
        try:
            self.phase = _BODY_READ[self.phase]
            self.context.gate.judge(self)
        except Exception:
            self.failed()

    def _await_more(self) -> None:
        """Set the deadline for the next step, while no answer has begun."""
        upstream = self.upstream
        if self.phase == Phase.WAITING and upstream is not None and not upstream.is_stalled:
            if self.is_sent:
                upstream.sent()
                self.conn.await_upstream(self.route.response_s or upstream.pool.response_s)
            else:
                self.conn.await_body(self.bytes_in)

    def refuse_in_body(self, refusal: Refusal) -> None:
        """Refuse a request with a faulty body. The upstream must not take a part for the whole."""
        if self.phase <= Phase.READING:
            # The refusal has the values of the limits: it waits for the decision.
            self.refusal = self.refusal or refusal
            self.conn.pause(PauseReason.REQUEST)
            if self.phase == Phase.READING and self.body is not None:
                self._judge_soon()
            return
        self._drop_upstream()
        if self.phase == Phase.RELAYING:
            self.abandon(refusal.reason)
        else:
            self.answer_refusal(refusal)

    def _send_body(self, payload: bytes, done: bool, head: bytes = b"") -> None:
        """Send a part of the body. head: of the request, if this is its first part"""
        if self.upstream is None:
            return
        data, write = payload, self.upstream.transport.write
        if isinstance(self.reader, ChunkedReader):
            data = (chunk(payload) if payload else b"") + (LAST_CHUNK if done else b"")
        if head and len(data) > MOST_JOINED_BYTES:
            write(head)
        else:
            data = head + data
        if data:
            write(data)
        self.is_sent = done
        self._await_more()

    def pause_request(self) -> None:
        """The upstream takes no more for now."""
        self.conn.pause(PauseReason.UPSTREAM)
        if self.phase == Phase.WAITING:
            self.conn.await_upstream(self.policy.timeouts.write_s)

    def resume_request(self) -> None:
        self.conn.resume(PauseReason.UPSTREAM)
        self._await_more()

    # -- sending it to the upstream ---------------------------------------------------------------
    def connect(self) -> None:
        """Ask for an upstream connection: the request was admitted."""
        self.phase = ADMITTED[self.phase]
        self.upstream_from = perf_counter()
        route = self.route
        upstream = route.upstream if route.canary is None else self.upstream_for()
        self.context.pools.serve(upstream, self)

    def connected(self, upstream: UpstreamConnection) -> None:
        """Send the head and the body so far."""
        self.phase = _CONNECTED[self.phase]
        self.upstream = upstream
        pool = upstream.pool
        self.sent_to = pool
        upstream.begin(self)
        reader = self.reader
        head = self.build_head(pool.server)
        if self.route.auth == "none" and binds_connection(self.fields.authorization):
            upstream.is_bound = True
        if reader is None:
            upstream.transport.write(head)
            if not upstream.is_stalled:
                self.conn.await_upstream(self.route.response_s or pool.response_s)
            return
        payload = b"".join(self.pending)
        # A complete body is kept until the answer begins: it may have to be sent again.
        self.pending = [payload] if reader.done else []
        if self.fields.expects and not payload and not reader.done:
            self.conn.write(_CONTINUE)
        self._send_body(payload, reader.done, head)
        self.conn.resume(PauseReason.REQUEST)

    # -- the answer -------------------------------------------------------------------------------
    def pass_interim(self, head: ResponseHead) -> None:
        """Pass on a 1xx other than 100; HTTP/1.0 has none."""
        if self.minor:
            self.conn.write(reply.interim_head(head))

    def respond(self, head: ResponseHead, reader: BodyReader | None, payload: bytes) -> None:
        """Pass on the upstream's head, with the body so far."""
        route = self.route
        if route.retries is not None and self._sent_again(str(head.status), self.upstream):
            return
        self.phase = _RESPONDED[self.phase]
        if route.translate is not None:
            head = self._translated(head, route.translate)
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
        if reader is not None:  # else `complete` follows
            self.conn.relaying()

    def _translated(self, head: ResponseHead, what: Translation) -> ResponseHead:
        assert self.upstream is not None
        return translated_head(self, head, self.upstream.pool.server, what)

    def switch(self, head: ResponseHead, early: bytes) -> None:
        """The upstream agreed to a WebSocket. early: what it sent after its head."""
        assert self.upstream is not None
        self.phase = _SWITCHED[self.phase]
        if self.route.translate is not None:
            head = self._translated(head, self.route.translate)
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
        """Both sides of the tunnel have ended, and all bytes were passed on."""
        upstream = self.upstream
        assert upstream is not None
        self.upstream = None
        upstream.finish(reusable=False)
        self.complete()

    def complete(self) -> None:
        """The answer is complete."""
        self.upstream = None
        now = perf_counter()
        self.upstream_s = now - self.upstream_from
        if self.framing == Framing.CHUNKED:
            self.conn.write(LAST_CHUNK)
        if self.reader is not None and not self.reader.done:
            self.keep = False
        self._end(_COMPLETED, now)

    # -- failures ---------------------------------------------------------------------------------
    def upstream_lost(self, upstream: UpstreamConnection, refusal: Refusal) -> None:
        """The upstream closed before its answer was complete."""
        self.upstream = None
        if self.phase == Phase.RELAYING:
            self.abandon("upstream_truncated")
        elif self._may_repeat(upstream):
            self._send_again(None)
        elif not self._sent_again("reset", upstream):
            self.fail(refusal)

    def _sent_again(self, cause: str, last: UpstreamConnection | None) -> bool:
        """Send the request again if the route's `retries` say so, as an attempt ended like this.

        last: its connection
        """
        if self.route.retries is None or self.is_out_of_time:
            return False
        if not self.context.retries.attempted(self, self.resent, cause):
            return False
        self._drop_upstream()
        self.upstream_s = None
        self.resent += 1
        self._send_again(last)
        return True

    def _send_again(self, last: UpstreamConnection | None) -> None:
        """Send it again. last: its last connection, if another server is to be chosen"""
        self._begin_resending()
        failed = None if last is None else last.pool
        self.context.pools.connect_afresh(self.upstream_for(), self, failed)

    def _begin_resending(self) -> None:
        self.phase = _RESENT[self.phase]
        # That of the last attempt may have passed. A connection has a timeout of its own.
        self.conn.await_nothing()

    def _may_repeat(self, upstream: UpstreamConnection) -> bool:
        """Can the request be sent again, after its connection closed without an answer?

        Servers close idle connections at any moment, perhaps before the request reached them.
        RFC 9110, 9.2.2: a proxy "MUST NOT automatically retry non-idempotent requests"; unless it
        knows that the server did not process it: here, as its kernel acknowledged no byte of it.
        """
        if not upstream.reused or upstream.has_response:
            return False
        is_idempotent = self.method in _IDEMPOTENT
        if self.reader is None:
            return is_idempotent or upstream.never_received
        # With a body, all of it must still be here.
        return is_idempotent and self.reader.done and bool(self.pending)

    def upstream_invalid(self, refusal: Refusal, words: str) -> None:
        """The upstream's answer is not valid HTTP."""
        name = None if self.sent_to is None else self.sent_to.name
        suppressed = self.context.throttle.suppressed(name, perf_counter())
        if suppressed is not None:
            more = f" (and {suppressed} times before)" if suppressed else ""
            log.warning("upstream %s: invalid response: %s%s", name, words, more)
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
            if self._sent_again("timeout", self.upstream):
                return
        self._drop_upstream()
        self.fail(UPSTREAM_TIMEOUT)

    def end_late(self) -> None:
        """The route's timeout for the whole request has passed.

        That is no failure of the server, as the client may have used up the time.
        """
        if self.phase == Phase.RELAYING:
            self.abandon("total_timeout")
        elif self._is_client_late():
            self.refuse_in_body(REQUEST_TIMEOUT)
        else:
            self._drop_upstream()
            self.fail(UPSTREAM_TIMEOUT)

    def _is_client_late(self) -> bool:
        """Is more of the request's body awaited from the client?"""
        if self.reader is None or self.reader.done:
            return False
        upstream = self.upstream
        return self.phase == Phase.READING or (upstream is not None and not upstream.is_stalled)

    def failed(self) -> None:
        """Log an unexpected exception, and end the exchange.

        The client is answered; or its connection is closed, if a part of an answer was sent.
        """
        log.exception("request %s failed", self.request_id.decode("ascii"))
        try:
            if self.phase < Phase.RELAYING:
                self._drop_upstream()
                self.decision = None  # it may be the cause
                self.answer_refusal(INTERNAL)
            else:
                self.abandon(INTERNAL.reason)
        except Exception:
            log.exception("request %s: refusal failed, too", self.request_id.decode("ascii"))
            self.conn.transport.abort()

    def fail(self, refusal: Refusal) -> None:
        """Answer that the upstream failed."""
        if self.upstream_from:
            self.upstream_s = perf_counter() - self.upstream_from
        self.answer_refusal(refusal)

    def abandon(self, reason: str) -> None:
        """End without an answer: the client has closed, or a part of an answer was sent.

        The client connection is torn down, so that a partial answer never looks complete.
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

    def tick(self, now: float) -> None:
        """Called a few times a second while the answer is relayed. now: by the loop's clock"""

    # -- answers of the gateway -------------------------------------------------------------------
    def answer_refusal(self, refusal: Refusal) -> None:
        """Answer with a refusal."""
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

    def answer(self, status: int, body: bytes, content_type: str = JSON) -> None:
        """Answer from the gateway, with the limits' fields, and end."""
        if self.context.draining:
            self.keep = False
        self._answer_whole(status, body, b"", content_type)

    def _answer_whole(
        self, status: int, body: bytes, lines: bytes, content_type: str = JSON
    ) -> None:
        """lines: of further header fields"""
        if self.reader is not None:
            self._end_request(self.reader)
        self.status = status
        self.bytes_out = 0 if self.method == "HEAD" else len(body)
        answer = reply.own_answer(self, self.context, status, body, content_type, lines)
        self.conn.transport.write(answer)
        self._end(_ANSWERED, perf_counter())

    def _end_request(self, reader: BodyReader) -> None:
        """Decide whether the connection stays open, as the answer may precede the body's end."""
        if not reader.done and not self.conn.may_discard(self):
            self.keep = False

    def _give_back(self) -> None:
        """Release the lease, if the request holds one."""
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
