"""What is asked of the kernel about a connection. What it lacks is done without."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import socket
import struct
import termios
from typing import Final

#: Bytes that may wait in the kernel for one client, beside those that are on their way to it.
MOST_UNSENT_BYTES: Final = 128 * 1024

#: struct linger: on, for no time.
_RESET: Final = struct.pack("ii", 1, 0)
#: The first byte of Linux's struct tcp_info is the connection's state.
_ESTABLISHED: Final = 1
#: Where that struct has tcpi_bytes_acked, since Linux 4.1.
_ACKED: Final = struct.Struct("=120xQ")


def keep_little_unsent(listening: socket.socket) -> None:
    """Bound what waits for each client that this socket accepts: they inherit it.

    Without, Linux keeps up to 4 MiB (net.ipv4.tcp_wmem) for a client that reads slowly; 1,500 of
    them use up all the memory that it grants to TCP, and everybody's connections suffer.
    """
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MOST_UNSENT_BYTES)


def has_hung_up(transport: asyncio.Transport) -> bool:
    """Has the other end closed? For a connection that is not being read, where no event tells."""
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


class Taking:
    """Looks whether the other end goes on taking what is sent to it, be it a byte at a time.

    How little waits here says that only now and then: the kernel has a buffer of its own, and takes
    more from here when much of that is free.
    """

    __slots__ = ("_acked", "_waiting")

    def __init__(self) -> None:
        self._acked: int | None = -1
        self._waiting = 0

    def goes_on(self, transport: asyncio.Transport) -> bool:
        """Has a byte been taken since the last look? The first look says so in any case."""
        acked, waiting = _acked_bytes(transport), transport.get_write_buffer_size()
        went_on = waiting < self._waiting if acked is None else acked != self._acked
        is_first = self._acked == -1
        self._acked, self._waiting = acked, waiting
        return went_on or is_first


def _acked_bytes(transport: asyncio.Transport) -> int | None:
    """How many bytes the other end's kernel has acknowledged; None: ours does not tell."""
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
    """How many bytes have come that were not read yet; 0 where the kernel does not tell."""
    return _ask(transport, termios.FIONREAD)


def unacknowledged_bytes(transport: asyncio.Transport) -> int:
    """How many of the bytes sent the other end's kernel has not acknowledged; 0 where unknown."""
    return _ask(transport, termios.TIOCOUTQ)


def _ask(transport: asyncio.Transport, what: int) -> int:
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None:
        return 0
    try:
        answer = fcntl.ioctl(connection.fileno(), what, b"\0\0\0\0")
    except (OSError, ValueError):  # closed here already, or a kernel that does not tell
        return 0
    found: int = struct.unpack("i", answer)[0]
    return found


def reset_on_close(transport: asyncio.Transport) -> None:
    """Let the close be a reset: what is unsent is dropped, and no one takes it for a good end."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def give_memory_back() -> None:
    """Return what was freed to the system: glibc keeps it, wherever something behind it is in use.

    After a flood that is most of what the flood took. It takes some milliseconds.
    """
    with contextlib.suppress(AttributeError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)
