"""The MCP server of `gateway demo`: two tools, in all revisions from 2025-03-26 on.

https://modelcontextprotocol.io/specification
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from gateway.domain.json_text import read_json

#: A tool's result for its arguments. Raises ValueError if they are invalid.
Tool = Callable[[Mapping[str, Any]], dict[str, object]]

PATH: Final = "/mcp"
#: From this revision on there are no sessions, and each request names its revision.
STATELESS: Final = "2026-07-28"
VERSIONS: Final = (STATELESS, "2025-11-25", "2025-06-18", "2025-03-26")
_SESSION: Final = "Mcp-Session-Id"
#: Beyond it, the oldest session ends.
_MOST_SESSIONS: Final = 1000
_MOST_QUERY: Final = 200

_CODE: Final = {
    "billing/invoice.py": ["def total(lines):", "    return sum(line.amount for line in lines)"],
    "billing/limits.py": ["def is_overdue(invoice, today):", "    return invoice.due < today"],
    "tickets/queue.py": ["def next_ticket(queue):", "    return min(queue, key=priority)"],
}


class _Failed(Exception):
    """code: of JSON-RPC; the text is the error's message"""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def add_mcp_server(app: web.Application) -> None:
    """Serve it at PATH of an application."""
    server = _McpServer()
    app.router.add_post(PATH, server.post)
    app.router.add_get(PATH, server.listen, allow_head=False)
    app.router.add_delete(PATH, server.end)
    app.on_shutdown.append(server.stop)


class _McpServer:
    """Its sessions, which clients need not have: each message can be answered by itself."""

    def __init__(self) -> None:
        self._sessions: dict[str, None] = {}
        self._stopped = asyncio.Event()

    async def post(self, request: web.Request) -> web.Response:
        """Answer a message, or an array of them."""
        try:
            found = read_json(await request.read())
        except ValueError:
            return _response(400, _error(None, _Failed(-32700, "the body is not JSON")))
        if not self._knows(request):
            return _response(404, _error(None, _Failed(-32001, "Session not found")))
        version = request.headers.get("MCP-Protocol-Version", VERSIONS[-1])
        messages = found if isinstance(found, list) and found else [found]
        answers = [each for each in (_answer(one, version) for one in messages) if each is not None]
        if not answers:
            return web.Response(status=202)
        response = _response(200, answers if isinstance(found, list) and found else answers[0])
        if any(isinstance(one, dict) and one.get("method") == "initialize" for one in messages):
            response.headers[_SESSION] = self._begin()
        return response

    async def listen(self, request: web.Request) -> web.StreamResponse:
        """A stream for messages of the server, which has none; it ends with the client."""
        if request.headers.get("MCP-Protocol-Version") == STATELESS:
            raise web.HTTPMethodNotAllowed("GET", ["POST"])
        if not self._knows(request):
            return _response(404, _error(None, _Failed(-32001, "Session not found")))
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        await self._stopped.wait()
        return response

    async def end(self, request: web.Request) -> web.Response:
        """End a session."""
        if _SESSION not in request.headers or not self._knows(request):
            return _response(404, _error(None, _Failed(-32001, "Session not found")))
        del self._sessions[request.headers[_SESSION]]
        return web.Response(status=204)

    async def stop(self, _app: web.Application) -> None:
        """End all streams."""
        self._stopped.set()

    def _knows(self, request: web.Request) -> bool:
        session = request.headers.get(_SESSION)
        return session is None or session in self._sessions

    def _begin(self) -> str:
        session = uuid.uuid4().hex
        self._sessions[session] = None
        if len(self._sessions) > _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session


# -- messages --------------------------------------------------------------------------------------


