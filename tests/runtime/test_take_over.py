"""Both ends of a hand-over, and what an end of another version or another user meets."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gateway.runtime import handover as module
from gateway.runtime.handover import (
    HandoverFailed,
    HandoverServer,
    Predecessor,
    handover_path,
    running_pid,
)
from gateway.runtime.sockets import InheritedSockets, bind, close_all, distinct
from tests.kit.eventually import eventually


class Scene:
    """A gateway that offers its sockets: two for clients, one of its admin side."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ("a folder of no small name " * 8) / "take-over.sock"
        sockets = distinct((*bind("127.0.0.1", 0, 2), *bind("127.0.0.1", 0, 1)))
        self.sockets = InheritedSockets(sockets[:2], sockets[2:], "127.0.0.1:9901")
        self.taken_over_by: list[int] = []
        self.server = HandoverServer(self.path, self.sockets, self.taken_over_by.append)

    def dial(self) -> socket.socket:
        """A connection of whoever does not keep to the rules."""
        end = module._connect(self.path)
        assert end is not None
        return end

    async def said_to(self, message: object) -> dict[str, object]:
        """The answer to a first message."""

        def ask() -> dict[str, object]:
            with suppress(ConnectionError), self.dial() as end:
                end.send(json.dumps(message).encode())
                return json.loads(end.recv(1000) or b"{}")
            return {}

        return await asyncio.to_thread(ask)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    scene.server.open()
    yield scene
    await scene.server.close()
    scene.sockets.close()


async def found(scene: Scene) -> Predecessor:
    predecessor = await asyncio.to_thread(Predecessor.find, scene.path)
    assert predecessor is not None
    return predecessor


def leave(predecessor: Predecessor) -> None:
    """Fail as a successor."""
    predecessor.sockets.close()
    predecessor.close()


async def goes_on(scene: Scene) -> None:
    """It still gives its sockets to whoever asks."""
    leave(await found(scene))
    assert scene.taken_over_by == []


async def test_the_very_sockets_change_hands(scene: Scene) -> None:
    """They are the same, with who waits in them; and are offered no more once the other serves."""
    predecessor = await found(scene)
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


async def test_many_sockets(tmp_path: Path) -> None:
    """More than one message of the kernel's can carry."""
    sockets = distinct(bind("127.0.0.1", 0, 300))
    server = HandoverServer(tmp_path / "take-over.sock", InheritedSockets(sockets), lambda _: None)
    server.open()
    predecessor = await asyncio.to_thread(Predecessor.find, tmp_path / "take-over.sock")
    assert predecessor is not None
    assert len(predecessor.sockets.listen) == 300
    close_all([sockets, predecessor.sockets.listen])
    predecessor.close()
    await server.close()


