"""Answers that cost the whole gateway something, made once for all who wait for them.

A scrape asks every worker for its counts and writes them out, which takes most of a second where
there are a thousand routes; a probe asks every worker, too. Whoever asks gets what was made after
they asked, so nothing is ever out of date. But there is a rest between two rounds, nine times as
long as a round took, up to a second: a flood of scrapes or probes costs a tenth of a core, or one
round a second. Who asks once in a while does not meet the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from gateway import tasks

#: How much longer than a round the rest after it is, and how long it is at the most.
REST: Final = 9.0
LONGEST_REST_S: Final = 1.0

_Kind = TypeVar("_Kind", bound=Hashable)
_Made = TypeVar("_Made")


class Rounds(Generic[_Kind, _Made]):
    """Makes answers of several kinds. There must be few kinds: a round makes each that was asked.

    make: makes an answer of a kind; what it raises goes to all who asked for that kind
    """

    def __init__(self, make: Callable[[_Kind], Awaitable[_Made]]) -> None:
        self._make = make
        self._waiting: dict[_Kind, asyncio.Future[_Made]] = {}
        self._round: asyncio.Task[None] | None = None

    async def get(self, kind: _Kind) -> _Made:
        """An answer that is made from now on."""
        if kind not in self._waiting:
            self._waiting[kind] = asyncio.get_running_loop().create_future()
        waited_for = self._waiting[kind]
        if self._round is None:
            self._round = tasks.spawn(self._run(), "rounds")
        return await asyncio.shield(waited_for)

    async def _run(self) -> None:
        """Rounds, until one has left nobody waiting."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                started_s = loop.time()
                for kind, future in waiting.items():
                    await self._settle(kind, future)
                took_s = loop.time() - started_s
                await asyncio.sleep(min(REST * took_s, LONGEST_REST_S))
        finally:
            self._round = None

    async def _settle(self, kind: _Kind, future: asyncio.Future[_Made]) -> None:
        try:
            future.set_result(await self._make(kind))
        except Exception as error:
            future.set_exception(error)
            # All who asked may have gone.
            future.exception()
