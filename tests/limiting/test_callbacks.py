"""Errors in callbacks."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.domain.limits import Decision
from gateway.limiting.callbacks import deliver, report_failed_callback


async def test_a_failed_callback_is_reported() -> None:
    """The event loop gets the error itself, with its traceback, as of any callback of its own."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    error = ValueError("why")
    report_failed_callback(error)
    (report,) = reports
    assert report["exception"] is error
    assert "callback of the limiter" in report["message"]


async def test_deliver() -> None:
    """A decision reaches its callback; what that raises reaches the event loop only."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    found: list[Decision | None] = []
    deliver(found.append, None)
    deliver(lambda _: 1 / 0, None)
    assert found == [None]
    assert [type(report["exception"]) for report in reports] == [ZeroDivisionError]
