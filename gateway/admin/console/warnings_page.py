"""Warnings: limits that were nearly or entirely used up."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin.console.gate import management_of
from gateway.admin.console.render import page
from gateway.manage.warnings import is_id

_SHOWN: Final = 50


async def show(request: web.Request) -> web.StreamResponse:
    """The newest warnings, of all keys or of one."""
    key_id = request.query.get("key", "").strip()
    before = request.query.get("before", "")
    is_further = is_id(before)
    found = await management_of(request).warnings.page(
        before if is_further else None, _SHOWN, key_id=key_id or None
    )
    wanted = {"key": key_id} if key_id else {}
    following = urlencode({**wanted, "before": found.next}) if found.next else ""
    return page(
        request,
        "warnings",
        warnings=found.warnings,
        key_id=key_id,
        is_further=is_further,
        next=f"/console/warnings?{following}" if following else None,
    )
