"""The workers of a gateway: a slot for each, and their stand-ins.

While a worker is lost or silent, another one accepts its clients too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from gateway.admin.readiness import Readiness, joined
from gateway.domain.policy import Policy
from gateway.observe.registry import Family, Series, Snapshot
from gateway.observe.totals import with_series
from gateway.proxy.inflight import SharedMemory
from gateway.runtime.channel import Adopt, PolicyLoaded, Release, Report, Start
from gateway.runtime.restarts import stand_ins
from gateway.runtime.slot_group import SlotGroup
from gateway.runtime.sockets import Sockets, close_all
from gateway.runtime.worker_slot import SlotCallbacks, SlotState, WorkerSlot

WORKERS: Final = Family("gauge", "workers", "Workers that serve, and that should.", ("state",))
RESTARTS: Final = Family("counter", "worker_restarts", "Workers started in place of ended ones.")


class Workers(SlotGroup):
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
        super().__init__(count)
        self._command = command
        self._start_message = start_message
        self._on_policy = on_policy
        self._sockets: Sequence[Sockets] = ()
        self._inflight: SharedMemory
        #: Absent worker -> the worker that accepts its clients.
        self._stand_ins: dict[int, int] = {}
        self._stopping = False

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
        self.open(stack, callbacks)
        await self.start_all()

    async def stop(self) -> None:
        """Drain and stop all. Idempotent."""
        self._stopping = True
        # This process's copies first, so that clients are refused once the workers close theirs.
        close_all(self._sockets)
        await super().stop()

    def snapshot(self) -> Snapshot:
        """The metrics of all workers, by their last reports, and how many workers serve."""
        own = (
            Series(WORKERS, {("live",): (self.serving,), ("wanted",): (self._count,)}),
            Series(RESTARTS, {(): (self.restarts,)}),
        )
        return with_series(self._totals.snapshot(), own)

    def readiness(self) -> Readiness:
        """The combined readiness, by the last reports; a silent worker does not count."""
        answers = [report.readiness for report in self.reports()]
        return joined(answers, self.serving, self._count)

    def _on_round(self) -> None:
        self._assign_stand_ins()

    # -- callbacks of the slots -------------------------------------------------------------------
    def _start_message_of(self, index: int) -> Start:
        descriptors = tuple(tuple(bound.fileno() for bound in one) for one in self._sockets)
        message = self._start_message(index).of_sockets(descriptors)
        return replace(message, inflight=self._inflight.fileno())

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
