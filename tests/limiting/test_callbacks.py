"""Errors in callbacks."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.limiting.callbacks import report_failed_callback


async def test_a_failed_callback_is_reported() -> None:
    """The event loop gets the error itself, with its traceback, as of any callback of its own."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    error = ValueError("why")
    report_failed_callback(error)
    (report,) = reports
    assert report["exception"] is error
    assert "callback of the limiter" in report["message"]
