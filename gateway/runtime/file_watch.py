"""Notices that files have changed, and reads them once they are stable.

They are looked at on every turn: each one's real path, inode, time and size. That sees a file
edited or replaced, and a symbolic link that now leads elsewhere, as Kubernetes swaps a mounted
ConfigMap or secret. Polling needs no support by the file system; inotify is silent on some network
mounts.

A change is read once two looks in a row found the same, so that a file that is being written, or
a folder that is being copied, is met whole; and what was read counts only if the files still look
the same afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

#: What files look like: each one's resolved path, inode, mtime in nanoseconds and size; None for
#: one that is not there.
Signature = tuple[tuple[str, int, int, int] | None, ...]

_Read = TypeVar("_Read")


class FileWatch(Generic[_Read]):
    """Looks at files and has them read.

    look:  what they look like now
    read:  reads them; what is wrong with them is a value. Both run in a thread, as a network file
           system may keep one waiting
    take:  called in the loop's thread with what was read, and whether `read_now` asked for it
    known: what they looked like before they were last read; None: the first look reads them
    """

    def __init__(
        self,
        look: Callable[[], Signature],
        read: Callable[[], _Read],
        take: Callable[[_Read, bool], None],
        *,
        interval_s: float,
        known: Signature | None = None,
    ) -> None:
        self._look_at = look
        self._read_them = read
        self._take = take
        self._interval_s = interval_s
        self._asked = asyncio.Event()
        #: As last looked at, and as last read: from before the reading, so that what changes
        #: meanwhile is seen.
        self._seen: Signature | None = None
        self._known = known

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), self._interval_s)
            await self.look()

    def read_now(self) -> None:
        """Read the files at once, changed or not (SIGHUP); `run` does it."""
        self._asked.set()

    def read_again(self) -> None:
        """What was read is of no use: read it again once the files rest, though they look alike."""
        self._known = None

    async def look(self) -> None:
        """One turn."""
        asked = self._asked.is_set()
        self._asked.clear()
        seen = await asyncio.to_thread(self._look_at)
        settled = seen == self._seen
        self._seen = seen
        if not asked and (not settled or seen == self._known):
            return
        found = await asyncio.to_thread(self._read_them)
        after = await asyncio.to_thread(self._look_at)
        if after != seen:
            # Perhaps half of it is old and half of it new. It is read again once it is stable; a
            # reload that was requested is repeated at once.
            self._seen = after
            if asked:
                self._asked.set()
            return
        self._known = seen
        self._take(found, asked)


def signature(files: Iterable[str | Path]) -> Signature:
    """What the files look like now."""
    return tuple(map(_look_at, files))


def _look_at(file: str | Path) -> tuple[str, int, int, int] | None:
    path = Path(file)
    try:
        stat = path.stat()
        return str(path.resolve()), stat.st_ino, stat.st_mtime_ns, stat.st_size
    except OSError:
        return None
