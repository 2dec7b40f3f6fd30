"""Deadlines, coarsely: one look at every connection a few times a second.

A timer for each request would cost more than the request's own judging; nobody needs a 30-second
deadline to the millisecond.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.proxy.context import Context
from gateway.proxy.upstream_pool import IDLE_S

TICK_S: Final = 0.25


async def watch_deadlines(context: Context) -> None:
    """Run until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(TICK_S)
        now = loop.time()
        context.gate.epoch += 1
        for connection in context.connections:
            try:
                connection.check_deadline(now)
            except Exception:
                # Else nobody on this worker would have a deadline any more.
                connection.failed()
        context.connections.look()
        context.pools.close_idle(now - IDLE_S)
