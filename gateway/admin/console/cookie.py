"""The console's cookie: its name, setting it, and finding it in a request.

Browsers do not separate cookies by port. A cookie set here is also sent to the port for API
clients, so the proxy removes cookies of these two names in both directions. And other servers on
the same host can set cookies that are sent here. Under TLS, the prefix `__Host-` prevents that for
subdomains and plain HTTP: browsers accept such a cookie only over TLS, from this host, for all
paths. Without TLS, a foreign cookie of the same name must not lock the user out, so several are
tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from aiohttp import hdrs, web

from gateway.admin.context import CLOCK, SESSIONS, is_by_tls
from gateway.admin.sessions import Session
from gateway.domain import cookies

#: The renewed session for the answer's cookie, because its last use is old enough.
RENEWED: Final = web.RequestKey("renewed", Session)
#: Each costs an HMAC.
_MOST_TRIED: Final = 8
_values_of: Final = {
    name: re.compile(rf"(?:^|;)[ \t]*{name}=([^;]*)").finditer
    for name in (cookies.SESSION, cookies.SECURE_SESSION)
}


def name_of(request: web.Request) -> str:
    return cookies.SECURE_SESSION if is_by_tls(request) else cookies.SESSION


def session_of(request: web.Request) -> Session | None:
    """The session in the request's cookie. It may have been ended: `Sessions.has_ended`."""
    sessions, client, now_s = request.app[SESSIONS], _client(request), request.app[CLOCK]()
    tried = (sessions.unseal(value, client, now_s) for value in _values(request))
    return next((session for session in tried if session is not None), None)


def set_cookie(request: web.Request, response: web.StreamResponse, session: Session) -> None:
    """Set the session's cookie, which the browser drops when it is closed."""
    is_tls = is_by_tls(request)
    response.set_cookie(
        name_of(request),
        request.app[SESSIONS].seal(session, _client(request)),
        path=_path(request),
        httponly=True,
        samesite="Strict",
        secure=is_tls,
    )


def delete_cookie(request: web.Request, response: web.StreamResponse) -> None:
    """Delete the cookie."""
    response.del_cookie(
        name_of(request),
        path=_path(request),
        httponly=True,
        samesite="Strict",
        secure=is_by_tls(request),
    )


def renew_cookie(request: web.Request, response: web.StreamResponse) -> None:
    """Renew the cookie if it is due, unless the handler has set or deleted it."""
    session = request.get(RENEWED)
    if session is not None and name_of(request) not in response.cookies:
        set_cookie(request, response, session)


def _path(request: web.Request) -> str:
    # The prefix requires "/". Otherwise the narrower path sends the cookie with fewer requests.
    return "/" if is_by_tls(request) else "/console"


def _client(request: web.Request) -> str:
    """What a session is bound to, beside its seal."""
    scheme = "https" if is_by_tls(request) else "http"
    return f"{scheme} {request.headers.get(hdrs.USER_AGENT, '')}"


def _values(request: web.Request) -> Iterator[str]:
    """The first few cookies of that name; `request.cookies` keeps only one."""
    find = _values_of[name_of(request)]
    found = (one for line in request.headers.getall(hdrs.COOKIE, []) for one in find(line))
    return (one[1].strip() for one in islice(found, _MOST_TRIED))
