"""Ports for programs that a test starts."""

from __future__ import annotations

import itertools
import os
import socket
import sys
from collections import deque

#: Ports that one process has reserved at a time: more than one test asks for.
MOST_RESERVED = 32


class Ports:
    """Ports from `first` to before `end`.

    A port is reserved for a while, by any process on this machine that runs tests, so that the
    program has the time to bind it.

    Below the range from which Linux takes the ports of outgoing connections (32768 and up), so that
    no connection can take one between the check and the program's bind. Each process starts
    elsewhere, so that two processes seldom try the same ones.
    """

    def __init__(self, first: int, end: int) -> None:
        self._first, self._end = first, end
        #: Descriptors, the oldest first.
        self._reserved: deque[int] = deque()
        self._candidates = itertools.cycle(range(first, end))
        for _ in range(os.getpid() * 997 % (end - first)):
            next(self._candidates)

    def free(self) -> int:
        """A port of 127.0.0.1 on which nothing listens, and which was not returned recently."""
        for port in itertools.islice(self._candidates, self._end - self._first):
            if self._reserve(port) and is_free(port):
                return port
        raise AssertionError(f"no free port between {self._first} and {self._end}")

    def _reserve(self, port: int) -> bool:
        """Reserve the port for this process; False: another one has it.

        By the name of an abstract socket, which only Linux has. It ends with the process.
        """
        if sys.platform != "linux":
            return True
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0gateway-tests-port-{port}")
        except OSError:
            reservation.close()
            return False
        self._reserved.append(reservation.detach())
        if len(self._reserved) > MOST_RESERVED:
            os.close(self._reserved.popleft())
        return True


def is_free(port: int) -> bool:
    """Does nothing listen on this port of 127.0.0.1?"""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


free_port = Ports(20_000, 32_000).free
