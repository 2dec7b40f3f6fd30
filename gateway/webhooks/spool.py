"""Keeps captured events in a local file while the store is unavailable, and accepts them later.

Providers such as GitHub never send a webhook again, so one is answered 202 only when it is on the
disk. A record is a line: a checksum, a space, and the event as JSON. A line that was not written as
a whole, as at a crash, was never answered 202: it is skipped.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from gateway import tasks
from gateway.domain.json_text import read_json
from gateway.domain.ports import StoreDown
from gateway.domain.webhooks.events import Event
from gateway.files import open_private
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.webhooks.queue import BudgetSpent

log = logging.getLogger("gateway")

Accept = Callable[[str, Event], Awaitable[object]]
#: A `Spool` has a property of the name `bytes`.
Content = bytes

#: How long `run` waits after a failure, or for something to be there.
PAUSE_S: Final = 1.0
#: What is read from the file at a time; a line may be longer.
_READ: Final = 1024 * 1024


class SpoolFull(Exception):
    """The file has no room for an event, or cannot be written."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    line: bytes
    done: asyncio.Future[None]


class Spool:
    """The file of one courier. Another process with the same index may still have it: it waits.

    folder:  is made, for this user alone
    index:   of the courier
    most:    the most bytes of the file
    bytes:   of the file, and of what is about to be written
    count:   events in it that were not accepted
    spooled, replayed, skipped: events and lines since this process began
    """

    def __init__(
        self, folder: Path, index: int, most: Callable[[], int], pause_s: float = PAUSE_S
    ) -> None:
        self._path = folder / f"webhooks-{index}.spool"
        self._most = most
        self._pause_s = pause_s
        self._file: BinaryIO | None = None
        self._size = 0
        self._pending: list[_Waiting] = []
        self._pending_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        #: Up to here the events were accepted, but for those that are left.
        self._accepted = 0
        #: Lines for which there was no room, by integration: where they begin, and their length.
        #: That may last for days, as a watch of it is paused.
        self._left: dict[str, deque[tuple[int, int]]] = {}
        self._throttle = LogThrottle()
        self.count = 0
        self.spooled = 0
        self.replayed = 0
        self.skipped = 0

    @property
    def bytes(self) -> int:
        return self._size + self._pending_bytes

    async def add(self, integration: str, event: Event) -> None:
        """Return once the event is on the disk. Raises SpoolFull."""
        line = _line(integration, event)
        if (why := self._open()) is not None:
            raise SpoolFull(why)
        if self.bytes + len(line) > self._most():
            raise SpoolFull(f"the file has {self.bytes} bytes, which is the most")
        waiting = _Waiting(line, asyncio.get_running_loop().create_future())
        self._pending.append(waiting)
        self._pending_bytes += len(line)
        if self._writer is None:
            self._writer = tasks.spawn(self._write_pending(), "spool of webhooks")
        await waiting.done

    async def run(self, accept: Accept) -> None:
        """Accept what is in the file as soon as that works, until cancelled.

        In its order, but for integrations that have no room.
        """
        while True:
            if not await self._replay(accept):
                await asyncio.sleep(self._pause_s)

    async def close(self) -> None:
        """Another process may have the file then. What is about to be written is written first."""
        while self._writer is not None:
            await asyncio.wait([self._writer])
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- writing -----------------------------------------------------------------------------------

    async def _write_pending(self) -> None:
        """Write with one fsync all that waits, again and again."""
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                content = b"".join(each.line for each in batch)
                try:
                    await asyncio.to_thread(self._append, content)
                except OSError as error:
                    self._pending_bytes -= len(content)
                    self._warn("webhooks cannot be written to %s: %s", error)
                    failure = SpoolFull(f"the file cannot be written: {error.strerror}")
                    _settle(batch, failure)
                else:
                    self._size += len(content)
                    self._pending_bytes -= len(content)
                    self.count += len(batch)
                    self.spooled += len(batch)
                    _settle(batch, None)
        finally:
            self._writer = None

    def _append(self, content: Content) -> None:
        number = self._opened().fileno()
        try:
            _write_all(number, content, self._size)
            os.fsync(number)
        except OSError:
            # What was not answered 202 must not be in the way of what follows.
            with suppress(OSError):
                os.ftruncate(number, self._size)
            raise

    def _open(self) -> str | None:
        """Have the file; else why it cannot be had."""
        if self._file is None:
            try:
                self._take()
            except BlockingIOError:
                return "another process has the file"
            except OSError as error:
                self._warn("%s cannot be opened: %s", error.strerror or error)
                return f"the file cannot be opened: {error.strerror or error}"
        return None

    def _take(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = open_private(self._path, os.O_RDWR | os.O_CREAT)
        # Without a buffer: each write is the system's.
        file = os.fdopen(number, "r+b", buffering=0)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._size, self.count = _whole_lines(file)
            if self._size < os.fstat(number).st_size:
                file.truncate(self._size)
                self.skipped += 1
                log.warning("%s ended within a line, which was removed", self._path)
            _sync_folder(self._path.parent)
        except BaseException:
            file.close()
            raise
        self._file = file
        self._accepted = 0
        self._left.clear()
        if self.count:
            log.info("%s has %d webhooks, which are accepted now", self._path, self.count)

    def _warn(self, words: str, why: object) -> None:
        """Throttled. words: with places for the file and for why"""
        if (suppressed := self._throttle.suppressed(words, time.monotonic())) is not None:
            more = f" ({suppressed} such lines were suppressed)" if suppressed else ""
            log.warning(words + "%s", self._path, why, more)

    def _opened(self) -> BinaryIO:
        assert self._file is not None
        return self._file

    # -- accepting ---------------------------------------------------------------------------------

    async def _replay(self, accept: Accept) -> bool:
        """Accept the next events of the file. False: there is none, or it does not work now."""
        if self._open() is not None or not self._size:
            return False
        try:
            has_more = self._accepted < self._size
            await (self._accept_next(accept) if has_more else self._accept_left(accept))
            if self._accepted == self._size and not self._left and self._writer is None:
                self._empty()
        except OSError as error:
            self._warn("%s cannot be read or emptied: %s", error)
            return False
        except StoreDown as error:
            self._warn("webhooks in %s have to wait: %s", error)
            return False
        return has_more

    async def _accept_next(self, accept: Accept) -> None:
        """Accept lines that were not looked at; leave those of integrations without room."""
        for line in await asyncio.to_thread(self._read):
            found = _read_line(line)
            if found is None:
                self._skip()
            elif found[0] in self._left or not await self._is_accepted(found, accept):
                self._left.setdefault(found[0], deque()).append((self._accepted, len(line)))
            self._accepted += len(line)

    async def _accept_left(self, accept: Accept) -> None:
        """Of each integration that had no room, as many as there is room for now."""
        for integration, places in list(self._left.items()):
            while places:
                at, length = places[0]
                line = await asyncio.to_thread(os.pread, self._opened().fileno(), length, at)
                found = _read_line(line)
                if found is None:
                    self._skip()
                elif not await self._is_accepted(found, accept):
                    break
                places.popleft()
            else:
                del self._left[integration]

    async def _is_accepted(self, found: tuple[str, Event], accept: Accept) -> bool:
        """False: there is no room for events of this integration, or for any."""
        try:
            await accept(*found)
        except BudgetSpent:
            self._warn("webhooks in %s have to wait: %s", "there is no room for events")
            return False
        self.replayed += 1
        self.count -= 1
        return True

    def _skip(self) -> None:
        self.skipped += 1
        self.count -= 1
        self._warn("lines of %s are skipped: %s", "one cannot be read")

    def _empty(self) -> None:
        self._opened().truncate(0)
        self._size = self._accepted = self.count = 0
        log.info("all webhooks in %s were accepted", self._path)

    def _read(self) -> list[Content]:
        """The next lines: some, or one that is long."""
        file = self._opened()
        end = self._size
        content = b""
        while b"\n" not in content and self._accepted + len(content) < end:
            at = self._accepted + len(content)
            part = os.pread(file.fileno(), min(_READ, end - at), at)
            if not part:
                raise OSError(f"it has {at} bytes, expected {end}")
            content += part
        whole = content[: content.rfind(b"\n") + 1] or content
        return [line + b"\n" for line in whole.removesuffix(b"\n").split(b"\n")]


def _settle(batch: list[_Waiting], error: Exception | None) -> None:
    for each in batch:
        # Cancelled: its client has gone.
        if not each.done.done():
            if error is None:
                each.done.set_result(None)
            else:
                each.done.set_exception(error)


def _line(integration: str, event: Event) -> bytes:
    record = [integration, event.id, event.type, event.body.decode("latin-1")]
    content = json.dumps(record, separators=(",", ":")).encode("ascii")
    return b"%08x %s\n" % (crc32(content), content)


def _read_line(line: bytes) -> tuple[str, Event] | None:
    checksum, _, content = line.rstrip(b"\n").partition(b" ")
    if checksum != b"%08x" % crc32(content):
        return None
    try:
        integration, event, kind, body = read_json(content)
        return integration, Event(event, kind, body.encode("latin-1"))
    except (ValueError, TypeError, AttributeError):
        return None


def _whole_lines(file: BinaryIO) -> tuple[int, int]:
    """The bytes of the lines that were ended, and how many they are."""
    at, end, count = 0, 0, 0
    file.seek(0)
    while part := file.read(_READ):
        count += part.count(b"\n")
        last = part.rfind(b"\n")
        if last >= 0:
            end = at + last + 1
        at += len(part)
    return end, count


def _write_all(number: int, content: bytes, at: int) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(number, left, at)
        left, at = left[written:], at + written


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
