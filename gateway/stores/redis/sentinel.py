"""Hears of a new master from the Sentinels, and leaves the last one.

A link notices by itself when its master dies. A master that was replaced on purpose does not: for
some ten seconds, until the Sentinels get round to telling it that it is a replica, it takes what it
is sent, counts that nobody else sees included, and says nothing of the changes that are made at the
new one. So the Sentinels are asked, twice a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from gateway.domain.ports import StoreDown
from gateway.stores.connect import StoreAddress
from gateway.stores.topology import Node, read_master
from gateway.tasks import spawn

_EVERY_S: Final = 0.5


class MasterWatch:
    """Gives the reason to each of `give_ups` when the Sentinels name another master than before.

    What was connected before `start` has returned may be connected to the last one; what is
    connected later is told.
    """

    def __init__(
        self,
        address: StoreAddress,
        give_ups: Sequence[Callable[[str], None]],
        *,
        every_s: float = _EVERY_S,
    ) -> None:
        self._address = address
        self._give_ups = give_ups
        self._every_s = every_s
        self._master: Node | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Find the master, where the Sentinels can be asked, and watch from here on."""
        if self._task is None:
            await self._look()
            self._task = spawn(self._run(), "sentinel watch")

    async def stop(self) -> None:
        """Watch no more; harmless when repeated."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            last = self._master
            await self._look()
            if self._master != last:
                for give_up in self._give_ups:
                    give_up("the Sentinels name another master")

    async def _look(self) -> None:
        with suppress(StoreDown):
            self._master = await read_master(self._address)
