"""Asks the kernel about connections. On kernels without a feature, does without it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import socket
import struct
import termios
from typing import Final

#: Unsent bytes that may wait in the kernel for one client.
MOST_UNSENT_BYTES: Final = 128 * 1024

#: After so long without a byte the kernel asks the other end whether it is there, and so often.
_PROBE_AFTER_S: Final = 20
_PROBE_EVERY_S: Final = 5
#: The least time after which an end that acknowledges nothing is gone: bad networks lose packets
#: for many seconds.
_LEAST_GONE_S: Final = 30.0
#: An option is an int of C.
_MOST_MS: Final = 2**31 - 1
#: struct linger: on, for 0 seconds.
_RESET: Final = struct.pack("ii", 1, 0)
#: The first byte of Linux's struct tcp_info is the connection's state.
_ESTABLISHED: Final = 1
#: tcpi_bytes_acked in that struct, since Linux 4.1.
_ACKED: Final = struct.Struct("=120xQ")


def keep_little_unsent(listening: socket.socket) -> None:
    """Bound the unsent bytes for each client that this socket accepts: they inherit it.

    Otherwise, Linux keeps up to 4 MiB (net.ipv4.tcp_wmem) for a client that reads slowly; 1,500 of
    them use up all the memory that it grants to TCP, for all connections.
    """
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MOST_UNSENT_BYTES)


def probe_peers(one: socket.socket) -> None:
    """Have the kernel ask whether the other end is there. Accepted sockets inherit it.

    A machine that loses its power or its network sends no end of its connections.
    """
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_S)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY_S)


def end_if_gone(transport: asyncio.BaseTransport, write_s: float) -> None:
    """Have the kernel end a connection whose other end acknowledges neither data nor probes.

    By default it sends again for a quarter of an hour. This includes the time in which the other
    end has no room for more, so it is longer than the gateway itself waits for that.

    write_s: how long that is
    """
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None or not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    gone_ms = int(1_000 * (max(write_s, _LEAST_GONE_S) + _PROBE_EVERY_S))
    with contextlib.suppress(OSError):  # closed here already
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(gone_ms, _MOST_MS))


def has_hung_up(transport: asyncio.Transport) -> bool:
    """Has the other end closed? For a connection that is not being read, which gets no event."""
    if not hasattr(socket, "TCP_INFO"):
        return False
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None:  # closed here already
        return True
    try:
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:  # closed here already
        return True
    return state != _ESTABLISHED


class AckProgress:
    """Detects whether the other end takes what is sent to it, even a byte at a time.

    The transport's buffer shows that only now and then: the kernel has another buffer, and takes
    more only when much of that is free.
    """

    __slots__ = ("_acked", "_waiting")

    def __init__(self) -> None:
        self._acked: int | None = -1
        self._waiting = 0

    def has_advanced(self, transport: asyncio.Transport) -> bool:
        """Was a byte taken since the last call? True on the first call."""
        acked, waiting = _acked_bytes(transport), transport.get_write_buffer_size()
        has_advanced = waiting < self._waiting if acked is None else acked != self._acked
        is_first = self._acked == -1
        self._acked, self._waiting = acked, waiting
        return has_advanced or is_first


def _acked_bytes(transport: asyncio.Transport) -> int | None:
    """How many bytes the other end's kernel has acknowledged; None: unknown."""
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED.size)
    except OSError:  # closed here already
        return None
    if len(info) < _ACKED.size:
        return None
    acked: int = _ACKED.unpack(info)[0]
    return acked


def unread_bytes(transport: asyncio.Transport) -> int:
    """How many received bytes were not read yet; 0: none, or unknown."""
    return _ask(transport, termios.FIONREAD)


def unacknowledged_bytes(transport: asyncio.Transport) -> int:
    """How many sent bytes the other end's kernel has not acknowledged; 0: none, or unknown."""
    return _ask(transport, termios.TIOCOUTQ)


def _ask(transport: asyncio.Transport, what: int) -> int:
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None:
        return 0
    try:
        answer = fcntl.ioctl(connection.fileno(), what, b"\0\0\0\0")
    except (OSError, ValueError):  # closed here already, or not supported
        return 0
    found: int = struct.unpack("i", answer)[0]
    return found


def reset_on_close(transport: asyncio.Transport) -> None:
    """Make the close a reset: unsent bytes are dropped, and the client sees an abnormal end."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def give_memory_back() -> None:
    """Return freed memory to the system: glibc keeps it if anything at a higher address is in use.

    After a flood, that is most of the flood's memory. It takes some milliseconds.
    """
    with contextlib.suppress(AttributeError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)
