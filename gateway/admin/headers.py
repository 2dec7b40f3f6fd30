"""What goes with every answer of the admin listener: headers for browsers."""

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
    """To be called with each answer before it is sent: adds the headers for browsers."""
    # Whoever looks for a server to attack need not know what this one is made with.
    response.headers["Server"] = "gateway"
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
