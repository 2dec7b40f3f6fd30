"""The audit log: who changed what, when, and whether the log hangs together."""

from __future__ import annotations

from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Call, Operation, Parameter, Reply, Success, listed
from gateway.manage.audit_log import entry_as_json

_TAG: Final = "audit"
_MOST_NUMBER: Final = 2**53 - 1


async def _list(call: Call) -> Reply:
    query = call.query
    page = await call.management.audit.page(
        query["before"],
        query["count"],
        action=query["action"],
        actor=query["actor"] or None,
        subject=query["subject"],
    )
    return listed([entry_as_json(entry) for entry in page.entries], page.next)


async def _verify(call: Call) -> Reply:
    verified = await call.management.audit.verify()
    return Reply(
        {
            "count": verified.count,
            "dropped": verified.dropped,
            "head_hash": verified.head_hash,
            "faults": list(verified.faults),
        }
    )


OPERATIONS: Final = (
    Operation(
        "GET",
        "/audit",
        "listAuditEntries",
        _TAG,
        "Who changed what",
        _list,
        (Success(200, "Entries, the newest first.", "AuditList"),),
        description="With a filter a page may be short, or empty, and still have one that follows.",
        parameters=(
            Parameter(
                "before",
                "query",
                {"type": "integer", "minimum": 1, "maximum": _MOST_NUMBER},
                "What the page before gave as next.",
            ),
            Parameter(
                "action",
                "query",
                {"type": "string", "pattern": "^[a-z]+(?:[.][a-z]+)?$", "example": "key.revoke"},
                "An action such as key.revoke, or key for all that begin so.",
            ),
            given.text("actor", "Part of who did it, in whatever case."),
            Parameter(
                "subject",
                "query",
                {
                    "type": "string",
                    "pattern": "^(?:(?:key|account):)?[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
                    "example": "account:acme",
                },
                "What was changed, such as key:7h3k9m2p4q6r or account:acme.",
            ),
            given.COUNT,
        ),
    ),
    Operation(
        "GET",
        "/audit/verify",
        "verifyAudit",
        _TAG,
        "Does the log hang together?",
        _verify,
        (Success(200, "What came of following the chain of hashes.", "Verified"),),
        description="Every entry is read. A gap or a change shows as a fault. That the oldest were "
        "dropped with age is none, as long as an entry says so.",
    ),
)
