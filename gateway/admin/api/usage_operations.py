"""Usage of all keys: by plan, the busiest keys, and warnings of limits."""

from __future__ import annotations

from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Call, Operation, Parameter, Reply, Success, listed
from gateway.manage.usage_reports import busy_as_json, read_window, report_as_json
from gateway.manage.warnings import ID, warning_as_json

_TAG: Final = "usage"


async def _overview(call: Call) -> Reply:
    reports = await call.management.usage.overview(read_window(call.query["window"]))
    return listed(
        [{"plan": plan or None, **report_as_json(report)} for plan, report in reports.items()]
    )


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
        (Success(200, "One entry per plan; null: without a known key.", "PlanUsageList"),),
        parameters=(given.WINDOW,),
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
