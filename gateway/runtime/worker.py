"""A worker's side of the channel: it is told what to be, says how it fares, and ends when told.

A worker whose supervisor has gone has nobody to restart it and nobody to scrape it, and it holds
the port that a new supervisor will want: it drains and ends.
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
from gateway.runtime.channel import (
    Adopt,
    Ask,
    Channel,
    Draining,
    Failed,
    Hurry,
    Release,
    Reload,
    Report,
    Serving,
    Start,
    TookUp,
)
from gateway.runtime.process import Service, serve
from gateway.runtime.settings import CannotStart, Settings
from gateway.runtime.sockets import Sockets

log = logging.getLogger("gateway")


@dataclass(frozen=True, slots=True)
class Handed:
    """What a worker has from its supervisor beside its settings.

    sockets:  of every worker, bound
    policy:   the one to start with
    tls:      what clients are wrapped in
    took_up:  to be called with each policy that is taken up
    inflight: descriptor of the memory for `proxy/inflight.py`; None: there is none
    """

    sockets: tuple[Sockets, ...]
    policy: Policy
    tls: Tls | None
    took_up: Callable[[Policy], None]
    inflight: int | None = None


class Served(Service, Protocol):
    """What a worker runs."""

    async def adopt(self, worker: int) -> None: ...

    def release(self, worker: int) -> None: ...

    def report(self) -> Report: ...


async def work(descriptor: int, build: Callable[[Settings, Handed], Served]) -> int:
    """Be a worker until told to end; the exit status. descriptor: of this end of the channel."""
    channel = await Channel.open(socket.socket(fileno=descriptor))
    start = await channel.receive()
    if not isinstance(start, Start):
        return 1
    index, _ = start.settings.worker
    _name_in_log(index)
    logs.configure(start.log_level, sys.stderr)
    handed = Handed(
        _sockets(start.sockets),
        start.policy,
        start.tls,
        lambda policy: channel.send(TookUp(policy)),
        start.inflight,
    )
    worker = _Worker(build(start.settings, handed), channel)
    try:
        await serve(worker, announce=worker.obey)
    except CannotStart as error:
        channel.send(Failed(str(error)))
        return 1
    except Exception:
        # By the log, which redacts, and not by the interpreter, which does not.
        log.exception("this worker failed")
        return 1
    finally:
        await channel.close()
    return 0


class _Worker:
    """What is served, and told of by the channel."""

    def __init__(self, served: Served, channel: Channel) -> None:
        self._served = served
        self._channel = channel
        self._orders: asyncio.Task[None] | None = None

    def obey(self, stop: Callable[[], None]) -> None:
        """Say that it serves, and do what is said from now on."""
        self._channel.send(Serving())
        self._orders = tasks.spawn(self._obey(stop), "orders")

    async def start(self) -> None:
        await self._served.start()

    async def stop(self) -> None:
        self._channel.send(Draining())
        try:
            await self._served.stop()
            self._channel.send(self._served.report())
        finally:
            if self._orders is not None:
                self._orders.cancel()
                await asyncio.wait({self._orders})

    def hurry(self) -> None:
        self._served.hurry()

    def reload(self) -> None:
        self._served.reload()

    async def _obey(self, stop: Callable[[], None]) -> None:
        while (order := await self._channel.receive()) is not None:
            match order:
                case Ask():
                    self._channel.send(self._served.report())
                case Reload():
                    self.reload()
                case Hurry():
                    self.hurry()
                case Adopt(worker):
                    await self._adopt(worker)
                case Release(worker):
                    self._served.release(worker)
        log.warning("the supervisor has gone: this worker drains and ends")
        stop()

    async def _adopt(self, worker: int) -> None:
        try:
            await self._served.adopt(worker)
        except OSError as error:  # such as: no descriptor is left
            log.error("the clients of worker %d wait for it: %s", worker, error)


def _sockets(descriptors: Sequence[Sequence[int]]) -> tuple[Sockets, ...]:
    """The sockets with these descriptors; one that several workers share is one object."""
    distinct = {fd for fds in descriptors for fd in fds}
    sockets = {fd: socket.socket(fileno=fd) for fd in distinct}
    return tuple(tuple(sockets[fd] for fd in fds) for fds in descriptors)


def _name_in_log(index: int) -> None:
    """Have each line of the log say which worker wrote it."""
    make = logging.getLogRecordFactory()

    def named(*args: object, **fields: object) -> logging.LogRecord:
        record = make(*args, **fields)
        record.worker = index
        return record

    logging.setLogRecordFactory(named)
