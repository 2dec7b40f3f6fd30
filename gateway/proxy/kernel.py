"""What is asked of the kernel about a client's connection. What it lacks is done without."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

#: Bytes that may wait in the kernel for one client, beside those that are on their way to it.
MOST_UNSENT_BYTES: Final = 128 * 1024

#: struct linger: on, for no time.
_RESET: Final = struct.pack("ii", 1, 0)
#: The first byte of Linux's struct tcp_info is the connection's state.
_ESTABLISHED: Final = 1


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
    connection: socket.socket = transport.get_extra_info("socket")
    try:
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:  # closed here already
        return True
    return state != _ESTABLISHED


def reset_on_close(transport: asyncio.Transport) -> None:
    """Let the close be a reset: what is unsent is dropped, and no one takes it for a good end."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
