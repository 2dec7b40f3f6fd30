"""Counts the requests in flight at each upstream that has a limit, over all workers of a gateway.

The supervisor creates the memory (`SharedMemory`) and passes its descriptor to the workers. Each
worker has a row of its own, which nobody else writes while it lives: for each upstream with a limit
a tag (a digest of its name) and a count. Workers read each other's rows, and there is no lock. When
a worker has ended, in whatever way, the supervisor clears its row.

What that guarantees: a worker reads the sum and takes a place in one turn of its event loop, some
microseconds apart. Workers that do so within the same microseconds may each take the last place, so
the limit can be exceeded by one request for each further worker, and no more. The requests of a
worker that hangs count until the supervisor kills it. The limit is that of one gateway: several
gateways have it each, and so have the old and the new one during an upgrade.
"""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
from collections.abc import Collection
from contextlib import suppress
from hashlib import blake2b
from typing import Final

log = logging.getLogger("gateway.upstream")

#: Upstreams with a limit that a worker has room for: a row of two numbers for each is a page.
CELLS: Final = 256
_NUMBER_BYTES: Final = 8
_ROW_NUMBERS: Final = 2 * CELLS
ROW_BYTES: Final = _ROW_NUMBERS * _NUMBER_BYTES
_NO_CELL: Final = -1


class SharedMemory:
    """The memory of all workers, as their supervisor has it."""

    def __init__(self, workers: int) -> None:
        self._file = _anonymous_file(workers * ROW_BYTES)
        self._bytes = mmap.mmap(self._file, workers * ROW_BYTES)

    def fileno(self) -> int:
        """The descriptor that a worker opens it by."""
        return self._file

    def clear(self, worker: int) -> None:
        """A worker has ended: nothing is under way on it any more."""
        self._bytes[worker * ROW_BYTES : (worker + 1) * ROW_BYTES] = bytes(ROW_BYTES)

    def close(self) -> None:
        self._bytes.close()
        os.close(self._file)


class Count:
    """What is under way at one upstream."""

    __slots__ = ("_at", "_numbers", "_others", "_tag")

    def __init__(self, numbers: memoryview, rows: int, own_row: int, cell: int, tag: int) -> None:
        self._numbers = numbers
        self._tag = tag
        self._at = own_row * _ROW_NUMBERS + CELLS + cell
        #: The tags of each other row, and where this upstream's was found last.
        self._others = {row * _ROW_NUMBERS: 0 for row in range(rows) if row != own_row}

    @property
    def own(self) -> int:
        """On this worker."""
        return self._numbers[self._at]

    def add(self, number: int) -> None:
        """So many more are under way on this worker; fewer, where it is negative."""
        self._numbers[self._at] += number

    def total(self) -> int:
        """On all workers."""
        return self.own + sum([self._of(row) for row in self._others])

    def _of(self, row: int) -> int:
        """On another worker: 0 where it has no such upstream, or is not there."""
        numbers, cell = self._numbers, self._others[row]
        if numbers[row + cell] != self._tag:
            try:
                cell = numbers[row : row + CELLS].tolist().index(self._tag)
            except ValueError:
                return 0
            self._others[row] = cell
        return numbers[row + CELLS + cell]


class Inflight:
    """A worker's side of the memory: a `Count` for each of its upstreams that has a limit."""

    def __init__(self, memory: mmap.mmap | bytearray, worker: int = 0, workers: int = 1) -> None:
        self._numbers = memoryview(memory).cast("B").cast("q")
        self._workers = workers
        self._worker = worker
        self._counts: dict[str, tuple[int, Count]] = {}

    @classmethod
    def open(cls, descriptor: int, worker: int, workers: int) -> Inflight:
        """By the descriptor that the supervisor has passed on, which is closed here."""
        memory = mmap.mmap(descriptor, workers * ROW_BYTES)
        os.close(descriptor)
        return cls(memory, worker, workers)

    @classmethod
    def alone(cls) -> Inflight:
        """For a gateway of one process."""
        return cls(bytearray(ROW_BYTES))

    def use(self, names: Collection[str]) -> dict[str, Count]:
        """Take up the upstreams that have a limit now. The count of one that stays goes on."""
        for name in self._counts.keys() - set(names):
            cell, count = self._counts[name]
            if not count.own:  # else it still has something under way, and is left for another time
                self._write_tag(cell, 0)
                del self._counts[name]
        for name in names:
            if name not in self._counts:
                self._counts[name] = self._new_count(name)
        return {name: self._counts[name][1] for name in names}

    def _new_count(self, name: str) -> tuple[int, Count]:
        """Its cell, and its count there."""
        taken = {cell for cell, _ in self._counts.values()}
        for cell in range(CELLS):
            if cell not in taken:
                tag = _tag(name)
                self._write_tag(cell, tag)
                return cell, Count(self._numbers, self._workers, self._worker, cell, tag)
        log.error("upstream %s: no room for its inflight, which now holds in each worker", name)
        private = memoryview(bytearray(ROW_BYTES)).cast("q")
        return _NO_CELL, Count(private, rows=1, own_row=0, cell=0, tag=0)

    def _write_tag(self, cell: int, tag: int) -> None:
        if cell != _NO_CELL:
            self._numbers[self._worker * _ROW_NUMBERS + cell] = tag


def _tag(name: str) -> int:
    """What stands for a name: 63 bits of its digest, none of which is 0."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) >> 1 | 1


def _anonymous_file(size: int) -> int:
    """The descriptor of a file of zeros that has no name."""
    with suppress(AttributeError):  # Linux alone has it; and a container may have no disk to write
        descriptor = os.memfd_create("gateway-inflight")
        os.truncate(descriptor, size)
        return descriptor
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return os.dup(file.fileno())
