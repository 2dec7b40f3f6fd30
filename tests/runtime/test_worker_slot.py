"""A slot always has a worker, however its workers end, until it is stopped."""

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
from gateway.runtime import worker_slot as module
from gateway.runtime.channel import PolicyLoaded, Reload, Report, Start
from gateway.runtime.settings import CannotStart, Settings
from gateway.runtime.worker_slot import TABLE, SlotCallbacks, SlotEvent, SlotState, WorkerSlot, step
from tests.kit.eventually import eventually
from tests.kit.policies import write_policies


class Scene:
    """One slot, and the calls of its callbacks."""

    def __init__(self, folder: Path) -> None:
        policies = write_policies(folder / "policies", "http://127.0.0.1:9")
        self._start = Start(Settings(policies), (), load(policies), None, "info")
        self.changes: list[bool] = []
        self.heard: list[Report | PolicyLoaded] = []
        self.ended = 0
        self.slot: WorkerSlot

    def open(self, *command: str) -> WorkerSlot:
        def changed() -> None:
            self.changes.append(self.slot.is_serving)

        def ended(_: WorkerSlot) -> None:
            self.ended += 1

        callbacks = SlotCallbacks(
            command, lambda _: self._start, lambda _, word: self.heard.append(word), changed, ended
        )
        self.slot = WorkerSlot(0, callbacks)
        return self.slot

    def worker(self, how: str) -> WorkerSlot:
        return self.open(sys.executable, "-m", "tests.runtime.fake_worker", how)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.slot.stop_now()
    await scene.slot.stop()


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_worker_serves_until_told_to_end(scene: Scene) -> None:
    """A worker starts, answers and ends when told to; it is not restarted."""
    slot = scene.worker("serve")
    await slot.start()
    assert slot.is_serving
    pid = slot.pid
    assert pid is not None
    asked = slot.request_report()
    assert asked is not None
    async with asyncio.timeout(20):
        await asked
    assert slot.report is not None
    assert not slot.is_silent
    await slot.stop()
    await slot.stop()
    assert (slot.pid, slot.is_serving, slot.restarts) == (None, False, 0)
    assert slot.request_report() is None
    assert not lives(pid)
    assert scene.changes == [True, False]
    assert scene.ended == 1


