"""The successor's side of a take-over."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from gateway.runtime import predecessor as module
from gateway.runtime import take_over
from gateway.runtime.predecessor import Predecessor, connect, running_pid
from gateway.runtime.sockets import bind, close_all
from gateway.runtime.take_over import TakeOverFailed, send
from gateway.runtime.take_over_server import TakeOverServer
from tests.kit.eventually import eventually
from tests.kit.take_over import Scene, check_still_offering, fake_predecessor, find_predecessor


async def test_a_check_is_no_take_over(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A check for a running gateway leaves nothing in its log."""
    assert await asyncio.to_thread(running_pid, scene.path) == os.getpid()
    await check_still_offering(scene)
    assert "refused" not in caplog.text
    await scene.server.close()
    assert running_pid(scene.path) is None


async def test_no_predecessor(tmp_path: Path) -> None:
    """No folder, no file, the file of a process that has ended, or one that ends at once: None."""
    path = tmp_path / "take-over.sock"
    assert Predecessor.find(tmp_path / "no" / "folder") is None
    assert Predecessor.find(path) is None
    with fake_predecessor(path) as left:
        finding = asyncio.create_task(asyncio.to_thread(Predecessor.find, path))
        (await asyncio.to_thread(left.accept))[0].close()
        assert await finding is None
    assert Predecessor.find(path) is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"refused": "not today"}', "refuses: not today"),
        (b"?", "not a JSON object"),
        (b"", "no answer within 0.2 s"),
    ],
)
async def test_a_predecessor_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, words: str
) -> None:
    """The successor's error has the reason and the file."""
    monkeypatch.setattr(take_over, "ANSWER_S", 0.2 if answer == b"" else 20.0)
    path = tmp_path / "take-over.sock"
    with fake_predecessor(path) as listening:
        finding = asyncio.create_task(asyncio.to_thread(Predecessor.find, path))
        end, _ = await asyncio.to_thread(listening.accept)
        with end:
            if answer:
                end.send(answer)
            with pytest.raises(TakeOverFailed, match=words):
                await finding


async def test_a_predecessor_that_ends_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The sockets that it has sent stay usable."""
    path = tmp_path / "take-over.sock"
    (sockets,) = bind("127.0.0.1", 0, 1)
    with fake_predecessor(path) as listening:
        finding = asyncio.create_task(asyncio.to_thread(Predecessor.find, path))
        end, _ = await asyncio.to_thread(listening.accept)
        with end:
            assert await asyncio.to_thread(end.recv, 100) == b'{"version": 1}'
            send(end, {"listen": True}, sockets)
            send(end, {"given": True})
        predecessor = await finding
    assert predecessor is not None
    predecessor.complete()
    assert "has already ended" in caplog.text
    assert predecessor.sockets.listen[0].getsockname() == sockets[0].getsockname()
    close_all([sockets])
    predecessor.sockets.close()


async def test_a_predecessor_that_hangs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer continues later, so its successor must not serve."""
    predecessor = await find_predecessor(scene)
    monkeypatch.setattr(take_over, "ANSWER_S", 0.1)
    predecessor._end.settimeout(0.1)
    with pytest.raises(TakeOverFailed, match=rf"pid {os.getpid()}.: no answer within 0.1 s"):
        predecessor.complete()  # not in a thread: the loop, and with it the offer, is blocked
    predecessor.sockets.close()
    await eventually(lambda: scene.server._successor is None, "it has heard of it")
    await check_still_offering(scene)


async def test_an_answer_at_the_last_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a predecessor leaves just as its successor gives up, it has left: one of them serves."""
    path, receive = tmp_path / "take-over.sock", take_over.receive
    with fake_predecessor(path) as listening:
        successor = connect(path)
        assert successor is not None
        end, _ = listening.accept()
        late = [TimeoutError()]

        def time_out(receiving: socket.socket) -> object:
            if late:
                send(end, {"left": True})
                raise late.pop()
            return receive(receiving)

        monkeypatch.setattr(module, "receive", time_out)
        with end:
            Predecessor(successor).complete()


async def test_no_answer_after_the_last_moment(tmp_path: Path) -> None:
    """A predecessor that its successor gave up on cannot leave, and learns that it must not.

    One that has already ended is not awaited.
    """
    path = tmp_path / "take-over.sock"
    with fake_predecessor(path) as listening:
        successor = connect(path)
        assert successor is not None
        successor.settimeout(0.05)
        end, _ = listening.accept()
        with end, successor:
            with pytest.raises(TimeoutError):
                module._wait_until_left(successor)
            with pytest.raises(BrokenPipeError):
                send(end, {"left": True})
            end.close()
            with pytest.raises((EOFError, ConnectionError)):
                module._wait_until_left(successor)


async def test_a_folder_that_others_may_write(scene: Scene) -> None:
    """Others could put a link to another gateway there: nothing connects, nothing listens."""
    folder = scene.path.parent
    folder.chmod(0o777)
    with pytest.raises(TakeOverFailed, match="other users can write to it"):
        Predecessor.find(scene.path)
    assert running_pid(scene.path) is None
    with pytest.raises(OSError, match="other users can write to it"):
        TakeOverServer(folder / "other.sock", scene.sockets, lambda _: None).open()
    folder.chmod(0o700)
    await check_still_offering(scene)
