"""The way in: the admin token for a session, and the way out."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.access import Retry, Session, is_actor_name
from gateway.admin.console.forms import Form
from gateway.admin.console.gate import local_path, typed
from gateway.admin.console.render import page
from gateway.admin.context import ACCESS, CLOCK, COOKIE, SESSION, address_of

_NAME = "Found none that can be taken: up to 64 letters, digits, spaces, . _ @ + ' and -."
_WRONG = "That is not the admin token. A key of the gateway's users does not open the console."


async def ask(request: web.Request) -> web.StreamResponse:
    """The form. Whoever is in already goes where they wanted to."""
    wanted = local_path(request.query.get("next", ""))
    if SESSION in request:
        raise web.HTTPSeeOther(wanted)
    return page(request, "sign_in", form=Form({"next": wanted}, {}))


async def sign_in(request: web.Request) -> web.StreamResponse:
    """Take the token. What was typed as one is not shown again."""
    fields = await typed(request)
    name, wanted = fields.get("name", ""), local_path(fields.get("next", ""))
    faults: dict[str, tuple[str, ...]] = {}
    headers: dict[str, str] = {}
    access, now_s, address = request.app[ACCESS], request.app[CLOCK](), address_of(request)
    if not is_actor_name(name):
        faults["name"] = (_NAME,)
    else:
        admitted = access.admit(fields.get("token", ""), address, now_s)
        if admitted:
            _leave(request)
            raise _with_cookie(request, wanted, access.sessions.open(name, address, now_s))
        if isinstance(admitted, Retry):
            faults["token"] = (f"Too many attempts. Try again in {admitted.after_s} s.",)
            headers["Retry-After"] = str(admitted.after_s)
        else:
            faults["token"] = (_WRONG,)
    form = Form({"name": name, "next": wanted}, faults)
    response = page(request, "sign_in", status=429 if headers else 422, form=form)
    response.headers.update(headers)
    return response


async def sign_out(request: web.Request) -> web.StreamResponse:
    """End the session, here and in the browser."""
    _leave(request)
    response = web.HTTPSeeOther("/console/sign-in?done=signed-out")
    response.del_cookie(COOKIE, path="/console", httponly=True, samesite="Strict")
    raise response


def _leave(request: web.Request) -> None:
    request.app[ACCESS].sessions.close(request.cookies.get(COOKIE, ""))


def _with_cookie(request: web.Request, wanted: str, session: Session) -> web.HTTPSeeOther:
    response = web.HTTPSeeOther(wanted)
    # No time of its own: it ends with the browser, and before that when the session does.
    response.set_cookie(
        COOKIE,
        session.cookie,
        path="/console",
        httponly=True,
        samesite="Strict",
        secure=request.secure,
    )
    return response
