"""The workers of a gateway: a slot for each, their reports, and their stand-ins.

Each worker is asked for a report once a second, and at each scrape and probe. While a worker is
lost or silent, another one accepts its clients too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from gateway import tasks
from gateway.admin.readiness import Readiness, joined
from gateway.domain.policy import Policy
from gateway.observe.registry import Family, Series, Snapshot
from gateway.observe.totals import Totals, with_series
from gateway.proxy.inflight import SharedMemory
from gateway.runtime.channel import Adopt, PolicyLoaded, Release, Report, Start, ToWorker
from gateway.runtime.restarts import stand_ins
from gateway.runtime.sockets import Sockets, close_all
from gateway.runtime.worker_slot import SlotCallbacks, SlotState, WorkerSlot

#: How often workers are asked for a report, so that few counts are lost when one is killed.
COLLECT_EVERY_S: Final = 1.0
#: How long a scrape or a probe waits for the reports.
REPORT_TIMEOUT_S: Final = 0.5

WORKERS: Final = Family("gauge", "workers", "Workers that serve, and that should.", ("state",))
RESTARTS: Final = Family("counter", "worker_restarts", "Workers started in place of ended ones.")


class Workers:
    """Runs `count` workers: `start`, use, `stop`.

    command:       runs a worker; the descriptor of its channel is appended
    start_message: returns the first message for a worker; sockets and shared memory are added
    on_policy:     called with each policy that a worker has loaded, and whether SIGHUP requested it
    """

    def __init__(
        self,
        count: int,
        command: Sequence[str],
        start_message: Callable[[int], Start],
        on_policy: Callable[[Policy, bool], None],
    ) -> None:
        self._count = count
        self._command = command
        self._start_message = start_message
        self._on_policy = on_policy
        self._slots: list[WorkerSlot] = []
        self._sockets: Sequence[Sockets] = ()
        self._inflight: SharedMemory
        self._totals = Totals()
        #: Absent worker -> the worker that accepts its clients.
        self._stand_ins: dict[int, int] = {}
        self._stopping = False
        self._collecting = asyncio.Lock()
        self._next_reports: asyncio.Task[None] | None = None

    async def start(self, stack: AsyncExitStack, sockets: Sequence[Sockets]) -> None:
        """Start all, and wait until each of them serves. Raises CannotStart.

        stack: stops them when it is closed; sockets: of each worker
        """
        self._sockets = sockets
        self._inflight = SharedMemory(self._count)
        stack.callback(self._inflight.close)
        callbacks = SlotCallbacks(
            self._command,
            self._start_message_of,
            self._on_message,
            self._assign_stand_ins,
            self._on_worker_end,
        )
        self._slots = [WorkerSlot(index, callbacks) for index in range(self._count)]
        stack.push_async_callback(self.stop)
        collecting = tasks.spawn(self._keep_collecting(), "collect reports")
        stack.callback(collecting.cancel)
        await asyncio.gather(*(slot.start() for slot in self._slots))

    async def stop(self) -> None:
        """Drain and stop all. Idempotent."""
        self._stopping = True
        # This process's copies first, so that clients are refused once the workers close theirs.
        close_all(self._sockets)
        await asyncio.gather(*(slot.stop() for slot in self._slots))

    def stop_now(self) -> None:
        """Stop waiting for requests in progress."""
        for slot in self._slots:
            slot.stop_now()

    def send(self, message: ToWorker) -> None:
        """Send a message to every worker."""
        for slot in self._slots:
            slot.send(message)

    # -- reports ----------------------------------------------------------------------------------
    async def collect(self) -> None:
        """Get a report of every worker; if one does not answer, its previous report is kept.

        There is one round of requests at a time: calls during a round share the next one.
        """
        if self._next_reports is None:
            self._next_reports = tasks.spawn(self._collect_next(), "collect reports once more")
        await asyncio.shield(self._next_reports)

    def snapshot(self) -> Snapshot:
        """The metrics of all workers, by their last reports, and how many workers serve."""
        serving = sum(slot.is_serving and not slot.is_silent for slot in self._slots)
        restarts = sum(slot.restarts for slot in self._slots)
        own = (
            Series(WORKERS, {("live",): (serving,), ("wanted",): (self._count,)}),
            Series(RESTARTS, {(): (restarts,)}),
        )
        return with_series(self._totals.snapshot(), own)

    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [slot.pid for slot in self._slots if slot.pid is not None]

    def readiness(self) -> Readiness:
        """The combined readiness, by the last reports; a silent worker does not count."""
        heard = [slot for slot in self._slots if not slot.is_silent]
        answers = [slot.report.readiness for slot in heard if slot.report is not None]
        return joined(answers, sum(slot.is_serving for slot in heard), self._count)

    async def _keep_collecting(self) -> None:
        while True:
            await asyncio.sleep(COLLECT_EVERY_S)
            await self.collect()
            for slot in self._slots:
                slot.check()
            self._assign_stand_ins()

    async def _collect_next(self) -> None:
        async with self._collecting:
            self._next_reports = None
            await self._request_reports()

    async def _request_reports(self) -> None:
        asked = [future for slot in self._slots if (future := slot.request_report()) is not None]
        if asked:
            await asyncio.wait(asked, timeout=REPORT_TIMEOUT_S)

    # -- callbacks of the slots -------------------------------------------------------------------
    def _start_message_of(self, index: int) -> Start:
        descriptors = tuple(tuple(bound.fileno() for bound in one) for one in self._sockets)
        message = self._start_message(index)
        return replace(message, sockets=descriptors, inflight=self._inflight.fileno())

    def _on_message(self, slot: WorkerSlot, message: Report | PolicyLoaded) -> None:
        if isinstance(message, PolicyLoaded):
            self._on_policy(message.policy, message.requested)
        else:
            self._totals.update(slot.index, message.metrics)

    def _on_worker_end(self, slot: WorkerSlot) -> None:
        self._totals.remove_worker(slot.index)
        self._inflight.clear(slot.index)

    def _assign_stand_ins(self) -> None:
        """Make another worker accept the clients of each lost or silent one."""
        if self._stopping:
            return
        serving = {slot.index for slot in self._slots if slot.is_serving}
        silent = {slot.index for slot in self._slots if slot.is_silent}
        lost = {slot.index for slot in self._slots if slot.state is SlotState.LOST}
        absent, present = lost | (serving & silent), serving - silent
        before, self._stand_ins = self._stand_ins, stand_ins(absent, present, self._stand_ins)
        for worker, other in before.items():
            if self._stand_ins.get(worker) != other:
                self._slots[other].send(Release(worker))
        for worker, other in self._stand_ins.items():
            if before.get(worker) != other:
                self._slots[other].send(Adopt(worker))
