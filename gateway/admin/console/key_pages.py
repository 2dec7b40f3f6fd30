"""The list of keys, and all there is to know about one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin.console.charts import chart
from gateway.admin.console.gate import management_of
from gateway.admin.console.render import page
from gateway.admin.console.windows import SPELLED, window_of
from gateway.domain.ports import KeyFilter
from gateway.domain.spelling import looks_like_key, parse
from gateway.manage.management import Management
from gateway.manage.usage import UsageReport, grouped

STATUSES: Final = ("valid", "suspended", "expired", "revoked")
_FILTERS: Final = ("text", "status", "plan", "account", "environment")
_ENTRIES: Final = 10


@dataclass(frozen=True, slots=True)
class RouteUse:
    """A row of the table of routes: requests by group."""

    route: str
    groups: Mapping[str, int]

    @property
    def requests(self) -> int:
        return sum(self.groups.values())


async def show_all(request: web.Request) -> web.StreamResponse:
    """Keys that the filters leave, the newest first."""
    _without_secret(request)
    management = management_of(request)
    given = {name: request.query.get(name, "").strip() for name in _FILTERS}
    wanted = KeyFilter(
        text=given["text"] or None,
        status=given["status"] if given["status"] in STATUSES else None,
        plan=given["plan"] or None,
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
    """One key: its record, its limits now, its usage, what was done to it."""
    management = management_of(request)
    key_id = request.match_info["key_id"]
    view = await management.keys.get(key_id)
    window = window_of(request)
    report = await management.usage.of_key(key_id, window)
    log = await management.audit.page(None, _ENTRIES, subject=f"key:{key_id}")
    return page(
        request,
        "key",
        key=view.record,
        plan=view.plan,
        used_us=view.used_us,
        limits=await management.limits.now(key_id),
        window=window,
        windows=SPELLED,
        chart=chart("usage", window, report.points),
        routes=_routes(report),
        outcomes=sorted(report.totals.items(), key=lambda row: (-row[1], row[0])),
        entries=log.entries,
    )


def plan_names(management: Management) -> tuple[str, ...]:
    """The plans of the policies."""
    return tuple(management.policies.loaded().policy.plans)


def _routes(report: UsageReport) -> list[RouteUse]:
    used = [RouteUse(route, grouped(counts)) for route, counts in report.routes.items()]
    return sorted((use for use in used if use.requests), key=lambda use: (-use.requests, use.route))


def _without_secret(request: web.Request) -> None:
    """Whoever looks for a key by the whole of it goes on by its id, in an address without it."""
    texts = {name: value for name, value in request.query.items() if looks_like_key(value)}
    if texts:
        kept = {name: value for name, value in request.query.items() if name not in texts}
        named = parse(texts.get("text", ""))
        if named is not None:
            kept["text"] = named.id
        raise web.HTTPSeeOther(_list_address(kept))


def _list_address(query: Mapping[str, str]) -> str:
    return f"/console/keys?{urlencode(query)}" if query else "/console/keys"
