"""Expensive answers, made once for all requests that wait for them.

A scrape asks every worker for its counts and renders them, which takes most of a second with a
thousand routes in use. A readiness probe asks every worker, too. A scrape gets an answer that was
made after it arrived, so it is not stale. Between two rounds there is a pause, nine times as long
as the round took, and at most one second. So a flood of requests costs a tenth of a core, or one
round a second. A single request, after a pause, is answered immediately.

A readiness probe has a deadline, often of one second, and is repeated soon. So probes do not wait
for the end of a long pause: they get the answer of the round before it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

from gateway import tasks

#: The pause after a round, as a multiple of its duration, and its maximum.
PAUSE: Final = 9.0
LONGEST_PAUSE_S: Final = 1.0

_Kind = TypeVar("_Kind", bound=Hashable)
_Made = TypeVar("_Made")


class Rounds(Generic[_Kind, _Made]):
    """Makes answers of a few kinds. A round makes one of each kind that requests wait for.

    make:          makes an answer of a kind; its exceptions go to all requests for that kind
    stale_after_s: in a longer pause, requests get the answers of the round before it
    """

    def __init__(
        self, make: Callable[[_Kind], Awaitable[_Made]], stale_after_s: float = math.inf
    ) -> None:
        self._make = make
        self._stale_after_s = stale_after_s
        #: The answers of the last round, while a long pause lasts.
        self._made: dict[_Kind, _Made] = {}
        self._waiting: dict[_Kind, asyncio.Future[_Made]] = {}
        self._round: asyncio.Task[None] | None = None

    async def get(self, kind: _Kind) -> _Made:
        """An answer that is made after this call, or was made in the round before a long pause."""
        if kind in self._made:
            return self._made[kind]
        if kind not in self._waiting:
            self._waiting[kind] = asyncio.get_running_loop().create_future()
        waited_for = self._waiting[kind]
        if self._round is None:
            self._round = tasks.spawn(self._run(), "rounds")
        return await asyncio.shield(waited_for)

    async def _run(self) -> None:
        """Run rounds until no request waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                started_s = loop.time()
                for kind, future in waiting.items():
                    await self._make_answer(kind, future)
                took_s = loop.time() - started_s
                await self._pause(min(PAUSE * took_s, LONGEST_PAUSE_S), waiting)
        finally:
            self._round = None

    async def _pause(self, pause_s: float, last: Mapping[_Kind, asyncio.Future[_Made]]) -> None:
        if pause_s > self._stale_after_s:
            self._made = {
                kind: future.result() for kind, future in last.items() if future.exception() is None
            }
            for kind in self._made.keys() & self._waiting.keys():
                self._waiting.pop(kind).set_result(self._made[kind])
        try:
            await asyncio.sleep(pause_s)
        finally:
            self._made = {}

    async def _make_answer(self, kind: _Kind, future: asyncio.Future[_Made]) -> None:
        try:
            future.set_result(await self._make(kind))
        except Exception as error:
            future.set_exception(error)
            # Marks it as retrieved: all requests for it may have been cancelled.
            future.exception()
