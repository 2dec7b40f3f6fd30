"""Asks the Sentinels for the master, and reconnects when it has changed.

A connection is lost when its master dies. After a manual failover the old master keeps it: for some
ten seconds, until the Sentinels make it a replica, it accepts writes that are then lost, counters
included, and pushes none of the changes at the new master. So the Sentinels are asked twice a
second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.topology import Node, read_master
from gateway.tasks import end, spawn

_EVERY_S: Final = 0.5


class MasterWatch:
    """Calls each listener with a reason when the Sentinels name another master than before.

    A connection opened before `start` has returned may go to an older master without notice.
    """

    def __init__(
        self,
        address: StoreAddress,
        listeners: Sequence[Callable[[str], None]],
        *,
        every_s: float = _EVERY_S,
    ) -> None:
        self._address = address
        self._listeners = listeners
        self._every_s = every_s
        self._master: Node | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Find the master, if the Sentinels can be reached, and watch it from now on."""
        if self._task is None:
            await self._look()
            self._task = spawn(self._run(), "sentinel watch")

    async def stop(self) -> None:
        """Stop watching; harmless when repeated."""
        task, self._task = self._task, None
        await end(task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            last = self._master
            await self._look()
            if self._master != last:
                for reconnect in self._listeners:
                    reconnect("the Sentinels name another master")

    async def _look(self) -> None:
        with suppress(StoreDown):
            self._master = await read_master(self._address)
