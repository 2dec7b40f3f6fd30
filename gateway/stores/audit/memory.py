"""The audit log in process, for memory:// and tests."""

from __future__ import annotations

from itertools import islice

from gateway.domain.audit import NOTHING_BEFORE, Entry, Event, chained


class MemoryAuditStore:
    """domain.ports.AuditStore over a list; it never raises StoreDown."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    async def append(self, event: Event, *, drop_to: int = 0) -> Entry:
        """Append an event, and drop all entries up to this number."""
        number, previous = await self.head()
        entry = chained(event, number + 1, previous)
        self._entries.append(entry)
        if drop_to:
            self._entries = [kept for kept in self._entries if kept.number > drop_to]
        return entry

    async def entries(self, *, before: int | None = None, count: int = 100) -> list[Entry]:
        """The newest first, up to `count`, of numbers below `before`."""
        newest = reversed(self._entries)
        wanted = (entry for entry in newest if before is None or entry.number < before)
        return list(islice(wanted, count))

    async def oldest(self, *, after: int = 0, count: int = 100) -> list[Entry]:
        """The oldest first, up to `count`, of numbers above `after`."""
        return list(islice((entry for entry in self._entries if entry.number > after), count))

    async def head(self) -> tuple[int, str]:
        """Number and hash of the last entry."""
        if not self._entries:
            return 0, NOTHING_BEFORE
        return self._entries[-1].number, self._entries[-1].hash
