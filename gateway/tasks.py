"""The one place that starts tasks.

The event loop holds tasks only weakly: one without another reference can be collected while it
runs, and one that is not awaited fails silently. Here a task is kept until it ends, and a crash is
logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
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
    task = spawn(coro, name)

    async def end() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(end)


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if task.cancelled():
        return
    if (error := task.exception()) is not None:
        _log.error("task %s crashed", task.get_name(), exc_info=error)
