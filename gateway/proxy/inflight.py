"""Counts the requests in flight at each upstream that has a limit, over all workers of a gateway.

The supervisor creates the memory (`SharedMemory`) and passes its descriptor to the workers. Each
worker has a row that only it writes: for each upstream with a limit a tag (a digest of its name)
and a count. Workers read each other's rows, and there is no lock. When a worker has ended, for
whatever reason, the supervisor clears its row.

Guarantee: a worker reads the sum and adds a request in one turn of its event loop, some
microseconds apart. Workers that do so within the same microseconds may each add the last one, so
the limit can be exceeded by one request for each further worker, and no more. The requests of a
worker that hangs count until the supervisor kills it. The limit is per gateway: several gateways
have it each, and so have the old and the new one during an upgrade.
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

#: Upstreams with a limit per worker: a row, of two numbers for each, is a page.
CELLS: Final = 256
_NUMBER_BYTES: Final = 8
_ROW_NUMBERS: Final = 2 * CELLS
ROW_BYTES: Final = _ROW_NUMBERS * _NUMBER_BYTES
_NO_CELL: Final = -1


class SharedMemory:
    """The memory of all workers, in the supervisor."""

    def __init__(self, workers: int) -> None:
        self._file = _anonymous_file(workers * ROW_BYTES)
        self._bytes = mmap.mmap(self._file, workers * ROW_BYTES)

    def fileno(self) -> int:
        """The descriptor by which workers open it."""
        return self._file

    def clear(self, worker: int) -> None:
        """Clear the row of a worker that has ended."""
        self._bytes[worker * ROW_BYTES : (worker + 1) * ROW_BYTES] = bytes(ROW_BYTES)

    def close(self) -> None:
        self._bytes.close()
        os.close(self._file)


class Count:
    """The requests in flight at one upstream."""

    __slots__ = ("_at", "_numbers", "_others", "_tag")

    def __init__(self, numbers: memoryview, rows: int, own_row: int, cell: int, tag: int) -> None:
        self._numbers = numbers
        self._tag = tag
        self._at = own_row * _ROW_NUMBERS + CELLS + cell
        #: The start of each other row, and the cell in which this upstream's tag was found last.
        self._others = {row * _ROW_NUMBERS: 0 for row in range(rows) if row != own_row}

    @property
    def own(self) -> int:
        """On this worker."""
        return self._numbers[self._at]

    def add(self, number: int) -> None:
        """Add to the count of this worker; number may be negative."""
        self._numbers[self._at] += number

    def total(self) -> int:
        """On all workers."""
        return self.own + sum([self._of(row) for row in self._others])

    def _of(self, row: int) -> int:
        """On another worker: 0 if it does not have the upstream, or does not run."""
        numbers, cell = self._numbers, self._others[row]
        if numbers[row + cell] != self._tag:
            try:
                cell = numbers[row : row + CELLS].tolist().index(self._tag)
            except ValueError:
                return 0
            self._others[row] = cell
        return numbers[row + CELLS + cell]


class Inflight:
    """The memory in a worker: a `Count` for each upstream with a limit."""

    def __init__(self, memory: mmap.mmap | bytearray, worker: int = 0, workers: int = 1) -> None:
        self._numbers = memoryview(memory).cast("B").cast("q")
        self._workers = workers
        self._worker = worker
        self._counts: dict[str, tuple[int, Count]] = {}

    @classmethod
    def open(cls, descriptor: int, worker: int, workers: int) -> Inflight:
        """Open the supervisor's memory by its descriptor, and close that."""
        memory = mmap.mmap(descriptor, workers * ROW_BYTES)
        os.close(descriptor)
        return cls(memory, worker, workers)

    @classmethod
    def alone(cls) -> Inflight:
        """For a gateway of one process."""
        return cls(bytearray(ROW_BYTES))

    def use(self, names: Collection[str]) -> dict[str, Count]:
        """Set the upstreams that have a limit. One that stays keeps its count."""
        for name in self._counts.keys() - set(names):
            cell, count = self._counts[name]
            if not count.own:  # else it has requests in flight; a later call removes it
                self._write_tag(cell, 0)
                del self._counts[name]
        for name in names:
            if name not in self._counts:
                self._counts[name] = self._new_count(name)
        return {name: self._counts[name][1] for name in names}

    def _new_count(self, name: str) -> tuple[int, Count]:
        """Assign a cell; return it, and the count in it."""
        taken = {cell for cell, _ in self._counts.values()}
        for cell in range(CELLS):
            if cell not in taken:
                tag = _tag(name)
                self._write_tag(cell, tag)
                return cell, Count(self._numbers, self._workers, self._worker, cell, tag)
        log.error("upstream %s: no free cell for its inflight limit; enforcing it per worker", name)
        private = memoryview(bytearray(ROW_BYTES)).cast("q")
        return _NO_CELL, Count(private, rows=1, own_row=0, cell=0, tag=0)

    def _write_tag(self, cell: int, tag: int) -> None:
        if cell != _NO_CELL:
            self._numbers[self._worker * _ROW_NUMBERS + cell] = tag


def _tag(name: str) -> int:
    """The tag of a name: 63 bits of its digest, never 0."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) >> 1 | 1


def _anonymous_file(size: int) -> int:
    """The descriptor of an unnamed file of zeros."""
    with suppress(AttributeError):  # only Linux has it; containers may have no writable disk
        descriptor = os.memfd_create("gateway-inflight")
        os.truncate(descriptor, size)
        return descriptor
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return os.dup(file.fileno())
