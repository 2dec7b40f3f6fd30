"""The sockets that workers share, before any listens, and which workers accept from them."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress

import pytest

from gateway.runtime import sockets as module
from gateway.runtime.sockets import (
    Sockets,
    bind,
    bind_shared,
    close_all,
    distinct,
    distribute,
)
from tests.kit.ports import free_port


def ports(sockets: tuple[Sockets, ...]) -> set[int]:
    return {one.getsockname()[1] for each in sockets for one in each}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_worker_has_a_socket_on_the_port(workers: int) -> None:
    """The port is the requested one."""
    port = free_port()
    sockets = bind("127.0.0.1", port, workers)
    assert len(sockets) == workers
    assert ports(sockets) == {port}
    close_all(sockets)
    close_all(sockets)


def test_any_free_port_is_the_same_for_all() -> None:
    """Port 0 is chosen once."""
    sockets = bind("127.0.0.1", 0, 3)
    (port,) = ports(sockets)
    assert port > 0
    close_all(sockets)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shared", [False, True])
def test_a_port_in_use_is_refused(workers: int, shared: bool) -> None:
    """Even if that process would share it: two gateways on one port are a mistake."""
    with socket.socket() as taken:
        if shared:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use") as refused:
            bind("127.0.0.1", taken.getsockname()[1], workers)
    assert refused.value.errno == errno.EADDRINUSE


def test_a_name_may_stand_for_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker has a socket per address, all on one port; unusable addresses are skipped."""
    found = [
        (family, socket.SOCK_STREAM, 6, "", address)
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", 0)),
            (socket.AF_INET, ("127.0.0.2", 0)),
            (socket.AF_INET, ("127.0.0.1", 0)),  # listed twice
            (socket.AF_INET, ("192.0.2.1", 0)),  # for documentation: not an address of this machine
        )
    ]
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: found)
    sockets = bind("both.test", 0, 2)
    assert len(ports(sockets)) == 1
    hosts = Counter(one.getsockname()[0] for each in sockets for one in each)
    assert hosts == {"127.0.0.1": 2, "127.0.0.2": 2}
    close_all(sockets)


def test_an_address_of_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There must be at least one to listen on."""
    with pytest.raises(OSError, match="assign") as refused:
        bind("192.0.2.1", 0, 2)
    assert refused.value.errno == errno.EADDRNOTAVAIL
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: [])
    with pytest.raises(OSError, match="no address"):
        bind("empty.test", 0, 1)


def test_ipv6_sockets_accept_ipv6_only() -> None:
    """On a machine with IPv6: an IPv4 client must use the IPv4 address."""
    try:
        sockets = bind("::1", 0, 2)
    except OSError as error:
        assert error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # noqa: PT017
        return
    found = [each[0].getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) for each in sockets]
    close_all(sockets)
    assert found == [1, 1]


def test_any_address_is_of_ipv4_too() -> None:
    """Clients of IPv4 and of IPv6 reach [::] on one port, unless the machine has no IPv6."""
    for sockets in (bind("::", 0, 2), (bind_shared("::", 0),)):
        assert len(ports(sockets)) == 1
        families = [{one.family for one in each} for each in sockets]
        assert all(socket.AF_INET in each for each in families)
        assert len(families[0]) == (2 if has_ipv6() else 1)
        close_all(sockets)


def has_ipv6() -> bool:
    with suppress(OSError), socket.socket(socket.AF_INET6) as one:
        one.bind(("::", 0))
        return True
    return False


@pytest.fixture
def four() -> Iterator[list[socket.socket]]:
    """Sockets that share a port, and listen."""
    sockets = list(distinct(bind("127.0.0.1", 0, 4)))
    for one in sockets:
        one.listen()
    yield sockets
    close_all([sockets])


def connected(sockets: Sequence[socket.socket], count: int = 64) -> list[socket.socket]:
    """Clients that wait to be accepted, some of them at each socket."""
    return [socket.create_connection(sockets[0].getsockname()) for _ in range(count)]


def accepted(sockets: Sockets) -> int:
    """How many connections a worker with these sockets can accept now."""
    found = 0
    for one in dict.fromkeys(sockets):
        with suppress(BlockingIOError):
            while True:
                one.accept()[0].close()
                found += 1
    return found


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_as_many_workers_or_fewer(four: list[socket.socket], workers: int) -> None:
    """Each has its own socket; all accept from the others, so that no client waits forever."""
    shares = distribute(four, workers, may_bind=True)
    assert [each[0] for each in shares] == four[:workers]
    assert [list(each[1:]) for each in shares] == [four[workers:]] * workers
    assert set(distinct(shares)) == set(four)
    waiting = connected(four)
    assert sum(accepted(each) for each in shares) == len(waiting)
    close_all([waiting])


def test_more_workers(four: list[socket.socket]) -> None:
    """The missing sockets are bound in addition to the existing ones."""
    shares = distribute(four, 6, may_bind=True)
    assert [len(each) for each in shares] == [1] * 6
    assert len(ports(shares)) == 1
    assert distinct(shares)[:4] == tuple(four)
    close_all(shares[4:])


def test_more_workers_of_what_cannot_be_shared() -> None:
    """If no others can be bound, all workers accept from the existing ones."""
    with socket.socket() as alone:
        alone.bind(("127.0.0.1", 0))
        alone.listen()
        for may_bind in (True, False):
            assert distribute([alone], 3, may_bind=may_bind) == ((alone,),) * 3
    one = bind("127.0.0.1", 0, 1)
    assert distribute(one[0], 2, may_bind=False) == (one[0], one[0])
    close_all(one)


def test_each_address_is_distributed_separately() -> None:
    """Every worker accepts at every address, in whatever order the sockets are."""
    with ExitStack() as stack:
        here, there = (bind(host, 0, 2) for host in ("127.0.0.1", "127.0.0.2"))
        stack.callback(close_all, (*here, *there))
        (a, b), (c, d) = distinct(here), distinct(there)
        for one in (a, b, c, d):
            one.listen()
        assert distribute((a, b, c, d), 2, may_bind=True) == ((a, c), (b, d))
        assert distribute((c, a, b), 2, may_bind=False) == ((c, a), (c, b))