async def test_a_successor_that_fails(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Who has the sockets and hangs up changes nothing: the next one gets them."""
    for _ in range(2):
        predecessor = await found(scene)
        leave(predecessor)
        await eventually(lambda: "nothing changes here" in caplog.text, "it is noticed")
        caplog.clear()
    assert scene.taken_over_by == []


async def test_a_successor_that_dies_in_the_last_moment(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """One that says that it serves, and is dead before it is answered, has not taken over."""
    predecessor = await found(scene)
    predecessor.sockets.close()
    module._send(predecessor._end, {"serving": True})
    predecessor.close()
    await eventually(lambda: "nothing changes here" in caplog.text, "it is noticed")
    await goes_on(scene)


async def test_a_successor_that_hangs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps its place for so long, and must not serve when it wakes up after that."""
    monkeypatch.setattr(module, "SERVING_S", 0.1)
    hanging = await found(scene)
    await eventually(lambda: scene.server._successor is None, "its place is free again")
    assert f"take-over by pid {os.getpid()} failed: it did not serve within 0.1 s" in caplog.text
    monkeypatch.setattr(module, "SERVING_S", 20.0)
    other = await found(scene)
    await asyncio.to_thread(other.complete)
    assert len(scene.taken_over_by) == 1
    with pytest.raises(HandoverFailed, match="refuses: it waited"):
        await asyncio.to_thread(hanging.complete)
    hanging.sockets.close()
    other.sockets.close()
    assert len(scene.taken_over_by) == 1


async def test_a_successor_that_serves_at_the_last_moment(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has said before it was given up is heard: one of the two serves, never none."""
    monkeypatch.setattr(module, "SERVING_S", 0.0)
    with scene.dial() as end:
        end.send(b'{"version": 1}')
        end.send(b'{"serving": true}')
        await eventually(lambda: scene.taken_over_by == [os.getpid()], "it is heard")
        leave(Predecessor(end))


async def test_one_at_a_time(scene: Scene) -> None:
    """While one has the sockets and does not serve yet, the next is refused, and told by whom."""
    predecessor = await found(scene)
    with pytest.raises(HandoverFailed, match=f"another process is taking over .pid {os.getpid()}."):
        await found(scene)
    leave(predecessor)


@pytest.mark.parametrize("message", [{"version": 2}, {}, {"version": "1", "more": 1}])
async def test_another_version(scene: Scene, message: object) -> None:
    """What is not understood is refused in words, not guessed at."""
    answer = await scene.said_to(message)
    assert str(answer["refused"]).endswith("expected version 1")


async def test_members_of_a_later_version(scene: Scene) -> None:
    """What an end does not know it ignores, both ways."""
    assert "admin" in await scene.said_to({"version": 1, "since": 2})


@pytest.mark.parametrize("message", [[], "?", 1])
async def test_nonsense(scene: Scene, message: object, caplog: pytest.LogCaptureFixture) -> None:
    """Who talks nonsense is hung up on, and the offer stands."""
    assert await scene.said_to(message) == {}
    assert "no JSON object" in caplog.text
    await goes_on(scene)


async def test_who_says_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that connects and is silent is in nobody's way, and is hung up on."""
    monkeypatch.setattr(module, "ANSWER_S", 0.1)
    with scene.dial() as silent:
        silent.settimeout(20)
        assert await asyncio.to_thread(silent.recv, 100) == b""
    await goes_on(scene)


async def test_a_question_is_no_take_over(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Whether a gateway is there can be asked without a trace in its log."""
    assert await asyncio.to_thread(running_pid, scene.path) == os.getpid()
    await goes_on(scene)
    assert "refused" not in caplog.text
    await scene.server.close()
    assert running_pid(scene.path) is None


async def test_only_the_same_user(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is for nobody else, and both ends look who is there."""
    found = scene.path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    monkeypatch.setattr(module.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(HandoverFailed, match="found a process of user"):
        await asyncio.to_thread(Predecessor.find, scene.path)
    assert await scene.said_to({"version": 1}) == {}


@contextmanager
def played(path: Path) -> Iterator[socket.socket]:
    """A predecessor that a test plays."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        yield listening


async def test_nobody_is_there(tmp_path: Path) -> None:
    """No folder, no file, a file that a dead one left, or one that dies at once: nobody."""
    path = tmp_path / "take-over.sock"
    assert Predecessor.find(tmp_path / "no" / "folder") is None
    assert Predecessor.find(path) is None
    with played(path) as left:
        finding = asyncio.create_task(asyncio.to_thread(Predecessor.find, path))
        (await asyncio.to_thread(left.accept))[0].close()
        assert await finding is None
    assert Predecessor.find(path) is None


async def test_what_a_dead_one_left_is_replaced(scene: Scene, tmp_path: Path) -> None:
    """A file without a process behind it keeps nobody from offering."""
    path = tmp_path / "take-over.sock"
    with played(path):
        pass
    server = HandoverServer(path, scene.sockets, lambda _: None)
    server.open()
    assert running_pid(path) == os.getpid()
    await server.close()
    await server.close()


async def test_only_its_own_file_is_removed(scene: Scene) -> None:
    """One that ends late leaves the file of the gateway that has its address by now."""
    later = HandoverServer(scene.path, scene.sockets, lambda _: None)
    later.open()
    await scene.server.close()
    await goes_on(scene)
    await later.close()
    assert not scene.path.exists()


async def test_what_is_closed_is_not_handed_over(scene: Scene) -> None:
    """A gateway that drains listens to no clients, and its admin side still does."""
    close_all([scene.sockets.listen])
    predecessor = await found(scene)
    assert predecessor.sockets.listen == ()
    assert len(predecessor.sockets.admin) == 1
    leave(predecessor)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"refused": "not today"}', "refuses: not today"),
        (b"?", "no JSON object"),
        (b"", "no answer within 0.2 s"),
    ],
)
async def test_a_predecessor_that_does_not_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, words: str
) -> None:
    """The successor says why, and where."""
    monkeypatch.setattr(module, "ANSWER_S", 0.2 if answer == b"" else 20.0)
    path = tmp_path / "take-over.sock"
    with played(path) as listening:
        finding = asyncio.create_task(asyncio.to_thread(Predecessor.find, path))
        end, _ = await asyncio.to_thread(listening.accept)
        with end:
            if answer:
                end.send(answer)
            with pytest.raises(HandoverFailed, match=words):
                await finding


async def test_a_predecessor_that_dies_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it has given stays good."""
    path = tmp_path / "take-over.sock"
    (sockets,) = bind("127.0.0.1", 0, 1)
    with played(path) as listening:
        finding = asyncio.create_task(asyncio.to_thread(Predecessor.find, path))
        end, _ = await asyncio.to_thread(listening.accept)
        with end:
            assert await asyncio.to_thread(end.recv, 100) == b'{"version": 1}'
            module._send(end, {"listen": True}, sockets)
            module._send(end, {"given": True})
        predecessor = await finding
    assert predecessor is not None
    predecessor.complete()
    assert "has ended meanwhile" in caplog.text
    assert predecessor.sockets.listen[0].getsockname() == sockets[0].getsockname()
    close_all([sockets])
    predecessor.sockets.close()


async def test_a_predecessor_that_hangs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer goes on when it can, so its successor must not."""
    predecessor = await found(scene)
    monkeypatch.setattr(module, "ANSWER_S", 0.1)
    predecessor._end.settimeout(0.1)
    with pytest.raises(HandoverFailed, match=rf"pid {os.getpid()}.: no answer within 0.1 s"):
        predecessor.complete()  # not in a thread: the loop, and with it the offer, stands still
    predecessor.sockets.close()
    await eventually(lambda: scene.server._successor is None, "it has heard of it")
    await goes_on(scene)


async def test_a_word_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A predecessor that leaves just when its successor gives up on it has left: one serves."""
    path, receive = tmp_path / "take-over.sock", module._receive
    with played(path) as listening:
        successor = module._connect(path)
        assert successor is not None
        end, _ = listening.accept()
        late = [TimeoutError()]

        def patience_ends(receiving: socket.socket) -> object:
            if late:
                module._send(end, {"left": True})
                raise late.pop()
            return receive(receiving)

        monkeypatch.setattr(module, "_receive", patience_ends)
        with end:
            Predecessor(successor).complete()


async def test_no_word_after_the_last_moment(tmp_path: Path) -> None:
    """A predecessor that was given up on cannot say that it leaves, so it knows that it must not.

    One that has died by then is not waited for.
    """
    path = tmp_path / "take-over.sock"
    with played(path) as listening:
        successor = module._connect(path)
        assert successor is not None
        successor.settimeout(0.05)
        end, _ = listening.accept()
        with end, successor:
            with pytest.raises(TimeoutError):
                module._wait_until_left(successor)
            with pytest.raises(BrokenPipeError):
                module._send(end, {"left": True})
            end.close()
            with pytest.raises((EOFError, ConnectionError)):
                module._wait_until_left(successor)


async def test_a_folder_that_others_may_write(scene: Scene) -> None:
    """They could put a link to another gateway there: nobody is looked for, and nobody listens."""
    folder = scene.path.parent
    folder.chmod(0o777)
    with pytest.raises(HandoverFailed, match="other users may write to it"):
        Predecessor.find(scene.path)
    assert running_pid(scene.path) is None
    with pytest.raises(OSError, match="other users may write to it"):
        HandoverServer(folder / "other.sock", scene.sockets, lambda _: None).open()
    folder.chmod(0o700)
    await goes_on(scene)


async def test_no_descriptor_is_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever cannot be accepted just now is accepted later."""
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
    await goes_on(scene)
    assert caplog.text.count("cannot be accepted: Too many open files") == 2


def test_the_path_names_the_address(tmp_path: Path) -> None:
    """Gateways at several addresses may share a folder, whatever their hosts are called."""
    names = [handover_path(tmp_path, host, 80).name for host in ("127.0.0.1", "::1", "a/../b")]
    assert names == [
        "take-over-127.0.0.1:80.sock",
        "take-over-[::1]:80.sock",
        "take-over-a%2F..%2Fb:80.sock",
    ]
