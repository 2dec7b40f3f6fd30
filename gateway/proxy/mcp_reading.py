"""What is read of a request to an MCP server before the limiter is asked: messages and session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.domain.identity import Grant
from gateway.domain.limits import Check, Limit
from gateway.domain.mcp.agreement import disagreement
from gateway.domain.mcp.checks import check_of
from gateway.domain.mcp.demands import ENDING, LISTENING, Demand, demand_of
from gateway.domain.mcp.messages import (
    LAST_STATEFUL,
    ONE_STEP_BYTES,
    Body,
    Fault,
    Message,
    read_body,
    read_in_steps,
)
from gateway.domain.mcp.sessions import Seals, Session
from gateway.domain.mcp.settings import CALL, LIST, Mcp
from gateway.domain.meets import with_own
from gateway.domain.route import Route
from gateway.errors import (
    BAD_FRAMING,
    BODY_TOO_LARGE,
    MESSAGE_INVALID,
    METHOD_NOT_ALLOWED,
    NOT_JSON,
    SESSION_UNKNOWN,
    TOOL_NOT_PERMITTED,
    TOOL_UNKNOWN,
    Refusal,
)
from gateway.proxy.mcp_head import McpHead
from gateway.proxy.request import Request

#: The longest name of a tool in an answer of the gateway.
MOST_NAME: Final = 128


class Reading:
    """What was read of one request.

    steps:   those in which a long body is read; None: it is not being read
    body:    its messages; None: it has none, or they were not read
    fault:   why they cannot be read
    refused: the call that is refused whatever the limits are
    demand:  what they ask for
    session: None: it has none
    gets_tools: the answer may have lists of tools
    """

    __slots__ = ("body", "demand", "fault", "gets_tools", "refused", "session", "steps")

    def __init__(self) -> None:
        self.steps: Iterator[Body | Fault | None] | None = None
        self.body: Body | None = None
        self.fault: Fault | None = None
        self.refused: Message | None = None
        self.demand: Demand = ENDING
        self.session: Session | None = None
        self.gets_tools = False

    @property
    def session_tag(self) -> int:
        """Of the session; 0: it has none."""
        return 0 if self.session is None else self.session.tag

    @property
    def message(self) -> Message | None:
        """The first message."""
        return None if self.body is None else self.body.messages[0]

    def check(self, request: Request, granted: Grant, seals: Seals) -> Check | None:
        """As `Request.message_check`."""
        if request.refusal is None and not self._read(request, granted, seals):
            return None
        if request.refusal is not None:
            return granted.check_for(request.subject, request.header, 0)
        policy, identity = request.policy, request.identity
        own = {} if identity is None else identity.record.limits
        day = 1 if identity is None else identity.record.billing_day

        def of_key(limit: Limit) -> Limit:
            return with_own(limit, policy.plan(granted.plan), own, day)

        return check_of(
            granted, section(request.route), self.demand, of_key, request.subject, request.header
        )

    def _read(self, request: Request, granted: Grant, seals: Seals) -> bool:
        """Read the request, or set its refusal; False: its body is awaited, or half read."""
        if request.method == "POST":
            if not self._read_messages(request, granted):
                return False
        elif request.method not in {"GET", "DELETE"}:
            request.refusal = METHOD_NOT_ALLOWED
        elif request.fields.chunked or request.fields.length:
            request.refusal = BAD_FRAMING
        elif request.method == "GET":
            self.demand = LISTENING
            self.gets_tools = head_of(request).resumes
        if request.refusal is None:
            request.refusal = self._open_session(request, granted, seals)
        return True

    def _read_messages(self, request: Request, granted: Grant) -> bool:
        head, mcp = head_of(request), section(request.route)
        if not head.is_json:
            request.refusal = NOT_JSON
            return True
        data = request.whole_body(mcp.body_bytes, BODY_TOO_LARGE)
        if data is None:
            return False
        if isinstance(data, Refusal):
            request.refusal = data
            return True
        if len(data) > ONE_STEP_BYTES:
            read = self._read_long(request, data, head.headers.version)
            if read is None:
                return False
        else:
            read = read_body(data, head.headers.version)
        fault = read if isinstance(read, Fault) else disagreement(read, head.headers)
        if isinstance(read, Body):
            self.body = read
        if fault is not None:
            self.fault, request.detail = fault, fault.message
            request.refusal = MESSAGE_INVALID
        elif self.body is not None:
            self.demand = demand_of(self.body, mcp, granted.cost)
            for message in self.body.requests:
                if message.method == LIST:
                    self.gets_tools = True
                elif message.method == CALL and request.refusal is None:
                    request.refusal = self._tool_refusal(request, message)
        return True

    def _read_long(self, request: Request, data: bytes, version: str) -> Body | Fault | None:
        """What a long body has. None: others are served before it is read on."""
        if self.steps is None:
            self.steps = read_in_steps(data, version)
        for read in self.steps:
            if read is not None:
                break
            if request.puts_off():
                return None
        # They refer to the body, which nothing needs while the answer is sent.
        self.steps = None
        return read

    def _tool_refusal(self, request: Request, message: Message) -> Refusal | None:
        """Why this call of a tool is refused whatever the limits are."""
        name = message.name
        if admits(request, name):
            return None
        self.refused = message
        tool = section(request.route).tool(name)
        request.detail = name[:MOST_NAME] if tool.is_denied else ":".join(tool.permission or ())
        return TOOL_UNKNOWN if tool.is_denied else TOOL_NOT_PERMITTED

    def _open_session(self, request: Request, granted: Grant, seals: Seals) -> Refusal | None:
        head, message = head_of(request), self.message
        if not head.has_session or (message is not None and message.version > LAST_STATEFUL):
            return None
        self.session = head.session(seals, granted.lineage, first_name(request.route))
        return SESSION_UNKNOWN if self.session is None else None


def head_of(request: Request) -> McpHead:
    """What the request's fields say."""
    head = request.cache.mcp
    if head is None or head.fields is not request.fields:
        head = request.cache.mcp = McpHead(request.fields, request.header)
    return head


def section(route: Route) -> Mcp:
    """The section `mcp` of a route that has it."""
    assert route.mcp is not None
    return route.mcp


def first_name(route: Route) -> str:
    """The name of a route that stays when it is renamed."""
    return (*route.was, route.name)[0]


def admits(request: Request, name: str) -> bool:
    """May the request's key call this tool?"""
    tool, identity = section(request.route).tool(name), request.identity
    if tool.is_denied:
        return False
    return tool.permission is None if identity is None else tool.is_permitted(identity.record)
