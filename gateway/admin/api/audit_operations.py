"""The audit log: list entries (who changed what, when), and verify the log."""

from __future__ import annotations

from typing import Final

from gateway.admin.api import parameters as given
from gateway.admin.api.operations import Call, Operation, Parameter, Reply, Success, listed
from gateway.manage.audit_log import entry_as_json

_TAG: Final = "audit"
_MOST_NUMBER: Final = 2**53 - 1


async def _list(call: Call) -> Reply:
    query = call.query
    page = await call.management.audit_of(query["log"]).page(
        query["before"],
        query["count"],
        action=query["action"],
        actor=query["actor"] or None,
        subject=query["subject"],
    )
    return listed([entry_as_json(entry) for entry in page.entries], page.next)


async def _verify(call: Call) -> Reply:
    verified = await call.management.audit_of(call.query["log"]).verify()
    return Reply(
        {
            "count": verified.count,
            "dropped": verified.dropped,
            "head_hash": verified.head_hash,
            "faults": list(verified.faults),
        }
    )


_LOG: Final = Parameter(
    "log",
    "query",
    {"type": "string", "enum": ["operators", "customers"], "default": "operators"},
    "The log of changes by operators, or that of changes by customers.",
)

OPERATIONS: Final = (
    Operation(
        "GET",
        "/audit",
        "listAuditEntries",
        _TAG,
        "List who changed what",
        _list,
        (Success(200, "Entries, the newest first.", "AuditList"),),
        description="With a filter a page may be short or empty although more pages follow.",
        parameters=(
            Parameter(
                "before",
                "query",
                {"type": "integer", "minimum": 1, "maximum": _MOST_NUMBER},
                "The `next` of the previous page.",
            ),
            Parameter(
                "action",
                "query",
                {"type": "string", "pattern": "^[a-z]+(?:[.][a-z]+)?$", "example": "key.revoke"},
                "An action such as key.revoke, or key for all actions on keys.",
            ),
            given.text("actor", "Part of the actor's name or address, in any letter case."),
            Parameter(
                "subject",
                "query",
                {
                    "type": "string",
                    "pattern": "^(?:(?:key|account|policy):)?[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
                    "example": "account:acme",
                },
                "What was changed, such as key:7h3k9m2p4q6r or account:acme.",
            ),
            given.COUNT,
            _LOG,
        ),
    ),
    Operation(
        "GET",
        "/audit/verify",
        "verifyAudit",
        _TAG,
        "Verify the audit log",
        _verify,
        (Success(200, "The result of verifying the chain of hashes.", "Verified"),),
        description="Reads every entry. A missing or changed entry is a fault. Old entries that "
        "were deleted by age are not, if an entry records the deletion.",
        parameters=(_LOG,),
    ),
)