async def test_a_killed_worker_is_replaced(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The log says which one, how it ended, and when another starts."""
    slot = scene.worker("serve")
    await slot.start()
    pid = slot.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: slot.state is SlotState.LOST, "it is noticed")
    await eventually(lambda: slot.is_serving, "another serves")
    assert slot.pid != pid
    assert slot.restarts == 1
    assert scene.changes == [True, False, True]
    (line,) = caplog.messages
    assert line == f"worker 0 (pid {pid}) was ended by SIGKILL; restarting now"


async def test_a_worker_that_refuses_is_not_tried_again(scene: Scene) -> None:
    """Its reason is that of the gateway's failed start."""
    slot = scene.worker("refuse")
    with pytest.raises(CannotStart, match="--store: nobody is there"):
        await slot.start()
    assert slot.restarts == 0


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
    """Without a message from it, its exit status is reported."""
    with pytest.raises(CannotStart, match=words):
        await scene.open(*command).start()


@pytest.mark.parametrize("how", ["deaf", "hang-up"])
async def test_a_worker_that_does_not_end_is_killed(
    scene: Scene, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that ignores all orders, or continues without its channel, is killed."""
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    monkeypatch.setattr(child, "GONE_S", 0.2)
    slot = scene.worker(how)
    await slot.start()
    pid = slot.pid
    assert pid is not None
    await slot.stop()
    assert not lives(pid)


async def test_a_worker_with_invalid_messages_is_replaced(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A slot never stays empty, whatever goes wrong with a worker."""
    monkeypatch.setattr(child, "GONE_S", 0.2)
    slot = scene.worker("odd")
    await slot.start()
    await eventually(lambda: slot.restarts >= 1, "another is started")
    assert "was abandoned; restarting now" in caplog.text


async def test_a_silent_worker_gets_no_more_requests(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests do not accumulate for a worker that hangs; it answers when it continues."""
    slot = scene.worker("serve")
    await slot.start()
    assert slot.pid is not None
    await eventually(lambda: slot.report is not None, "it has answered")
    os.kill(slot.pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr(module, "SILENT_S", 0.0)
        asked = [slot.request_report() for _ in range(module.MOST_REPORT_WAITERS + 5)]
        assert asked[-1] is None
        assert slot.is_silent
        unanswered = [each for each in asked if each is not None]
    finally:
        os.kill(slot.pid, signal.SIGCONT)
    await asyncio.wait(unanswered, timeout=20)
    assert all(each.done() for each in unanswered)
    monkeypatch.undo()
    assert not slot.is_silent


async def test_a_worker_that_hangs_is_replaced(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Silent for half a minute of checks, it is killed; one that answered meanwhile is not."""
    slot = scene.worker("serve")
    await slot.start()
    first = slot.pid
    for _ in range(module.MOST_MISSED_CHECKS * 2):
        slot.check()
        if (asked := slot.request_report()) is not None:
            await asked
    assert slot.pid == first
    for _ in range(module.MOST_MISSED_CHECKS * 2):
        slot.check()
    await eventually(lambda: slot.is_serving and slot.pid != first, "another serves")
    assert f"worker 0 (pid {first}) has been silent for more than 30 s; killing it" in caplog.text
    assert caplog.text.count("killing it") == 1


async def test_a_worker_that_hangs_at_the_start_is_killed(scene: Scene) -> None:
    """A gateway that cannot start fails, instead of waiting forever."""
    slot = scene.open(sys.executable, "-c", "import time; time.sleep(60)")
    starting = asyncio.gather(slot.start())
    await eventually(lambda: slot.pid is not None, "it was launched")
    for _ in range(module.MOST_MISSED_CHECKS):
        slot.check()
    with pytest.raises(CannotStart, match="worker 0 was ended by SIGKILL"):
        await starting


async def test_a_worker_that_reads_nothing_blocks_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unsent messages are dropped with it, whatever their size."""
    monkeypatch.setattr(child, "GONE_S", 0.2)
    slot = scene.worker("deaf-odd")
    await slot.start()
    assert slot.pid is not None
    for _ in range(20_000):
        slot.send(Reload())
    os.kill(slot.pid, signal.SIGUSR1)
    await eventually(lambda: slot.restarts >= 1, "another is started")


async def test_an_ended_worker_ends_the_wait_for_it(scene: Scene) -> None:
    """A scrape continues at once without its answer."""
    slot = scene.worker("serve")
    await slot.start()
    assert slot.pid is not None
    os.kill(slot.pid, signal.SIGSTOP)
    asked = slot.request_report()
    assert asked is not None
    os.kill(slot.pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        await asked


async def test_an_end_comes_before_a_restart(scene: Scene) -> None:
    """While it waits to start another worker, a slot can be stopped."""
    slot = scene.worker("serve")
    await slot.start()
    for _ in range(6):
        await eventually(lambda: slot.is_serving, "one serves")
        assert slot.pid is not None
        os.kill(slot.pid, signal.SIGKILL)
        await eventually(lambda: not slot.is_serving, "it is dead")
        if scene.ended >= 4:
            break
    await slot.stop()
    assert slot.pid is None


@pytest.mark.parametrize(
    ("state", "serves", "leaves"),
    [
        (SlotState.STARTING, SlotState.SERVING, SlotState.STARTING),
        (SlotState.SERVING, None, SlotState.LOST),
        (SlotState.LOST, SlotState.SERVING, SlotState.LOST),
    ],
)
def test_states(state: SlotState, serves: SlotState | None, leaves: SlotState) -> None:
    """A slot is lost from a serving worker's end until another serves; not before the first."""
    assert TABLE.get((state, SlotEvent.SERVES)) is serves
    assert step(state, SlotEvent.LEAVES) is leaves


def test_an_impossible_transition() -> None:
    """A worker reports once that it serves."""
    with pytest.raises(ValueError, match="no transition from serving: it started to accept"):
        step(SlotState.SERVING, SlotEvent.SERVES)
