"""The audit log: its entries with filters, and verifying its chain."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin.console.gate import management_of
from gateway.admin.console.render import page

#: Action in the filter -> its label. "key": all actions on keys.
ACTIONS: Final = {
    "key": "any change of a key",
    "key.create": "key created",
    "key.edit": "key edited",
    "key.rotate": "key rotated",
    "key.suspend": "key suspended",
    "key.resume": "key resumed",
    "key.revoke": "key revoked",
    "account.set": "account set",
    "limit.reset": "limit reset",
    "integration": "any change of an integration",
    "watch": "any change of a watch",
    "policy": "any change of policies",
    "policy.load": "policy loaded",
    "policy.rollback": "policy restored",
    "audit.trim": "old entries deleted",
    "audit.moved": "damaged log renamed",
}
_FILTERS: Final = ("action", "actor", "subject")
_ENTRIES: Final = 50


async def show(request: web.Request) -> web.StreamResponse:
    """Entries that match the filters, newest first; with ?verify, the result of verifying."""
    log = "customers" if request.query.get("log") == "customers" else ""
    audit = management_of(request).audit_of(log)
    given = {name: request.query.get(name, "").strip() for name in _FILTERS}
    before = request.query.get("before", "")
    found = await audit.page(
        int(before) if before.isascii() and before.isdigit() and len(before) < 16 else None,
        _ENTRIES,
        action=given["action"] or None,
        actor=given["actor"] or None,
        subject=given["subject"] or None,
    )
    filters: dict[str, str] = {"log": log} if log else {}
    filters |= {name: value for name, value in given.items() if value}
    following = urlencode({**filters, "before": found.next}) if found.next else ""
    return page(
        request,
        "audit",
        entries=found.entries,
        given=given,
        filters=filters,
        log=log,
        actions=ACTIONS,
        is_further=bool(before),
        next=f"/console/audit?{following}" if following else None,
        verified=await audit.verify() if "verify" in request.query else None,
    )
