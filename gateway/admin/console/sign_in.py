"""Signing in with the admin token, and signing out."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from gateway.admin.access import Retry, is_actor_name
from gateway.admin.console.cookie import delete_cookie, set_cookie
from gateway.admin.console.forms import Form
from gateway.admin.console.gate import SIGN_IN_BYTES, local_path, typed
from gateway.admin.console.render import page
from gateway.admin.context import CLOCK, SESSION, SESSIONS
from gateway.admin.guard import admit

_NAME = "Expected up to 64 letters, digits, spaces, . _ @ + ' and -."
_WRONG = "This is not the admin token. API keys do not open the console."


async def ask(request: web.Request) -> web.StreamResponse:
    """The form; a user who is signed in already is redirected."""
    wanted = local_path(request.query.get("next", ""))
    if SESSION in request:
        raise web.HTTPSeeOther(wanted)
    return _form(request, "", wanted, 200, {})


async def sign_in(request: web.Request) -> web.StreamResponse:
    """Check the token. The form never shows the input again."""
    fields = await typed(request, SIGN_IN_BYTES)
    name, wanted = fields.get("name", ""), local_path(fields.get("next", ""))
    if not is_actor_name(name):
        return _form(request, name, wanted, 422, {"name": (_NAME,)})
    admitted = await admit(request, fields.get("token", ""))
    if admitted:
        # Always a new session, against session fixation.
        await _leave(request)
        response = web.HTTPSeeOther(wanted)
        set_cookie(request, response, request.app[SESSIONS].open(name, request.app[CLOCK]()))
        raise response
    if isinstance(admitted, Retry):
        words = f"Too many wrong tokens. Try again in {admitted.after_s} s."
        refused = _form(request, name, wanted, 429, {"token": (words,)})
        refused.headers["Retry-After"] = str(admitted.after_s)
    else:
        refused = _form(request, name, wanted, 422, {"token": (_WRONG,)})
    # Each guess costs a connection.
    refused.force_close()
    return refused


async def sign_out(request: web.Request) -> web.StreamResponse:
    """End the session, at all gateways and in the browser."""
    await _leave(request)
    response = web.HTTPSeeOther("/console/sign-in?done=signed-out")
    delete_cookie(request, response)
    raise response


async def _leave(request: web.Request) -> None:
    if (session := request.get(SESSION)) is not None:
        await request.app[SESSIONS].end(session, request.app[CLOCK]())


def _form(
    request: web.Request,
    name: str,
    wanted: str,
    status: int,
    faults: Mapping[str, tuple[str, ...]],
) -> web.StreamResponse:
    form = Form({"name": name, "next": wanted}, faults)
    return page(request, "sign_in", status=status, form=form)
