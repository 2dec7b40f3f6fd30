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
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from gateway import tasks
from gateway.domain.ports import StoreDown
from gateway.domain.webhooks.events import Event
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
        #: Up to here the events were accepted.
        self._accepted = 0
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
        if not self._open():
            raise SpoolFull("another process has the file")
        if self.bytes + len(line) > self._most():
            raise SpoolFull(f"the file has {self.bytes} bytes, which is the most")
        waiting = _Waiting(line, asyncio.get_running_loop().create_future())
        self._pending.append(waiting)
        self._pending_bytes += len(line)
        if self._writer is None:
            self._writer = tasks.spawn(self._write_pending(), "spool of webhooks")
        await waiting.done

    async def run(self, accept: Accept) -> None:
        """Accept what is in the file, in its order, as soon as that works; until cancelled."""
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
                    log.warning("webhooks cannot be written to %s: %s", self._path, error)
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

    def _open(self) -> bool:
        """Have the file; False: another process has it."""
        if self._file is None:
            try:
                self._take()
            except BlockingIOError:
                return False
            except OSError as error:
                if self._throttle.suppressed("open", time.monotonic()) is not None:
                    log.warning("%s cannot be opened: %s", self._path, error)
                return False
        return True

    def _take(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Without a buffer: each write is the system's.
        file = os.fdopen(number, "r+b", buffering=0)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(number, 0o600)
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
        if self.count:
            log.info("%s has %d webhooks, which are accepted now", self._path, self.count)

    def _opened(self) -> BinaryIO:
        assert self._file is not None
        return self._file

    # -- accepting ---------------------------------------------------------------------------------

    async def _replay(self, accept: Accept) -> bool:
        """Accept the next events of the file. False: there is none, or it does not work now."""
        if not self._open() or self._accepted >= self._size:
            return False
        try:
            lines = await asyncio.to_thread(self._read)
        except OSError as error:
            log.warning("%s cannot be read: %s", self._path, error)
            return False
        for line in lines:
            try:
                await self._accept(line, accept)
            except (StoreDown, BudgetSpent) as error:
                if self._throttle.suppressed("accept", time.monotonic()) is not None:
                    words = str(error) or "there is no room for events"
                    log.warning("webhooks in %s have to wait: %s", self._path, words)
                return False
            self._accepted += len(line)
        if self._accepted == self._size and self._writer is None:
            self._empty()
        return True

    async def _accept(self, line: Content, accept: Accept) -> None:
        found = _read_line(line)
        if found is None:
            self.skipped += 1
            log.warning("a line of %s cannot be read, and is skipped", self._path)
        else:
            await accept(*found)
            self.replayed += 1
        self.count -= 1

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
        integration, event, kind, body = json.loads(content)
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
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
