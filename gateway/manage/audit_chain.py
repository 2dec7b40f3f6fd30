"""Verifies the hash chain of the audit log, from its last entry back to its first.

The chain starts at the first entry, or after the entries that were deleted by age: a later entry
then has the number and hash of the last deleted one.

This verifies that the log is consistent. Anyone with write access to the store could rewrite all of
it with a new chain; to detect that, store the number and hash of the last entry elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.domain.audit import NOTHING_BEFORE, Entry, Trim, chained, read_move, read_trim

#: The most faults that are described.
MOST_FAULTS: Final = 20


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of following the chain.

    count:     existing entries of the gateway
    dropped:   entries before them that were deleted by age, as recorded in the log
    head_hash: the hash of the last one
    faults:    what is wrong, newest first; at most 20 are described, then how many more there are
    """

    count: int
    dropped: int
    head_hash: str
    faults: tuple[str, ...]


class Chain:
    """Follows the entries from the last to the first, and collects faults."""

    def __init__(self) -> None:
        self._count = 0
        self._head_hash = NOTHING_BEFORE
        self._faults: list[str] = []
        self._more_faults = 0
        #: The previously checked entry, which is the next one in the log.
        self._later: Entry | None = None
        #: Deletions that entries record, with the numbers of these entries.
        self._trims: list[tuple[int, Trim]] = []

    def check_last(self, last: Entry, *heads: tuple[int, str]) -> None:
        """Check the last entry against the head, as read before and after it."""
        self._head_hash = last.hash
        numbers = [number for number, _ in heads]
        if last.number < min(numbers):
            self._add_fault(f"the end is cut off: {_span(last.number + 1, min(numbers))}")
        elif last.number > max(numbers):
            self._add_fault(f"{_span(max(numbers) + 1, last.number)}: put in beside the log's head")
        elif any(number == last.number and known != last.hash for number, known in heads):
            self._add_fault(f"entry {last.number}: is not the one that the log's head names")

    def check_empty(self, head: tuple[int, str]) -> None:
        """Check the head of a log without entries."""
        if head[0]:
            self._add_fault(f"the end is cut off: {_span(1, head[0])}")

    def add_foreign(self, entry: Entry) -> None:
        """Note an entry that the gateway has not written."""
        self._add_fault(f"entry {entry.number}: not written by the gateway")

    def check(self, entry: Entry) -> None:
        """Check the next older entry."""
        self._count += 1
        self._check_link(entry)
        made = chained(entry.event, entry.number, entry.previous)
        if made.hash != entry.hash:
            self._add_fault(f"entry {entry.number}: was changed, its content has another hash")
        if (moved_to := read_move(entry.event)) is not None:
            self._add_fault(
                f"entry {entry.number}: the log before it was moved to {moved_to}, as no entry "
                "could follow one that the gateway had not written"
            )
        self.add_trim(entry)
        self._later = entry

    def add_trim(self, entry: Entry) -> None:
        """Note the deletion that an entry records, if any."""
        if (trim := read_trim(entry.event)) is not None:
            self._trims.append((entry.number, trim))

    def verified(self) -> Verified:
        """The result, after the first entry."""
        dropped = 0 if self._later is None else self._check_first(self._later)
        for number, trim in self._trims:
            if not trim.is_whole:
                self._add_fault(f"entry {number}: the entries that were dropped had faults")
        more = (f"and {self._more_faults} more",) if self._more_faults else ()
        return Verified(self._count, dropped, self._head_hash, (*self._faults, *more))

    def _check_first(self, first: Entry) -> int:
        """How many entries were dropped before the first existing one."""
        before = first.number - 1
        if read_move(first.event) is not None:
            return 0
        if before and any((before, first.previous) == (t.last, t.hash) for _, t in self._trims):
            return before
        if before:
            self._add_fault(f"{_span(1, before)}: missing")
        elif first.previous != NOTHING_BEFORE:
            self._add_fault("entry 1: names an entry before it")
        return 0

    def _check_link(self, entry: Entry) -> None:
        """Check that it is the entry that the later one names as its predecessor."""
        later = self._later
        if later is None:
            return
        if entry.number >= later.number:
            self._add_fault(f"entry {entry.number}: there twice")
        elif entry.number < later.number - 1:
            self._add_fault(f"{_span(entry.number + 1, later.number - 1)}: missing")
        elif later.previous != entry.hash:
            self._add_fault(f"entry {entry.number}: is not the one that entry {later.number} names")

    def _add_fault(self, words: str) -> None:
        if len(self._faults) < MOST_FAULTS:
            self._faults.append(words)
        else:
            self._more_faults += 1


def _span(first: int, last: int) -> str:
    return f"entry {first}" if first == last else f"entries {first} to {last}"
