"""Detects changed files, and reads them once they are stable.

Each check compares every file's real path, inode, times and size. That detects a file that was
edited or replaced, and a symbolic link with a new target, as when Kubernetes swaps a
mounted ConfigMap or secret. Polling needs no support by the file system; inotify reports nothing on
some network mounts.

A change is read once two checks in a row found the same, so that a file that is being written, or
a folder that is being copied, is read when complete. The result is used only if the files are
unchanged after the reading.

A writer may pause in the middle of a file, and nothing shows that there is more to come. So where a
part of a file could do harm, `in_place` asks for more checks, except for files that were renamed
into place, which are complete.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Generic, TypeVar

#: Of each file: resolved path, inode, mtime and ctime in nanoseconds, and size; None for an absent
#: one.
Signature = tuple[tuple[str, int, int, int, int] | None, ...]
#: How many checks in a row find the same before files are read.
_CHECKS: Final = 2

_Read = TypeVar("_Read")


class FileWatch(Generic[_Read]):
    """Polls files, and reads them after a change.

    look:  returns their signature
    read:  reads them; faults are returned, not raised. Both run in a thread, as a network file
           system may block
    take:  called in the loop's thread with what was read, and whether `read_now` requested it
    known: their signature before they were last read; None: the first check reads them
    in_place: how many checks in a row must find the same where files were written in place
    is_whole: was each file that changed last renamed into place?
    checks:   how many in a row have found the same
    """

    def __init__(
        self,
        look: Callable[[], Signature],
        read: Callable[[], _Read],
        take: Callable[[_Read, bool], None],
        *,
        interval_s: float,
        known: Signature | None = None,
        in_place: int = _CHECKS,
    ) -> None:
        self.is_whole = False
        self.checks = 0
        self._look_at = look
        self._read_them = read
        self._take = take
        self._interval_s = interval_s
        self._requested = asyncio.Event()
        #: Signatures: of the last check, and of the last reading, taken before it, so that
        #: changes during the reading are detected.
        self._seen: Signature | None = None
        self._known = known
        #: The last signature that was read.
        self._last = known
        self._in_place = in_place
        #: How many checks `read_later` asks for, as long as the files do not change.
        self._least = 0

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

    def read_later(self, checks: int) -> None:
        """Read the files again once so many checks in a row have found the same, or they change."""
        self._known, self._least = None, checks

    async def look(self) -> None:
        """Check once."""
        requested = self._requested.is_set()
        self._requested.clear()
        seen = await asyncio.to_thread(self._look_at)
        self._note(seen)
        if not requested and (self.checks < self._wanted() or seen == self._known):
            return
        found = await asyncio.to_thread(self._read_them)
        after = await asyncio.to_thread(self._look_at)
        if after != seen:
            # The result may mix old and new content. It is read again once the files are stable; a
            # requested reload is repeated immediately.
            self._note(after)
            if requested:
                self._requested.set()
            return
        self._known = self._last = seen
        self._least = 0
        self._take(found, requested)

    def _note(self, seen: Signature) -> None:
        if seen == self._seen:
            self.checks += 1
            return
        self._seen, self.checks, self._least = seen, 1, 0
        self.is_whole = is_whole(self._last, seen)

    def _wanted(self) -> int:
        return max(_CHECKS if self.is_whole else self._in_place, self._least)


def signature(files: Iterable[str | Path]) -> Signature:
    """The signature of the files now."""
    return tuple(map(_look_at, files))


def is_whole(known: Signature | None, seen: Signature) -> bool:
    """Was each file that is not as it was renamed to its place after it had been written?

    A new file was, if its inode has changed after its content: writing changes both at once.
    """
    before = known or ()
    inodes = {file[:2] for file in before if file is not None}
    changed = [file for file in seen if file not in before]
    return bool(changed) and all(
        file is not None and file[:2] not in inodes and file[3] > file[2] and file[4] > 0
        for file in changed
    )


def _look_at(file: str | Path) -> tuple[str, int, int, int, int] | None:
    path = Path(file)
    try:
        stat = path.stat()
        times = stat.st_mtime_ns, stat.st_ctime_ns
        return str(path.resolve()), stat.st_ino, *times, stat.st_size
    except OSError:
        return None
