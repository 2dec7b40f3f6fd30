"""The window that a page with usage looks back on, as its address says."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.domain.usage import WINDOWS, Window

_DEFAULT: Final = "24h"
SPELLED: Final = {"1h": "1 hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}


def window_of(request: web.Request) -> Window:
    """What ?window= asks for; a day where it asks for nothing that there is."""
    return WINDOWS.get(request.query.get("window", _DEFAULT), WINDOWS[_DEFAULT])
