"""Drops the oldest entries of the audit log, as the policies say, once a minute: a log that grows
fast is soon trimmed.

The entries are verified before they are dropped. A new entry records the number and the hash of the
last one dropped, and whether their chain was valid. So the rest can still be verified.
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
from gateway.tasks import end, spawn

log = logging.getLogger("gateway")

#: The latest first run, and the mean interval after it, both random. If gateways that start
#: together ran at the same time, the log would record a trim twice.
FIRST_S: Final = 60.0
EVERY_S: Final = 60.0
#: The pause after a run that failed.
RETRY_S: Final = 60.0
#: Entries read at once: verifying them blocks this process, which serves requests, for about 1 ms.
CHUNK: Final = 50
#: Entries dropped at once, which blocks Redis for some 2 ms.
MOST_DROPPED: Final = 2_500


class AuditTrimmer:
    """Trims a store's log between `start` and `stop`.

    settings: read at each run
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
        """Trim periodically, until `stop`. Needs a running loop."""
        self._task = spawn(self._run(), "audit log")

    async def stop(self) -> None:
        """Stop trimming; harmless when repeated."""
        await end(self._task)

    async def trim(self) -> Trim | None:
        """Drop what is due, MOST_DROPPED at most; None: nothing was due. Raises StoreDown."""
        cut = await self._cut()
        trim = None if cut is None else await self._verified(cut)
        if trim is not None:
            if not trim.is_whole:
                log.error("audit log: the chain of dropped entries up to %d was broken", trim.last)
            await self._store.append(write_trim(trim, self._clock_us()), drop_to=trim.last)
        return trim

    async def _cut(self) -> Cut | None:
        last, _ = await self._store.head()
        settings, now_us = self._settings(), self._clock_us()
        for oldest in await self._store.oldest(count=1):
            return cut_of(oldest, last, int(settings.keep_s * 1e6), settings.entries, now_us)
        return None

    async def _verified(self, cut: Cut) -> Trim | None:
        """Verify the entries that the cut drops now; None: there are none."""
        last: Entry | None = None
        is_whole = True
        async for entry in self._oldest(MOST_DROPPED):
            if not cut.drops(entry):
                break
            is_whole = is_whole and _follows(entry, last)
            last = entry
        return None if last is None else Trim(last.number, last.hash, is_whole)

    async def _oldest(self, most: int) -> AsyncIterator[Entry]:
        """The oldest entries, up to `most`."""
        number = 0
        while most and (chunk := await self._store.oldest(after=number, count=min(CHUNK, most))):
            for entry in chunk:
                yield entry
            most, number = most - len(chunk), chunk[-1].number

    async def _run(self) -> None:
        pause_s = uniform(0, FIRST_S)  # noqa: S311
        while True:
            await asyncio.sleep(pause_s)
            pause_s = EVERY_S * uniform(0.75, 1.25)  # noqa: S311
            try:
                while await self.trim() is not None:
                    pass
            except StoreDown as error:
                pause_s = RETRY_S * uniform(0.75, 1.25)  # noqa: S311
                log.warning("audit log: trimming failed, and will be retried: %s", error)


def _follows(entry: Entry, last: Entry | None) -> bool:
    """Is an entry unchanged, and does it follow this one? last: None: it is the first entry"""
    previous = entry.previous if last is None else last.hash
    is_next = last is None or entry.number == last.number + 1
    return is_next and entry == chained(entry.event, entry.number, previous)
