"""Access to the console's pages and forms, and error pages.

A page needs a session; requests without one are redirected to the sign-in. A form must come from
one of our pages: it contains the session's secret, and if the browser sends its origin, that is
checked. A problem that the handler does not show beside its field becomes an error page.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from aiohttp import hdrs, web

from gateway.admin.connection import read_body
from gateway.admin.console.cookie import RENEWED, renew_cookie, session_of
from gateway.admin.console.render import page
from gateway.admin.context import CLOCK, MANAGEMENT, SESSION, SESSIONS, is_by_tls
from gateway.admin.guard import MOST_BODY_BYTES, spelled
from gateway.admin.refusals import NO_STORE
from gateway.admin.request_id import request_id_of
from gateway.domain.media_types import read_media_type
from gateway.domain.ports import CorruptRecord, StoreDown
from gateway.manage.management import Management
from gateway.manage.problems import Changed, Conflict, Full, Invalid, NotThere, Problem
from gateway.manage.refusals import Refused

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Paths without a session: the sign-in, and the files of its page.
_SIGN_IN: Final = "/console/sign-in"
_SIGN_OUT: Final = "/console/sign-out"
_STATIC: Final = "/console/static/"
_FORM: Final = "application/x-www-form-urlencoded"
#: A form has one field for each limit of the policies, and about twenty others. Reading 2,000
#: fields takes 5 ms; the 32,000 that fit into 64 KiB would take 40 ms.
_MOST_FIELDS: Final = 2_000
#: The sign-in form, the only one that is read without a session: a name, a token and a path.
SIGN_IN_BYTES: Final = 8 * 1024
_STATUS: Final[Mapping[type[Problem], int]] = {
    Invalid: 422,
    NotThere: 404,
    Conflict: 409,
    Changed: 412,
    Full: 503,
}
_STORE_DOWN: Final = "The store cannot be reached. Nothing was changed; try again shortly."
_TITLES: Final = {
    400: "Invalid request",
    403: "Form rejected",
    404: "Not found",
    405: "Method not allowed",
    409: "Not possible",
    412: "Changed by someone else",
    408: "Request timed out",
    413: "Request too large",
    415: "Unsupported content type",
    422: "Invalid input",
    429: "Too many attempts",
    500: "Internal error",
    503: "Temporarily unavailable",
}


def management_of(request: web.Request) -> Management:
    """The management of the stores. Raises Refused if this process has no store to manage."""
    found = request.app.get(MANAGEMENT)
    if found is None:
        raise Refused(NO_STORE)
    return found


def local_path(text: str) -> str:
    """The path to go to after signing in: always a page of the console."""
    is_ours = re.fullmatch(r"/console(?:[/?][\w./?=&%:+-]*)?", text, re.ASCII)
    return text if is_ours and not text.startswith("/console/sign-") else "/console"


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The middleware for all pages of the console; other paths pass."""
    if request.path != "/console" and not request.path.startswith("/console/"):
        return await handler(request)
    try:
        answer = await _admitted(request, handler)
    except web.HTTPRedirection as redirection:
        renew_cookie(request, redirection)
        raise
    except web.HTTPUnsupportedMediaType as refused:
        return failure(request, refused.status, refused.text or "")
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
        request_id = request_id_of(request)
        _log.exception(
            "the console failed at %s %s (request %s)",
            *(request.method, spelled(request), request_id),
        )
        return failure(request, 500, f"The cause is in the gateway's log, as request {request_id}.")
    renew_cookie(request, answer)
    return answer


def failure(request: web.Request, status: int, text: str) -> web.Response:
    """A page that explains a refusal."""
    title = _TITLES.get(status, "Not possible")
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
        # The form is dropped: a sign-in must not execute a form that an attacker has sent. A file
        # would leave the browser at the sign-in: its page is shown.
        page_of_file = request.rel_url.without_query_params("format")
        wanted = str(page_of_file) if request.method == "GET" else "/console"
        raise web.HTTPSeeOther(f"/console/sign-in?next={quote(local_path(wanted), safe='/')}")
    if request.method == "POST" and not await _has_secret(request, session.csrf):
        return failure(
            request, 403, "It is too old. Nothing was changed: go back and reload the page."
        )
    return await handler(request)


async def _find_session(request: web.Request) -> None:
    """Find the request's session and put it into `request[SESSION]`. Raises StoreDown.

    While the store cannot say whether the session was ended, only signing in and out work.
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
    """Does the form come from our pages, by the browser's headers? True if it sends none."""
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
    """The fields of a form; the first of each name. Raises HTTPException.

    Only the encoding of the console's forms is read: not multipart, no other charset.
    """
    content = await read_body(request)
    if len(content) > most_bytes:
        raise web.HTTPRequestEntityTooLarge(most_bytes, len(content))
    kind = read_media_type(*request.headers.getall(hdrs.CONTENT_TYPE, ()))
    if content and not kind.is_exactly(_FORM):
        raise web.HTTPUnsupportedMediaType(text=f"Found {kind.words}, expected {_FORM}.")
    try:
        if not kind.is_utf8:
            raise ValueError
        found = parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise web.HTTPBadRequest from error
    fields: dict[str, str] = {}
    for name, value in found:
        # Browsers end lines with CR LF.
        fields.setdefault(name, value.replace("\r\n", "\n").strip())
    return fields
