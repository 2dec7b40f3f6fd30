"""systemd: reads the sockets that it has opened for this service, and notifies it of the state.

Sockets (sd_listen_fds(3)): LISTEN_FDS descriptors from 3 on, for the process with the id
LISTEN_PID. LISTEN_FDNAMES says what each is for: "listen" or "admin", from FileDescriptorName= in
the socket unit. State (sd_notify(3)): a datagram to the socket that NOTIFY_SOCKET names.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

from gateway.proxy.kernel import keep_little_unsent, probe_peers
from gateway.runtime.settings import CannotStart
from gateway.runtime.sockets import InheritedSockets

log = logging.getLogger("gateway")

#: The first descriptor of a socket.
FIRST: Final = 3
#: The variables about sockets, which are not for child processes.
VARIABLES: Final = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")
NOTIFY: Final = "NOTIFY_SOCKET"
#: How long a datagram may wait for room in systemd's queue.
_SEND_S: Final = 1.0


def read_sockets(environ: Mapping[str, str] = os.environ, first: int = FIRST) -> InheritedSockets:
    """The sockets that systemd opened for this process, if any. Raises CannotStart."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return InheritedSockets()
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    count = environ.get("LISTEN_FDS", "")
    if not count.isdecimal() or int(count) != len(names):
        raise CannotStart(f"LISTEN_FDS: found {count!r}, expected as many as LISTEN_FDNAMES has")
    found: dict[str, list[socket.socket]] = {"listen": [], "admin": []}
    for descriptor, name in enumerate(names, first):
        if name not in found:
            raise CannotStart(
                f"LISTEN_FDNAMES: found {name!r}, expected 'listen' or 'admin'; "
                "set FileDescriptorName= in the socket unit"
            )
        found[name].append(_listening(descriptor))
    return InheritedSockets(tuple(found["listen"]), tuple(found["admin"]))


def notify(*assignments: str, environ: Mapping[str, str] = os.environ) -> None:
    """Notify systemd, if it runs this service: "READY=1", "MAINPID=…". Failures are logged."""
    address = environ.get(NOTIFY)
    if not address:
        return
    if address.startswith("@"):  # the abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.settimeout(_SEND_S)
            end.connect(address)
            end.sendall("\n".join(assignments).encode())
    except OSError as error:
        log.warning("%s: cannot notify systemd: %s", NOTIFY, error.strerror or error)


def reloading() -> tuple[str, ...]:
    """The assignments for the start of a reload; READY=1 follows when it is done."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def _listening(descriptor: int) -> socket.socket:
    """The socket of a descriptor. Raises CannotStart unless it is a listening TCP socket."""
    where = f"LISTEN_FDS: descriptor {descriptor}"
    try:
        found = socket.socket(fileno=descriptor)
    except OSError as error:
        raise CannotStart(f"{where}: found no socket: {error.strerror}") from error
    is_tcp = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
    if not is_tcp or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        found.close()
        raise CannotStart(f"{where}: expected a TCP socket that listens (ListenStream=HOST:PORT)")
    found.setblocking(False)
    found.set_inheritable(False)
    keep_little_unsent(found)
    probe_peers(found)
    return found
