"""Writes what a worker has counted of use to the store, in the background, once a second.

Once a minute it has the store settle what lies there unsettled, its own and what the dead left.

One batch is under way at a time. One whose answer does not come is sent again as it is, with the
same number, until the store answers: none is lost then, and none is counted twice. Meanwhile what
is counted waits in the table, whose room is bounded. A worker that dies loses what it had not yet
written, up to two seconds' worth where the store answers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from random import uniform
from secrets import token_hex
from typing import Final, Protocol

from gateway.domain.ports import StoreDown, UsageBatch
from gateway.domain.usage import bucket_start
from gateway.observe.seldom import Seldom
from gateway.observe.usage import UsageTable
from gateway.tasks import spawn

log = logging.getLogger("gateway")

EVERY_S: Final = 1.0
SETTLE_EVERY_S: Final = 60.0
#: For how long the end of a worker tries to write what is left, and how often.
LAST_S: Final = 1.0
_AGAIN_S: Final = 0.1
_SAID_EVERY_S: Final = 60.0


class Taker(Protocol):
    """What is asked of `domain.ports.UsageStore` here."""

    async def add(self, batch: UsageBatch) -> None: ...

    async def settle(self, writer: str, now_s: int) -> None: ...


class UsageWriter:
    """Between `start` and `stop` the one who writes a worker's table.

    store:    takes the batches
    clock_us: Unix time in microseconds: a second's end is a minute's end, now and then
    """

    def __init__(
        self,
        table: UsageTable,
        store: Taker,
        clock_us: Callable[[], int],
    ) -> None:
        self._table = table
        self._store = store
        self._clock_us = clock_us
        self._id = token_hex(8)
        self._number = 0
        self._batch: UsageBatch | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._seldom = Seldom(_SAID_EVERY_S)

    def start(self) -> None:
        """Write from now on, until `stop`. Needs a running loop."""
        self._tasks = spawn(self._keep_writing(), "usage"), spawn(self._keep_settling(), "settle")

    async def stop(self) -> None:
        """Write what is left, for as long as that may take."""
        if not self._tasks:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await self._write_last()
        if self._batch is not None or len(self._table):
            log.warning("usage: what was counted last could not be written, and is lost")

    async def write(self) -> bool:
        """Write all that was counted until now; False: the store could not be asked."""
        self._table.close(self._minute_s())
        while (batch := self._next()) is not None:
            try:
                await self._store.add(batch)
            except StoreDown as error:
                self._warn("written", error)
                return False
            self._batch = None
            # Many batches may take until the next minute has begun.
            self._table.turn(self._minute_s())
        return True

    async def _write_last(self) -> None:
        while not await self.write():  # noqa: ASYNC110 # nobody says when the store is back
            await asyncio.sleep(_AGAIN_S)

    async def settle(self) -> None:
        """Have the store settle what is over; what cannot be done now is done later."""
        try:
            await self._store.settle(self._id, self._clock_us() // 1_000_000)
        except StoreDown as error:
            self._warn("settled", error)

    def _warn(self, what: str, error: StoreDown) -> None:
        if self._seldom.left_out(what, time.monotonic()) is not None:
            log.warning("usage cannot be %s for now: %s", what, error)

    async def _keep_writing(self) -> None:
        while True:
            # From second to second of the clock, so that one of them is the end of the minute.
            await asyncio.sleep(EVERY_S - self._clock_us() / 1e6 % EVERY_S)
            await self.write()

    async def _keep_settling(self) -> None:
        while True:
            # After the minute's end, and not all workers of all gateways in the same moment.
            await asyncio.sleep(SETTLE_EVERY_S * uniform(0.75, 1.25))  # noqa: S311
            await self.settle()

    def _next(self) -> UsageBatch | None:
        """The batch that was not answered, or else the next one."""
        if self._batch is None and (taken := self._table.take()) is not None:
            self._number += 1
            self._batch = UsageBatch(self._id, self._number, *taken)
        return self._batch

    def _minute_s(self) -> int:
        return bucket_start("minute", self._clock_us() // 1_000_000)
