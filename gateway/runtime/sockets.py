"""The sockets that clients come in by: bound once, for one worker or for several.

Several workers share a port by SO_REUSEPORT: each has a socket of its own, and the kernel deals
new connections out to all that listen. What it has dealt to a socket waits there, whether its
worker lives or not. Who binds does not listen yet, and accepts nobody.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from gateway.proxy.kernel import keep_little_unsent

#: One worker's: one for each address that the host's name stands for.
Sockets = Sequence[socket.socket]


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


def close_all(sockets: Sequence[Sockets]) -> None:
    """Close the sockets of all workers; harmless when repeated."""
    for one in sockets:
        for bound in one:
            bound.close()


def _bind_each(
    kind: tuple[int, int, int], address: tuple[str | int, ...], workers: int
) -> list[socket.socket]:
    """A socket for each worker at one address."""
    made: list[socket.socket] = []
    try:
        if workers > 1:
            # With SO_REUSEPORT, a gateway that runs on this port already would share it with us,
            # and each would take half of the other's clients.
            with _open(kind) as probe:
                probe.bind(address)
        for _ in range(workers):
            made.append(one := _open(kind))
            if workers > 1:
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
