"""The overview: traffic, limited requests by plan, the busiest keys, refusals and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiohttp import web

from gateway.admin.console.charts import chart
from gateway.admin.console.gate import management_of, window_of
from gateway.admin.console.render import page
from gateway.admin.console.wording import GROUPS, WINDOWS
from gateway.manage.usage_reports import Point, UsageReport, group, grouped


@dataclass(frozen=True, slots=True)
class PlanShare:
    """One plan's part of the traffic. name: "" for requests without a known key"""

    name: str
    requests: int
    limited: int


async def show(request: web.Request) -> web.StreamResponse:
    management = management_of(request)
    window = window_of(request)
    by_plan = await management.usage.overview(window)
    busiest = await management.usage.busiest(window)
    drawn = chart("traffic", window, merged(by_plan.values()))
    totals = added(report.totals for report in by_plan.values())
    return page(
        request,
        "overview",
        window=window,
        windows=WINDOWS,
        chart=drawn,
        requests=sum(totals.values()),
        plans=plan_shares(by_plan),
        busiest=busiest,
        failures=failures(totals),
    )


def merged(reports: Iterable[UsageReport]) -> tuple[Point, ...]:
    """The sums of the points of several reports over one window."""
    steps: dict[int, Counter[str]] = {}
    for report in reports:
        for point in report.points:
            steps.setdefault(point.start_s, Counter()).update(point.counts)
    return tuple(Point(start_s, counts) for start_s, counts in sorted(steps.items()))


def added(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """The sums of counts by outcome."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total


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
