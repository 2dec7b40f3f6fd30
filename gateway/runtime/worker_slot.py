"""A slot for a worker: starts its process, supervises it, and replaces it when it dies.

For a silent worker, another one stands in after some seconds. After half a minute it is killed: a
process that hangs does not recover, and its clients get no answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import Any, Final, Literal

from gateway import tasks
from gateway.runtime.channel import (
    Channel,
    Draining,
    Failed,
    PolicyLoaded,
    Report,
    RequestReport,
    Serving,
    Start,
    StopNow,
    ToWorker,
)
from gateway.runtime.child import describe_status, launch, reap
from gateway.runtime.restarts import Restarts
from gateway.runtime.settings import CannotStart

log = logging.getLogger("gateway")

#: How long a worker may take to stop after its drain, before it is killed.
GRACE_S: Final = 5.0
#: A worker that has sent nothing for this time, asked each second, does not count as serving.
SILENT_S: Final = 5.0
#: A worker that is silent for this number of checks, one a second, hangs. Not measured by the
#: clock: while the machine is suspended, or this process stopped, no worker can answer.
MOST_MISSED_CHECKS: Final = 30
#: The maximum of unanswered requests for a report.
MOST_REPORT_WAITERS: Final = 16


@dataclass(frozen=True, slots=True)
class SlotCallbacks:
    """What a slot needs from its owner.

    command:       runs a worker; the descriptor of its channel is appended
    start_message: returns the first message to the worker of a slot
    on_message:    called with each `Report` and `PolicyLoaded` of a worker
    on_change:     called when a worker starts or stops accepting clients
    on_end:        called when a slot's worker has ended
    role:          for logs; a gateway starts without its couriers, and tries again
    """

    command: Sequence[str]
    start_message: Callable[[int], Start]
    on_message: Callable[[WorkerSlot, Report | PolicyLoaded], None]
    on_change: Callable[[], None]
    on_end: Callable[[WorkerSlot], None]
    role: Literal["worker", "courier"] = "worker"


class SlotState(Enum):
    """Whether a slot's worker accepts clients.

    STARTING  no worker of the slot has served yet
    SERVING   the worker accepts clients
    LOST      a worker that served drains or has ended; another stands in until the next one serves
    """

    STARTING = "starting"
    SERVING = "serving"
    LOST = "lost"


class SlotEvent(Enum):
    """What happens to a slot's worker."""

    SERVES = "it started to accept clients"
    LEAVES = "it drains, or has ended"


TABLE: Final = {
    (SlotState.STARTING, SlotEvent.SERVES): SlotState.SERVING,
    (SlotState.STARTING, SlotEvent.LEAVES): SlotState.STARTING,
    (SlotState.SERVING, SlotEvent.LEAVES): SlotState.LOST,
    (SlotState.LOST, SlotEvent.SERVES): SlotState.SERVING,
    # First it drains, then it ends.
    (SlotState.LOST, SlotEvent.LEAVES): SlotState.LOST,
}


