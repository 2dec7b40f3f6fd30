"""What is done to a key by one button: suspend, resume, revoke, reset a limit's count."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.console.forms import Form
from gateway.admin.console.gate import management_of, typed
from gateway.admin.console.render import page
from gateway.admin.context import actor_of
from gateway.domain.keys import KeyRecord


async def suspend(request: web.Request) -> web.StreamResponse:
    key_id = request.match_info["key_id"]
    await management_of(request).keys.suspend(actor_of(request), key_id)
    return _back_to(key_id, "suspended")


async def resume(request: web.Request) -> web.StreamResponse:
    key_id = request.match_info["key_id"]
    await management_of(request).keys.resume(actor_of(request), key_id)
    return _back_to(key_id, "resumed")


async def ask_revoke(request: web.Request) -> web.StreamResponse:
    """Revoking is final: whoever does it types the key's name."""
    view = await management_of(request).keys.get(request.match_info["key_id"])
    return _revoke_form(request, view.record, Form({}, {}))


async def revoke(request: web.Request) -> web.StreamResponse:
    """Revoke the key, if its name was typed."""
    management = management_of(request)
    record = (await management.keys.get(request.match_info["key_id"])).record
    name = (await typed(request)).get("name", "")
    if name != record.name:
        fault = f"Found another name, expected {record.name}."
        return _revoke_form(request, record, Form({"name": name}, {"name": (fault,)}))
    await management.keys.revoke(actor_of(request), record.id)
    return _back_to(record.id, "revoked")


async def reset(request: web.Request) -> web.StreamResponse:
    """Forget what one limit of the key has counted."""
    key_id, name = request.match_info["key_id"], request.match_info["name"]
    await management_of(request).limits.reset(actor_of(request), key_id, name)
    return _back_to(key_id, "reset")


def _revoke_form(request: web.Request, record: KeyRecord, form: Form) -> web.StreamResponse:
    return page(request, "key_revoke", status=422 if form.faults else 200, form=form, key=record)


def _back_to(key_id: str, done: str) -> web.StreamResponse:
    raise web.HTTPSeeOther(f"/console/keys/{key_id}?done={done}")
