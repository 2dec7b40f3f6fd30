"""An exchange with an MCP server: its messages are read before the decision, its session is sealed.

https://modelcontextprotocol.io/specification, "Streamable HTTP".
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Final

from gateway.domain.identity import Grant
from gateway.domain.limits import Check, Decision
from gateway.domain.mcp.endpoints import FirstEvent, target_of
from gateway.domain.mcp.events import COMMENT, MEDIA_TYPE, EditedStream, Stream
from gateway.domain.mcp.lists import MARK, MOST_BYTES, Unreadable, edited_fields, filtered
from gateway.domain.mcp.messages import Message
from gateway.domain.mcp.refusals import LIMITED
from gateway.domain.mcp.sessions import Session
from gateway.domain.mcp.settings import CALL
from gateway.domain.media_types import read_media_type
from gateway.domain.patterns import printable
from gateway.domain.upstreams import Server
from gateway.errors import SESSION_UNKNOWN, UPSTREAM_INVALID, Refusal
from gateway.http1.framing import BodyReader, LengthReader
from gateway.http1.phases import Phase, Steps
from gateway.http1.response import ResponseHead
from gateway.observe.mcp_metrics import OTHER, Outcome
from gateway.proxy.exchange import ADMITTED, Exchange
from gateway.proxy.forward import request_head, with_host
from gateway.proxy.mcp_answers import refusal_answer
from gateway.proxy.mcp_reading import Reading, admits, first_name, head_of, section
from gateway.proxy.traced_exchange import TracedExchange
from gateway.proxy.upstream_connection import UpstreamConnection
from gateway.routing import Requested, read_request

#: The value is with the white space around it, whose end a pattern would look for at each space.
_session: Final = re.compile(rb"(?i)(?:\A|(?<=\n))mcp-session-id:([^\r\n]*+)\r\n")
_content_type: Final = re.compile(rb"\ncontent-type:([^\r\n]*+)")


class McpState(Reading):
    """What was read of a request, and what is done with its answer.

    stream:  the events of the answer; None: it has none
    first:   the first event of a stream that was requested by GET; None: it is known, or has none
    held:    the head of an answer that is collected to be filtered, and its reader
    kept:    what is collected
    sent_s:  when events were sent last, by the loop's clock
    comments: how many bytes of the answer are comments of the gateway
    connection: that it is counted as part of, in the metrics; 0: none
    """

    __slots__ = ("comments", "connection", "first", "held", "kept", "sent_s", "stream")

    def __init__(self) -> None:
        super().__init__()
        self.stream: Stream | None = None
        self.first: FirstEvent | None = None
        self.held: tuple[ResponseHead, BodyReader] | None = None
        self.kept = bytearray()
        self.sent_s = 0.0
        self.comments = 0
        self.connection = 0

    def take(self) -> bytes:
        """What was collected."""
        kept = bytes(self.kept)
        self.held = None
        self.kept.clear()
        return kept


class McpExchange(Exchange):
    """Reads the messages of a request, and passes the answer on as the route's `mcp` says."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        """arguments: those of an `Exchange`"""
        Exchange.__init__(self, *arguments)
        self.mcp = McpState()

    # -- the decision -----------------------------------------------------------------------------
    @property
    def connection(self) -> int:
        return self.mcp.session_tag

    @property
    def websocket_key(self) -> bytes:
        """b"": what a tunnel carries could not be read, so no request becomes one."""
        return b""

    @property
    def message(self) -> Message | None:
        return self.mcp.message

    @property
    def mcp_version(self) -> str:
        """Of the message or, before 2026-07-28, of the header."""
        message = self.mcp.message
        return (message.version if message is not None else "") or head_of(self).headers.version

    def message_check(self, granted: Grant) -> Check | None:
        return self.mcp.check(self, granted, self.context.seals)

    def decided(self, decision: Decision | None) -> None:
        if decision is not None and decision.allowed and not self.is_over and self.refusal is None:
            state, check = self.mcp, self.check
            if state.demand.opens and check is not None:
                state.connection = self.connection or check.lease or id(self)
                key_id = "" if self.identity is None else self.identity.record.id
                self.context.metrics.mcp.opened(self.route.name, state.connection, key_id)
        Exchange.decided(self, decision)

    # -- the upstream -----------------------------------------------------------------------------
    def connect(self) -> None:
        session = self.mcp.session
        if session is None:
            Exchange.connect(self)
            return
        self.phase = ADMITTED[self.phase]
        self.upstream_from = perf_counter()
        if not self.context.pools.serve_at(self.upstream_for(), session.server, self):
            # Its server is gone, and the session with it.
            self.answer_refusal(SESSION_UNKNOWN)

    def _send_again(self, last: UpstreamConnection | None) -> None:
        session = self.mcp.session
        if session is None:
            Exchange._send_again(self, last)
            return
        self._begin_resending()
        if not self.context.pools.serve_at(self.upstream_for(), session.server, self, afresh=True):
            self.answer_refusal(SESSION_UNKNOWN)

    def build_head(self, server: Server) -> bytes:
        """The head for the server: with its own host and session, for an answer without coding."""
        # Servers refuse other hosts, to protect themselves against DNS rebinding.
        lines = with_host(head_of(self).forward, self.fields, server)
        session = self.mcp.session
        line = b"" if session is None else b"Mcp-Session-Id: %b\r\n" % session.id.encode("ascii")
        return request_head(self, server, b"%b%bAccept-Encoding: identity\r\n" % (lines, line))

    # -- the answer -------------------------------------------------------------------------------
    def respond(self, head: ResponseHead, reader: BodyReader | None, payload: bytes) -> None:
        state = self.mcp
        fields = _lowered(head)
        if b"\nmcp-session-id:" in fields:
            head = self._with_sealed_session(head)
        kind = _kind(fields)
        is_stream = kind == MEDIA_TYPE
        is_plain = b"\ncontent-encoding:" not in fields
        is_list = section(self.route).is_filtered and state.gets_tools
        if is_stream:
            head = _with_lines(head, b"X-Accel-Buffering: no\r\n")
        if is_list and 200 <= head.status < 300 and (reader is not None or payload):
            if not is_plain or not (is_stream or kind == "application/json"):
                self.context.metrics.mcp.unfiltered()
            elif reader is None:
                head, payload = self._filtered_whole(head, payload)
            elif is_stream and not isinstance(reader, LengthReader):
                head = replace(head, forward=edited_fields(head.forward))
                state.stream = self._edited_stream()
            else:
                state.held, state.kept = (head, reader), bytearray(payload)
                return
        elif is_stream and is_plain and not isinstance(reader, LengthReader):
            state.stream = Stream()
        if is_stream and is_plain and reader is not None and self.method == "GET":
            state.first = FirstEvent(self._is_of_this_route)
            payload = state.first.feed(payload)
        if state.stream is not None:
            state.sent_s = asyncio.get_running_loop().time()
            payload = state.stream.feed(payload)
        Exchange.respond(self, head, reader, payload)
        self._check_first()

    def pass_interim(self, head: ResponseHead) -> None:
        """Pass on a 1xx, which has no session: the client gets that sealed, with the answer."""
        Exchange.pass_interim(self, replace(head, forward=_session.sub(b"", head.forward)))

    def _with_sealed_session(self, head: ResponseHead) -> ResponseHead:
        """The head with the session id for the client."""
        found = _session.search(head.forward)
        assert found is not None, "it has the field"
        upstream, identity = self.upstream, self.identity
        assert upstream is not None, "it has answered"
        session = Session(found[1].strip(b" \t").decode("latin-1"), upstream.pool.tag)
        lineage = "" if identity is None else identity.record.lineage
        sealed = self.context.seals.seal(session, lineage, first_name(self.route))
        head = replace(head, forward=_session.sub(b"", head.forward))
        if sealed is None:
            return head
        return _with_lines(head, b"Mcp-Session-Id: %b\r\n" % sealed.encode("ascii"))

    def _is_of_this_route(self, url: str) -> bool:
        """Are messages to a URL, which a stream names, requests of this route?"""
        host = b"" if self.fields is None else self.fields.host
        authority = host or b"".join(self.requested.authority[:1])
        target = target_of(url, self.requested.path, authority.decode("latin-1"))
        if target is None:
            return False
        line = b"POST %b HTTP/1.1" % target.encode("utf-8", "replace")
        requested = read_request(line, self.policy, authority)
        return isinstance(requested, Requested) and requested.route.name == self.route.name

    def _check_first(self) -> None:
        """End a stream that names an endpoint of another route."""
        first = self.mcp.first
        if first is None or self.is_over:
            return
        if first.refused is not None:
            words = (
                f"an event stream with the endpoint {printable(first.refused[:200])}, where "
                f"messages are not requests of routes.{self.route.name}"
            )
            self._drop_upstream()
            self.upstream_invalid(UPSTREAM_INVALID, words)
        elif first.is_known:
            self.mcp.first = None

    def relay(self, payload: bytes) -> None:
        state = self.mcp
        if state.first is not None:
            payload = state.first.feed(payload)
            self.conn.keeping(self.kept_bytes)
        if state.held is not None:
            state.kept += payload
            if len(state.kept) > MOST_BYTES:
                self._pass_unfiltered()
            self.conn.keeping(self.kept_bytes)
            return
        if state.stream is not None:
            state.sent_s = asyncio.get_running_loop().time()
            payload = state.stream.feed(payload)
            if state.stream.kept:
                self.conn.keeping(self.kept_bytes)
        if payload:
            Exchange.relay(self, payload)
        if state.first is not None:
            self._check_first()

    @property
    def passed_bytes(self) -> int:
        # A comment for the client does not make a server that is silent one that answers.
        return self.bytes_in + self.bytes_out + len(self.mcp.kept) - self.mcp.comments

    @property
    def kept_bytes(self) -> int:
        state = self.mcp
        first = 0 if state.first is None else state.first.kept
        return len(state.kept) + first + (0 if state.stream is None else state.stream.kept)

    def _pass_unfiltered(self) -> None:
        """Pass on a list that is too long to be filtered."""
        state = self.mcp
        assert state.held is not None
        head, reader = state.held
        payload = state.take()
        self.context.metrics.mcp.unfiltered()
        Exchange.respond(self, head, reader, payload)

    def complete(self) -> None:
        state = self.mcp
        if state.first is not None and (rest := state.first.end()):
            Exchange.relay(self, rest if state.stream is None else state.stream.feed(rest))
        if state.held is not None:
            head, payload = self._filtered_whole(state.held[0], state.take())
            Exchange.respond(self, head, None, payload)
        elif state.stream is not None and (rest := state.stream.end()):
            Exchange.relay(self, rest)
        Exchange.complete(self)

    def _filtered_whole(self, head: ResponseHead, payload: bytes) -> tuple[ResponseHead, bytes]:
        """A whole answer with a list, filtered."""
        if _kind(_lowered(head)) == MEDIA_TYPE:
            stream = self._edited_stream()
            payload = stream.feed(payload) + stream.end()
        else:
            edited = self._edited_event(payload)
            if edited is None:
                self.context.metrics.mcp.unfiltered()
            else:
                payload = edited
        forward = edited_fields(head.forward)
        return replace(head, forward=forward, length=len(payload), chunked=False), payload

    def _edited_stream(self) -> EditedStream:
        return EditedStream(
            self._edited_event, MOST_BYTES, self.context.metrics.mcp.unfiltered, MARK
        )

    def _edited_event(self, data: bytes) -> bytes | None:
        """A message of the server without the tools that the key may not call; None: unreadable."""
        message = self.mcp.message
        try:
            return filtered(data, partial(admits, self), "" if message is None else message.version)
        except Unreadable:
            return None

    def tick(self, now: float) -> None:
        """Send a comment if the stream has been silent. now: by the loop's clock"""
        state = self.mcp
        if (
            state.stream is not None
            and state.stream.between
            and now - state.sent_s >= section(self.route).keepalive_s
            and self.phase == Phase.RELAYING
            and self.takes_more
        ):
            state.sent_s = now
            state.comments += len(COMMENT)
            Exchange.relay(self, COMMENT)

    # -- refusals ---------------------------------------------------------------------------------
    def answer_refusal(self, refusal: Refusal) -> None:
        if self.is_over:
            return
        self.refusal = refusal
        if refusal.closes or self.context.draining:
            self.keep = False
        answer, fields = refusal_answer(self, refusal, self.mcp)
        self._answer_whole(answer.status, answer.body, fields)

    # -- the end ----------------------------------------------------------------------------------
    def abandon(self, reason: str) -> None:
        if not self.is_over:
            self._count(reason)
        Exchange.abandon(self, reason)

    def _end(self, steps: Steps, now: float) -> None:
        self._count()
        Exchange._end(self, steps, now)

    def _count(self, reason: str | None = None) -> None:
        """reason: why the request was abandoned; None: it was not"""
        metrics, state = self.context.metrics.mcp, self.mcp
        route, refusal = self.route, self.refusal
        if state.connection:
            metrics.closed(route.name, state.connection)
            state.connection = 0
        outcome: Outcome = "admitted"
        if refusal is not None:
            outcome = "limited" if refusal in LIMITED else "refused"
            metrics.refused(route.name, refusal.reason)
        if state.body is None:
            metrics.ended(route.name, self.method, "", outcome)
            return
        tools = section(route).tools
        for message in state.body.messages:
            tool = ""
            if message.method == CALL:
                tool = message.name if message.name in tools else OTHER
                self.context.accounting.called(self, reason, tool)
            metrics.ended(route.name, message.method or "response", tool, outcome)


class TracedMcpExchange(TracedExchange, McpExchange):
    """The same, traced."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        """arguments: those of an `Exchange`"""
        TracedExchange.__init__(self, *arguments)
        self.mcp = McpState()

    def _end(self, steps: Steps, now: float) -> None:
        self._count()
        TracedExchange._end(self, steps, now)


def _lowered(head: ResponseHead) -> bytes:
    """The field lines in lower case, each after a LF."""
    return b"\n" + head.forward.lower()


def _kind(fields: bytes) -> str:
    """The media type, of lines in lower case; "": there is none, or it cannot be read."""
    found = _content_type.search(fields)
    return "" if found is None else read_media_type(found[1].strip(b" \t").decode("latin-1")).name


def _with_lines(head: ResponseHead, lines: bytes) -> ResponseHead:
    return replace(head, forward=head.forward + lines)
