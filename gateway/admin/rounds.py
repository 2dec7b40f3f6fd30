"""Expensive answers, made once for all requests that wait for them.

A scrape asks every worker for its counts and renders them, which takes most of a second with a
thousand routes in use. A readiness probe asks every worker, too. Each request gets an answer that
was made after it came, so no answer is stale. Between two rounds there is a pause, nine times as
long as the round took, and at most one second. So a flood of requests costs a tenth of a core, or
one round a second. A single request, after a pause, is answered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from gateway import tasks

#: The pause after a round, in times of its duration, and its greatest length.
PAUSE: Final = 9.0
LONGEST_PAUSE_S: Final = 1.0

_Kind = TypeVar("_Kind", bound=Hashable)
_Made = TypeVar("_Made")


class Rounds(Generic[_Kind, _Made]):
    """Makes answers of a few kinds. A round makes one of each kind that is waited for.

    make: makes an answer of a kind; what it raises goes to all requests for that kind
    """

    def __init__(self, make: Callable[[_Kind], Awaitable[_Made]]) -> None:
        self._make = make
        self._waiting: dict[_Kind, asyncio.Future[_Made]] = {}
        self._round: asyncio.Task[None] | None = None

    async def get(self, kind: _Kind) -> _Made:
        """An answer that is made after this call."""
        if kind not in self._waiting:
            self._waiting[kind] = asyncio.get_running_loop().create_future()
        waited_for = self._waiting[kind]
        if self._round is None:
            self._round = tasks.spawn(self._run(), "rounds")
        return await asyncio.shield(waited_for)

    async def _run(self) -> None:
        """Run rounds until nothing is waited for."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                started_s = loop.time()
                for kind, future in waiting.items():
                    await self._settle(kind, future)
                took_s = loop.time() - started_s
                await asyncio.sleep(min(PAUSE * took_s, LONGEST_PAUSE_S))
        finally:
            self._round = None

    async def _settle(self, kind: _Kind, future: asyncio.Future[_Made]) -> None:
        try:
            future.set_result(await self._make(kind))
        except Exception as error:
            future.set_exception(error)
            # Marks it as seen: all requests for it may have been cancelled.
            future.exception()
