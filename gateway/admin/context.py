"""What the handlers of the admin listener find in the application and in a request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from gateway.admin.access import Access, Session, is_actor_name
from gateway.domain import cookies
from gateway.manage.actor import Actor
from gateway.manage.management import Management
from gateway.manage.problems import Fault, Invalid

#: Present where there is a store that this process can manage.
MANAGEMENT: Final = web.AppKey("management", Management)
#: Present where the admin side is open at all.
ACCESS: Final = web.AppKey("access", Access)
#: The clock of attempts and sessions: seconds, never going back.
CLOCK: Final[web.AppKey[Callable[[], float]]] = web.AppKey("clock")

#: The name of the console's cookie.
COOKIE: Final = cookies.SESSION
#: Where the console's middleware puts a request's session: request[SESSION].
SESSION: Final = web.RequestKey("session", Session)
#: The header by which a caller of the API says who it is, for the audit log.
ACTOR: Final = "X-Admin-Actor"


def actor_of(request: web.Request) -> Actor:
    """Who asks: the session's name on a page, else what the API's caller says. Raises Invalid."""
    address = address_of(request)
    session: Session | None = request.get(SESSION)
    if session is not None:
        return Actor(session.name, "console", address)
    name = request.headers.get(ACTOR, "token")
    if not (name.isascii() and is_actor_name(name)):
        raise Invalid(Fault(ACTOR, "another text", "up to 64 letters, digits, spaces, . _ @ + ' -"))
    return Actor(name, "api", address)


def address_of(request: web.Request) -> str:
    """Where a request comes from. No header is believed: this listener is nobody's upstream."""
    return request.remote or ""


def now_s() -> float:
    """What CLOCK is where nobody sets another."""
    return time.monotonic()
