"""The one place that starts tasks.

The event loop holds tasks only weakly: one without another reference can be collected while it
runs, and one that is not awaited fails silently. Here a task is kept until it ends, and a crash is
logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_running: Final[set[asyncio.Task[Any]]] = set()


def spawn(coro: Coroutine[Any, Any, _Result], name: str) -> asyncio.Task[_Result]:
    """Run a coroutine as a task of the running loop. It can be awaited or cancelled as usual."""
    task = asyncio.get_running_loop().create_task(coro, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def keep_running(stack: AsyncExitStack, coro: Coroutine[Any, Any, None], name: str) -> None:
    """Run a coroutine as a task that is cancelled when the stack is closed."""
    stack.push_async_callback(end, spawn(coro, name))


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks, and return when they have ended. None: never started."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    if started:
        await asyncio.wait(started)


@asynccontextmanager
async def cancellable() -> AsyncIterator[None]:
    """Raise CancelledError where the code inside has lost a cancellation.

    `asyncio.wait_for`, which redis-py and dnspython use, loses one that arrives together with the
    result in Python 3.11. A task that is cancelled then goes on, and `end` waits for ever.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        yield
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if task.cancelled():
        return
    if (error := task.exception()) is not None:
        _log.error("task %s crashed", task.get_name(), exc_info=error)
