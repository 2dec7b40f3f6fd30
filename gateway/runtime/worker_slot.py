"""A worker's place: a process that is started, listened to, and replaced when it dies.

One that is silent is stood in for after seconds, and killed after half a minute: what hangs does
not come back by itself, and who is with it waits for nothing.
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
from time import monotonic
from typing import Any, Final

from gateway import tasks
from gateway.runtime.channel import (
    Ask,
    Channel,
    Draining,
    Failed,
    Hurry,
    Order,
    Report,
    Serving,
    Start,
    TookUp,
)
from gateway.runtime.child import how_it_ended, launch, reap
from gateway.runtime.restarts import Restarts
from gateway.runtime.settings import CannotStart

log = logging.getLogger("gateway")

#: What an end may take beyond the drain, before the process is killed.
GRACE_S: Final = 5.0
#: Who has been silent for so long, asked each second, does not serve.
SILENT_S: Final = 5.0
#: Who has been silent for so many seconds that the supervisor lived through hangs. Not by the
#: clock: when the machine was suspended, or this process stopped, nobody had a chance to speak.
MOST_MISSED: Final = 30
#: A worker that answers nothing is not asked again and again.
MOST_ASKED: Final = 16


@dataclass(frozen=True, slots=True)
class Employer:
    """Whoever keeps the places, as one of them sees it.

    command:   runs a worker; the descriptor of its channel is added
    greeting:  what the worker of this place is told first
    heard:     called with each message of a worker
    changed:   called when a worker began or ceased to accept clients
    ended:     called when a place's worker has ended
    """

    command: Sequence[str]
    greeting: Callable[[int], Start]
    heard: Callable[[Place, Report | TookUp], None]
    changed: Callable[[], None]
    ended: Callable[[Place], None]


class Place:
    """One of the places.

    pid:        of its worker; None: there is none now
    is_serving: the worker accepts clients
    was_lost:   one that served has ended, or drains, and none serves yet
    restarts:   how often a worker was started again
    report:     what the worker last said of itself
    """

    def __init__(self, index: int, employer: Employer) -> None:
        self.index = index
        self.pid: int | None = None
        self.is_serving = False
        self.was_lost = False
        self.restarts = 0
        self.report: Report | None = None
        self._employer = employer
        self._delays = Restarts()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._asked: deque[asyncio.Future[None]] = deque()
        self._started = asyncio.get_running_loop().create_future()
        self._failure = ""
        self._heard_s = 0.0
        self._missed = 0
        self._ending = asyncio.Event()
        self._hurried = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    # -- from outside -----------------------------------------------------------------------------
    async def start(self) -> None:
        """Start the worker, until it serves. Raises CannotStart where the first one does not."""
        self._keeping = tasks.spawn(self._keep(), f"worker {self.index}")
        await asyncio.wait({self._keeping, self._started}, return_when="FIRST_COMPLETED")
        if not self._started.done():
            await self._keeping  # it crashed
        await self._started

    async def stop(self) -> None:
        """End the worker in good order, however long a drain may take; then by force."""
        self._ending.set()
        if self._keeping is None:
            return
        # A signal, not a message: one that is still starting ends by it at once.
        self._signal(signal.SIGTERM)
        hurried = tasks.spawn(self._hurried.wait(), "hurried")
        drain_s = 0.0 if self.report is None else self.report.drain_s
        await asyncio.wait(
            {self._keeping, hurried}, timeout=drain_s + GRACE_S, return_when="FIRST_COMPLETED"
        )
        if self._hurried.is_set():
            await asyncio.wait({self._keeping}, timeout=GRACE_S)
        hurried.cancel()
        if not self._keeping.done():
            log.error("worker %d (pid %s) does not end, it is killed", self.index, self.pid)
            self._signal(signal.SIGKILL)
        await self._keeping

    def hurry(self) -> None:
        """Let an end that is under way wait no longer."""
        self.send(Hurry())
        self._hurried.set()

    def send(self, order: Order) -> None:
        """Tell the worker something; nobody hears it where there is none."""
        if self._channel is not None:
            self._channel.send(order)

    def ask(self) -> asyncio.Future[None] | None:
        """Have a report sent; the future is done when it is here, or never will be.

        None: there is no worker to ask, or it has not answered for long.
        """
        if not self.is_serving and self.report is None:
            return None  # it is starting, and will not answer before it serves
        if self._channel is None or len(self._asked) >= MOST_ASKED:
            return None
        future = asyncio.get_running_loop().create_future()
        self._asked.append(future)
        self._channel.send(Ask())
        return future

    def check(self) -> None:
        """To be called each second: have a worker killed that hangs, while it starts or later."""
        self._missed += 1
        if self._missed == MOST_MISSED and self._process is not None and not self._ending.is_set():
            log.error(
                "worker %d (pid %s) has been silent for more than %d s, it is killed",
                *(self.index, self.pid, MOST_MISSED),
            )
            self._signal(signal.SIGKILL)

    @property
    def is_silent(self) -> bool:
        """It has not been heard of for so long that it is not counted on: stopped, or stuck."""
        return monotonic() - self._heard_s > SILENT_S

    # -- its life ---------------------------------------------------------------------------------
    async def _keep(self) -> None:
        """Have a worker in this place until told to end."""
        while not self._ending.is_set():
            started_s = monotonic()
            try:
                pid, words = await self._one_life()
            except OSError as error:  # such as: no memory or no process is to be had
                pid, words = 0, f"could not be started: {error.strerror or error}"
            except Exception:
                # Whatever is wrong with this one, a place is never left empty for good.
                log.exception("worker %d is given up", self.index)
                pid, words = 0, "was given up"
            if not self._started.done():
                self._fail(words)
                return
            if self._ending.is_set():
                return
            delay_s = self._delays.delay_s(monotonic() - started_s)
            when = f"in {delay_s:g} s" if delay_s else "at once"
            log.error("worker %d (pid %d) %s; another starts %s", self.index, pid, words, when)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), delay_s)
                return
            self.restarts += 1
        self._started.cancel()

    async def _one_life(self) -> tuple[int, str]:
        """Start a worker and hear it until it has gone: its pid, and how it ended."""
        greeting = self._employer.greeting(self.index)
        process, end = launch(self._employer.command, greeting)
        self._failure, self._missed = "", 0
        self._process, self.pid = process, process.pid
        try:
            await self._listen(end, greeting)
        finally:
            self._gone()
            status = await asyncio.to_thread(reap, process)
            self._process = self.pid = None
            self._employer.ended(self)
        return process.pid, self._failure or how_it_ended(status)

    async def _listen(self, end: socket.socket, greeting: Start) -> None:
        channel = self._channel = await Channel.open(end)
        try:
            channel.send(greeting)
            while (word := await channel.receive()) is not None:
                self._hear(word)
        finally:
            channel.abort()

    def _hear(self, word: Any) -> None:
        self._heard_s, self._missed = monotonic(), 0
        match word:
            case Serving():
                self.is_serving, self.was_lost = True, False
                if not self._started.done():
                    self._started.set_result(None)
                self._employer.changed()
                self.ask()
            case Draining():
                self._lose()
            case Failed(words):
                self._failure = words
            case Report():
                self.report = word
                if self._asked:
                    _resolve(self._asked.popleft())
                self._employer.heard(self, word)
            case TookUp():
                self._employer.heard(self, word)

    def _lose(self) -> None:
        """It accepts no clients any more."""
        if self.is_serving:
            self.is_serving, self.was_lost = False, True
            self._employer.changed()

    def _gone(self) -> None:
        self._lose()
        self._channel = None
        self.report = None
        while self._asked:
            _resolve(self._asked.popleft())

    def _fail(self, words: str) -> None:
        """The first worker of this place did not come to serve."""
        failure = CannotStart(self._failure or f"worker {self.index} {words}")
        self._started.set_exception(failure)
        # Whoever started the places may have been told of another's failure already.
        self._started.exception()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
