"""The couriers of a gateway, which capture and deliver webhooks: a slot for each.

They take no part in serving clients: a gateway whose couriers are dead decides and forwards as
before. All accept from one socket, which this process keeps, so that a request to them waits while
one is restarted.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

from gateway import tasks
from gateway.domain.policy import Policy
from gateway.observe.registry import Family, Series, Snapshot
from gateway.observe.totals import with_series
from gateway.runtime.channel import PolicyLoaded, Report, Start
from gateway.runtime.slot_group import SlotGroup
from gateway.runtime.worker_slot import SlotCallbacks, WorkerSlot

COURIERS: Final = Family("gauge", "couriers", "Couriers that serve, and that should.", ("state",))
RESTARTS: Final = Family("counter", "courier_restarts", "Couriers started in place of ended ones.")


class Couriers(SlotGroup):
    """Runs `count` couriers: `start`, use, `stop`.

    command:       runs a courier; the descriptor of its channel is appended
    start_message: returns the first message for a courier
    on_policy:     called with each policy that a courier has loaded, and whether SIGHUP asked for
                   it
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

    def start(self, stack: AsyncExitStack, sockets: Sequence[socket.socket]) -> None:
        """Start all, in the background. stack: stops them when it is closed; sockets: listening"""
        descriptors = (tuple(bound.fileno() for bound in sockets),)
        callbacks = SlotCallbacks(
            self._command,
            lambda index: self._start_message(index).of_sockets(descriptors),
            self._on_message,
            on_change=lambda: None,
            on_end=lambda slot: self._totals.remove_worker(slot.index),
            role="courier",
        )
        self.open(stack, callbacks)
        for slot in self._slots:
            tasks.spawn(slot.start(), f"start of courier {slot.index}")

    def snapshot(self) -> Snapshot:
        """The metrics of all couriers, by their last reports, and how many serve."""
        own = (
            Series(COURIERS, {("live",): (self.serving,), ("wanted",): (self._count,)}),
            Series(RESTARTS, {(): (self.restarts,)}),
        )
        return with_series(self._totals.snapshot(), own)

    @property
    def words(self) -> str:
        """For a readiness probe: "1 of 1", and what is wrong with those that serve."""
        details = {
            detail
            for report in self.reports()
            for detail in report.readiness.checks.values()
            if detail != "ok"
        }
        return "; ".join((f"{self.serving} of {self._count}", *sorted(details)))

    def _on_message(self, slot: WorkerSlot, message: Report | PolicyLoaded) -> None:
        if isinstance(message, PolicyLoaded):
            self._on_policy(message.policy, message.requested)
        else:
            self._totals.update(slot.index, message.metrics)
