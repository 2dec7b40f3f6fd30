"""The running gateway's side of a take-over."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest

from gateway.runtime import take_over
from gateway.runtime import take_over_server as module
from gateway.runtime.predecessor import Predecessor, running_pid
from gateway.runtime.sockets import close_all
from gateway.runtime.take_over import TakeOverFailed, send
from gateway.runtime.take_over_server import TakeOverServer
from tests.kit.eventually import eventually
from tests.kit.take_over import (
    Scene,
    check_still_offering,
    fail_as_successor,
    fake_predecessor,
    find_predecessor,
)


async def test_the_same_sockets_are_passed(scene: Scene) -> None:
    """They are the same, with waiting connections; the offer ends once the other serves."""
    predecessor = await find_predecessor(scene)
    given, own = predecessor.sockets, scene.sockets
    assert predecessor.pid == os.getpid()
    assert given.admin_address == "127.0.0.1:9901"
    for ours, theirs in ((own.listen, given.listen), (own.admin, given.admin)):
        assert [os.fstat(one.fileno()).st_ino for one in ours] == [
            os.fstat(one.fileno()).st_ino for one in theirs
        ]
    assert not any(one.get_inheritable() for one in (*given.listen, *given.admin))
    assert scene.taken_over_by == []
    await asyncio.to_thread(predecessor.complete)
    assert scene.taken_over_by == [os.getpid()]
    assert not scene.path.exists()
    given.close()


async def test_a_successor_that_fails(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A successor that gets the sockets and closes changes nothing: the next one gets them."""
    for _ in range(2):
        predecessor = await find_predecessor(scene)
        fail_as_successor(predecessor)
        await eventually(lambda: "this gateway continues" in caplog.text, "it is noticed")
        caplog.clear()
    assert scene.taken_over_by == []


async def test_a_successor_that_ends_at_the_last_moment(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """One that reports that it serves, but ends before it is answered, has not taken over."""
    predecessor = await find_predecessor(scene)
    predecessor.sockets.close()
    send(predecessor._end, {"serving": True})
    predecessor.close()
    await eventually(lambda: "this gateway continues" in caplog.text, "it is noticed")
    await check_still_offering(scene)


async def test_a_successor_that_hangs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps its turn for a limited time, and must not serve after that."""
    monkeypatch.setattr(module, "SERVING_S", 0.1)
    hanging = await find_predecessor(scene)
    await eventually(lambda: scene.server._successor is None, "its place is free again")
    assert f"take-over by pid {os.getpid()} failed: it did not serve within 0.1 s" in caplog.text
    monkeypatch.setattr(module, "SERVING_S", 20.0)
    other = await find_predecessor(scene)
    await asyncio.to_thread(other.complete)
    assert len(scene.taken_over_by) == 1
    with pytest.raises(TakeOverFailed, match="refuses: this process did not serve within"):
        await asyncio.to_thread(hanging.complete)
    hanging.sockets.close()
    other.sockets.close()
    assert len(scene.taken_over_by) == 1


async def test_a_successor_that_serves_at_the_last_moment(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report sent before the time was up is read: one of the two serves, never none."""
    monkeypatch.setattr(module, "SERVING_S", 0.0)
    with scene.dial() as end:
        end.send(b'{"version": 1}')
        end.send(b'{"serving": true}')
        await eventually(lambda: scene.taken_over_by == [os.getpid()], "it is heard")
        fail_as_successor(Predecessor(end))


async def test_one_at_a_time(scene: Scene) -> None:
    """While one has the sockets and does not serve yet, the next is refused, with the pid."""
    predecessor = await find_predecessor(scene)
    with pytest.raises(TakeOverFailed, match=f"another process is taking over .pid {os.getpid()}."):
        await find_predecessor(scene)
    fail_as_successor(predecessor)


@pytest.mark.parametrize("message", [{"version": 2}, {}, {"version": "1", "more": 1}])
async def test_another_version(scene: Scene, message: object) -> None:
    """An unknown version is refused with a message."""
    answer = await scene.answer_to(message)
    assert str(answer["refused"]).endswith("expected version 1")


@pytest.mark.parametrize("message", [[], "?", 1])
async def test_an_invalid_message(
    scene: Scene, message: object, caplog: pytest.LogCaptureFixture
) -> None:
    """After an invalid message the connection is closed, and the offer continues."""
    assert await scene.answer_to(message) == {}
    assert "not a JSON object" in caplog.text
    await check_still_offering(scene)


async def test_a_silent_connection(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent connection blocks no other, and is closed."""
    monkeypatch.setattr(take_over, "ANSWER_S", 0.1)
    with scene.dial() as silent:
        silent.settimeout(20)
        assert await asyncio.to_thread(silent.recv, 100) == b""
    await check_still_offering(scene)


async def test_a_stale_file_is_replaced(scene: Scene, tmp_path: Path) -> None:
    """A file without a process behind it is replaced."""
    path = tmp_path / "take-over.sock"
    with fake_predecessor(path):
        pass
    server = TakeOverServer(path, scene.sockets, lambda _: None)
    server.open()
    assert running_pid(path) == os.getpid()
    await server.close()
    await server.close()


async def test_only_its_own_file_is_removed(scene: Scene) -> None:
    """One that ends late leaves the file of the gateway that now has its address."""
    later = TakeOverServer(scene.path, scene.sockets, lambda _: None)
    later.open()
    await scene.server.close()
    await check_still_offering(scene)
    await later.close()
    assert not scene.path.exists()


async def test_closed_sockets_are_not_passed(scene: Scene) -> None:
    """A draining gateway does not listen for clients, but its admin listener still does."""
    close_all([scene.sockets.listen])
    predecessor = await find_predecessor(scene)
    assert predecessor.sockets.listen == ()
    assert len(predecessor.sockets.admin) == 1
    fail_as_successor(predecessor)


async def test_no_descriptor_is_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that cannot be accepted now is accepted later."""
    monkeypatch.setattr(module, "_PAUSE_S", 0.01)
    loop = asyncio.get_running_loop()
    accept = loop.sock_accept
    failures = [OSError(errno.EMFILE, "Too many open files")] * 2

    async def fails(listening: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return await accept(listening)

    await scene.server.close()
    monkeypatch.setattr(loop, "sock_accept", fails)
    scene.server.open()
    await check_still_offering(scene)
    assert caplog.text.count("cannot accept a connection: Too many open files") == 2
