"""Warnings of limits: who came close to the end of one, and who used it up."""

from __future__ import annotations

from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Call, Operation, Parameter, Reply, Success, listed
from gateway.manage.warnings import ID, warning_as_json


async def _list(call: Call) -> Reply:
    query = call.query
    page = await call.management.warnings.page(query["before"], query["count"], key_id=query["key"])
    return listed([warning_as_json(warning) for warning in page.warnings], page.next)


OPERATIONS: Final = (
    Operation(
        "GET",
        "/warnings",
        "listWarnings",
        "usage",
        "Limits of which 80 or 100 % were used",
        _list,
        (Success(200, "Warnings, the newest first.", "WarningList"),),
        description="Each limit's count is warned of once in its window at each level. The newest "
        "10,000 are kept, and no more than 60 of a minute; the metric "
        "gateway_limit_warnings_total counts all.",
        parameters=(
            Parameter(
                "key",
                "query",
                {"type": "string", "pattern": given.KEY_ID_PATTERN, "example": "7h3k9m2p4q6r"},
                "The id of the key whose requests were counted.",
            ),
            Parameter(
                "before",
                "query",
                {"type": "string", "pattern": f"^{ID}$"},
                "What the page before gave as next.",
            ),
            given.COUNT,
        ),
    ),
)
