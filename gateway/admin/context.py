"""The keys under which handlers find objects in the application and in a request."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import hdrs, web

from gateway.admin.access import Access, is_actor_name
from gateway.admin.readiness import Readiness
from gateway.admin.sessions import Session, Sessions
from gateway.domain.networks import (
    client_address,
    is_within,
    parse_address,
    parse_forwarded,
    parse_forwarded_for,
)
from gateway.domain.policy import AdminProxy
from gateway.manage.audit_log import Actor
from gateway.manage.management import Management
from gateway.manage.problems import Fault, Invalid

#: Present if there is a store that this process can manage.
MANAGEMENT: Final = web.AppKey("management", Management)
#: The check of admin tokens.
ACCESS: Final = web.AppKey("access", Access)
#: The console's sessions.
SESSIONS: Final = web.AppKey("sessions", Sessions)
#: The clock for wrong tokens and sessions: Unix seconds, which gateways have in common.
CLOCK: Final[web.AppKey[Callable[[], float]]] = web.AppKey("clock")
#: The current policy's `admin_proxy`.
PROXY: Final[web.AppKey[Callable[[], AdminProxy]]] = web.AppKey("proxy")
#: What a readiness probe is told now.
READINESS: Final[web.AppKey[Callable[[], Awaitable[Readiness]]]] = web.AppKey("readiness")
#: The current policy's `error_docs`.
ERROR_DOCS: Final[web.AppKey[Callable[[], str | None]]] = web.AppKey("error_docs")

#: Where the console's middleware puts a request's session: request[SESSION].
SESSION: Final = web.RequestKey("session", Session)
#: The header in which an API client names itself, for the audit log.
ACTOR: Final = "X-Admin-Actor"


def actor_of(request: web.Request) -> Actor:
    """Who sent the request: the session's name, else X-Admin-Actor. Raises Invalid."""
    address = address_of(request)
    session: Session | None = request.get(SESSION)
    if session is not None:
        return Actor(session.name, "console", address)
    name = request.headers.get(ACTOR, "token")
    if not (name.isascii() and is_actor_name(name)):
        raise Invalid(Fault(ACTOR, "another text", "up to 64 letters, digits, spaces, . _ @ + ' -"))
    return Actor(name, "api", address)


def address_of(request: web.Request) -> str:
    """The client's address; behind a proxy of `admin_proxy`, the address that it forwards."""
    peer = request.remote or ""
    if not _is_proxied(request):
        return peer
    trusted = request.app[PROXY]().trusted
    return str(client_address(parse_address(peer), _hops(request), trusted))


def is_by_tls(request: web.Request) -> bool:
    """Did the browser use TLS, to this listener or to the proxy in front of it?"""
    return request.secure or (request.app[PROXY]().tls and _is_proxied(request))


def now_s() -> float:
    """The default of CLOCK."""
    return time.time()


def _is_proxied(request: web.Request) -> bool:
    trusted = request.app[PROXY]().trusted
    try:
        return is_within(parse_address(request.remote or ""), trusted)
    except ValueError:  # a connection that was closed has no address
        return False


def _hops(request: web.Request) -> tuple[str, ...]:
    if lines := request.headers.getall(hdrs.X_FORWARDED_FOR, []):
        return parse_forwarded_for(",".join(lines))
    return parse_forwarded(",".join(request.headers.getall(hdrs.FORWARDED, [])))
