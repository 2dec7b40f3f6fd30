"""Ports that a test may hand to a program it starts."""

from __future__ import annotations

import itertools
import os
import socket

# Below the range from which Linux takes the ports of outgoing connections (32768 and up), so that
# nobody's connection can take one between this look and the program's bind. Each process starts
# elsewhere, so that two runs of the tests on one machine seldom meet.
_candidates = itertools.cycle(range(20_000, 32_000))
for _ in range(os.getpid() * 997 % 12_000):
    next(_candidates)


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens, and which this process has not given out yet."""
    for port in itertools.islice(_candidates, 12_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port between 20000 and 32000")
