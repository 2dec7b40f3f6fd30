"""The audit log for people: read in pages, narrowed down, and its chain followed back to the start.

The start is the first entry, or the one after those that were dropped with age: some entry that is
left then has to say so, with the number and hash of the last of them.

What the gateway has not written, as others may put entries into the store, is told as such and is
no part of the chain.

What is verified is that the log hangs together. Whoever may write to the store as they like could
chain all of it anew; against that helps to note number and hash of the last entry elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.domain.audit import (
    MOST_NUMBER,
    NOTHING_BEFORE,
    UNREADABLE,
    Entry,
    Event,
    Trim,
    chained,
    read_move,
    read_trim,
)
from gateway.domain.ports import AuditStore
from gateway.manage.views import moment

#: Entries asked for at once, and the most that one page looks through for those that are wanted.
CHUNK: Final = 500
MOST_LOOKED_AT: Final = 10_000
#: The most faults that are told in words.
MOST_FAULTS: Final = 20


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some entries, newest first. next: what `before` is for those that follow; None: no more."""

    entries: tuple[Entry, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of following the chain.

    count:     entries that are there, of the gateway
    dropped:   entries before them that were dropped with age, as the log itself says
    head_hash: the hash of the last one
    faults:    what is wrong, newest first; at the most 20 in words, and how many more there are
    """

    count: int
    dropped: int
    head_hash: str
    faults: tuple[str, ...]


class Audit:
    """The audit log of a store."""

    def __init__(self, store: AuditStore) -> None:
        self._store = store

    async def page(
        self,
        before: int | None = None,
        count: int = 50,
        *,
        action: str | None = None,
        actor: str | None = None,
        subject: str | None = None,
    ) -> AuditPage:
        """The newest entries of numbers below `before`, up to `count`.

        action:  "key.create", or "key" for all that begin so
        actor:   is part of the entry's, in whatever case
        subject: "key:7h3k9m2p4q6r", or what follows the colon

        Where few are wanted a page may be short, or empty, and still have one that follows.
        """
        wanted = action, actor, subject
        is_narrowed = any(wanted)
        found: list[Entry] = []
        looked_at = 0
        while looked_at < MOST_LOOKED_AT:
            chunk = await self._store.entries(before=before, count=CHUNK if is_narrowed else count)
            for entry in chunk:
                before = entry.number
                looked_at += 1
                if is_wanted(entry.event, *wanted):
                    found.append(entry)
                    if len(found) == count:
                        return AuditPage(tuple(found), _next(before))
            if not chunk or before is None or before <= 1:
                return AuditPage(tuple(found), None)
        return AuditPage(tuple(found), None if before is None else _next(before))

    async def verify(self) -> Verified:
        """Look at every entry: is it what was put in, and is none missing?"""
        known = await self._store.head()
        chain = _Chain()
        before: int | None = None
        newest: int | None = None
        while chunk := await self._store.entries(before=before, count=CHUNK):
            for entry in chunk:
                if entry.event.action == UNREADABLE:
                    chain.meets_foreign(entry)
                    continue
                if newest is None:
                    newest = entry.number
                    # Entries may be put in while this looks: the head may be of either moment.
                    chain.ends_at(entry, known, await self._store.head())
                chain.goes_back_to(entry)
            before = chunk[-1].number
        if newest is None:
            chain.is_empty(known)
            newest = 0
        # What was dropped while this looked is told by an entry that came meanwhile, too.
        for entry in await self._store.oldest(after=newest, count=CHUNK):
            chain.notes_trim(entry)
        return chain.verified()


def is_wanted(event: Event, action: str | None, actor: str | None, subject: str | None) -> bool:
    """Is it one of those that `Audit.page` is asked for?"""
    return (
        (not action or event.action == action or event.action.startswith(f"{action}."))
        and (not actor or actor.casefold() in event.actor.casefold())
        and (not subject or subject in (event.subject, event.subject.partition(":")[2]))
    )


def entry_as_json(entry: Entry) -> dict[str, object]:
    """All of an entry."""
    event = entry.event
    return {
        "number": entry.number,
        "time": moment(event.at_us),
        "actor": event.actor,
        "action": event.action,
        "subject": event.subject,
        "before": None if event.before is None else dict(event.before),
        "after": None if event.after is None else dict(event.after),
        "previous": entry.previous,
        "hash": entry.hash,
    }


def _next(before: int) -> int | None:
    """What a page names for the next one; beyond the numbers of ours nothing is paged through."""
    return min(before, MOST_NUMBER) if before > 1 else None


class _Chain:
    """Follows the entries from the last to the first, and keeps what does not fit."""

    def __init__(self) -> None:
        self._count = 0
        self._head_hash = NOTHING_BEFORE
        self._faults: list[str] = []
        self._more_faults = 0
        #: The entry looked at before: the one after in the log.
        self._later: Entry | None = None
        #: What was dropped, as entries say.
        self._trims: list[tuple[int, Trim]] = []

    def ends_at(self, last: Entry, *heads: tuple[int, str]) -> None:
        """The last entry; it has to be one that the head has named about now."""
        self._head_hash = last.hash
        numbers = [number for number, _ in heads]
        if last.number < min(numbers):
            self._complain(f"the end is cut off: {_span(last.number + 1, min(numbers))}")
        elif last.number > max(numbers):
            self._complain(f"{_span(max(numbers) + 1, last.number)}: put in beside the log's head")
        elif any(number == last.number and known != last.hash for number, known in heads):
            self._complain(f"entry {last.number}: is not the one that the log's head names")

    def is_empty(self, head: tuple[int, str]) -> None:
        """There is no entry at all."""
        if head[0]:
            self._complain(f"the end is cut off: {_span(1, head[0])}")

    def meets_foreign(self, entry: Entry) -> None:
        """What the gateway has not written stands there."""
        self._complain(f"entry {entry.number}: not written by the gateway")

    def goes_back_to(self, entry: Entry) -> None:
        """One entry further back."""
        self._count += 1
        self._fits(entry)
        made = chained(entry.event, entry.number, entry.previous)
        if made.hash != entry.hash:
            self._complain(f"entry {entry.number}: was changed, its content has another hash")
        if (moved_to := read_move(entry.event)) is not None:
            self._complain(
                f"entry {entry.number}: the log before it was moved to {moved_to}, as no entry "
                "could follow what something else had written there"
            )
        self.notes_trim(entry)
        self._later = entry

    def notes_trim(self, entry: Entry) -> None:
        """What an entry says of entries that were dropped."""
        if (trim := read_trim(entry.event)) is not None:
            self._trims.append((entry.number, trim))

    def verified(self) -> Verified:
        """What came of it, with the first entry reached."""
        dropped = 0 if self._later is None else self._begins_at(self._later)
        for number, trim in self._trims:
            if not trim.is_whole:
                self._complain(f"entry {number}: what was dropped then was not whole")
        more = (f"and {self._more_faults} more",) if self._more_faults else ()
        return Verified(self._count, dropped, self._head_hash, (*self._faults, *more))

    def _begins_at(self, first: Entry) -> int:
        """How many were dropped before the first entry that is there."""
        before = first.number - 1
        if read_move(first.event) is not None:
            return 0
        if before and any((before, first.previous) == (t.last, t.hash) for _, t in self._trims):
            return before
        if before:
            self._complain(f"{_span(1, before)}: missing")
        elif first.previous != NOTHING_BEFORE:
            self._complain("entry 1: names an entry before it")
        return 0

    def _fits(self, entry: Entry) -> None:
        """Is it the one that the later entry names as the one before it?"""
        later = self._later
        if later is None:
            return
        if entry.number >= later.number:
            self._complain(f"entry {entry.number}: there twice")
        elif entry.number < later.number - 1:
            self._complain(f"{_span(entry.number + 1, later.number - 1)}: missing")
        elif later.previous != entry.hash:
            self._complain(f"entry {entry.number}: is not the one that entry {later.number} names")

    def _complain(self, words: str) -> None:
        if len(self._faults) < MOST_FAULTS:
            self._faults.append(words)
        else:
            self._more_faults += 1


def _span(first: int, last: int) -> str:
    return f"entry {first}" if first == last else f"entries {first} to {last}"
