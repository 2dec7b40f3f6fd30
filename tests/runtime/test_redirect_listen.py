"""The listener for plain HTTP: what it needs, and several on one address."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gateway.app import CannotStart, Settings
from gateway.runtime.redirect_listen import check_redirect
from gateway.runtime.sockets import bind_shared, close_all
from tests.kit.ports import free_port
from tests.proxy.test_redirect import GET, redirecting, sent


def test_it_needs_tls() -> None:
    """Without it there is nothing to redirect to."""
    settings = Settings(Path("policies"), listen_http=("127.0.0.1", 0))
    with pytest.raises(CannotStart, match=r"^--listen-http: the policies have no tls"):
        check_redirect(settings, has_tls=False)
    check_redirect(settings, has_tls=True)
    check_redirect(Settings(Path("policies")), has_tls=False)


def test_an_address_in_use() -> None:
    """It is an error with the option's name, unless the gateway there is replaced."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = other.getsockname()
        settings = Settings(Path("policies"), listen_http=address)
        with pytest.raises(CannotStart, match=rf"^--listen-http 127\.0\.0\.1:{address[1]}: .* use"):
            check_redirect(settings, has_tls=True)
        check_redirect(
            Settings(Path("policies"), listen_http=address, take_over=True), has_tls=True
        )


def test_several_sockets_at_one_address() -> None:
    """Workers, and a predecessor and its successor, share it."""
    port = free_port()
    sockets = [bind_shared("127.0.0.1", port) for _ in range(2)]
    assert {one.getsockname() for each in sockets for one in each} == {("127.0.0.1", port)}
    close_all(sockets)
    with pytest.raises(OSError, match=r"."):
        bind_shared("192.0.2.1", port)


async def test_the_end(tmp_path: Path) -> None:
    """After the gateway has stopped, nobody listens there."""
    async with redirecting(tmp_path) as gateway:
        port = gateway.redirects.port
        assert (await sent(gateway, GET)).startswith(b"HTTP/1.1 308 ")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
