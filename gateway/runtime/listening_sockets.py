"""The sockets of a new gateway: inherited from a predecessor or systemd, or newly bound."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from time import monotonic
from typing import Final

from gateway.runtime.predecessor import Predecessor, running_pid
from gateway.runtime.settings import CannotStart, Settings, authority, naming
from gateway.runtime.sockets import (
    InheritedSockets,
    Sockets,
    bind,
    close_all,
    distinct,
    distribute,
)
from gateway.runtime.take_over import TakeOverFailed, take_over_path

log = logging.getLogger("gateway")

#: How long to retry while a port is in use by an ending predecessor: by its workers, if it was
#: killed or begins to drain; by its admin listener, if its drain has ended.
_FREE_S: Final = 5.0
_AGAIN_S: Final = 0.05
_ADMIN_IN_USE: Final = "in use by another program or another gateway; choose another with --admin"


@dataclass(frozen=True, slots=True)
class ListeningSockets:
    """The sockets of one gateway.

    workers:     of each worker
    admin:       of the admin listener, if there is one
    predecessor: the gateway that accepts from them too until this one serves; if it drains, only
                 from those of the admin listener; None: there is none
    """

    workers: tuple[Sockets, ...]
    admin: Sockets
    predecessor: Predecessor | None

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect to; if there are several addresses, the first."""
        host, port, *_ = self.workers[0][0].getsockname()
        return host, port


@asynccontextmanager
async def open_sockets(
    settings: Settings, workers: int, inherited: InheritedSockets
) -> AsyncIterator[ListeningSockets]:
    """The sockets for this number of workers, closed at exit. Raises CannotStart.

    inherited: from systemd
    """
    with ExitStack() as stack:
        stack.callback(inherited.close)
        predecessor = await _find(settings) if settings.take_over else None
        if predecessor is not None:
            stack.callback(predecessor.close)
            stack.callback(predecessor.sockets.close)
            is_draining = not predecessor.sockets.listen
            inherited = _preferred(predecessor.sockets, inherited)
        if inherited.listen:
            # No sockets are bound beside systemd's: at a restart they would be closed, unlike
            # systemd's own, and the connections in their queues would be reset.
            may_bind = predecessor is not None and not is_draining
            sockets = distribute(inherited.listen, workers, may_bind=may_bind)
        else:
            sockets = await _bind_listen(settings, workers)
        stack.callback(close_all, sockets)
        admin = await _admin_sockets(settings, inherited, sockets[0])
        stack.callback(close_all, (admin,))
        yield ListeningSockets(sockets, admin, predecessor)


def inheritable(sockets: ListeningSockets, settings: Settings) -> InheritedSockets:
    """The sockets that a successor gets."""
    admin = "" if settings.admin is None else authority(*settings.admin)
    return InheritedSockets(distinct(sockets.workers), tuple(sockets.admin), admin)


async def _find(settings: Settings) -> Predecessor | None:
    path = take_over_path(settings.data, *settings.listen)
    try:
        found = await asyncio.to_thread(Predecessor.find, path)
    except TakeOverFailed as error:
        raise CannotStart(f"--take-over: {error}") from error
    if found is None:
        log.info("--take-over: no running gateway at %s, starting as usual", path)
    return found


async def bind_admin(
    address: tuple[str, int], clients: Sockets = (), *, wait_s: float = 0.0
) -> Sockets:
    """Bound sockets for the admin listener. Raises CannotStart.

    clients: bound sockets for clients; until they listen, the kernel lets others bind their port
    wait_s:  how long to retry while the port is in use
    """
    with naming("--admin", address):
        try:
            (sockets,) = await _bind(address, 1, wait_s)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise OSError(error.errno, _ADMIN_IN_USE) from error
        if any(_is_shared(one, other) for one in sockets for other in clients):
            close_all((sockets,))
            raise OSError(errno.EADDRINUSE, "it is the address of --listen; choose another port")
    return sockets


def _is_shared(one: socket.socket, other: socket.socket) -> bool:
    """Could a connection to one of the two reach the other?"""
    (host, port, *_), (other_host, other_port, *_) = one.getsockname(), other.getsockname()
    is_same_host = host == other_host or any(
        ip_address(each).is_unspecified for each in (host, other_host)
    )
    return one.family == other.family and port == other_port and is_same_host


def _preferred(given: InheritedSockets, own: InheritedSockets) -> InheritedSockets:
    """Choose between the sockets of a predecessor and of systemd; close the others.

    No process would accept from the others. Usually both are the same sockets.
    """
    if given.listen:
        own.close()
        return given
    # The predecessor is draining.
    if own.admin:
        given.close()
        return own
    return replace(given, listen=own.listen)


async def _admin_sockets(
    settings: Settings, inherited: InheritedSockets, clients: Sockets
) -> Sockets:
    address = settings.admin
    if address is None:
        return ()
    if inherited.admin and inherited.admin_address in ("", authority(*address)):
        return inherited.admin
    # This gateway would not accept from them.
    close_all((inherited.admin,))
    return await bind_admin(address, clients, wait_s=_wait_s(settings))


async def _bind_listen(settings: Settings, workers: int) -> tuple[Sockets, ...]:
    with naming("--listen", settings.listen):
        try:
            return await _bind(settings.listen, workers, _wait_s(settings))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise OSError(error.errno, _in_use(settings)) from error


def _wait_s(settings: Settings) -> float:
    """How long to retry while a port is in use: a predecessor may be about to free it."""
    return _FREE_S if settings.take_over else 0.0


async def _bind(address: tuple[str, int], workers: int, wait_s: float) -> tuple[Sockets, ...]:
    """Bind sockets, retrying for `wait_s` while the port is in use. Raises OSError."""
    give_up = monotonic() + wait_s
    while True:
        try:
            return await asyncio.to_thread(bind, *address, workers)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or monotonic() >= give_up:
                raise
        await asyncio.sleep(_AGAIN_S)


def _in_use(settings: Settings) -> str:
    """What to do about an address that is in use."""
    pid = running_pid(take_over_path(settings.data, *settings.listen))
    if pid is not None:
        return f"in use by a running gateway (pid {pid}); to replace it, add --take-over"
    if settings.take_over:
        return f"in use by another program, not by a gateway with --data {settings.data}"
    return (
        "in use by another program; to replace a running gateway, add --take-over and use its "
        f"--listen and --data (here --data {settings.data})"
    )
