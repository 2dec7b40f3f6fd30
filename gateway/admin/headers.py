"""The headers for browsers in every answer of the admin listener."""

from __future__ import annotations

from typing import Final

from aiohttp import web

#: Set where a handler has not set its own.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer, browsers send the console's own forms with "Origin: null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


async def harden(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers for browsers to an answer before it is sent."""
    # Attackers should not learn what the server is built with.
    response.headers["Server"] = "gateway"
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
