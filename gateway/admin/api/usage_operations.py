"""Usage of all keys: by plan, the busiest keys, and warnings of limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Call, Operation, Parameter, Reply, Success, listed
from gateway.domain.usage import Window
from gateway.manage.usage_export import account_as_csv, as_csv, rows
from gateway.manage.usage_reports import busy_as_json, read_span, read_window
from gateway.manage.usage_sums import (
    UsageReport,
    account_usage_as_json,
    busiest_routes,
    report_as_json,
    route_as_json,
)
from gateway.manage.warnings import ID, warning_as_json

_TAG: Final = "usage"


def span_of(call: Call) -> Window:
    """The window or the dates of a call. Raises Invalid."""
    query = call.query
    return read_span(query["window"], query["from"], query["to"], call.now_us)


def as_table(call: Call, parts: Iterable[tuple[Mapping[str, str], UsageReport]]) -> Reply | None:
    """The reply if CSV was asked for. parts: reports, each with what it is about"""
    if call.query["format"] != "csv":
        return None
    return Reply(csv=as_csv(row for about, report in parts for row in rows(report, about)))


async def _overview(call: Call) -> Reply:
    reports = await call.management.usage.overview(span_of(call))
    table = as_table(call, (({"plan": plan}, report) for plan, report in reports.items()))
    return table or listed(
        [{"plan": plan or None, **report_as_json(report)} for plan, report in reports.items()]
    )


async def _routes(call: Call) -> Reply:
    report = await call.management.usage.of_all(span_of(call))
    return as_table(call, [({}, report)]) or listed(
        [route_as_json(route, one) for route, one in busiest_routes(report)]
    )


async def _of_account(call: Call) -> Reply:
    book, window = call.management.usage, span_of(call)
    name = call.path["name"]
    if call.query["format"] == "csv":
        return Reply(csv=await account_as_csv(book, name, window))
    return Reply(account_usage_as_json(name, *await book.of_account(name, window)))


async def _busiest(call: Call) -> Reply:
    window = read_window(call.query["window"])
    busy = await call.management.usage.busiest(window, call.query["count"])
    return listed([busy_as_json(one) for one in busy])


async def _warnings(call: Call) -> Reply:
    query = call.query
    page = await call.management.warnings.page(
        query["before"], query["count"], key_id=query["key_id"]
    )
    return listed([warning_as_json(warning) for warning in page.warnings], page.next)


OPERATIONS: Final = (
    Operation(
        "GET",
        "/usage",
        "getUsage",
        _TAG,
        "Requests by plan",
        _overview,
        (
            Success(
                200, "One entry per plan; null: without a known key.", "PlanUsageList", is_csv=True
            ),
        ),
        parameters=given.SPAN,
    ),
    Operation(
        "GET",
        "/usage/routes",
        "listRouteUsage",
        _TAG,
        "Requests by route",
        _routes,
        (Success(200, "Routes, the busiest first.", "RouteUsageList", is_csv=True),),
        parameters=given.SPAN,
    ),
    Operation(
        "GET",
        "/accounts/{name}/usage",
        "getAccountUsage",
        _TAG,
        "Usage of an account",
        _of_account,
        (Success(200, "The sum of its keys, and each of them.", "AccountUsage", is_csv=True),),
        description="Revoked keys are included. An account may have up to 1,000 keys.",
        parameters=(given.ACCOUNT_NAME, *given.SPAN),
        refusals=(409,),
    ),
    Operation(
        "GET",
        "/usage/busiest",
        "listBusiestKeys",
        _TAG,
        "The keys with the most requests",
        _busiest,
        (Success(200, "Keys, the one with the most requests first.", "BusyKeyList"),),
        description="Chosen in bounded memory: a key that is never among the busiest of a second "
        "may be missing.",
        parameters=(given.WINDOW, given.BUSIEST_COUNT),
    ),
    Operation(
        "GET",
        "/warnings",
        "listWarnings",
        _TAG,
        "Limits of which 80 % or all was used",
        _warnings,
        (Success(200, "Warnings, the newest first.", "WarningList"),),
        description="One warning per counter, window and level. The newest 10,000 are kept, at "
        "most 60 per minute; the metric gateway_limit_warnings_total counts all.",
        parameters=(
            Parameter(
                "key_id",
                "query",
                {"type": "string", "pattern": given.KEY_ID_PATTERN, "example": "7h3k9m2p4q6r"},
                "The id of the key whose requests were counted.",
            ),
            Parameter(
                "before",
                "query",
                {"type": "string", "pattern": f"^{ID}$"},
                "The `next` of the previous page.",
            ),
            given.COUNT,
        ),
    ),
)
