"""The sockets for clients, bound once for all workers.

Workers share a port with SO_REUSEPORT: each has its own socket, and the kernel distributes new
connections among all listening sockets. A connection waits in its socket's queue even if the
socket's worker is dead. A bound socket does not listen yet, and gets no connections.

When the last copy of a socket is closed, Linux resets the connections in its queue. So all sockets
that are inherited from a predecessor or systemd stay in use (`distribute`).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.proxy.kernel import keep_little_unsent, probe_peers

#: A row of `socket.getaddrinfo`.
_Address = tuple[int, int, int, str, tuple[Any, ...]]
#: The sockets of one worker: one for each address that the host name resolves to.
Sockets = Sequence[socket.socket]


@dataclass(frozen=True, slots=True)
class InheritedSockets:
    """Listening sockets, opened by a predecessor or by systemd.

    listen:        for clients
    admin:         for the admin listener
    admin_address: the configured address of the admin listener: "127.0.0.1:9901"; "": unknown
    """

    listen: tuple[socket.socket, ...] = ()
    admin: tuple[socket.socket, ...] = ()
    admin_address: str = ""

    def close(self) -> None:
        """Close this process's copies of them. Idempotent."""
        close_all((self.listen, self.admin))


def bind(host: str, port: int, workers: int) -> tuple[tuple[socket.socket, ...], ...]:
    """Bound sockets for each worker, which do not listen yet. Raises OSError.

    port: 0 is any free one, the same for all workers
    """
    addresses = _addresses(host, port)
    bound: list[list[socket.socket]] = [[] for _ in range(workers)]
    refused: OSError | None = None
    try:
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            at = (address[0], port, *address[2:])
            try:
                # Without SO_REUSEPORT, so that this fails if another gateway runs on this port:
                # otherwise the two would share it, each with half of the clients.
                with _open((family, kind, protocol)) as probe:
                    probe.bind(at)
                made = _bind_each((family, kind, protocol), at, workers)
            except OSError as error:
                # "localhost" resolves to ::1 even if IPv6 is disabled.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                refused = error
                continue
            port = made[0].getsockname()[1]
            for sockets, one in zip(bound, made, strict=True):
                sockets.append(one)
        if not bound[0]:
            raise refused or OSError(errno.EADDRNOTAVAIL, "the host name has no address")
    except BaseException:
        close_all(bound)
        raise
    return tuple(map(tuple, bound))


def bind_shared(host: str, port: int) -> Sockets:
    """Bound sockets at an address that other processes of this user may have too. Raises OSError.

    One for each address that the host name resolves to.
    """
    addresses = _addresses(host, port)
    made: list[socket.socket] = []
    refused: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(addresses):
        at = (address[0], made[0].getsockname()[1] if made else port, *address[2:])
        try:
            made += _bind_each((family, kind, protocol), at, 1)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                close_all([made])
                raise
            refused = error
    if not made:
        raise refused or OSError(errno.EADDRNOTAVAIL, "the host name has no address")
    return tuple(made)


def _addresses(host: str, port: int) -> list[_Address]:
    """The addresses of a host; "::" is any address, also of IPv4."""
    found: list[_Address] = []
    for name in ("::", "0.0.0.0") if host == "::" else (host,):  # noqa: S104 - as it was asked
        found += socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return found


def distribute(
    listening: Iterable[socket.socket], workers: int, *, may_bind: bool
) -> tuple[Sockets, ...]:
    """Distribute listening sockets among workers.

    At each address every worker gets one. If there are more, all workers accept from the others
    too. If there are fewer, the missing ones are bound, if `may_bind` and the kernel allow it;
    otherwise all workers share the existing ones. A shared socket is in the result of each worker.
    """
    shares: list[list[socket.socket]] = [[] for _ in range(workers)]
    for there in _by_address(listening):
        missing = workers - len(there)
        added = _bind_beside(there[0], missing) if may_bind and missing > 0 else []
        sockets = there + added
        own = sockets[:workers] if len(sockets) >= workers else []
        shared = sockets[len(own) :]
        for index, mine in enumerate(shares):
            mine += [*own[index : index + 1], *shared]
    return tuple(map(tuple, shares))


def distinct(sockets: Iterable[Sockets]) -> tuple[socket.socket, ...]:
    """The sockets of all workers, each once."""
    return tuple(dict.fromkeys(one for each in sockets for one in each))


def close_all(sockets: Iterable[Sockets]) -> None:
    """Close the sockets of all workers. Idempotent."""
    for one in sockets:
        for bound in one:
            bound.close()


def _by_address(sockets: Iterable[socket.socket]) -> list[list[socket.socket]]:
    found: dict[tuple[object, ...], list[socket.socket]] = {}
    for one in sockets:
        found.setdefault((one.family, *one.getsockname()), []).append(one)
    return list(found.values())


def _bind_beside(listening: socket.socket, count: int) -> list[socket.socket]:
    """Bind more sockets at the address of this one; none if the kernel refuses.

    It refuses if that one was bound without SO_REUSEPORT, by another user, or with more privileges
    than this process has.
    """
    kind = (listening.family, listening.type, listening.proto)
    try:
        return _bind_each(kind, listening.getsockname(), count)
    except OSError:
        return []


def _bind_each(
    kind: tuple[int, int, int], address: tuple[str | int, ...], count: int
) -> list[socket.socket]:
    """Bind `count` sockets at one address."""
    made: list[socket.socket] = []
    try:
        for _ in range(count):
            made.append(one := _open(kind))
            # Even for a single one: a successor may bind more at the address.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(address)
            address = one.getsockname()
    except BaseException:
        close_all([made])
        raise
    return made


def _open(kind: tuple[int, int, int]) -> socket.socket:
    made = socket.socket(*kind)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if made.family == socket.AF_INET6:
        # IPv4 clients use the IPv4 address, which may have its own socket: so their addresses are
        # not written as those of IPv6.
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    keep_little_unsent(made)
    probe_peers(made)
    return made
