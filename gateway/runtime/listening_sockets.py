"""The sockets of a gateway that starts: inherited from a predecessor or systemd, or newly bound."""

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

#: How long a port may be in use by a predecessor that is just ending: by its workers, where it was
#: killed or begins to drain, or by its admin listener, where its drain has ended.
_FREE_S: Final = 5.0
_AGAIN_S: Final = 0.05
_ADMIN_IN_USE: Final = "in use by another program or another gateway; choose another with --admin"


@dataclass(frozen=True, slots=True)
class ListeningSockets:
    """The sockets of one gateway.

    workers:     of each worker
    admin:       of the admin listener, if there is one
    predecessor: accepts from them as well, until this gateway serves, or from the admin listener's
                 alone, if it drains; None: nobody does
    """

    workers: tuple[Sockets, ...]
    admin: Sockets
    predecessor: Predecessor | None

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect to: the first address, where there are several."""
        host, port, *_ = self.workers[0][0].getsockname()
        return host, port


@asynccontextmanager
async def open_sockets(
    settings: Settings, workers: int, inherited: InheritedSockets
) -> AsyncIterator[ListeningSockets]:
    """The sockets for so many workers, closed at the end. Raises CannotStart.

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
            # Beside systemd's none are bound: at a restart, which systemd's own sockets outlive,
            # they would be closed, and the connections that wait in them would be reset.
            may_bind = predecessor is not None and not is_draining
            sockets = distribute(inherited.listen, workers, may_bind=may_bind)
        else:
            sockets = await _bind_listen(settings, workers)
        stack.callback(close_all, sockets)
        admin = await _admin_sockets(settings, inherited, sockets[0])
        stack.callback(close_all, (admin,))
        yield ListeningSockets(sockets, admin, predecessor)


def inheritable(sockets: ListeningSockets, settings: Settings) -> InheritedSockets:
    """What a successor gets."""
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

    wait_s: how long the port may be in use
    clients: bound ones for clients. The kernel lets others share their port until they listen.
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
            raise OSError(errno.EADDRINUSE, "clients come in there (--listen); choose another port")
    return sockets


def _is_shared(one: socket.socket, other: socket.socket) -> bool:
    """Would a connection to one of them be one to the other?"""
    (host, port, *_), (other_host, other_port, *_) = one.getsockname(), other.getsockname()
    is_same_host = host == other_host or any(
        ip_address(each).is_unspecified for each in (host, other_host)
    )
    return one.family == other.family and port == other_port and is_same_host


def _preferred(given: InheritedSockets, own: InheritedSockets) -> InheritedSockets:
    """Of the sockets of a predecessor and of systemd those to use; the others are closed.

    Nobody would accept from those; mostly they are the same.
    """
    if given.listen:
        own.close()
        return given
    # The predecessor drains.
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
    # Nobody would accept from them here.
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
    """How long a port may be in use, as a predecessor may be about to free it."""
    return _FREE_S if settings.take_over else 0.0


async def _bind(address: tuple[str, int], workers: int, wait_s: float) -> tuple[Sockets, ...]:
    """Sockets that are bound as soon as the port is free. Raises OSError."""
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
        return f"in use by another program, which is no gateway with --data {settings.data}"
    return (
        "in use by another program; to replace a running gateway, add --take-over and give the "
        f"--listen and --data that it has (here --data {settings.data})"
    )
