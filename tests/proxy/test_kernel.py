"""What the kernel reports about a connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from gateway.proxy.kernel import (
    AckProgress,
    end_if_gone,
    has_hung_up,
    probe_peers,
    reset_on_close,
    unacknowledged_bytes,
    unread_bytes,
)
from tests.kit.eventually import eventually
from tests.kit.rows import each_row
from tests.kit.transport import MemoryTransport
from tests.proxy.conftest import Start


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    with one, other:
        yield one, other


async def test_acknowledged_progress(pair: tuple[socket.socket, socket.socket]) -> None:
    """True on the first call; then only acknowledged bytes count."""
    one, other = pair
    transport = MemoryTransport(socket=one)
    transport.unsent_bytes = 1000
    progress = AckProgress()
    assert progress.has_advanced(transport)
    assert not progress.has_advanced(transport)
    one.send(b"x")
    await eventually(lambda: progress.has_advanced(transport), "a byte is acknowledged")
    transport.unsent_bytes = 10  # bytes in our kernel's buffer do not count
    assert not progress.has_advanced(transport)
    one.close()
    progress.has_advanced(transport)
    assert not progress.has_advanced(transport)
    assert other.recv(10) == b"x"


def test_progress_without_kernel_support() -> None:
    """Then it is true if fewer bytes wait here than before."""
    transport = MemoryTransport()
    transport.unsent_bytes = 10
    progress = AckProgress()
    looks = []
    for waiting in (10, 10, 9, 9, 20, 15):
        transport.unsent_bytes = waiting
        looks.append(progress.has_advanced(transport))
    assert looks == [True, False, True, False, False, True]


async def test_unread(pair: tuple[socket.socket, socket.socket]) -> None:
    """Bytes that were received and not read yet."""
    one, other = pair
    there = MemoryTransport(socket=other)
    assert unread_bytes(there) == 0
    one.send(b"abc")
    await eventually(lambda: unread_bytes(there) == 3, "it has arrived")
    other.close()
    assert unread_bytes(there) == 0


async def test_unacknowledged(pair: tuple[socket.socket, socket.socket]) -> None:
    """Bytes sent to an end that has closed are never acknowledged."""
    one, other = pair
    here = MemoryTransport(socket=one)
    one.send(b"abc")
    await eventually(lambda: unacknowledged_bytes(here) == 0, "it is acknowledged")
    other.recv(3)
    other.close()
    one.send(b"de")
    assert one.recv(1) == b""
    assert unacknowledged_bytes(here) == 2


async def test_hanging_up(pair: tuple[socket.socket, socket.socket]) -> None:
    """Detected without reading; a reset, too."""
    one, other = pair
    here = MemoryTransport(socket=one)
    assert not has_hung_up(here)
    reset_on_close(MemoryTransport(socket=other))
    other.close()
    await eventually(lambda: has_hung_up(here), "the other end has closed")
    with pytest.raises(ConnectionResetError):
        one.recv(1)
    one.close()
    assert has_hung_up(here)
    assert has_hung_up(MemoryTransport()), "a closed transport has no socket"


def test_nothing_to_ask() -> None:
    """A transport without a socket, as in tests."""
    none = MemoryTransport()
    assert (unread_bytes(none), unacknowledged_bytes(none)) == (0, 0)


def test_accepted_sockets_are_probed() -> None:
    """Sockets that a listening one accepts ask a silent end whether it is there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        probe_peers(listener)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
                assert accepted.getsockopt(socket.IPPROTO_TCP, option) <= 20


# How long an end may have no room, and after how long the kernel gives it up, in milliseconds.
@each_row(
    ("write_s", "gone_ms"), [(0.5, 35_000), (30.0, 35_000), (600.0, 605_000), (1e9, 2**31 - 1)]
)
def test_an_end_that_is_gone(
    pair: tuple[socket.socket, socket.socket], write_s: float, gone_ms: int
) -> None:
    """The kernel gives up an end that acknowledges nothing, but not before the gateway does."""
    end_if_gone(MemoryTransport(socket=pair[0]), write_s)
    assert pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == gone_ms


def test_a_connection_that_is_closed_already(pair: tuple[socket.socket, socket.socket]) -> None:
    """Nothing happens where there is no socket any more."""
    pair[0].close()
    for transport in (MemoryTransport(socket=pair[0]), MemoryTransport()):
        end_if_gone(transport, 1.0)
        assert not transport.is_closing()


async def test_both_sides_of_the_gateway(start: Start) -> None:
    """The connections to clients and to servers notice that the other end is gone."""
    bench = await start()
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
        context = bench.gateway._context
        (client,) = context.connections
        (server,) = context.pools._by_server.values()
        for transport in (client.transport, server.idle[0].transport):
            one = transport.get_extra_info("socket")
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 20
            assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 35_000
