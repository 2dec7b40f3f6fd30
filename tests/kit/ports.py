"""Ports that a test may hand to a program it starts."""

from __future__ import annotations

import itertools
import os
import socket


class Ports:
    """Ports from `first` on, up to and without `end`.

    Below the range from which Linux takes the ports of outgoing connections (32768 and up), so that
    nobody's connection can take one between a look and the program's bind. Each process starts
    elsewhere, so that two runs of the tests on one machine seldom meet.
    """

    def __init__(self, first: int, end: int) -> None:
        self._first, self._end = first, end
        self._candidates = itertools.cycle(range(first, end))
        for _ in range(os.getpid() * 997 % (end - first)):
            next(self._candidates)

    def free(self) -> int:
        """One of 127.0.0.1 on which nobody listens, and which was not given out here lately."""
        for port in itertools.islice(self._candidates, self._end - self._first):
            if is_free(port):
                return port
        raise AssertionError(f"no free port between {self._first} and {self._end}")


def is_free(port: int) -> bool:
    """Does nobody listen on this port of 127.0.0.1?"""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


free_port = Ports(20_000, 32_000).free
