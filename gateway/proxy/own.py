"""What the gateway answers by itself: /health, /v1/health, /v1/auth/verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.http1.answers import json_body, rfc3339

if TYPE_CHECKING:
    from gateway.proxy.exchange import Exchange


def answer(exchange: Exchange) -> None:
    """Answer an admitted request to one of the gateway's own paths."""
    context = exchange.context
    if exchange.route.name == "gateway:ping":
        exchange.answer(200, b"")
    elif exchange.route.name == "gateway:health":
        now = rfc3339(context.clock_us())
        record = {"status": "ok", "timestamp": now, "version": context.version}
        exchange.answer(200, json_body(record))
    else:
        context.verified.answer(exchange)
