"""Reports which keys have MCP connections open at this worker, in the background.

A worker without any writes nothing. What cannot be written is not kept: the next report has it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

from gateway.domain.ports import ConnectionStore, StoreDown
from gateway.tasks import end, spawn

EVERY_S: Final = 2.0
#: The most keys in a report, those with the most connections.
MOST_KEYS: Final = 100
#: How long a worker that stops waits for its last report to arrive.
STOP_TIMEOUT_S: Final = 0.5


class ConnectionReporter:
    """Reports between `start` and `stop`.

    connected: how many connections each key has open at this worker, by its id
    worker:    the worker's id
    """

    def __init__(self, connected: Counter[str], store: ConnectionStore, worker: str) -> None:
        self._connected = connected
        self._store = store
        self._worker = worker
        self._has_reported = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Report until `stop`. Needs a running loop."""
        self._task = spawn(self._run(), "MCP connections")

    async def stop(self) -> None:
        """Stop, and withdraw the last report."""
        await end(self._task)
        if self._has_reported:
            with suppress(TimeoutError, StoreDown):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._store.report(self._worker, {})

    async def report(self) -> None:
        """Report now, if there are connections or there were at the last report."""
        connected = dict(self._connected.most_common(MOST_KEYS))
        if connected or self._has_reported:
            with suppress(StoreDown):
                await self._store.report(self._worker, connected)
                self._has_reported = bool(connected)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.report()
