"""A place always has a worker, however its workers end; and it is left when it is told to end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.policies.load import load
from gateway.runtime import child
from gateway.runtime import place as module
from gateway.runtime.channel import Reload, Report, Start, TookUp
from gateway.runtime.place import Employer, Place
from gateway.runtime.settings import CannotStart, Settings
from tests.kit.eventually import eventually
from tests.kit.policies import write_policies


class Scene:
    """One place, and what it told its employer."""

    def __init__(self, folder: Path) -> None:
        policies = write_policies(folder / "policies", "http://127.0.0.1:9")
        self._start = Start(Settings(policies), (), load(policies), None, "info")
        self.changes: list[bool] = []
        self.heard: list[Report | TookUp] = []
        self.ended = 0
        self.place: Place

    def open(self, *command: str) -> Place:
        def changed() -> None:
            self.changes.append(self.place.is_serving)

        def ended(_: Place) -> None:
            self.ended += 1

        employer = Employer(
            command, lambda _: self._start, lambda _, word: self.heard.append(word), changed, ended
        )
        self.place = Place(0, employer)
        return self.place

    def worker(self, how: str) -> Place:
        return self.open(sys.executable, "-m", "tests.runtime.fake_worker", how)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.place.hurry()
    await scene.place.stop()


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_worker_serves_until_told_to_end(scene: Scene) -> None:
    """It started, it was asked, it ended; and nothing was restarted."""
    place = scene.worker("serve")
    await place.start()
    assert place.is_serving
    pid = place.pid
    assert pid is not None
    asked = place.ask()
    assert asked is not None
    async with asyncio.timeout(20):
        await asked
    assert place.report is not None
    assert not place.is_silent
    await place.stop()
    await place.stop()
    assert (place.pid, place.is_serving, place.restarts) == (None, False, 0)
    assert place.ask() is None
    assert not lives(pid)
    assert scene.changes == [True, False]
    assert scene.ended == 1


async def test_a_killed_worker_is_replaced(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The log says which one, how it ended, and when another starts."""
    place = scene.worker("serve")
    await place.start()
    pid = place.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: place.was_lost, "it is noticed")
    await eventually(lambda: place.is_serving, "another serves")
    assert place.pid != pid
    assert place.restarts == 1
    assert scene.changes == [True, False, True]
    (line,) = caplog.messages
    assert line == f"worker 0 (pid {pid}) was ended by SIGKILL; another starts at once"


async def test_a_worker_that_refuses_is_not_tried_again(scene: Scene) -> None:
    """At the start of a gateway its reason is the gateway's."""
    place = scene.worker("refuse")
    with pytest.raises(CannotStart, match="--store: nobody is there"):
        await place.start()
    assert place.restarts == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((sys.executable, "-c", "raise SystemExit(3)"), "worker 0 ended with status 3"),
        ((sys.executable, "-c", "import os; os.abort()"), "worker 0 was ended by SIGABRT"),
        (("/nowhere/python",), "worker 0 could not be started: No such file or directory"),
    ],
)
async def test_a_worker_that_never_served(
    scene: Scene, command: tuple[str, ...], words: str
) -> None:
    """Without a word of its own, the way it ended is told."""
    with pytest.raises(CannotStart, match=words):
        await scene.open(*command).start()


@pytest.mark.parametrize("how", ["deaf", "hang-up"])
async def test_a_worker_that_does_not_end_is_killed(
    scene: Scene, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that hears nothing, nor one that lives on without its channel, stays."""
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    monkeypatch.setattr(child, "GONE_S", 0.2)
    place = scene.worker(how)
    await place.start()
    pid = place.pid
    assert pid is not None
    await place.stop()
    assert not lives(pid)


async def test_a_worker_nobody_understands_is_replaced(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A place is never left empty for good, whatever goes wrong with a worker."""
    monkeypatch.setattr(child, "GONE_S", 0.2)
    place = scene.worker("odd")
    await place.start()
    await eventually(lambda: place.restarts >= 1, "another is started")
    assert "was given up; another starts at once" in caplog.text


async def test_a_silent_worker_is_asked_no_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions do not pile up for one that does not move; it answers when it moves again."""
    place = scene.worker("serve")
    await place.start()
    assert place.pid is not None
    await eventually(lambda: place.report is not None, "it has answered")
    os.kill(place.pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr(module, "SILENT_S", 0.0)
        asked = [place.ask() for _ in range(module.MOST_ASKED + 5)]
        assert asked[-1] is None
        assert place.is_silent
        unanswered = [each for each in asked if each is not None]
    finally:
        os.kill(place.pid, signal.SIGCONT)
    await asyncio.wait(unanswered, timeout=20)
    assert all(each.done() for each in unanswered)
    monkeypatch.undo()
    assert not place.is_silent


async def test_a_worker_that_hangs_is_replaced(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Silent for half a minute of checks, it is killed; one that spoke meanwhile is not."""
    place = scene.worker("serve")
    await place.start()
    first = place.pid
    for _ in range(module.MOST_MISSED * 2):
        place.check()
        if (asked := place.ask()) is not None:
            await asked
    assert place.pid == first
    for _ in range(module.MOST_MISSED * 2):
        place.check()
    await eventually(lambda: place.is_serving and place.pid != first, "another serves")
    assert f"worker 0 (pid {first}) has been silent for more than 30 s, it is killed" in caplog.text
    assert caplog.text.count("it is killed") == 1


async def test_a_worker_that_hangs_at_the_start_is_given_up(scene: Scene) -> None:
    """A gateway that cannot start says so, instead of waiting for ever."""
    place = scene.open(sys.executable, "-c", "import time; time.sleep(60)")
    starting = asyncio.gather(place.start())
    await eventually(lambda: place.pid is not None, "it was launched")
    for _ in range(module.MOST_MISSED):
        place.check()
    with pytest.raises(CannotStart, match="worker 0 was ended by SIGKILL"):
        await starting


async def test_a_worker_that_reads_nothing_holds_up_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was still to be told is dropped with it, however much that is."""
    monkeypatch.setattr(child, "GONE_S", 0.2)
    place = scene.worker("deaf-odd")
    await place.start()
    assert place.pid is not None
    for _ in range(20_000):
        place.send(Reload())
    os.kill(place.pid, signal.SIGUSR1)
    await eventually(lambda: place.restarts >= 1, "another is started")


async def test_who_waits_for_a_dead_worker_waits_no_longer(scene: Scene) -> None:
    """A scrape goes on without its answer at once."""
    place = scene.worker("serve")
    await place.start()
    assert place.pid is not None
    os.kill(place.pid, signal.SIGSTOP)
    asked = place.ask()
    assert asked is not None
    os.kill(place.pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        await asked


async def test_an_end_comes_before_a_restart(scene: Scene) -> None:
    """While it waits to start another, a place can be left."""
    place = scene.worker("serve")
    await place.start()
    for _ in range(6):
        await eventually(lambda: place.is_serving, "one serves")
        assert place.pid is not None
        os.kill(place.pid, signal.SIGKILL)
        await eventually(lambda: not place.is_serving, "it is dead")
        if scene.ended >= 4:
            break
    await place.stop()
    assert place.pid is None
