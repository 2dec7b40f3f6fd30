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
from urllib.parse import quote, urlsplit

from aiohttp import web

from gateway.admin.console.render import page
from gateway.admin.context import ACCESS, CLOCK, COOKIE, MANAGEMENT, SESSION
from gateway.admin.refusals import NO_STORE, Refused
from gateway.domain.ports import CorruptRecord, StoreDown
from gateway.manage.management import Management
from gateway.manage.problems import Changed, Conflict, Invalid, NotThere, Problem

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Open to everybody: the way in, and what its page is drawn with.
_OPEN: Final = re.compile(r"/console/(sign-in|static/[^/]+)").fullmatch
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
    413: "This is too large",
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
        return await _admitted(request, handler)
    except web.HTTPRedirection:
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
        return failure(request, 500, f"{str(error).capitalize()}.")
    except Exception:
        _log.exception("the console failed at %s %s", request.method, request.path)
        return failure(request, 500, "The gateway's log says more. Try again.")


def failure(request: web.Request, status: int, text: str) -> web.Response:
    """A page that says why not."""
    title = _TITLES.get(status, "This cannot be done")
    return page(request, "failure", status=status, title=title, text=text)


async def _admitted(request: web.Request, handler: Handler) -> web.StreamResponse:
    access = request.app[ACCESS]
    session = access.sessions.find(request.cookies.get(COOKIE, ""), request.app[CLOCK]())
    if session is not None:
        request[SESSION] = session
    if request.method == "POST" and not _is_from_here(request):
        return failure(request, 403, "It came from another site. Nothing was changed.")
    if _OPEN(request.path):
        return await handler(request)
    if session is None:
        # What was sent is lost: whoever signs in must not have somebody else's form carried out.
        wanted = request.path_qs if request.method == "GET" else "/console"
        raise web.HTTPSeeOther(f"/console/sign-in?next={quote(local_path(wanted), safe='/')}")
    if request.method == "POST" and not await _has_secret(request, session.csrf):
        return failure(
            request, 403, "It is too old. Nothing was changed: go back and load it anew."
        )
    return await handler(request)


def _is_from_here(request: web.Request) -> bool:
    """What a browser says about where a form comes from; older ones, and programs, say nothing."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = request.headers.get("Origin")
    return origin is None or urlsplit(origin).netloc == request.host


async def _has_secret(request: web.Request, csrf: str) -> bool:
    given = (await typed(request)).get("csrf", "")
    return hmac.compare_digest(given.encode(errors="replace"), csrf.encode())


async def typed(request: web.Request) -> dict[str, str]:
    """The fields of a form as they were sent; the first of each name. Raises HTTPBadRequest."""
    try:
        form = await request.post()
    except (ValueError, LookupError) as error:
        raise web.HTTPBadRequest from error  # an encoding that is none, or another than it says
    fields: dict[str, str] = {}
    for name, value in form.items():
        if isinstance(value, str):
            # Browsers end lines with CR LF.
            fields.setdefault(name, value.replace("\r\n", "\n").strip())
    return fields
