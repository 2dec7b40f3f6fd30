"""What systemd passes to a service and receives from it, with a socket in its place."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from gateway.cli.main import cli
from gateway.cli.serve import serve
from gateway.runtime.settings import CannotStart
from gateway.runtime.sockets import close_all
from gateway.runtime.systemd import notify, read_sockets, reloading

#: Where the descriptors of a test begin: far from those in use.
FIRST = 700


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(stack: ExitStack, host: str = "127.0.0.1") -> socket.socket:
    made = stack.enter_context(socket.socket())
    made.bind((host, 0))
    made.listen()
    return made


def environ(*names: str, **others: str) -> dict[str, str]:
    told = {"LISTEN_FDS": str(len(names)), "LISTEN_FDNAMES": ":".join(names)}
    return {"LISTEN_PID": str(os.getpid()), **told, **others}


def inherit(*sockets: socket.socket) -> None:
    """Put them at the numbers that systemd would use."""
    for descriptor, one in enumerate(sockets, FIRST):
        os.dup2(one.fileno(), descriptor, inheritable=True)


def test_sockets_by_their_names(stack: ExitStack) -> None:
    """Their names give their purpose, and processes started later do not inherit them."""
    made = [listening(stack) for _ in range(3)]
    inherit(*made)
    given = read_sockets(environ("listen", "admin", "listen"), FIRST)
    stack.callback(given.close)
    assert [one.getsockname() for one in given.listen] == [
        made[0].getsockname(),
        made[2].getsockname(),
    ]
    assert [one.getsockname() for one in given.admin] == [made[1].getsockname()]
    for one in (*given.listen, *given.admin):
        assert not one.get_inheritable()
        assert not one.getblocking()


def test_sockets_of_other_processes() -> None:
    """Descriptors for another process, which a parent's environment may name, are not used."""
    for told in ({}, environ("listen", LISTEN_PID="1"), environ("listen", LISTEN_PID="")):
        assert read_sockets(told, FIRST).listen == ()


def test_unusable_descriptors(stack: ExitStack, tmp_path: Path) -> None:
    """The error names what cannot be used and what was expected, before anything is opened."""
    bound, datagrams = stack.enter_context(socket.socket()), socket.socket(type=socket.SOCK_DGRAM)
    unix = stack.enter_context(socket.socket(socket.AF_UNIX))
    unix.bind(str(tmp_path / "s"))
    unix.listen()
    bound.bind(("127.0.0.1", 0))
    for wrong in (bound, stack.enter_context(datagrams), unix):
        inherit(wrong)
        with pytest.raises(CannotStart, match=rf"descriptor {FIRST}: expected a TCP socket"):
            read_sockets(environ("listen"), FIRST)
    with pytest.raises(CannotStart, match=f"descriptor {FIRST + 50}: found no socket"):
        read_sockets(environ("listen"), FIRST + 50)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (environ("gateway.socket"), "found 'gateway.socket', expected 'listen' or 'admin'"),
        (environ("listen", LISTEN_FDS="2"), "LISTEN_FDS: found '2'"),
        (environ("listen", LISTEN_FDS="many"), "LISTEN_FDS: found 'many'"),
        (environ("listen", LISTEN_FDNAMES=""), "FileDescriptorName="),
    ],
)
def test_sockets_without_a_purpose(told: dict[str, str], words: str) -> None:
    """A socket without a name could expose the admin listener to clients."""
    with pytest.raises(CannotStart, match=words):
        read_sockets(told, FIRST)


@pytest.mark.parametrize("kind", ["a file", "a name"])
def test_messages_to_systemd(stack: ExitStack, tmp_path: Path, kind: str) -> None:
    """All messages of one moment are one datagram, wherever systemd listens."""
    address = str(tmp_path / "notify") if kind == "a file" else f"@gateway-test-{os.getpid()}"
    systemd = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    systemd.bind(address.replace("@", "\0"))
    notify("READY=1", "STATUS=well", environ={"NOTIFY_SOCKET": address})
    assert systemd.recv(1000) == b"READY=1\nSTATUS=well"


def test_without_systemd(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sent; if systemd does not answer, the log has a line."""
    notify("READY=1", environ={})
    assert caplog.messages == []
    notify("READY=1", environ={"NOTIFY_SOCKET": str(tmp_path / "nowhere")})
    assert "No such file" in caplog.text


def test_a_reload_says_when_it_began() -> None:
    """By the clock that systemd compares it with."""
    word, when = reloading()
    assert word == "RELOADING=1"
    name, _, us = when.partition("=")
    assert name == "MONOTONIC_USEC"
    assert int(us) > 0


def test_closing_inherited_sockets(stack: ExitStack) -> None:
    """It may be repeated."""
    inherit(listening(stack))
    given = read_sockets(environ("listen"), FIRST)
    given.close()
    close_all([given.listen])
    assert [each.fileno() for each in given.listen] == [-1]


# -- the shipped units ----------------------------------------------------------------------------

UNITS = Path(__file__).parents[2] / "systemd"


def unit(name: str) -> ConfigParser:
    read = ConfigParser(interpolation=None, strict=False)
    read.optionxform = str  # type: ignore[assignment,method-assign] # small and capital letters
    read.read_string((UNITS / name).read_text())
    return read


def test_the_service() -> None:
    """Its command line is valid, and systemd waits for the gateway's message."""
    service = unit("gateway.service")["Service"]
    program, command, *words = service["ExecStart"].split()
    assert (Path(program).name, command, service["Type"]) == ("gateway", "serve", "notify")
    serve.make_context("serve", words, parent=click.Context(cli, **cli.context_settings))
    # Otherwise systemd would end the private Redis before the workers that use it.
    assert service["KillMode"] == "mixed"


@pytest.mark.parametrize("name", ["gateway.socket", "gateway-admin.socket"])
def test_the_sockets(name: str) -> None:
    """Each has a valid name for its purpose, and the service that accepts from it."""
    found = unit(name)["Socket"]
    assert found["FileDescriptorName"] == ("admin" if "admin" in name else "listen")
    assert found["Service"] == "gateway.service"
    assert name in unit("gateway.service")["Unit"]["Requires"].split()
