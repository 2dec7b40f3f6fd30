"""Requests to MCP servers, each beside a plain one of the same size, with the same limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from gateway.domain.mcp.sessions import Session, server_tag
from tests.bench.rig import PLANS, Rig, deliver, remembering
from tests.kit.proxy import PromptLimiter, policy_of, request

Round = Callable[[], object]

ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\nDate: Sat, 21 Nov 2026 12:25:03 GMT\r\n"
    b"Content-Type: application/json\r\nContent-Length: 73\r\n\r\n"
    b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":""}]}}'
)

LIMITS: Final = 5
_LIMITS: Final = """
    limits:
      - {{name: {0}, rate: 100/minute}}
      - {{name: {0}-daily, quota: 10000/day}}
      - {{name: {0}-connections, concurrency: 5{1}}}
      - {{name: {0}-in-flight, concurrency: 25}}
      - {{name: {0}-control, rate: 150/minute{2}}}
"""
ROUTES: Final = "".join(
    (
        "routes:\n  plain:\n    match: '* /plain'\n    upstream: api\n    plan_limits: false",
        _LIMITS.format("plain", "", ""),
        "  mcp:\n    match: '* /mcp'\n    upstream: api\n    plan_limits: false\n    mcp:\n",
        "      tools: {search_code: {permission: 'scm:read', cost: 5}, '*': allow}",
        _LIMITS.format("mcp", ", of: connections", ", of: messages"),
    )
)
#: The size of a call with short arguments.
CALL_BYTES: Final = 300

_FIELDS: Final = (
    "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
    "MCP-Protocol-Version: 2025-11-25\r\n"
)
_EVENT: Final = (
    b'event: message\r\ndata: {"jsonrpc":"2.0","method":"notifications/progress",'
    b'"params":{"progressToken":1,"progress":50}}\r\n\r\n'
)
_EVENTS: Final = (
    b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\nDate: Sat, 21 Nov 2026 12:25:03 GMT\r\n"
    b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def message(method: str, **params: Any) -> bytes:
    """A request as clients send it."""
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    return json.dumps(body, separators=(",", ":")).encode()


def call(text: str = "") -> bytes:
    """A call of a tool with this argument."""
    return message("tools/call", name="search_code", arguments={"query": text})


CALL: Final = call("x" * (CALL_BYTES - len(call())))


def prepare(rig: Rig) -> str:
    """Use the policy with both routes; return a key that may call the tool."""
    rig.use(policy_of(plans=PLANS, routes=ROUTES))
    rig.use_limiter(remembering(PromptLimiter(limits=LIMITS)))
    return rig.add_key(permissions={"scm": ("read",)})


def post(key: str, path: str, body: bytes, more: str = "") -> bytes:
    """A request as clients of MCP send it. more: further field lines"""
    plain = request(key, path, "POST", body)
    return plain.replace(b"Accept: */*\r\n", (_FIELDS + more).encode(), 1)


def posting(rig: Rig, sent: bytes, answer: bytes = ANSWER) -> Callable[[], bytes]:
    """The same request each time; a round returns the last write of its answer."""
    client, seen = rig.connect()

    def once() -> bytes:
        deliver(client, sent)
        rig.loop.run()  # a body that was collected is read in a later turn
        rig.answer(answer)
        return seen.last

    assert once().startswith(b"HTTP/1.1 200 OK"), seen.last
    return once


def plain_post(rig: Rig) -> Round:
    """The request of a call, on a route that does not read it."""
    return posting(rig, post(prepare(rig), "/plain", CALL))


def mcp_call(rig: Rig) -> Round:
    """A call without a session, as from 2026-07-28 on."""
    return posting(rig, post(prepare(rig), "/mcp", CALL))


def mcp_session_call(rig: Rig) -> Round:
    """A call in a session."""
    key = prepare(rig)
    (pool,) = rig.context.pools._by_server.values()
    session = Session("0123456789abcdef0123456789abcdef", server_tag(pool.label))
    lineage = rig.identities[key].record.lineage
    sealed = rig.context.seals.seal(session, lineage, "mcp")
    return posting(rig, post(key, "/mcp", CALL, f"Mcp-Session-Id: {sealed}\r\n"))


def plain_session_call(rig: Rig) -> Round:
    """The same on a route that does not read it."""
    sealed = "0123456789abcdef0123456789abcdef.0123456789.0123456789abcdef012345"
    return posting(rig, post(prepare(rig), "/plain", CALL, f"Mcp-Session-Id: {sealed}\r\n"))


def events(path: str, body: bytes) -> Callable[[Rig], Round]:
    """One event of a stream that stays open, which is the answer to this."""

    def build(rig: Rig) -> Round:
        client, seen = rig.connect()
        deliver(client, post(prepare(rig), path, body))
        rig.loop.run()
        rig.answer(_EVENTS)
        assert seen.last.startswith(b"HTTP/1.1 200 OK"), seen.last
        chunk = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)

        def once() -> None:
            rig.answer(chunk)

        once()
        assert _EVENT in seen.last, seen.last
        return once

    return build
