"""Who may see the console's pages, and send its forms; and what becomes of a problem.

A page is for whoever has a session; others are sent to sign in first. A form must come from a page
of ours: it carries the session's secret, and a browser that says where it comes from must say: from
here. A problem that nobody else has shown at its place becomes a page of its own.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from aiohttp import web

from gateway.admin.console.cookie import RENEWED, renew, session_of
from gateway.admin.console.render import page
from gateway.admin.context import CLOCK, MANAGEMENT, SESSION, SESSIONS, is_by_tls
from gateway.admin.guard import MOST_BODY_BYTES, spelled
from gateway.admin.listener import read_body
from gateway.admin.refusals import NO_STORE, Refused
from gateway.domain.ports import CorruptRecord, StoreDown
from gateway.manage.management import Management
from gateway.manage.problems import Changed, Conflict, Invalid, NotThere, Problem

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Open to everybody: the way in, and what its page is drawn with.
_SIGN_IN: Final = "/console/sign-in"
_SIGN_OUT: Final = "/console/sign-out"
_STATIC: Final = "/console/static/"
_FORM: Final = "application/x-www-form-urlencoded"
#: A form has one field for each limit of the policies, and about twenty others. Reading 2,000
#: fields takes 5 ms; the 32,000 that fit into 64 KiB would take 40 ms.
_MOST_FIELDS: Final = 2_000
#: The only form that is read without a session: a name, a token, and the page to go to.
SIGN_IN_BYTES: Final = 8 * 1024
_STATUS: Final[Mapping[type[Problem], int]] = {
    Invalid: 422,
    NotThere: 404,
    Conflict: 409,
    Changed: 412,
}
_STORE_DOWN: Final = "The store cannot be reached. Nothing was changed; try again shortly."
_TITLES: Final = {
    400: "This cannot be read",
    403: "This form was not sent",
    404: "Nothing is here",
    405: "This page takes no such request",
    409: "This cannot be done",
    412: "Somebody else was quicker",
    408: "This did not arrive in time",
    413: "This is too large",
    415: "This cannot be read",
    422: "This cannot be taken",
    429: "Too many attempts",
    500: "Something went wrong",
    503: "Not at the moment",
}


def management_of(request: web.Request) -> Management:
    """What the pages work with. Raises Refused where this process has no store to manage."""
    found = request.app.get(MANAGEMENT)
    if found is None:
        raise Refused(NO_STORE)
    return found


def local_path(text: str) -> str:
    """Where to go after signing in: a page of the console, whatever else was asked for."""
    is_ours = re.fullmatch(r"/console(?:[/?][\w./?=&%:+-]*)?", text, re.ASCII)
    return text if is_ours and not text.startswith("/console/sign-") else "/console"


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Stands before every page of the console, and lets all other paths pass."""
    if request.path != "/console" and not request.path.startswith("/console/"):
        return await handler(request)
    try:
        answer = await _admitted(request, handler)
    except web.HTTPRedirection as redirection:
        renew(request, redirection)
        raise
    except web.HTTPException as refused:
        return failure(request, refused.status, "Go back, or start from the overview.")
    except StoreDown:
        return failure(request, 503, _STORE_DOWN)
    except Refused as refused:
        return failure(request, refused.refusal.status, refused.refusal.message)
    except Problem as problem:
        return failure(request, _STATUS[type(problem)], str(problem))
    except CorruptRecord as error:
        return failure(request, 500, f"{str(error)[:1].upper()}{str(error)[1:]}.")
    except Exception:
        _log.exception("the console failed at %s %s", request.method, spelled(request))
        return failure(request, 500, "The gateway's log says more. Try again.")
    renew(request, answer)
    return answer


def failure(request: web.Request, status: int, text: str) -> web.Response:
    """A page that says why not."""
    title = _TITLES.get(status, "This cannot be done")
    return page(request, "failure", status=status, title=title, text=text)


async def _admitted(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.path.startswith(_STATIC):
        return await handler(request)
    if request.method == "POST" and not _is_from_here(request):
        return failure(request, 403, "It came from another site. Nothing was changed.")
    await _find_session(request)
    if request.path == _SIGN_IN:
        return await handler(request)
    session = request.get(SESSION)
    if session is None:
        # What was sent is lost: whoever signs in must not have somebody else's form carried out.
        wanted = request.path_qs if request.method == "GET" else "/console"
        raise web.HTTPSeeOther(f"/console/sign-in?next={quote(local_path(wanted), safe='/')}")
    if request.method == "POST" and not await _has_secret(request, session.csrf):
        return failure(
            request, 403, "It is too old. Nothing was changed: go back and load it anew."
        )
    return await handler(request)


async def _find_session(request: web.Request) -> None:
    """Find the request's session and put it into `request[SESSION]`. Raises StoreDown.

    While the store cannot say whether the session was ended, only signing in and out go on.
    """
    session = session_of(request)
    if session is None:
        return
    sessions = request.app[SESSIONS]
    try:
        if await sessions.has_ended(session):
            return
    except StoreDown:
        if request.path not in (_SIGN_IN, _SIGN_OUT):
            raise
    request[SESSION] = session
    renewed = sessions.renewed(session, request.app[CLOCK]())
    if renewed is not None:
        request[RENEWED] = renewed


def _is_from_here(request: web.Request) -> bool:
    """What a browser says about where a form comes from; older ones, and programs, say nothing."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    parts = urlsplit(origin)
    is_sent_by_tls = parts.scheme == "https" or not is_by_tls(request)
    return parts.netloc == request.host and is_sent_by_tls


async def _has_secret(request: web.Request, csrf: str) -> bool:
    given = (await typed(request)).get("csrf", "")
    return hmac.compare_digest(given.encode(errors="replace"), csrf.encode())


async def typed(request: web.Request, most_bytes: int = MOST_BODY_BYTES) -> dict[str, str]:
    """The fields of a form as they were sent; the first of each name. Raises HTTPException.

    Only the encoding that the console's own forms use is read: not multipart, no other charset.
    """
    content = await read_body(request)
    if len(content) > most_bytes:
        raise web.HTTPRequestEntityTooLarge(most_bytes, len(content))
    if content and request.content_type != _FORM:
        raise web.HTTPUnsupportedMediaType
    try:
        if (request.charset or "utf-8").lower() != "utf-8":
            raise ValueError
        found = parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise web.HTTPBadRequest from error
    fields: dict[str, str] = {}
    for name, value in found:
        # Browsers end lines with CR LF.
        fields.setdefault(name, value.replace("\r\n", "\n").strip())
    return fields