def _answer(message: object, version: str) -> dict[str, object] | None:
    """The answer to a message; None: it is a notification or an answer. version: of its header"""
    if isinstance(message, dict) and "method" not in message and "id" in message:
        return None
    message_id = message.get("id") if isinstance(message, dict) else None
    try:
        if (
            not isinstance(message, dict)
            or message.get("jsonrpc") != "2.0"
            or not isinstance(message.get("method"), str)
        ):
            raise _Failed(-32600, "expected a message of JSON-RPC 2.0")
        if "id" not in message:
            return None
        if version not in VERSIONS:
            raise _Failed(
                -32022, f"found version {version!r}, expected one of {', '.join(VERSIONS)}"
            )
        params = message.get("params", {})
        if not isinstance(params, dict):
            raise _Failed(-32602, "'params' must be an object")
        result = _result(message["method"], params)
    except _Failed as failed:
        return _error(message_id, failed)
    if version == STATELESS:
        result = {"resultType": "complete", **result}
    return {"jsonrpc": "2.0", "id": message_id, "result": result}


def _result(method: str, params: Mapping[str, Any]) -> dict[str, object]:
    match method:
        case "ping":
            return {}
        case "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in VERSIONS and asked != STATELESS else VERSIONS[1]
            return {"protocolVersion": version, **_description()}
        case "server/discover":
            return {"supportedVersions": list(VERSIONS), **_description(), **_cached()}
        case "tools/list":
            return {"tools": [_shown(name) for name in _TOOLS], **_cached()}
        case "tools/call":
            return _called(params)
    raise _Failed(-32601, f"there is no method {method!r}")


def _description() -> dict[str, object]:
    return {
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "gateway-demo", "version": "1"},
        "instructions": "Example tools: search a little code, create tickets that nobody reads.",
    }


def _cached() -> dict[str, object]:
    return {"ttlMs": 60_000, "cacheScope": "private"}


def _called(params: Mapping[str, Any]) -> dict[str, object]:
    name, arguments = params.get("name"), params.get("arguments", {})
    if not isinstance(name, str) or name not in _TOOLS:
        raise _Failed(-32602, f"Unknown tool: {name}")
    if not isinstance(arguments, dict):
        raise _Failed(-32602, "'arguments' must be an object")
    try:
        found = _TOOLS[name][2](arguments)
    except ValueError as fault:
        return {"content": [{"type": "text", "text": str(fault)}], "isError": True}
    text = json.dumps(found, indent=2)
    return {"content": [{"type": "text", "text": text}], "structuredContent": found}


def _error(message_id: object, failed: _Failed) -> dict[str, object]:
    error = {"code": failed.code, "message": str(failed)}
    return {"jsonrpc": "2.0", "id": message_id, "error": error}


def _response(status: int, body: object) -> web.Response:
    return web.json_response(body, status=status)


# -- tools -----------------------------------------------------------------------------------------


def _search_code(arguments: Mapping[str, Any]) -> dict[str, object]:
    query = _text(arguments, "query")
    matches = [
        {"file": file, "line": number, "text": line}
        for file, lines in _CODE.items()
        for number, line in enumerate(lines, 1)
        if query.lower() in line.lower()
    ]
    return {"matches": matches}


def _create_ticket(arguments: Mapping[str, Any]) -> dict[str, object]:
    title = _text(arguments, "title")
    return {"id": f"tic_{uuid.uuid4().hex[:12]}", "title": title, "status": "open"}


def _text(arguments: Mapping[str, Any], name: str) -> str:
    found = arguments.get(name)
    if not isinstance(found, str) or not 1 <= len(found) <= _MOST_QUERY:
        raise ValueError(f"'{name}' must be a text of 1 to {_MOST_QUERY} characters")
    return found


#: Each tool's description, argument and function.
_TOOLS: Final[Mapping[str, tuple[str, str, Tool]]] = {
    "search_code": ("Find lines of code that contain a text", "query", _search_code),
    "create_ticket": ("Create a ticket", "title", _create_ticket),
}


def _shown(name: str) -> dict[str, object]:
    description, argument, _ = _TOOLS[name]
    text = {"type": "string", "minLength": 1, "maxLength": _MOST_QUERY}
    schema = {"type": "object", "properties": {argument: text}, "required": [argument]}
    return {"name": name, "description": description, "inputSchema": schema}
