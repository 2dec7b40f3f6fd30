"""Asks the Sentinels for the master, and reconnects when it has changed.

A connection is lost when its master dies. After a manual failover the old master keeps it: for some
ten seconds, until the Sentinels make it a replica, it accepts writes that are then lost, counters
included, and pushes none of the changes at the new master. So the Sentinels are asked twice a
second.

While they do not answer, a connection to the old master is used without notice. So this is told,
also while everything else works.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.reasons import with_cure
from gateway.stores.redis.topology import Node, read_master
from gateway.tasks import end, spawn

_log = logging.getLogger("gateway")

_EVERY_S: Final = 0.5
#: After so many failures in a row they are told: in a failover there are one or two.
_MOST_FAILED: Final = 4


class MasterWatch:
    """Calls each listener with a reason when the Sentinels name another master than before.

    detail: why they name none, for an operator; "": they do

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
        self.detail = ""
        self._failed = 0
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
        try:
            self._master = await read_master(self._address)
        except StoreDown as error:
            self._failed += 1
            if self._failed >= _MOST_FAILED:
                self._tell(f"a failover is not noticed: {with_cure(error)}")
        else:
            self._failed = 0
            self._tell("")

    def _tell(self, detail: str) -> None:
        if detail == self.detail:
            return
        self.detail = detail
        if detail:
            _log.error("store: %s", detail)
        else:
            _log.info("store: failovers are noticed again: %s", self._address.label)
