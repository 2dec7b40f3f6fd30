"""Tasks are kept until they end, and a crash is seen."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from contextlib import suppress

import pytest

from gateway import tasks
from gateway.tasks import cancellable, spawn


async def test_a_task_has_its_result_and_name() -> None:
    """A spawned task is an ordinary one: awaiting it returns the coroutine's result."""

    async def work() -> int:
        return 7

    task = spawn(work(), "adder")
    assert task.get_name() == "adder"
    assert await task == 7


async def test_a_task_without_references_survives() -> None:
    """Garbage collection does not remove a waiting task."""
    done = asyncio.Event()

    class Turnstile:
        """Only the waiting task refers to it, and it to what the task waits for."""

        def __init__(self) -> None:
            self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    turnstiles: list[weakref.ref[Turnstile]] = []

    async def work() -> None:
        turnstile = Turnstile()
        turnstiles.append(weakref.ref(turnstile))
        await turnstile.opened
        done.set()

    spawn(work(), "waiter")
    await asyncio.sleep(0)
    gc.collect()
    turnstile = turnstiles[0]()
    assert turnstile is not None
    turnstile.opened.set_result(None)
    await asyncio.wait_for(done.wait(), 10)


async def test_a_crash_is_logged_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    """One line names the task, with the traceback; awaiting it raises the error as well."""

    async def work() -> None:
        raise RuntimeError("broken pump")

    with pytest.raises(RuntimeError, match="broken pump"):
        await spawn(work(), "pump")
    (record,) = [found for found in caplog.records if found.name == "gateway.tasks"]
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "task pump crashed"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "broken pump"


async def test_cancellation_is_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    """A cancelled task ends as cancelled, and nothing is logged."""
    task = spawn(asyncio.sleep(3600), "sleeper")
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert caplog.records == []


async def test_an_ended_task_is_released() -> None:
    """Nothing is kept of a task once it is over, however it ended."""

    async def fail() -> None:
        raise ValueError

    ended = [spawn(asyncio.sleep(0), "fine"), spawn(fail(), "bad"), spawn(asyncio.sleep(9), "off")]
    ended[2].cancel()
    await asyncio.gather(*ended, return_exceptions=True)
    assert not tasks._running & set(ended)


async def test_ended_tasks_have_ended() -> None:
    """`end` cancels each task and waits until it has cleaned up; nothing was started: no wait."""
    cleaned = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(name)

    working = [spawn(work(name), name) for name in ("a", "b")]
    await asyncio.sleep(0)
    await tasks.end(*working, None)
    assert cleaned == ["a", "b"]
    assert all(task.cancelled() for task in working)
    await tasks.end()
    await tasks.end(None)


async def _losing() -> None:
    """Lose a cancellation, as `asyncio.wait_for` does in Python 3.11."""
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


async def test_a_lost_cancellation_is_raised_again() -> None:
    """A task that is cancelled in such code ends there, whatever it had to do next."""

    @cancellable()
    async def work() -> None:
        await _losing()

    went_on = []

    async def run() -> None:
        await work()
        went_on.append(True)

    task = spawn(run(), "losing")
    await asyncio.sleep(0)
    await tasks.end(task)
    assert task.cancelled()
    assert went_on == []


async def test_what_is_done_after_a_cancellation_is_not_cancelled_by_it() -> None:
    """A cancelled task can still clean up with code that is marked so."""
    cleaned = []

    @cancellable()
    async def clean() -> None:
        await asyncio.sleep(0)
        cleaned.append(True)

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await clean()

    task = spawn(work(), "cleaning")
    await asyncio.sleep(0)
    await tasks.end(task)
    assert cleaned == [True]


async def test_a_lost_deadline_is_raised_again() -> None:
    """The cancellation of `asyncio.timeout` is not lost either."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), cancellable():
            await _losing()
