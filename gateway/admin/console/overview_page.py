"""The overview: traffic, errors, slowest and busiest routes, plans, busiest keys, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.admin.console.charts import chart
from gateway.admin.console.gate import management_of
from gateway.admin.console.render import page
from gateway.admin.console.usage_span import file_of, span_of
from gateway.admin.console.wording import GROUPS, WINDOWS
from gateway.domain.usage import BUSY_KEPT_S
from gateway.manage.usage_sums import (
    Sum,
    UsageReport,
    busiest_routes,
    group,
    grouped,
    report_as_json,
    slowest_routes,
)

#: The rows of each table of routes.
MOST_ROUTES: Final = 5


@dataclass(frozen=True, slots=True)
class PlanShare:
    """One plan's part of the traffic. name: "" for requests without a known key"""

    name: str
    requests: int
    limited: int


async def show(request: web.Request) -> web.StreamResponse:
    management = management_of(request)
    span = span_of(request)
    window = span.window
    by_plan = await management.usage.overview(window)
    whole = management.usage.added(by_plan.values(), window)
    parts = (({"plan": plan}, report) for plan, report in by_plan.items())
    if file := file_of(request, span, parts, lambda: report_as_json(whole)):
        return file
    return page(
        request,
        "overview",
        span=span,
        windows=WINDOWS,
        chart=chart("traffic", window, whole.points),
        report=whole,
        requests=whole.total.requests,
        errors=whole.total.statuses.get("5xx", 0),
        failed=whole.total.groups["failed"],
        failing=failing_routes(whole)[:MOST_ROUTES],
        slowest=slowest_routes(whole)[:MOST_ROUTES],
        routes=busiest_routes(whole)[:MOST_ROUTES],
        plans=plan_shares(by_plan),
        busiest=await management.usage.busiest(window),
        is_long=window.span_s > BUSY_KEPT_S["day"],
        failures=failures(whole.totals),
    )


def failing_routes(report: UsageReport) -> list[tuple[str, Sum]]:
    """The routes with failed requests, the one with the largest share of them first."""
    found = [(route, one) for route, one in report.routes.items() if one.groups["failed"]]
    return sorted(found, key=lambda pair: (-pair[1].groups["failed"] / pair[1].requests, pair[0]))


def plan_shares(by_plan: Mapping[str, UsageReport]) -> list[PlanShare]:
    """Plans that had any traffic, the busiest first."""
    shares = []
    for name, report in by_plan.items():
        groups = grouped(report.totals)
        requests = sum(groups.values())
        if requests:
            shares.append(PlanShare(name, requests, groups.get("limited", 0)))
    return sorted(shares, key=lambda share: (-share.requests, share.name))


def failures(totals: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Requests that were not admitted: group, outcome and number; most first."""
    found = [
        (GROUPS[group(outcome)], outcome, count)
        for outcome, count in totals.items()
        if group(outcome) != "admitted" and count
    ]
    return sorted(found, key=lambda row: (-row[2], row[1]))
