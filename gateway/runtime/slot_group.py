"""Several processes of one kind: a slot for each, and their reports.

Each process is asked for a report once a second, and at each scrape and probe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from gateway import tasks
from gateway.observe.totals import Totals
from gateway.runtime.channel import Report, ToWorker
from gateway.runtime.worker_slot import SlotCallbacks, WorkerSlot

#: How often processes are asked for a report, so that few counts are lost when one is killed.
COLLECT_EVERY_S: Final = 1.0
#: How long a scrape or a probe waits for the reports.
REPORT_TIMEOUT_S: Final = 0.5


class SlotGroup:
    """Runs `count` processes: `open`, use, `stop`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._slots: list[WorkerSlot] = []
        self._totals = Totals()
        self._collecting = asyncio.Lock()
        self._next_reports: asyncio.Task[None] | None = None

    def open(self, stack: AsyncExitStack, callbacks: SlotCallbacks) -> None:
        """Make the slots. stack: stops their processes when it is closed"""
        self._slots = [WorkerSlot(index, callbacks) for index in range(self._count)]
        stack.push_async_callback(self.stop)
        collecting = tasks.spawn(self._keep_collecting(), "collect reports")
        stack.callback(collecting.cancel)

    async def start_all(self) -> None:
        """Start all, and wait until each of them serves. Raises CannotStart."""
        await asyncio.gather(*(slot.start() for slot in self._slots))

    async def stop(self) -> None:
        """Drain and stop all. Idempotent."""
        await asyncio.gather(*(slot.stop() for slot in self._slots))

    def stop_now(self) -> None:
        """Stop waiting for work in progress."""
        for slot in self._slots:
            slot.stop_now()

    def send(self, message: ToWorker) -> None:
        """Send a message to every process."""
        for slot in self._slots:
            slot.send(message)

    async def collect(self) -> None:
        """Get a report of every process; if one does not answer, its previous report is kept.

        There is one round of requests at a time: calls during a round share the next one.
        """
        if self._next_reports is None:
            self._next_reports = tasks.spawn(self._collect_next(), "collect reports once more")
        await asyncio.shield(self._next_reports)

    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [slot.pid for slot in self._slots if slot.pid is not None]

    @property
    def serving(self) -> int:
        """How many serve; a silent one does not count."""
        return sum(slot.is_serving and not slot.is_silent for slot in self._slots)

    @property
    def restarts(self) -> int:
        """How many were started in place of ended ones."""
        return sum(slot.restarts for slot in self._slots)

    def reports(self) -> Sequence[Report]:
        """The last reports; not those of silent processes."""
        return [
            slot.report for slot in self._slots if slot.report is not None and not slot.is_silent
        ]

    def _on_round(self) -> None:
        """Called after each round of reports, once a second."""

    async def _keep_collecting(self) -> None:
        while True:
            await asyncio.sleep(COLLECT_EVERY_S)
            await self.collect()
            for slot in self._slots:
                slot.check()
            self._on_round()

    async def _collect_next(self) -> None:
        async with self._collecting:
            self._next_reports = None
            await self._request_reports()

    async def _request_reports(self) -> None:
        asked = [future for slot in self._slots if (future := slot.request_report()) is not None]
        if asked:
            await asyncio.wait(asked, timeout=REPORT_TIMEOUT_S)
