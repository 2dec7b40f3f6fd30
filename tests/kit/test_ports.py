"""Ports for programs that tests start."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.kit.ports import MOST_RESERVED, Ports

#: A range from which no other test takes ports.
UNUSED = Ports(12_000, 20_000)


def test_a_port_in_use_is_skipped() -> None:
    """A port that is in use is not returned."""
    port = UNUSED.free()
    with socket.create_server(("127.0.0.1", port)):
        assert Ports(port, port + 100).free() > port


# Elsewhere, ports are tried but not reserved. CI runs on Linux: there it is never skipped.
@pytest.mark.skipif(sys.platform != "linux", reason="reservations need abstract sockets")
def test_no_port_is_returned_twice() -> None:
    """Even before the first one listens there; only after many others."""
    ports = UNUSED
    first = ports.free()
    other = Ports(first, first + 1)
    with pytest.raises(AssertionError):
        other.free()
    for _ in range(MOST_RESERVED):
        ports.free()
    assert other.free() == first
