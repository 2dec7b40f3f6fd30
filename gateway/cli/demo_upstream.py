"""The upstream of `gateway demo`, with an answer for every shipped route.

Like a real service behind the gateway, it validates its input, and leaves keys, scopes and limits
to the gateway. Its `Server` header shows users which answers are from the upstream.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from gateway.cli.demo_mcp import add_mcp_server
from gateway.domain.json_text import read_json

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SERVER: Final = "demo-upstream"
_LONGEST_S: Final = 60.0
_MOST_EVENTS: Final = 1000
#: How long requests in progress may take at the end.
_STOP_S: Final = 1.0

_CONNECTORS: Final = [
    {"id": "con_1", "kind": "source-code", "name": "Repositories", "status": "connected"},
    {"id": "con_2", "kind": "ticketing", "name": "Tickets", "status": "connected"},
    {"id": "con_3", "kind": "incidents", "name": "Incidents", "status": "disconnected"},
]


class _Fault(Exception):
    """The input is invalid; the text says what was expected."""


@asynccontextmanager
async def serve_demo_upstream(host: str, port: int) -> AsyncIterator[int]:
    """Serve the upstream at this address; yields the port. port: 0 is any free one"""
    runner = web.AppRunner(
        build_demo_upstream(),
        access_log=None,
        shutdown_timeout=_STOP_S,
        handler_cancellation=True,  # of a stream whose client has left
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield site.port
    finally:
        await runner.cleanup()


def build_demo_upstream() -> web.Application:
    """The application, without an address."""
    app = web.Application(middlewares=[_answer_in_json])
    app.on_response_prepare.append(_sign)
    app.router.add_get("/v1/connectors", _list_connectors)
    app.router.add_get("/api/search/{tail:.*}", _search)
    app.router.add_post("/api/{collection}/batch", _batch)
    app.router.add_post("/api/webhooks/test", _test_webhook)
    app.router.add_post("/api/v1/integrations/{integration_id}/watches", _create_watch)
    app.router.add_get("/slow", _slow)
    app.router.add_get("/stream", _stream)
    app.router.add_get("/whoami", _whoami)
    add_mcp_server(app)
    return app


async def _list_connectors(_request: web.Request) -> web.Response:
    return web.json_response({"connectors": _CONNECTORS})


async def _search(request: web.Request) -> web.Response:
    subject = request.match_info["tail"]
    results = [{"id": f"res_{rank}", "rank": rank} for rank in (1, 2, 3)]
    return web.json_response(
        {"in": subject, "query": request.query.get("q", ""), "results": results}
    )


async def _batch(request: web.Request) -> web.Response:
    ids = _texts(await _object(request), "ids")
    collection = request.match_info["collection"]
    return web.json_response({"results": [{"id": each, "kind": collection} for each in ids]})


async def _test_webhook(_request: web.Request) -> web.Response:
    return web.json_response({"status": "accepted", "event": _new_id("evt")}, status=202)


async def _create_watch(request: web.Request) -> web.Response:
    body = await _object(request)
    watch = {
        "id": _new_id("wat"),
        "integration": request.match_info["integration_id"],
        "url": _https_url(body.get("url")),
        "events": _texts(body, "events"),
    }
    return web.json_response(watch, status=201)


async def _slow(request: web.Request) -> web.Response:
    seconds = _number(request, "seconds", 2.0, _LONGEST_S)
    await asyncio.sleep(seconds)
    return web.json_response({"waited_seconds": seconds})


async def _stream(request: web.Request) -> web.StreamResponse:
    """Server-sent events, one per interval."""
    events = int(_number(request, "events", 5, _MOST_EVENTS))
    interval_s = _number(request, "interval", 1.0, _LONGEST_S)
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    await response.prepare(request)
    for number in range(1, events + 1):
        if number > 1:
            await asyncio.sleep(interval_s)
        await response.write(f'id: {number}\ndata: {{"event": {number}}}\n\n'.encode())
    await response.write_eof()
    return response


async def _whoami(request: web.Request) -> web.Response:
    identity = {
        name: value
        for name, value in request.headers.items()
        if name.lower().startswith("x-gateway-")
    }
    return web.json_response({"identity": identity})


# -- validation of input ---------------------------------------------------------------------------


async def _object(request: web.Request) -> dict[str, object]:
    try:
        body = read_json(await request.read())
    except ValueError:
        raise _Fault("the body is not JSON") from None
    if not isinstance(body, dict):
        raise _Fault("the body is not a JSON object")
    return body


def _texts(body: dict[str, object], name: str) -> list[str]:
    found = body.get(name)
    texts = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    if not isinstance(found, list) or not texts or len(texts) < len(found):
        raise _Fault(f"'{name}' must be an array of strings, with at least one")
    return texts


def _https_url(found: object) -> str:
    try:
        if isinstance(found, str):
            url = urlsplit(found)
            if url.scheme == "https" and url.hostname:
                return found
    except ValueError:  # such as a bracket that is never closed
        pass
    raise _Fault("'url' must be an address that starts with https://")


def _number(request: web.Request, name: str, default: float, most: float) -> float:
    try:
        number = float(request.query.get(name, default))
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise _Fault(f"'{name}' must be a number from 0 to {most:g}")
    return number


# -- answers ---------------------------------------------------------------------------------------


@web.middleware
async def _answer_in_json(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except _Fault as fault:
        return _error(400, "bad_request", str(fault))
    except web.HTTPMethodNotAllowed as refused:
        methods = ", ".join(sorted(refused.allowed_methods))
        return _error(405, "method_not_allowed", f"there is {methods} here", {"Allow": methods})
    except web.HTTPException as refused:
        # Before 3.13 Python has the older name of 413, not the one of RFC 9110.
        reason = "Content Too Large" if refused.status == 413 else refused.reason
        name = reason.lower().replace(" ", "_")
        return _error(refused.status, name, f"{refused.status} {reason}: {request.path}")


def _error(
    status: int, error: str, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    return web.json_response({"error": error, "message": message}, status=status, headers=headers)


async def _sign(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = SERVER


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:12]}"
