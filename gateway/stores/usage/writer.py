"""Writes a worker's usage to the store, in the background, once a second.

To write an entry takes worker and store several times as long as to count a request in it. So where
there are many, such as of thousands of keys, they are written less often, with more requests each.

Once a minute it merges the journals of this worker, and those of dead workers.

One batch is in flight at a time. A batch without an answer is sent again unchanged, with the same
number, until the store answers: so none is lost, and none is counted twice. Meanwhile requests are
counted in the table, whose size is bounded. A worker that dies loses what it has not written: up to
two seconds of usage, or six where there are many entries, unless there is an outage.
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
from gateway.observe.log_throttle import LogThrottle
from gateway.observe.usage_table import MOST_ENTRIES, UsageTable
from gateway.tasks import end, spawn

log = logging.getLogger("gateway")

EVERY_S: Final = 1.0
MERGE_EVERY_S: Final = 60.0
#: More entries than this for each second wait: for a bounded time, and while they are not too many.
ENTRIES_A_SECOND: Final = 2_000
LONGEST_S: Final = 5
MOST_WAITING: Final = MOST_ENTRIES // 2
#: How long a worker that stops tries to write the rest, and the pause between two tries.
LAST_S: Final = 1.0
_AGAIN_S: Final = 0.1
_LOG_EVERY_S: Final = 60.0


def is_due(entries: int, waited_s: int) -> bool:
    """Are so many entries to be written after this time?"""
    return entries <= waited_s * ENTRIES_A_SECOND or waited_s >= LONGEST_S or entries > MOST_WAITING


class UsageSink(Protocol):
    """The part of `domain.ports.UsageStore` that is used here."""

    async def add(self, batch: UsageBatch) -> None: ...

    async def merge(self, writer: str, now_s: int) -> None: ...


class UsageWriter:
    """Writes a worker's table between `start` and `stop`.

    store:    where the batches go
    clock_us: Unix time in microseconds, by which minutes end
    """

    def __init__(
        self,
        table: UsageTable,
        store: UsageSink,
        clock_us: Callable[[], int],
    ) -> None:
        self._table = table
        self._store = store
        self._clock_us = clock_us
        self._id = token_hex(8)
        self._number = 0
        self._batch: UsageBatch | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._throttle = LogThrottle(_LOG_EVERY_S)

    def start(self) -> None:
        """Write until `stop`. Needs a running loop."""
        self._tasks = spawn(self._keep_writing(), "usage"), spawn(self._keep_merging(), "merge")

    async def stop(self) -> None:
        """Write the rest, within LAST_S."""
        if not self._tasks:
            return
        await end(*self._tasks)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await self._write_last()
        if self._batch is not None or len(self._table):
            log.warning("usage: the last counts could not be written, and are lost")

    async def write(self) -> bool:
        """Write all counts. False: the store is unavailable."""
        self._table.close(self._minute_s())
        while (batch := self._next()) is not None:
            try:
                await self._store.add(batch)
            except StoreDown as error:
                self._warn("written", error)
                return False
            self._batch = None
            # Writing many batches may take until the next minute has begun.
            self._table.start_minute(self._minute_s())
        return True

    async def _write_last(self) -> None:
        while not await self.write():  # noqa: ASYNC110 # no event says that the store has recovered
            await asyncio.sleep(_AGAIN_S)

    async def merge(self) -> None:
        """Merge journals; what fails is retried a minute later."""
        try:
            await self._store.merge(self._id, self._clock_us() // 1_000_000)
        except StoreDown as error:
            self._warn("merged", error)

    def _warn(self, what: str, error: StoreDown) -> None:
        if self._throttle.suppressed(what, time.monotonic()) is not None:
            log.warning("usage could not be %s, and will be retried: %s", what, error)

    async def _keep_writing(self) -> None:
        waited_s = 0
        while True:
            # At each full second of the clock, so that a minute's counts are written at its end.
            await asyncio.sleep(EVERY_S - self._clock_us() / 1e6 % EVERY_S)
            waited_s += 1
            if self._is_due(waited_s):
                await self.write()
                waited_s = 0

    def _is_due(self, waited_s: int) -> bool:
        """Are the counts to be written? waited_s: since that was last done"""
        return (
            is_due(len(self._table), waited_s)
            or self._batch is not None
            or self._table.open.minute_s != self._minute_s()
        )

    async def _keep_merging(self) -> None:
        while True:
            # Random, so that not all workers merge at the same moment.
            await asyncio.sleep(MERGE_EVERY_S * uniform(0.75, 1.25))  # noqa: S311
            await self.merge()

    def _next(self) -> UsageBatch | None:
        """The batch without an answer, or the next one."""
        if self._batch is None and (taken := self._table.take()) is not None:
            self._number += 1
            self._batch = UsageBatch(self._id, self._number, *taken)
        return self._batch

    def _minute_s(self) -> int:
        return bucket_start("minute", self._clock_us() // 1_000_000)
