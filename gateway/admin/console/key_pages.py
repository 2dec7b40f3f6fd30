"""The list of keys, the page of one key, and its buttons: suspend, resume, revoke, reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin.console.charts import chart
from gateway.admin.console.forms import Form
from gateway.admin.console.gate import management_of, typed
from gateway.admin.console.render import page
from gateway.admin.console.usage_span import file_of, span_of
from gateway.admin.console.wording import WINDOWS
from gateway.admin.context import actor_of
from gateway.domain.key_format import looks_like_key, parse
from gateway.domain.keys import KeyRecord
from gateway.domain.ports import KeyFilter
from gateway.manage.management import Management
from gateway.manage.usage_export import about_key
from gateway.manage.usage_sums import busiest_routes, report_as_json

STATUSES: Final = ("valid", "suspended", "expired", "revoked")
_FILTERS: Final = ("text", "status", "plan", "account", "environment")
_ENTRIES: Final = 10


async def show_all(request: web.Request) -> web.StreamResponse:
    """The keys that match the filters, newest first."""
    _redirect_whole_key(request)
    management = management_of(request)
    given = {name: request.query.get(name, "").strip() for name in _FILTERS}
    wanted = KeyFilter(
        text=given["text"] or None,
        status=given["status"] if given["status"] in STATUSES else None,
        plans=frozenset({given["plan"]}) if given["plan"] else None,
        account=given["account"] or None,
        environment=given["environment"] or None,
    )
    found = await management.keys.page(wanted, request.query.get("after") or None)
    filters = {name: value for name, value in given.items() if value}
    return page(
        request,
        "keys",
        keys=found.keys,
        given=given,
        filters=filters,
        statuses=STATUSES,
        plans=plan_names(management),
        is_further=bool(request.query.get("after")),
        newest=_list_address(filters),
        next=_list_address({**filters, "after": found.next}) if found.next else None,
    )


async def show(request: web.Request) -> web.StreamResponse:
    """One key: its record, the state of its limits, its usage, its recent changes."""
    management = management_of(request)
    key_id = request.match_info["key_id"]
    view = await management.keys.get(key_id)
    span = span_of(request)
    report = await management.usage.of_key(key_id, span.window)
    parts = [(about_key(view.record), report)]
    if file := file_of(request, span, parts, lambda: report_as_json(report)):
        return file
    log = await management.audit.page(None, _ENTRIES, subject=f"key:{key_id}")
    return page(
        request,
        "key",
        key=view.record,
        plan=view.plan,
        used_us=view.used_us,
        limits=await management.limits.now(key_id),
        span=span,
        windows=WINDOWS,
        chart=chart("usage", span.window, report.points),
        report=report,
        routes=busiest_routes(report),
        outcomes=sorted(report.totals.items(), key=lambda row: (-row[1], row[0])),
        entries=log.entries,
    )


async def suspend(request: web.Request) -> web.StreamResponse:
    key_id = request.match_info["key_id"]
    await management_of(request).keys.suspend(actor_of(request), key_id)
    return _back_to(key_id, "suspended")


async def resume(request: web.Request) -> web.StreamResponse:
    key_id = request.match_info["key_id"]
    await management_of(request).keys.resume(actor_of(request), key_id)
    return _back_to(key_id, "resumed")


async def ask_revoke(request: web.Request) -> web.StreamResponse:
    """Revoking is final, so the user types the key's name."""
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
    """Reset one limit of the key."""
    key_id, name = request.match_info["key_id"], request.match_info["name"]
    await management_of(request).limits.reset(actor_of(request), key_id, name)
    return _back_to(key_id, "reset")


def plan_names(management: Management) -> tuple[str, ...]:
    """The plans of the policies."""
    return tuple(management.policies.loaded().policy.plans)


def _redirect_whole_key(request: web.Request) -> None:
    """A search for a whole key is redirected to a search for its id, to keep it out of the URL."""
    texts = {name: value for name, value in request.query.items() if looks_like_key(value)}
    if texts:
        kept = {name: value for name, value in request.query.items() if name not in texts}
        named = parse(texts.get("text", ""))
        if named is not None:
            kept["text"] = named.id
        raise web.HTTPSeeOther(_list_address(kept))


def _list_address(query: Mapping[str, str]) -> str:
    return f"/console/keys?{urlencode(query)}" if query else "/console/keys"


def _revoke_form(request: web.Request, record: KeyRecord, form: Form) -> web.StreamResponse:
    return page(request, "key_revoke", status=422 if form.faults else 200, form=form, key=record)


def _back_to(key_id: str, done: str) -> web.StreamResponse:
    raise web.HTTPSeeOther(f"/console/keys/{key_id}?done={done}")
