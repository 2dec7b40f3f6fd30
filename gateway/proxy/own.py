"""The gateway's own paths: /health, /v1/health, /v1/auth/verify; preflights; static answers."""

from __future__ import annotations

from gateway.domain.limits import SECOND_US
from gateway.domain.shown import rfc3339
from gateway.proxy.answers import json_body
from gateway.proxy.context import Context
from gateway.proxy.request import Request


def answer(request: Request, context: Context) -> None:
    """Answer an admitted request that has no upstream."""
    route = request.route
    static = route.respond
    if static is not None:
        request.answer(static.status, static.body, static.content_type)
    elif route.name == "gateway:ping":
        request.answer(200, b"")
    elif route.name == "gateway:preflight":
        request.answer(204, b"")
    elif route.name == "gateway:health":
        now = rfc3339(context.clock_us() // SECOND_US * SECOND_US)
        record = {"status": "ok", "timestamp": now, "version": context.version}
        request.answer(200, json_body(record))
    else:
        context.verified.answer(request)
