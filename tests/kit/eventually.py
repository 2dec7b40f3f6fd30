"""Waits for a condition instead of for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from tests.kit.wire import TIMEOUT_S


async def eventually(
    condition: Callable[[], Awaitable[bool] | bool], what: str, within_s: float = TIMEOUT_S
) -> None:
    """Poll until the condition holds; fail with `what` if it does not in time."""
    give_up = time.monotonic() + within_s
    while True:
        # Computed before the condition: a slow machine gets one more try after the deadline.
        late = time.monotonic() > give_up
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        assert not late, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.01)
