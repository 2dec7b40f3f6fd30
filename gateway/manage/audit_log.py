"""The audit log: appends entries, reads them in pages with filters, verifies them.

A change is made first, then its entry is written. If that fails, the change stays and the failure
is logged: an error would hide the result from the user, such as a key that is shown only once.

Entries that the gateway has not written, as others may write to the store, are reported as such and
are not part of the chain.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from gateway.domain.audit import MOST_NUMBER, UNREADABLE, Entry, Event
from gateway.domain.ports import AuditStore, AuditWriter
from gateway.manage.audit_chain import Chain, Verified
from gateway.manage.views import moment

_log = logging.getLogger("gateway")

#: Entries per request to the store, and the most that one page searches for matches.
CHUNK: Final = 500
MOST_LOOKED_AT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Actor:
    """name: "anna"; via: "api", "console" or "cli"; address: the client's, if over a network"""

    name: str
    via: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(filter(None, (self.via, self.address)))})"


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A page of entries, newest first. next: the `before` of the next page; None: there is none"""

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
        """The newest entries with numbers below `before`, up to `count`.

        action:  "key.create", or "key" for all actions on keys
        actor:   a part of the entry's actor, in any letter case
        subject: "key:7h3k9m2p4q6r", or the part after the colon

        If few entries match, a page may be short or empty although more follow.
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
        """Check every entry: none was changed, inserted or removed."""
        known = await self._store.head()
        chain = Chain()
        before: int | None = None
        newest: int | None = None
        while chunk := await self._store.entries(before=before, count=CHUNK):
            for entry in chunk:
                if entry.event.action == UNREADABLE:
                    chain.add_foreign(entry)
                    continue
                if newest is None:
                    newest = entry.number
                    # Entries may be appended meanwhile: the entry may fit either of the two heads.
                    chain.check_last(entry, known, await self._store.head())
                chain.check(entry)
            before = chunk[-1].number
        if newest is None:
            chain.check_empty(known)
            newest = 0
        # Deletions made meanwhile are recorded in entries that were appended meanwhile.
        for entry in await self._store.oldest(after=newest, count=CHUNK):
            chain.add_trim(entry)
        return chain.verified()


async def note(audit: AuditWriter, event: Event) -> None:
    """Append an event to the log. Never raises: failures are logged."""
    try:
        await audit.append(event)
    except Exception as error:
        _log.error(
            "cannot write the audit log entry for %s of %s by %s: %s",
            *(event.action, event.subject, event.actor, error),
        )


def is_wanted(event: Event, action: str | None, actor: str | None, subject: str | None) -> bool:
    """Does the event match the filters of `Audit.page`?"""
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
    """The `next` of a page, at most the largest number that the gateway gives."""
    return min(before, MOST_NUMBER) if before > 1 else None
