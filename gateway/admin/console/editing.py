"""The form that changes what a key may do. Who was not quick enough sees so and loses nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiohttp import web

from gateway.admin.console import forms
from gateway.admin.console.gate import management_of, typed
from gateway.admin.console.keys import plan_names
from gateway.admin.console.render import now_us, page
from gateway.admin.context import actor_of
from gateway.domain.keys import KeyRecord
from gateway.manage.problems import Changed, Fault, Invalid
from gateway.manage.views import key_as_json, version_of

CHANGED = (
    "Somebody else has changed this since you opened it. What you typed is still here: look at"
    " what it is now, and save again to put yours in its place."
)


async def ask(request: web.Request) -> web.StreamResponse:
    """The form, with what the key has now."""
    view = await management_of(request).keys.get(request.match_info["key_id"])
    fields = {**forms.of_key(view.record), "version": _version(request, view.record)}
    return _form(request, view.record, fields)


async def edit(request: web.Request) -> web.StreamResponse:
    """Change the key; or the form again, with what is wrong."""
    management = management_of(request)
    key_id = request.match_info["key_id"]
    fields = await typed(request)
    record = (await management.keys.get(key_id)).record
    try:
        change = management.keys.read_change(forms.key_change(fields, record))
        await management.keys.edit(actor_of(request), key_id, change, fields.get("version", ""))
    except Invalid as problem:
        return _form(request, record, fields, faults=problem.faults, status=422)
    except Changed:
        record = (await management.keys.get(key_id)).record
        fields["version"] = _version(request, record)
        return _form(request, record, fields, notice=CHANGED, status=412)
    raise web.HTTPSeeOther(f"/console/keys/{key_id}?done=saved")


def _version(request: web.Request, record: KeyRecord) -> str:
    return version_of(key_as_json(record, now_us(request), None))


def _form(
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
