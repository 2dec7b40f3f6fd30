"""The parent process of the workers: it has the one port, store and admin listener for all of them.

It serves no clients itself, so that a scrape or a probe never delays a request. It binds a socket
for each worker, opens what they share, and starts them (`workers`).

Another supervisor may take over: it gets the sockets (`take_over`), and once its own workers accept
from them, the workers of this one drain, and it ends. A take-over during a drain is possible too:
until the drain ends, this supervisor has the admin listener, and passes it to the successor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Final

from gateway import tasks
from gateway.admin.readiness import Readiness
from gateway.domain.policy import Policy, Tls
from gateway.domain.upstreams import Server
from gateway.manage.policies import Loaded
from gateway.observe.exposition import render
from gateway.observe.slow_steps import SlowSteps
from gateway.observe.totals import with_series
from gateway.observe.webhook_metrics import STORE_UP
from gateway.policies.load import load
from gateway.runtime import systemd
from gateway.runtime.administration import Administration, administration
from gateway.runtime.certificates import warn_of_admin_tls
from gateway.runtime.channel import Reload, Start
from gateway.runtime.child import launch_successor
from gateway.runtime.couriers import Couriers
from gateway.runtime.lifecycle import Event, State, step
from gateway.runtime.listening_sockets import ListeningSockets, inheritable, open_sockets
from gateway.runtime.policy_recorder import PolicyRecorder
from gateway.runtime.policy_watch import log_warnings
from gateway.runtime.redirect_listen import check_redirect
from gateway.runtime.settings import CannotStart, CourierAddress, Settings, authority
from gateway.runtime.sockets import InheritedSockets, bind_shared, close_all
from gateway.runtime.take_over import TakeOverFailed, take_over_path
from gateway.runtime.take_over_server import TakeOverServer
from gateway.runtime.workers import Workers
from gateway.stores.redis.address import check_authorities
from gateway.stores.redis.embedded import EmbeddedFailed, embedded_store
from gateway.webhooks.master import MasterFault, read_master

log = logging.getLogger("gateway")

#: Where the couriers' application listens for the workers, at a free port.
_LOOPBACK: Final = "127.0.0.1"
#: Connections that wait while a courier is restarted.
_BACKLOG: Final = 1_024


@dataclass(frozen=True, slots=True)
class CourierPlan:
    """The couriers that a supervisor runs.

    command: runs one; the descriptor of its channel is appended
    at:      where those of another machine are; then there are none here
    """

    count: int
    command: Sequence[str]
    at: Server | None = None


class Supervisor:
    """Runs a gateway with this number of workers: `start`, use, `stop`.

    workers:   0: only couriers, whose application listens at the settings' address
    command:   runs a worker; the descriptor of its channel is appended
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
        couriers: CourierPlan | None = None,
    ) -> None:
        #: Where clients connect to, once started.
        self.address = settings.listen
        self._settings = settings
        self._wanted = workers
        self._successor = successor
        self._inherited = inherited
        self._log_level = log_level
        #: Counts the slow ones of its loop, which has the admin listener.
        self.steps = SlowSteps("admin")
        self._stack = AsyncExitStack()
        self._sockets: ListeningSockets
        #: The pid of the process that has taken over; None: none has.
        self._taken_over_by: int | None = None
        self._state = State.OPENING
        self._workers = Workers(workers, command, self._start_message, self._use)
        self._plan = couriers
        #: None: there are none, as the store is in one process.
        self._couriers: Couriers | None = None
        self._rendering = asyncio.Lock()
        self._admin: Administration | None = None
        #: Of the policy, as the listener was opened; None: it is plain HTTP.
        self._tls: Tls | None = None
        self._recorder = PolicyRecorder(authority(*settings.listen), _now_us)

    # -- life -------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Open everything. Raises PolicyFaults or CannotStart, after closing what was opened."""
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()

    def announce(self, stop: Callable[[], None]) -> None:
        """Allow another gateway to take over, and notify systemd. Call it after `start`.

        stop: stops this gateway like a SIGTERM
        """

        def taken_over(pid: int) -> None:
            log.info("taken over by pid %d; draining", pid)
            self._taken_over_by = pid
            systemd.notify(f"MAINPID={pid}")
            if self._state is State.DRAINING:
                # A second call of `stop` would end requests in progress.
                tasks.spawn(self._leave_admin(), "leave the admin port")
            else:
                stop()

        settings = self._settings
        host, port = settings.listen
        path = take_over_path(settings.data, host, port or self.address[1])
        server = TakeOverServer(path, inheritable(self._sockets, settings), taken_over)
        try:
            server.open()
            self._take_over_offer.push_async_callback(server.close)
        except OSError as error:
            why = error.strerror or error
            log.info("--data %s: this gateway cannot be taken over: %s", settings.data, why)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self._start_successor)
        systemd.notify("READY=1")

    async def stop(self) -> None:
        """Drain and stop the workers, then close everything. Idempotent."""
        self._state = step(self._state, Event.STOPPED)
        stack, self._stack = self._stack, AsyncExitStack()
        async with stack:
            # Couriers end after the workers, whose requests may need them.
            if self._taken_over_by is None:
                systemd.notify("STOPPING=1")
                await self._workers.stop()
            else:
                await asyncio.gather(self._workers.stop(), self._leave_admin())

    def stop_now(self) -> None:
        """Stop waiting for requests and deliveries in progress."""
        self._workers.stop_now()
        if self._couriers is not None:
            self._couriers.stop_now()

    def reload(self) -> None:
        """Make each worker reload the policies and reopen the access log now."""
        systemd.notify(*systemd.reloading())
        self._workers.send(Reload())
        if self._couriers is not None:
            self._couriers.send(Reload())
        tasks.spawn(self._reloaded(), "reload")

    @property
    def admin(self) -> Administration | None:
        """The admin listener, once started; None: there is none."""
        return self._admin

    @property
    def redirects(self) -> tuple[str, int] | None:
        """The address whose requests are redirected to https; None: there is none."""
        return self._settings.listen_http

    @property
    def scheme(self) -> str:
        """The scheme of client URLs: "http" or "https"."""
        return "http" if self._tls is None else "https"

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        #: The policy that workers start with, even while the files have faults.
        policy = await asyncio.to_thread(load, settings.policies)
        log_warnings(policy)
        self._loaded = Loaded(policy, _now_us(), settings.policies)
        self._tls = policy.tls
        _check_authorities(policy)
        if settings.store is None:
            try:
                address = await stack.enter_async_context(embedded_store(settings.data))
            except EmbeddedFailed as error:
                raise CannotStart(f"--data {settings.data}: {error}") from error
            self._settings = replace(settings, store=address)
        check_redirect(self._settings, has_tls=policy.tls is not None)
        opened = open_sockets(self._settings, max(self._wanted, 1), self._inherited)
        self._sockets = await stack.enter_async_context(opened)
        self.address = self._sockets.address
        self._recorder.loaded(policy, "start")
        accepting = await self._find_couriers(stack)
        predecessor = self._sockets.predecessor
        admin = await stack.enter_async_context(AsyncExitStack())
        # Closed when the drain is over: until then a successor needs the admin listener's sockets.
        self._take_over_offer = await stack.enter_async_context(AsyncExitStack())
        if predecessor is None:
            await self._open_admin(admin)
            await self._start_workers(stack)
        else:
            # Until these workers serve, this gateway is not ready, and the predecessor answers
            # probes.
            await self._start_workers(stack)
            await self._open_admin(admin)
            try:
                await asyncio.to_thread(predecessor.complete)
            except TakeOverFailed as error:
                raise CannotStart(f"--take-over: {error}") from error
            log.info("took over from pid %d", predecessor.pid)
        if self._couriers is not None:
            self._couriers.start(stack, accepting)

    async def _find_couriers(self, stack: AsyncExitStack) -> Sequence[socket.socket]:
        """Decide where the couriers are; the sockets of those of this gateway. Raises CannotStart.

        The sockets listen before any courier runs, so that requests to one wait for it.
        """
        plan, settings = self._plan, self._settings
        is_shared = settings.store is not None and settings.store.kind != "memory"
        if plan is None or not is_shared or not (plan.count or plan.at):
            return ()
        try:
            master = await asyncio.to_thread(read_master, os.environ, settings.data)
        except MasterFault as fault:
            raise CannotStart(str(fault)) from fault
        sockets: Sequence[socket.socket] = ()
        server = plan.at
        if server is None:
            if self._wanted:
                sockets = bind_shared(_LOOPBACK, 0)
                stack.callback(close_all, (sockets,))
            else:
                sockets = self._sockets.workers[0]
            for bound in sockets:
                bound.listen(_BACKLOG)
            host, port, *_ = sockets[0].getsockname()
            server = Server("http", host, port)
            self._couriers = Couriers(
                plan.count, plan.command, self._courier_start_message, self._use_of_courier
            )
        self._settings = replace(
            settings, couriers=CourierAddress(server, master.token), master=master
        )
        return sockets

    async def _leave_admin(self) -> None:
        """Leave the admin listener to the successor, however long this drain takes."""
        if self._admin is not None:
            await self._admin.leave()

    async def _open_admin(self, stack: AsyncExitStack) -> None:
        if self._settings.admin is not None:
            # Couriers alone have metrics and probes; what they deliver is managed at the gateway.
            settings = self._settings if self._wanted else replace(self._settings, store=None)
            opened = administration(
                settings,
                self.scrape,
                self.readiness,
                lambda: self._loaded,
                _now_us,
                snapshot=self._workers.snapshot,
                workers=self._wanted,
                sockets=self._sockets.admin,
                recorder=self._recorder if self._wanted else None,
            )
            self._admin = await stack.enter_async_context(opened)

    async def _start_workers(self, stack: AsyncExitStack) -> None:
        if self._wanted:
            await self._workers.start(stack, self._sockets.workers)
        self._state = step(self._state, Event.OPENED)

    # -- scrapes, probes and signals --------------------------------------------------------------
    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """The metrics of all workers, in the format that an Accept header asks for."""
        await self._collect()
        # In a thread: with 1,000 routes it takes most of a second, and a worker may die meanwhile.
        # One at a time, to leave threads for other work.
        async with self._rendering:
            pids = [os.getpid(), *self._workers.pids()]
            snapshot = with_series(self._workers.snapshot(), [self.steps.series])
            if self._couriers is not None:
                pids += self._couriers.pids()
                series = self._couriers.snapshot().series
                if self._wanted:
                    series = tuple(each for each in series if each.family.name != STORE_UP)
                snapshot = with_series(snapshot, series)
            return await asyncio.to_thread(render, snapshot, accept, pids)

    async def readiness(self) -> Readiness:
        """Ready while at least one worker is; not before all have started, nor while draining."""
        await self._collect()
        if self._taken_over_by is not None:
            # Probes still connected here ask about the address, which the successor serves.
            return Readiness(True, {"listener": f"taken over by pid {self._taken_over_by}"})
        found = self._found_readiness()
        if self._state is State.SERVING:
            return found
        return Readiness(False, {**found.checks, "listener": self._state.value})

    async def _collect(self) -> None:
        couriers = () if self._couriers is None else (self._couriers.collect(),)
        await asyncio.gather(self._workers.collect(), *couriers)

    def _found_readiness(self) -> Readiness:
        """Couriers are shown. They only decide where there are no workers."""
        if self._couriers is None:
            return self._workers.readiness()
        if not self._wanted:
            return Readiness(self._couriers.serving > 0, {"couriers": self._couriers.words})
        found = self._workers.readiness()
        return Readiness(found.ready, {**found.checks, "couriers": self._couriers.words})

    async def _reloaded(self) -> None:
        # Processes handle messages in order: one that answers has received `Reload`.
        await self._collect()
        systemd.notify("READY=1")

    def _start_successor(self) -> None:
        """SIGUSR2: run this program again, perhaps in a newer version, to take over."""
        if self._state is State.DRAINING:
            log.error("SIGUSR2: ignored, as this gateway is stopping")
        elif not self._settings.listen[1]:
            log.error("SIGUSR2: ignored: with port 0 a new process would listen on another port")
        else:
            tasks.spawn(self._launch_successor(), "successor")

    async def _launch_successor(self) -> None:
        try:
            await asyncio.to_thread(launch_successor, self._successor)
        except OSError as error:
            log.error(
                "SIGUSR2: cannot start a new process: %s: %s", self._successor[0], error.strerror
            )
        else:
            log.info("SIGUSR2: starting a new process that takes over")

    # -- callbacks of the workers -----------------------------------------------------------------
    def _start_message(self, index: int) -> Start:
        settings = replace(self._settings, admin=None, worker=(index, self._wanted), master=None)
        return Start(settings, (), self._loaded.policy, self._tls, self._log_level)

    def _courier_start_message(self, index: int) -> Start:
        assert self._plan is not None
        settings = replace(self._settings, admin=None, worker=(index, self._plan.count))
        return Start(settings, (), self._loaded.policy, None, self._log_level, role="courier")

    def _use_of_courier(self, policy: Policy, requested: bool) -> None:
        """A courier has loaded this policy, as workers do where there are any."""
        if not self._wanted:
            self._use(policy, requested)

    def _use(self, policy: Policy, requested: bool) -> None:
        """A worker has loaded this policy. The time is that of the first worker to do so."""
        if policy.hash != self._loaded.policy.hash:
            warn_of_admin_tls(policy, self._loaded.policy)
            self._tls = self._tls and (policy.tls or self._tls)
            log_warnings(policy)
            self._loaded = replace(self._loaded, policy=policy, at_us=_now_us())
            self._recorder.loaded(policy, "SIGHUP" if requested else "file change")


def _check_authorities(policy: Policy) -> None:
    """Check that the system's CA certificates can be read, if an https upstream needs them.

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