def step(state: SlotState, event: SlotEvent) -> SlotState:
    """The next state. Raises ValueError if the table has none."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise ValueError(f"no transition from {state.value}: {event.value}") from None


class WorkerSlot:
    """Runs one worker after another in one slot.

    pid:      of the current worker; None: there is none
    restarts: how often a worker was restarted
    report:   the last report of the current worker
    """

    def __init__(self, index: int, callbacks: SlotCallbacks) -> None:
        self.index = index
        self.name = f"{callbacks.role} {index}"
        self.pid: int | None = None
        self.state = SlotState.STARTING
        self.restarts = 0
        self.report: Report | None = None
        self._callbacks = callbacks
        self._delays = Restarts()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._report_waiters: deque[asyncio.Future[None]] = deque()
        self._started = asyncio.get_running_loop().create_future()
        self._failure = ""
        self._last_message_s = 0.0
        self._missed_checks = 0
        self._ending = asyncio.Event()
        self._stopping_now = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    # -- from outside -----------------------------------------------------------------------------
    async def start(self) -> None:
        """Start the worker, and wait until it serves. Raises CannotStart if the first one fails."""
        self._running = tasks.spawn(self._run(), self.name)
        await asyncio.wait({self._running, self._started}, return_when="FIRST_COMPLETED")
        if not self._started.done():
            await self._running  # it crashed
        await self._started

    async def stop(self) -> None:
        """Let the worker drain and end; kill it if that takes too long."""
        self._ending.set()
        if self._running is None:
            return
        # A signal, not a message: it also ends a worker that is still starting.
        self._signal(signal.SIGTERM)
        stopping_now = tasks.spawn(self._stopping_now.wait(), "stopping_now")
        drain_s = 0.0 if self.report is None else self.report.drain_s
        await asyncio.wait(
            {self._running, stopping_now}, timeout=drain_s + GRACE_S, return_when="FIRST_COMPLETED"
        )
        if self._stopping_now.is_set():
            await asyncio.wait({self._running}, timeout=GRACE_S)
        stopping_now.cancel()
        if not self._running.done():
            log.error("%s (pid %s) does not end; killing it", self.name, self.pid)
            self._signal(signal.SIGKILL)
        await self._running

    def stop_now(self) -> None:
        """End a drain that is in progress."""
        self.send(StopNow())
        self._stopping_now.set()

    def send(self, message: ToWorker) -> None:
        """Send the worker a message. It is lost if there is no worker."""
        if self._channel is not None:
            self._channel.send(message)

    def request_report(self) -> asyncio.Future[None] | None:
        """Request a report; the future is done when it has arrived, or can no longer arrive.

        None: there is no worker to ask, or it has too many unanswered requests.
        """
        if not self.is_serving and self.report is None:
            return None  # it is starting, and does not answer before it serves
        if self._channel is None or len(self._report_waiters) >= MOST_REPORT_WAITERS:
            return None
        future = asyncio.get_running_loop().create_future()
        self._report_waiters.append(future)
        self._channel.send(RequestReport())
        return future

    def check(self) -> None:
        """Kill the worker if it hangs, during its start or later. Call this each second."""
        self._missed_checks += 1
        if (
            self._missed_checks == MOST_MISSED_CHECKS
            and self._process is not None
            and not self._ending.is_set()
        ):
            log.error(
                "%s (pid %s) has been silent for more than %d s; killing it",
                *(self.name, self.pid, MOST_MISSED_CHECKS),
            )
            self._signal(signal.SIGKILL)

    @property
    def is_serving(self) -> bool:
        """Its worker accepts clients."""
        return self.state is SlotState.SERVING

    @property
    def is_silent(self) -> bool:
        """It has sent nothing for `SILENT_S`, and does not count as serving."""
        return monotonic() - self._last_message_s > SILENT_S

    # -- its life ---------------------------------------------------------------------------------
    async def _run(self) -> None:
        """Keep a worker in this slot until `stop`."""
        while not self._ending.is_set():
            started_s = monotonic()
            try:
                pid, words = await self._run_worker()
            except OSError as error:  # such as: out of memory or processes
                pid, words = 0, f"could not be started: {error.strerror or error}"
            except Exception:
                # Whatever went wrong with this worker, the slot gets another.
                log.exception("%s: unexpected error", self.name)
                pid, words = 0, "was abandoned"
            if not self._started.done() and self._callbacks.role == "worker":
                self._failed_to_start(words)
                return
            if self._ending.is_set():
                return
            delay_s = self._delays.delay_s(monotonic() - started_s)
            when = f"in {delay_s:g} s" if delay_s else "now"
            log.error("%s (pid %d) %s; restarting %s", self.name, pid, words, when)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._ending.wait()
                return
            self.restarts += 1
        self._started.cancel()

    async def _run_worker(self) -> tuple[int, str]:
        """Run one worker until it has ended; returns its pid, and how it ended."""
        start_message = self._callbacks.start_message(self.index)
        process, end = launch(self._callbacks.command, start_message)
        self._failure, self._missed_checks = "", 0
        self._process, self.pid = process, process.pid
        try:
            await self._receive_messages(end, start_message)
        finally:
            self._worker_ended()
            status = await asyncio.to_thread(reap, process)
            self._process = self.pid = None
            self._callbacks.on_end(self)
        return process.pid, self._failure or describe_status(status)

    async def _receive_messages(self, end: socket.socket, start_message: Start) -> None:
        channel = self._channel = await Channel.open(end)
        try:
            channel.send(start_message)
            while (message := await channel.receive()) is not None:
                self._on_message(message)
        finally:
            channel.abort()

    def _on_message(self, message: Any) -> None:
        self._last_message_s, self._missed_checks = monotonic(), 0
        match message:
            case Serving():
                self._step(SlotEvent.SERVES)
                if not self._started.done():
                    self._started.set_result(None)
                self.request_report()
            case Draining():
                self._step(SlotEvent.LEAVES)
            case Failed(reason):
                self._failure = reason
            case Report():
                self.report = message
                if self._report_waiters:
                    _resolve(self._report_waiters.popleft())
                self._callbacks.on_message(self, message)
            case PolicyLoaded():
                self._callbacks.on_message(self, message)

    def _step(self, event: SlotEvent) -> None:
        before, self.state = self.state, step(self.state, event)
        if self.state is not before:
            self._callbacks.on_change()

    def _worker_ended(self) -> None:
        self._step(SlotEvent.LEAVES)
        self._channel = None
        self.report = None
        while self._report_waiters:
            _resolve(self._report_waiters.popleft())

    def _failed_to_start(self, words: str) -> None:
        """The first worker of this slot failed before it served."""
        failure = CannotStart(self._failure or f"{self.name} {words}")
        self._started.set_exception(failure)
        # `start` may no longer be awaited, if another slot has failed already.
        self._started.exception()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
