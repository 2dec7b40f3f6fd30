"""Drops the oldest entries of the audit log, as the policies say, once an hour.

What is dropped is followed once more before: an entry of the log says up to where it went, with the
hash of the last one, and whether it hung together until then. So what is left can be verified.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from random import uniform
from typing import Final

from gateway.domain.audit import Cut, Entry, Trim, chained, cut_of, write_trim
from gateway.domain.policy import AuditSettings
from gateway.domain.ports import AuditStore, StoreDown
from gateway.tasks import spawn

log = logging.getLogger("gateway")

#: When it looks for the first time, and how often then. Gateways that start together do not look
#: together; if they did, the log would say twice what was dropped.
FIRST_S: Final = 60.0
EVERY_S: Final = 3_600.0
#: Entries read at once: to follow so many takes this process, which serves requests, about 1 ms.
CHUNK: Final = 50
#: Entries dropped at once. Redis does nothing else meanwhile: that is some 2 ms.
MOST_DROPPED: Final = 2_500


class AuditTrimmer:
    """Between `start` and `stop` one of those who keep a store's log short.

    settings: asked each time
    """

    def __init__(
        self,
        store: AuditStore,
        settings: Callable[[], AuditSettings],
        clock_us: Callable[[], int],
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock_us = clock_us
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look now and then, until `stop`. Needs a running loop."""
        self._task = spawn(self._run(), "audit log")

    async def stop(self) -> None:
        """Look no more; harmless when repeated."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def trim(self) -> Trim | None:
        """Drop what is due, or a part of much; what was, None: nothing. Raises StoreDown."""
        cut = await self._cut()
        trim = None if cut is None else await self._followed(cut)
        if trim is not None:
            if not trim.is_whole:
                log.error("the audit log up to entry %d, dropped now, was not whole", trim.last)
            await self._store.append(write_trim(trim, self._clock_us()), drop_to=trim.last)
        return trim

    async def _cut(self) -> Cut | None:
        last, _ = await self._store.head()
        settings, now_us = self._settings(), self._clock_us()
        for oldest in await self._store.oldest(count=1):
            return cut_of(oldest, last, int(settings.keep_s * 1e6), settings.entries, now_us)
        return None

    async def _followed(self, cut: Cut) -> Trim | None:
        """What the cut drops now, followed from entry to entry."""
        last: Entry | None = None
        is_whole = True
        async for entry in self._oldest(MOST_DROPPED):
            if not cut.drops(entry):
                break
            is_whole = is_whole and _follows(entry, last)
            last = entry
        return None if last is None else Trim(last.number, last.hash, is_whole)

    async def _oldest(self, most: int) -> AsyncIterator[Entry]:
        """The oldest entries, so many at most."""
        number = 0
        while most and (chunk := await self._store.oldest(after=number, count=min(CHUNK, most))):
            for entry in chunk:
                yield entry
            most, number = most - len(chunk), chunk[-1].number

    async def _run(self) -> None:
        await asyncio.sleep(uniform(0, FIRST_S))  # noqa: S311
        while True:
            try:
                while await self.trim() is not None:
                    pass
            except StoreDown as error:
                log.warning("the audit log cannot be trimmed for now: %s", error)
            await asyncio.sleep(EVERY_S * uniform(0.75, 1.25))  # noqa: S311


def _follows(entry: Entry, last: Entry | None) -> bool:
    """Whether an entry is as it was put in, after the one before it. last: None: it is the first"""
    previous = entry.previous if last is None else last.hash
    is_next = last is None or entry.number == last.number + 1
    return is_next and entry == chained(entry.event, entry.number, previous)
