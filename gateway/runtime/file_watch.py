"""Detects changed files, and reads them once they are stable.

Each check compares every file's real path, inode, modification time and size. That detects a file
that was edited or replaced, and a symbolic link with a new target, as when Kubernetes swaps a
mounted ConfigMap or secret. Polling needs no support by the file system; inotify reports nothing on
some network mounts.

A change is read once two checks in a row found the same, so that a file that is being written, or
a folder that is being copied, is read when complete. The result is used only if the files are
unchanged after the reading.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

#: Of each file: resolved path, inode, mtime in nanoseconds and size; None for an absent one.
Signature = tuple[tuple[str, int, int, int] | None, ...]

_Read = TypeVar("_Read")


class FileWatch(Generic[_Read]):
    """Polls files, and reads them after a change.

    look:  returns their signature
    read:  reads them; faults are returned, not raised. Both run in a thread, as a network file
           system may block
    take:  called in the loop's thread with what was read, and whether `read_now` requested it
    known: their signature before they were last read; None: the first check reads them
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
        self._requested = asyncio.Event()
        #: Signatures: of the last check, and of the last reading, taken before it, so that
        #: changes during the reading are detected.
        self._seen: Signature | None = None
        self._known = known

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._requested.wait()
            await self.look()

    def read_now(self) -> None:
        """Make `run` read the files now, changed or not (SIGHUP)."""
        self._requested.set()

    def read_again(self) -> None:
        """Read the files again once they are stable, even if unchanged: the result was unusable."""
        self._known = None

    async def look(self) -> None:
        """Check once."""
        requested = self._requested.is_set()
        self._requested.clear()
        seen = await asyncio.to_thread(self._look_at)
        is_stable = seen == self._seen
        self._seen = seen
        if not requested and (not is_stable or seen == self._known):
            return
        found = await asyncio.to_thread(self._read_them)
        after = await asyncio.to_thread(self._look_at)
        if after != seen:
            # The result may mix old and new content. It is read again once the files are stable; a
            # requested reload is repeated immediately.
            self._seen = after
            if requested:
                self._requested.set()
            return
        self._known = seen
        self._take(found, requested)


def signature(files: Iterable[str | Path]) -> Signature:
    """The signature of the files now."""
    return tuple(map(_look_at, files))


def _look_at(file: str | Path) -> tuple[str, int, int, int] | None:
    path = Path(file)
    try:
        stat = path.stat()
        return str(path.resolve()), stat.st_ino, stat.st_mtime_ns, stat.st_size
    except OSError:
        return None
