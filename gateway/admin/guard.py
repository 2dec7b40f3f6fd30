"""The middlewares of the admin listener.

From the outside in: errors as JSON, the Host header (against DNS rebinding, where a page of another
site reaches this address under its own name), and the admin token for every path under /admin,
whether it exists or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from ipaddress import ip_address
from typing import Final

from aiohttp import hdrs, web

from gateway import errors
from gateway.admin.access import PAUSE_S, Retry
from gateway.admin.connection import waiting
from gateway.admin.context import ACCESS, CLOCK, address_of
from gateway.admin.refusals import (
    HOST_NOT_ALLOWED,
    TOKEN_MISSING,
    TOKEN_WRONG,
    TOO_MANY_ATTEMPTS,
    refusal,
    refusal_of,
)
from gateway.admin.request_id import request_id_of

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: The bound for bodies of the API, except of events, and forms of the console.
MOST_BODY_BYTES: Final = 64 * 1024
#: Answered under any Host: probes use many, and the answers reveal nothing.
PROBES: Final = frozenset({"/healthz", "/readyz"})
#: Answered only under an allowed Host, since a web page that reads it by DNS rebinding would learn
#: plans and routes. Prometheus sends its target as Host: an address, or a name to be allowed. A
#: client that sends no Host, as HTTP/1.0 permits, is not a browser.
METRICS: Final = "/metrics"
#: Everything below requires the admin token.
API: Final = "/admin"


@web.middleware
async def refuse_in_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into JSON answers; the cause of an unexpected one is logged."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return refusal(errors.NOT_FOUND)
    except web.HTTPMethodNotAllowed as refused:
        return refusal(errors.METHOD_NOT_ALLOWED, {"Allow": ", ".join(refused.allowed_methods)})
    except web.HTTPRequestEntityTooLarge:
        return refusal(errors.BODY_TOO_LARGE)
    except web.HTTPException:
        raise
    except Exception as error:
        if (known := refusal_of(error)) is not None:
            return known
        _log.exception(
            "the admin listener failed at %s %s (request %s)",
            *(request.method, spelled(request), request_id_of(request)),
        )
        return refusal(errors.INTERNAL)


def host_guard(names: Collection[str]) -> Callable[..., Awaitable[web.StreamResponse]]:
    """The middleware that refuses a Host other than an IP address, localhost and these names."""
    allowed = {"localhost", *(name.lower() for name in names)}

    @web.middleware
    async def check_host(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get(hdrs.HOST)
        if request.path in PROBES or (host is None and request.path == METRICS):
            return await handler(request)
        if is_allowed(host or "", allowed):
            return await handler(request)
        return refusal(HOST_NOT_ALLOWED)

    return check_host


def is_allowed(host: str, names: Collection[str]) -> bool:
    """Is this Host allowed? names: in lower case

    Any IP address is: only names can be made to resolve to this listener.
    """
    if host.startswith("["):
        bare, bracket, port = host[1:].partition("]")
        return bool(bracket) and _is_port(port) and _is_address(bare)
    bare, colon, port = host.partition(":")
    bare = bare.lower().removesuffix(".")
    return _is_port(colon + port) and (bare in names or _is_address(bare))


@web.middleware
async def require_token(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Require the admin token for the API, as a bearer token."""
    if request.path != API and not request.path.startswith(f"{API}/"):
        return await handler(request)
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return refusal(TOKEN_MISSING, {hdrs.WWW_AUTHENTICATE: 'Bearer realm="admin"'})
    admitted = await admit(request, token.strip())
    if admitted:
        return await handler(request)
    if isinstance(admitted, Retry):
        response = refusal(TOO_MANY_ATTEMPTS, {hdrs.RETRY_AFTER: str(admitted.after_s)})
    else:
        challenge = 'Bearer realm="admin", error="invalid_token"'
        response = refusal(TOKEN_WRONG, {hdrs.WWW_AUTHENTICATE: challenge})
    # Each guess costs a connection.
    response.force_close()
    return response


async def admit(request: web.Request, token: str) -> bool | Retry:
    """Is this the admin token? Wrong ones are counted, and logged once a minute."""
    access = request.app[ACCESS]
    if access.one_at_a_time is None:
        return _admit(request, token)
    with waiting(request):
        await access.one_at_a_time.acquire()
    if request.transport is None:  # closed meanwhile: the others need not wait for it
        access.one_at_a_time.release()
        return False
    admitted = _admit(request, token)
    pause_s = 0.0 if admitted else PAUSE_S
    asyncio.get_running_loop().call_later(pause_s, access.one_at_a_time.release)
    return admitted


def _admit(request: web.Request, token: str) -> bool | Retry:
    access, address, now_s = request.app[ACCESS], address_of(request), request.app[CLOCK]()
    admitted = access.admit(token, address, now_s)
    if not admitted:
        # A monotonic clock: if the wall clock is set back, the log would be silent for that time.
        suppressed = access.throttle.suppressed("wrong token", asyncio.get_running_loop().time())
        if suppressed is not None:
            more = f" (and {suppressed} more since the last such line)" if suppressed else ""
            _log.warning("admin: wrong token from %s%s", address, more)
    return admitted


def spelled(request: web.Request) -> str:
    """The path for the log: without the query, which may have secrets."""
    return request.path.encode("unicode_escape").decode("ascii")


def _is_port(text: str) -> bool:
    return text == "" or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit())


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
