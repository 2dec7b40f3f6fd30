"""A worker's end of the channel: it receives settings and commands, and sends reports.

A worker whose supervisor has died drains and ends: no process would restart or scrape it, and it
holds the port that a new supervisor needs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway import tasks
from gateway.domain.policy import Policy, Tls
from gateway.observe import logs
from gateway.observe.slow_steps import SlowSteps
from gateway.runtime.channel import (
    Adopt,
    Channel,
    Draining,
    Failed,
    PolicyLoaded,
    Release,
    Reload,
    Report,
    RequestReport,
    Serving,
    Start,
    StopNow,
)
from gateway.runtime.process import Service, serve
from gateway.runtime.settings import CannotStart, Settings
from gateway.runtime.sockets import Sockets

log = logging.getLogger("gateway")


@dataclass(frozen=True, slots=True)
class WorkerInit:
    """What a worker gets from its supervisor beside its settings.

    sockets:       bound sockets of every worker
    policy:        the policy to start with
    tls:           the TLS setting for clients
    policy_loaded: called with each policy that the worker has loaded, and whether SIGHUP requested
                   it
    inflight:      descriptor of the memory for `proxy/inflight.py`; None: there is none
    """

    sockets: tuple[Sockets, ...]
    policy: Policy
    tls: Tls | None
    policy_loaded: Callable[[Policy, bool], None]
    inflight: int | None = None


class Served(Service, Protocol):
    """What a worker runs. steps: counts the slow ones of its loop"""

    steps: SlowSteps

    async def adopt(self, worker: int) -> None: ...

    def release(self, worker: int) -> None: ...

    def report(self) -> Report: ...


async def work(descriptor: int, build: Callable[[Settings, WorkerInit], Served]) -> int:
    """Run a worker until it stops; returns its exit status. descriptor: its end of the channel"""
    channel = await Channel.open(socket.socket(fileno=descriptor))
    start = await channel.receive()
    if not isinstance(start, Start):
        return 1
    index, _ = start.settings.worker
    _name_in_log(start.role, index)
    logs.configure(start.log_level, sys.stderr)
    init = WorkerInit(
        _sockets(start.sockets),
        start.policy,
        start.tls,
        lambda policy, requested: channel.send(PolicyLoaded(policy, requested)),
        start.inflight,
    )
    served = build(start.settings, init)
    worker = _Worker(served, channel)
    try:
        await serve(worker, announce=worker.announce, steps=served.steps)
    except CannotStart as error:
        channel.send(Failed(str(error)))
        return 1
    except Exception:
        # Logged here because the log redacts; the interpreter's traceback does not.
        log.exception("worker failed")
        return 1
    finally:
        await channel.close()
    return 0


class _Worker:
    """The service of a worker, controlled over the channel."""

    def __init__(self, served: Served, channel: Channel) -> None:
        self._served = served
        self._channel = channel
        self._commands: asyncio.Task[None] | None = None

    def announce(self, stop: Callable[[], None]) -> None:
        """Report that the worker serves, and start to handle commands."""
        self._channel.send(Serving())
        self._commands = tasks.spawn(self._handle_commands(stop), "commands")

    async def start(self) -> None:
        await self._served.start()

    async def stop(self) -> None:
        self._channel.send(Draining())
        try:
            await self._served.stop()
            self._channel.send(self._served.report())
        finally:
            if self._commands is not None:
                self._commands.cancel()
                await asyncio.wait({self._commands})

    def stop_now(self) -> None:
        self._served.stop_now()

    def reload(self) -> None:
        self._served.reload()

    async def _handle_commands(self, stop: Callable[[], None]) -> None:
        while (command := await self._channel.receive()) is not None:
            match command:
                case RequestReport():
                    self._channel.send(self._served.report())
                case Reload():
                    self.reload()
                case StopNow():
                    self.stop_now()
                case Adopt(worker):
                    await self._adopt(worker)
                case Release(worker):
                    self._served.release(worker)
        log.warning("the supervisor has ended; draining")
        stop()

    async def _adopt(self, worker: int) -> None:
        try:
            await self._served.adopt(worker)
        except OSError as error:  # such as: out of descriptors
            log.error("cannot accept connections for worker %d: %s", worker, error)


def _sockets(descriptors: Sequence[Sequence[int]]) -> tuple[Sockets, ...]:
    """The sockets with these descriptors; a socket that workers share is one object."""
    distinct = {fd for fds in descriptors for fd in fds}
    sockets = {fd: socket.socket(fileno=fd) for fd in distinct}
    return tuple(tuple(sockets[fd] for fd in fds) for fds in descriptors)


def _name_in_log(role: str, index: int) -> None:
    """Add the number of the worker, or courier, to each log line."""
    make = logging.getLogRecordFactory()

    def named(*args: object, **fields: object) -> logging.LogRecord:
        record = make(*args, **fields)
        setattr(record, role, index)
        return record

    logging.setLogRecordFactory(named)
