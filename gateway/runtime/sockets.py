"""The sockets that clients come in by: bound once, for one worker or for several.

Several workers share a port by SO_REUSEPORT: each has a socket of its own, and the kernel deals
new connections out to all that listen. What it has shares to a socket waits there, whether its
worker lives or not. Who binds does not listen yet, and accepts nobody.

When the last copy of a socket is closed, Linux resets the connections that wait in it. So all
sockets that are inherited from a predecessor or systemd stay in use (`distribute`).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.proxy.kernel import keep_little_unsent

#: One worker's: one for each address that the host's name stands for.
Sockets = Sequence[socket.socket]


@dataclass(frozen=True, slots=True)
class InheritedSockets:
    """Sockets that listen already, opened by a predecessor or by systemd.

    listen: for clients
    admin:  for the admin listener
    admin_address: what that was told to listen on: "127.0.0.1:9901"; "": unknown
    """

    listen: tuple[socket.socket, ...] = ()
    admin: tuple[socket.socket, ...] = ()
    admin_address: str = ""

    def close(self) -> None:
        """Close these copies of them; harmless when repeated."""
        close_all((self.listen, self.admin))


def bind(host: str, port: int, workers: int) -> tuple[tuple[socket.socket, ...], ...]:
    """Bound sockets for each of so many workers, which do not listen yet. Raises OSError.

    port: 0 is any free one, the same for all
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[list[socket.socket]] = [[] for _ in range(workers)]
    refused: OSError | None = None
    try:
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            at = (address[0], port, *address[2:])
            try:
                # With SO_REUSEPORT, a gateway that runs on this port already would share it with
                # us, and each would take half of the other's clients.
                with _open((family, kind, protocol)) as probe:
                    probe.bind(at)
                made = _bind_each((family, kind, protocol), at, workers)
            except OSError as error:
                # "localhost" is ::1 as well, also where IPv6 is switched off.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                refused = error
                continue
            port = made[0].getsockname()[1]
            for sockets, one in zip(bound, made, strict=True):
                sockets.append(one)
        if not bound[0]:
            raise refused or OSError(errno.EADDRNOTAVAIL, "the name has no address")
    except BaseException:
        close_all(bound)
        raise
    return tuple(map(tuple, bound))


def distribute(
    listening: Iterable[socket.socket], workers: int, *, may_bind: bool
) -> tuple[Sockets, ...]:
    """Sockets for each of so many workers, out of those that listen already.

    At each address every worker gets one. If there are more, all workers accept from the rest as
    well. If there are fewer, the missing ones are bound, if `may_bind` and the kernel allow it;
    otherwise all workers share those that there are. A shared socket is in the set of each worker.
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
    """The sockets of all workers, each of them once."""
    return tuple(dict.fromkeys(one for each in sockets for one in each))


def close_all(sockets: Iterable[Sockets]) -> None:
    """Close the sockets of all workers; harmless when repeated."""
    for one in sockets:
        for bound in one:
            bound.close()


def _by_address(sockets: Iterable[socket.socket]) -> list[list[socket.socket]]:
    found: dict[tuple[object, ...], list[socket.socket]] = {}
    for one in sockets:
        found.setdefault((one.family, *one.getsockname()), []).append(one)
    return list(found.values())


def _bind_beside(listening: socket.socket, count: int) -> list[socket.socket]:
    """More sockets at the address of this one; none where the kernel refuses them.

    It does if that one was bound without SO_REUSEPORT, by another user, or with more rights than
    this process has.
    """
    kind = (listening.family, listening.type, listening.proto)
    try:
        return _bind_each(kind, listening.getsockname(), count)
    except OSError:
        return []


def _bind_each(
    kind: tuple[int, int, int], address: tuple[str | int, ...], count: int
) -> list[socket.socket]:
    """So many sockets at one address."""
    made: list[socket.socket] = []
    try:
        for _ in range(count):
            made.append(one := _open(kind))
            # Also a single one: a successor may want to bind more beside it.
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
        # An IPv4 client comes by the IPv4 address, which may have a socket of its own.
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    keep_little_unsent(made)
    return made
