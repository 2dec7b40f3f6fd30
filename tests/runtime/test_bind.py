"""The sockets that workers share, before anybody listens, and who accepts from them."""

from __future__ import annotations

import errno
import socket
from collections import Counter

import pytest

from gateway.runtime import sockets as module
from gateway.runtime.sockets import Sockets, bind, close_all
from tests.kit.ports import free_port


def ports(sockets: tuple[Sockets, ...]) -> set[int]:
    return {one.getsockname()[1] for each in sockets for one in each}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_worker_has_a_socket_on_the_port(workers: int) -> None:
    """The one that was asked for."""
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
def test_a_port_that_somebody_listens_on_is_refused(workers: int, shared: bool) -> None:
    """Also where that one would share it: two gateways on one port are a mistake."""
    with socket.socket() as taken:
        if shared:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use") as refused:
            bind("127.0.0.1", taken.getsockname()[1], workers)
    assert refused.value.errno == errno.EADDRINUSE


def test_a_name_may_stand_for_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker has a socket for each, all on one port; one that is not to be had is left out."""
    found = [
        (family, socket.SOCK_STREAM, 6, "", address)
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", 0)),
            (socket.AF_INET, ("127.0.0.2", 0)),
            (socket.AF_INET, ("127.0.0.1", 0)),  # told twice
            (socket.AF_INET, ("192.0.2.1", 0)),  # for documentation: nobody's
        )
    ]
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: found)
    sockets = bind("both.test", 0, 2)
    assert len(ports(sockets)) == 1
    hosts = Counter(one.getsockname()[0] for each in sockets for one in each)
    assert hosts == {"127.0.0.1": 2, "127.0.0.2": 2}
    close_all(sockets)


def test_an_address_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There has to be one to listen on."""
    with pytest.raises(OSError, match="assign") as refused:
        bind("192.0.2.1", 0, 2)
    assert refused.value.errno == errno.EADDRNOTAVAIL
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: [])
    with pytest.raises(OSError, match="no address"):
        bind("empty.test", 0, 1)


def test_ipv6_keeps_to_itself() -> None:
    """Where there is IPv6: an IPv4 client has to come by the IPv4 address."""
    try:
        sockets = bind("::1", 0, 2)
    except OSError as error:
        assert error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # noqa: PT017
        return
    for each in sockets:
        assert each[0].getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
    close_all(sockets)
