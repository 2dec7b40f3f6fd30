"""Usage of everybody together: by plan, and the busiest keys."""

from __future__ import annotations

from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Call, Operation, Reply, Success, listed
from gateway.manage.usage import busy_as_json, read_window, report_as_json

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


OPERATIONS: Final = (
    Operation(
        "GET",
        "/usage",
        "getUsage",
        _TAG,
        "Requests by plan",
        _overview,
        (Success(200, "One entry a plan; null: without a known key.", "PlanUsageList"),),
        parameters=(given.WINDOW,),
    ),
    Operation(
        "GET",
        "/usage/busiest",
        "listBusiestKeys",
        _TAG,
        "The keys with most requests",
        _busiest,
        (Success(200, "Keys, the one with most requests first.", "BusyKeyList"),),
        description="Counted in bounded memory: the figure of a key that is not among the busiest "
        "may be too large, and a rare key may be missing.",
        parameters=(given.WINDOW, given.BUSIEST_COUNT),
    ),
)
