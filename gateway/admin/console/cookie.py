"""The console's cookie: what it is called, and which of those that came is ours.

A browser sends a cookie to all ports of a host, the gateway's clients' among them, whose side takes
it off both ways by these names; and whatever else runs on the host may set cookies that come here.
Under TLS the name has the prefix `__Host-`: a browser takes it only over TLS, from this very host
and for all of its paths, so that nobody sets it from a subdomain or in clear text. Without TLS, one
that somebody has put in front of ours must not shut out its owner: each that came is tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from aiohttp import hdrs, web

from gateway.admin.context import CLOCK, SESSIONS, is_by_tls
from gateway.admin.sessions import Session

PLAIN: Final = "gateway_session"
SECURE: Final = "__Host-gateway_session"
#: A session in use, whose cookie is to say so.
RENEWED: Final = web.RequestKey("renewed", Session)
#: Each costs a digest.
_MOST_TRIED: Final = 8
_values_of: Final = {
    name: re.compile(rf"(?:^|;)[ \t]*{name}=([^;]*)").finditer for name in (PLAIN, SECURE)
}


def name_of(request: web.Request) -> str:
    return SECURE if is_by_tls(request) else PLAIN


def session_of(request: web.Request) -> Session | None:
    """The session of the request's cookie; whether somebody has ended it is asked elsewhere."""
    sessions, client, now_s = request.app[SESSIONS], _client(request), request.app[CLOCK]()
    tried = (sessions.unseal(value, client, now_s) for value in _values(request))
    return next((session for session in tried if session is not None), None)


def give(request: web.Request, response: web.StreamResponse, session: Session) -> None:
    """Have the browser hold the session. It ends with the browser, if it did not end before."""
    is_tls = is_by_tls(request)
    response.set_cookie(
        name_of(request),
        request.app[SESSIONS].seal(session, _client(request)),
        path=_path(request),
        httponly=True,
        samesite="Strict",
        secure=is_tls,
    )


def take_away(request: web.Request, response: web.StreamResponse) -> None:
    """Have the browser forget it."""
    response.del_cookie(
        name_of(request),
        path=_path(request),
        httponly=True,
        samesite="Strict",
        secure=is_by_tls(request),
    )


def renew(request: web.Request, response: web.StreamResponse) -> None:
    """Give the cookie of a session in use anew, if it is time; not where a handler set another."""
    session = request.get(RENEWED)
    if session is not None and name_of(request) not in response.cookies:
        give(request, response, session)


def _path(request: web.Request) -> str:
    # The prefix demands it; else fewer requests, and fewer of other ports, carry the cookie.
    return "/" if is_by_tls(request) else "/console"


def _client(request: web.Request) -> str:
    """What a session is bound to."""
    scheme = "https" if is_by_tls(request) else "http"
    return f"{scheme} {request.headers.get(hdrs.USER_AGENT, '')}"


def _values(request: web.Request) -> Iterator[str]:
    """Of all cookies of the name, the first few. `request.cookies` has only one of them."""
    find = _values_of[name_of(request)]
    found = (one for line in request.headers.getall(hdrs.COOKIE, []) for one in find(line))
    return (one[1].strip() for one in islice(found, _MOST_TRIED))
