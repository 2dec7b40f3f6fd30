"""Checks the deadlines of all connections, a few times a second.

A timer for each request would cost more than deciding it, and a 30-second deadline need not be
exact to the millisecond.
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
                # An exception here would end all deadlines of this worker.
                connection.failed()
        context.connections.check()
        context.pools.close_idle(now - IDLE_S)
