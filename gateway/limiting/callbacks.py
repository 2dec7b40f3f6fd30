"""What becomes of an error in a callback of a limiter."""

from __future__ import annotations

import asyncio


def report_failed_callback(error: Exception) -> None:
    """Report a callback that failed to the event loop; its other callbacks are still called."""
    report = {"message": "a callback of the limiter failed", "exception": error}
    asyncio.get_running_loop().call_exception_handler(report)
