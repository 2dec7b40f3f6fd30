"""The parent of the workers: one port, one store, one admin listener, however many serve.

It serves no client itself, so that a scrape or a probe never holds up a request. It binds a socket
for each worker, opens what they share, and keeps a process in each place. While a place has none
that serves, another worker accepts its clients. What the workers count is asked of them once a
second, and at each scrape, and shown as one.

Another supervisor may take over: it gets the sockets (`handover`), and once its own workers accept
from them, the workers of this one drain, and it ends. It may come during a drain, too: until that
ends, this one has the admin listener, and leaves it to the other.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from gateway import tasks
from gateway.admin.readiness import Readiness, joined
from gateway.domain.policy import Policy
from gateway.manage.policies import Loaded
from gateway.observe.exposition import render
from gateway.observe.metrics import Family, Series
from gateway.observe.totals import Totals, with_series
from gateway.policies.load import load
from gateway.proxy.inflight import SharedMemory
from gateway.runtime import systemd
from gateway.runtime.administration import Administration, administration
from gateway.runtime.channel import Adopt, Release, Reload, Report, Start, TookUp
from gateway.runtime.child import launch_successor
from gateway.runtime.handover import HandoverFailed, HandoverServer, handover_path
from gateway.runtime.listening_sockets import ListeningSockets, open_sockets, to_hand_over
from gateway.runtime.place import Employer, Place
from gateway.runtime.restarts import stand_ins
from gateway.runtime.settings import CannotStart, Settings
from gateway.runtime.sockets import InheritedSockets, close_all
from gateway.stores.connect import check_authorities
from gateway.stores.embedded import EmbeddedFailed, embedded_store

log = logging.getLogger("gateway")

#: How often each worker is asked for its counts, so that little is lost when it is killed.
ASK_S: Final = 1.0
#: How long a scrape or a probe waits for what the workers say.
ANSWER_S: Final = 0.5

_WORKERS: Final = Family("gauge", "workers", "Workers that serve, and that should.", ("state",))
_RESTARTS: Final = Family("counter", "worker_restarts", "Workers started in place of ended ones.")


class Supervisor:
    """Runs a gateway of so many workers: `start`, use, `stop`.

    command:   runs a worker; the descriptor of its channel is added
    successor: runs this program again, to take over at SIGUSR2
    inherited: sockets that systemd has opened
    """

    def __init__(
        self,
        settings: Settings,
        *,
        workers: int,
        command: Sequence[str],
        successor: Sequence[str] = (),
        inherited: InheritedSockets = InheritedSockets(),  # noqa: B008 - it is frozen, and empty
        log_level: str = "info",
    ) -> None:
        #: Where clients connect to, once started.
        self.address = settings.listen
        self._settings = settings
        self._wanted = workers
        self._command = command
        self._successor = successor
        self._inherited = inherited
        self._log_level = log_level
        self._stack = AsyncExitStack()
        self._sockets: ListeningSockets
        #: The process that has taken over; None: none has.
        self._taken_over_by: int | None = None
        self._places: list[Place] = []
        self._totals = Totals()
        #: Whose clients are accepted by whom, while they cannot do it.
        self._stand_ins: dict[int, int] = {}
        self._listening = False
        self._draining = False
        self._asking = asyncio.Lock()
        self._next_answers: asyncio.Task[None] | None = None
        self._rendering = asyncio.Lock()
        self._admin: Administration | None = None

    # -- life -------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Open everything. Raises PolicyFaults or CannotStart, and leaves nothing open then."""
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()

    def announce(self, stop: Callable[[], None]) -> None:
        """To be called once started: from here on a successor may take over; systemd is told.

        stop: ends this gateway as a SIGTERM does
        """

        def taken_over(pid: int) -> None:
            log.info("taken over by pid %d: draining", pid)
            self._taken_over_by = pid
            systemd.notify(f"MAINPID={pid}")
            if self._draining:
                # Called a second time, `stop` would end what is under way.
                tasks.spawn(self._leave_admin(), "leave the admin port")
            else:
                stop()

        settings = self._settings
        host, port = settings.listen
        path = handover_path(settings.data, host, port or self.address[1])
        server = HandoverServer(path, to_hand_over(self._sockets, settings), taken_over)
        try:
            server.open()
            self._offer.push_async_callback(server.close)
        except OSError as error:
            why = error.strerror or error
            log.info("--data %s: this gateway cannot be taken over: %s", settings.data, why)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self._start_successor)
        systemd.notify("READY=1")

    async def stop(self) -> None:
        """Have the workers drain and end, then close everything; harmless if repeated."""
        self._draining = True
        stack, self._stack = self._stack, AsyncExitStack()
        async with stack:
            if self._taken_over_by is None:
                systemd.notify("STOPPING=1")
            else:
                await asyncio.gather(self._end_workers(), self._leave_admin())

    def hurry(self) -> None:
        """Do not wait any longer for what is under way."""
        for place in self._places:
            place.hurry()

    def reload(self) -> None:
        """Have each worker read the policies now, and open the access log anew."""
        systemd.notify(*systemd.reloading())
        for place in self._places:
            place.send(Reload())
        tasks.spawn(self._reloaded(), "reload")

    @property
    def admin(self) -> Administration | None:
        """Its admin listener, once started; None: it has none."""
        return self._admin

    @property
    def scheme(self) -> str:
        """What clients speak: "http" or "https"."""
        return "http" if self._tls is None else "https"

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        #: What a worker starts with, also while the files are faulty.
        policy = await asyncio.to_thread(load, settings.policies)
        self._loaded = Loaded(policy, _now_us(), settings.policies)
        self._tls = policy.tls
        _check_authorities(policy)
        if settings.store is None:
            try:
                address = await stack.enter_async_context(embedded_store(settings.data))
            except EmbeddedFailed as error:
                raise CannotStart(f"--data {settings.data}: {error}") from error
            self._settings = replace(settings, store=address)
        opened = open_sockets(self._settings, self._wanted, self._inherited)
        self._sockets = await stack.enter_async_context(opened)
        self.address = self._sockets.address
        self._inflight = SharedMemory(self._wanted)
        stack.callback(self._inflight.close)
        predecessor = self._sockets.predecessor
        admin = await stack.enter_async_context(AsyncExitStack())
        # Closed when the drain is over: until then a successor needs the admin listener's sockets.
        self._offer = await stack.enter_async_context(AsyncExitStack())
        if predecessor is None:
            await self._open_admin(admin)
            await self._open_places(stack)
        else:
            # Until these workers serve, the predecessor answers probes: this one is not ready.
            await self._open_places(stack)
            await self._open_admin(admin)
            try:
                await asyncio.to_thread(predecessor.complete)
            except HandoverFailed as error:
                raise CannotStart(f"--take-over: {error}") from error
            log.info("took over from pid %d", predecessor.pid)

    async def _leave_admin(self) -> None:
        """The successor answers from now on, however long this drain takes."""
        if self._admin is not None:
            await self._admin.leave()

    async def _open_admin(self, stack: AsyncExitStack) -> None:
        if self._settings.admin is not None:
            opened = administration(
                self._settings,
                self.scrape,
                self.readiness,
                lambda: self._loaded,
                _now_us,
                workers=self._wanted,
                sockets=self._sockets.admin,
            )
            self._admin = await stack.enter_async_context(opened)

    async def _open_places(self, stack: AsyncExitStack) -> None:
        employer = Employer(self._command, self._greeting, self._hear, self._cover, self._bury)
        self._places = [Place(index, employer) for index in range(self._wanted)]
        stack.push_async_callback(self._end_workers)
        asking = tasks.spawn(self._keep_asking(), "ask workers")
        stack.callback(asking.cancel)
        await asyncio.gather(*(place.start() for place in self._places))
        self._listening = True

    async def _end_workers(self) -> None:
        # First our own sockets: once the workers have closed theirs, clients are turned away.
        close_all(self._sockets.workers)
        await asyncio.gather(*(place.stop() for place in self._places))

    # -- what is asked of it ----------------------------------------------------------------------
    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """What all workers have counted, in the format that an Accept header asks for."""
        await self._ask()
        serving = sum(place.is_serving and not place.is_silent for place in self._places)
        restarts = sum(place.restarts for place in self._places)
        own = (
            Series(_WORKERS, {("live",): (serving,), ("wanted",): (self._wanted,)}),
            Series(_RESTARTS, {(): (restarts,)}),
        )
        # In a thread: with 1,000 routes it takes most of a second, and a worker may die meanwhile.
        # One at a time: it is only computing, and whoever else needs a thread is to find one.
        async with self._rendering:
            pids = [place.pid for place in self._places if place.pid is not None]
            snapshot = with_series(self._totals.snapshot(), own)
            return await asyncio.to_thread(render, snapshot, accept, [os.getpid(), *pids])

    async def readiness(self) -> Readiness:
        """Ready while a worker is; not before all of them were, and not when about to end."""
        await self._ask()
        if self._taken_over_by is not None:
            # Probes that are still connected here ask about the address, which is well served.
            return Readiness(True, {"listener": f"taken over by pid {self._taken_over_by}"})
        heard = [place for place in self._places if not place.is_silent]
        answers = [place.report.readiness for place in heard if place.report is not None]
        serving = sum(place.is_serving for place in heard)
        found = joined(answers, serving, self._wanted)
        if self._draining or not self._listening:
            why = "draining" if self._draining else "not open yet"
            return Readiness(False, {**found.checks, "listener": why})
        return found

    async def _reloaded(self) -> None:
        # Workers handle messages in order: one that answers has got the order to reload.
        await self._ask()
        systemd.notify("READY=1")

    def _start_successor(self) -> None:
        """SIGUSR2: run this program again, whatever version it is by now, to take over."""
        if self._draining:
            log.error("SIGUSR2: no successor is started, as this gateway is ending")
        elif not self._settings.listen[1]:
            log.error("SIGUSR2: no successor is started: with port 0 it would listen elsewhere")
        else:
            tasks.spawn(self._launch_successor(), "successor")

    async def _launch_successor(self) -> None:
        try:
            await asyncio.to_thread(launch_successor, self._successor)
        except OSError as error:
            log.error("cannot start a successor: %s: %s", self._successor[0], error.strerror)
        else:
            log.info("a successor is starting")

    async def _keep_asking(self) -> None:
        while True:
            await asyncio.sleep(ASK_S)
            await self._ask()
            for place in self._places:
                place.check()
            self._cover()

    async def _ask(self) -> None:
        """Hear all workers; for one that does not answer, what it last said has to do.

        However many want to know, the workers are asked once at a time: who comes while they are
        being asked shares the next answers with all others that have come by then.
        """
        if self._next_answers is None:
            self._next_answers = tasks.spawn(self._ask_next(), "ask workers once more")
        await asyncio.shield(self._next_answers)

    async def _ask_next(self) -> None:
        async with self._asking:
            self._next_answers = None
            await self._ask_now()

    async def _ask_now(self) -> None:
        asked = [future for place in self._places if (future := place.ask()) is not None]
        if asked:
            await asyncio.wait(asked, timeout=ANSWER_S)

    # -- what the places say ----------------------------------------------------------------------
    def _greeting(self, index: int) -> Start:
        descriptors = tuple(tuple(bound.fileno() for bound in one) for one in self._sockets.workers)
        settings = replace(self._settings, admin=None, worker=(index, self._wanted))
        return Start(
            settings,
            descriptors,
            self._loaded.policy,
            self._tls,
            self._log_level,
            self._inflight.fileno(),
        )

    def _hear(self, place: Place, word: Report | TookUp) -> None:
        if isinstance(word, TookUp):
            self._take_up(word.policy)
        else:
            self._totals.heard(place.index, word.metrics)

    def _take_up(self, policy: Policy) -> None:
        """The time is when the first worker took it up: the others, and new ones, follow."""
        if policy.hash != self._loaded.policy.hash:
            if policy.admin_tls != self._loaded.policy.admin_tls:
                log.warning("policies: a change of admin_tls takes a restart")
            self._loaded = replace(self._loaded, policy=policy, at_us=_now_us())

    def _bury(self, place: Place) -> None:
        self._totals.gone(place.index)
        self._inflight.clear(place.index)

    def _cover(self) -> None:
        """Have somebody accept the clients of each place whose worker is lost, or does not move."""
        if self._draining:
            return
        serving = {place.index for place in self._places if place.is_serving}
        silent = {place.index for place in self._places if place.is_silent}
        absent = {place.index for place in self._places if place.was_lost} | (serving & silent)
        present = serving - silent
        before, self._stand_ins = self._stand_ins, stand_ins(absent, present, self._stand_ins)
        for worker, other in before.items():
            if self._stand_ins.get(worker) != other:
                self._places[other].send(Release(worker))
        for worker, other in self._stand_ins.items():
            if before.get(worker) != other:
                self._places[other].send(Adopt(worker))


def _check_authorities(policy: Policy) -> None:
    """Where an https upstream is verified by the system's authorities: can they be read?

    Raises CannotStart.
    """
    for upstream in policy.upstreams.values():
        if upstream.ca is None and any(server.scheme == "https" for server in upstream.servers):
            try:
                check_authorities()
            except OSError as error:
                raise CannotStart(str(error)) from error


def _now_us() -> int:
    return time.time_ns() // 1000
