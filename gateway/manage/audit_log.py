"""The audit log for people: written to, read in pages, narrowed down, and verified.

A change comes first, then its entry. If the entry cannot be written the change stays, and the log
reports it: an error would hide the result from the user, such as a key that is shown only once.

Entries that the gateway has not written, as others may write to the store, are reported as such and
are no part of the chain.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from gateway.domain.audit import MOST_NUMBER, UNREADABLE, Entry, Event
from gateway.domain.ports import AuditStore
from gateway.manage.audit_chain import Chain, Verified
from gateway.manage.views import moment

_log = logging.getLogger("gateway")

#: Entries asked for at once, and the most that one page looks through for those that are wanted.
CHUNK: Final = 500
MOST_LOOKED_AT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Actor:
    """name: "anna"; via: "api", "console" or "cli"; address: where from, where that is a network"""

    name: str
    via: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(filter(None, (self.via, self.address)))})"


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some entries, newest first. next: what `before` is for those that follow; None: no more."""

    entries: tuple[Entry, ...]
    next: int | None


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
        chain = Chain()
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


async def note(audit: AuditStore, event: Event) -> None:
    """Put an event at the end of the log; never fails."""
    try:
        await audit.append(event)
    except Exception as error:
        _log.error(
            "cannot write the audit log entry for %s of %s by %s: %s",
            *(event.action, event.subject, event.actor, error),
        )


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
