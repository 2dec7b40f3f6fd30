"""The forms that create, rotate and change a key, and the one page that shows its text.

The text is only in the answer to the form: no URL, session or store has it. The form for a new key
has an idempotency key, so that sending it again, as a reload does, creates no second key; a second
rotation is refused anyway. If someone else changed the key meanwhile, the form is shown again with
the user's input.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from aiohttp import web

from gateway.admin.console import forms
from gateway.admin.console.gate import failure, management_of, typed
from gateway.admin.console.key_pages import plan_names
from gateway.admin.console.render import now_us, page
from gateway.admin.console.wording import CHANGED
from gateway.admin.context import actor_of
from gateway.domain.keys import KeyRecord
from gateway.manage.forms import read_key_change, read_overlap_us
from gateway.manage.problems import Changed, Conflict, Fault, Invalid
from gateway.manage.views import recorded, version_of

#: How long the old key stays valid: value -> label of the form.
OVERLAPS: Final = {"0s": "Ends now", "1h": "1 hour", "24h": "24 hours", "7d": "7 days"}
_DEFAULT_OVERLAP: Final = "24h"
_SHOWN_THEN: Final = "It was shown then and cannot be shown again. If it was not stored, rotate it."


async def ask_new(request: web.Request) -> web.StreamResponse:
    """The form for a new key; ?account= fills in the account."""
    policy = management_of(request).policies.loaded().policy
    fields = {
        "account": request.query.get("account", ""),
        "environment": policy.environment,
        "once": secrets.token_urlsafe(16),
    }
    return _new_form(request, fields)


async def create(request: web.Request) -> web.StreamResponse:
    """Create the key and show it; or show the form again, with the faults."""
    fields = await typed(request)
    keys = management_of(request).keys
    try:
        new = keys.read_new(forms.new_key(fields))
        record, text = await keys.create(actor_of(request), new, fields.get("once") or None)
    except Invalid as problem:
        return _new_form(request, fields, problem.faults)
    except Conflict as problem:
        return failure(request, 409, f"{problem}. {_SHOWN_THEN}")
    return _shown_once(request, record, text)


async def ask_rotate(request: web.Request) -> web.StreamResponse:
    """The form for a rotation: how long the old key stays valid."""
    view = await management_of(request).keys.get(request.match_info["key_id"])
    return _rotate_form(request, view.record, _DEFAULT_OVERLAP)


async def rotate(request: web.Request) -> web.StreamResponse:
    """Create the successor and show it."""
    management = management_of(request)
    key_id = request.match_info["key_id"]
    overlap = (await typed(request)).get("overlap", "")
    try:
        overlap_us = read_overlap_us(overlap)
    except Invalid as problem:
        view = await management.keys.get(key_id)
        return _rotate_form(request, view.record, _DEFAULT_OVERLAP, problem.faults)
    old, new, text = await management.keys.rotate(actor_of(request), key_id, overlap_us)
    return _shown_once(request, new, text, old)


async def ask_edit(request: web.Request) -> web.StreamResponse:
    """The form, with the current values of the key."""
    view = await management_of(request).keys.get(request.match_info["key_id"])
    fields = {**forms.of_key(view.record), "version": _version(view.record)}
    return _edit_form(request, view.record, fields)


async def edit(request: web.Request) -> web.StreamResponse:
    """Change the key; or show the form again, with the faults."""
    management = management_of(request)
    key_id = request.match_info["key_id"]
    fields = await typed(request)
    record = (await management.keys.get(key_id)).record
    try:
        change = management.keys.read_change(forms.key_change(fields, record))
        await management.keys.edit(actor_of(request), key_id, change, fields.get("version", ""))
    except Invalid as problem:
        return _edit_form(request, record, fields, faults=problem.faults, status=422)
    except Changed:
        record = (await management.keys.get(key_id)).record
        fields["version"] = _version(record)
        return _edit_form(request, record, fields, notice=CHANGED, status=412)
    raise web.HTTPSeeOther(f"/console/keys/{key_id}?done=saved")


async def check_ip_ranges(request: web.Request) -> web.StreamResponse:
    """The faults of IP ranges, for the page's script while the user types."""
    given = {"ip_ranges": forms.ranges(request.query.get("text", ""))}
    texts: tuple[str, ...] = ()
    try:
        read_key_change(given, None, now_us(request))
    except Invalid as problem:
        texts = forms.form({}, problem.faults, ("ip_ranges",)).faults_of("ip_ranges")
    return web.json_response({"faults": texts})


def _new_form(
    request: web.Request, fields: Mapping[str, str], faults: tuple[Fault, ...] = ()
) -> web.StreamResponse:
    management = management_of(request)
    limits = forms.limit_names(management.policies.loaded().policy)
    shown = (*forms.NEW_KEY_FIELDS, *(f"{forms.LIMIT}{name}" for name in limits))
    return page(
        request,
        "key_new",
        status=422 if faults else 200,
        form=forms.form(fields, faults, shown),
        plans=plan_names(management),
        limits=limits,
    )


def _version(record: KeyRecord) -> str:
    return version_of(recorded(record))


def _edit_form(
    request: web.Request,
    record: KeyRecord,
    fields: Mapping[str, str],
    *,
    faults: Iterable[Fault] = (),
    notice: str = "",
    status: int = 200,
) -> web.StreamResponse:
    management = management_of(request)
    limits = forms.limit_names(management.policies.loaded().policy, record.limits)
    shown = (*forms.KEY_FIELDS, *(f"{forms.LIMIT}{name}" for name in limits))
    return page(
        request,
        "key_edit",
        status=status,
        form=forms.form(fields, faults, shown),
        key=record,
        notice=notice,
        plans=plan_names(management),
        limits=limits,
    )


def _rotate_form(
    request: web.Request, record: KeyRecord, overlap: str, faults: tuple[Fault, ...] = ()
) -> web.StreamResponse:
    return page(
        request,
        "key_rotate",
        status=422 if faults else 200,
        form=forms.form({"overlap": overlap}, faults, ("overlap",)),
        key=record,
        overlaps=OVERLAPS,
    )


def _shown_once(
    request: web.Request, record: KeyRecord, text: str, old: KeyRecord | None = None
) -> web.StreamResponse:
    return page(request, "key_once", key=record, text=text, old=old)
