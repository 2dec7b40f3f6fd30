"""Event loops for tests: both real kinds, and one whose turns and time the test controls."""

from __future__ import annotations

import asyncio
import functools
import heapq
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
import uvloop

FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_each_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test once on each of them, as two tests; its fixtures are synchronous."""

    @functools.wraps(test)
    def run(*, kind_of_loop: str, **arguments: object) -> None:
        with asyncio.Runner(loop_factory=FACTORIES[kind_of_loop]) as runner:
            runner.run(entered(arguments))

    async def entered(arguments: dict[str, object]) -> None:
        await test(**arguments)

    own = inspect.signature(test)
    kind = inspect.Parameter("kind_of_loop", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), kind])  # type: ignore[attr-defined]
    return pytest.mark.parametrize("kind_of_loop", FACTORIES)(run)


async def run_ready() -> None:
    """Run everything that is ready."""
    for _ in range(10):
        await asyncio.sleep(0)


@dataclass(slots=True)
class Timer:
    """What `ManualLoop.call_later` returns."""

    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualLoop:
    """An event loop that runs nothing by itself, and whose time is a number.

    now_s: the time; `advance` increases it
    """

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self._soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._timers: list[tuple[float, int, Callable[..., object], tuple[Any, ...], Timer]] = []
        self._order = count()

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self._soon.append((callback, arguments))

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        timer = Timer()
        due_s = self.now_s + delay
        heapq.heappush(self._timers, (due_s, next(self._order), callback, arguments, timer))
        return timer

    def run(self) -> int:
        """Run one turn; return the number of callbacks."""
        soon, self._soon = self._soon, []
        for callback, arguments in soon:
            callback(*arguments)
        return len(soon)

    def run_all(self) -> int:
        """Run turns until nothing is ready; return their number."""
        turns = 0
        while self.run():
            turns += 1
        return turns

    def advance(self, seconds: float) -> None:
        """Increase the time; call what is due, each at its time."""
        end_s = self.now_s + seconds
        while self._timers and self._timers[0][0] <= end_s:
            due_s, _, callback, arguments, timer = heapq.heappop(self._timers)
            self.now_s = max(self.now_s, due_s)
            if not timer.is_cancelled:
                callback(*arguments)
        self.now_s = end_s

    @property
    def has_timers(self) -> bool:
        """Is anything due at a later time?"""
        return any(not timer.is_cancelled for *_, timer in self._timers)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within it, this is the running loop."""
        asyncio._set_running_loop(self)  # type: ignore[arg-type]
        try:
            yield
        finally:
            asyncio._set_running_loop(None)
