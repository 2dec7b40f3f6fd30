"""Callbacks of a limiter: one that fails affects no other of its batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.domain.limits import Decision


def deliver(done: Callable[[Decision | None], None], decision: Decision | None) -> None:
    """Call back with a decision; an error is reported, and not raised."""
    try:
        done(decision)
    except Exception as error:
        report_failed_callback(error)


def report_failed_callback(error: Exception) -> None:
    """Report a callback that failed to the event loop; its other callbacks are still called."""
    report = {"message": "a callback of the limiter failed", "exception": error}
    asyncio.get_running_loop().call_exception_handler(report)
