"""The audit log inside one process: for tests, and for a gateway on memory://."""

from __future__ import annotations

from gateway.domain.audit import NOTHING_BEFORE, Entry, Event, chained


class MemoryAuditStore:
    """domain.ports.AuditStore over a list; it is never down."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    async def append(self, event: Event) -> Entry:
        """Put an event at the end."""
        number, previous = await self.head()
        entry = chained(event, number + 1, previous)
        self._entries.append(entry)
        return entry

    async def entries(self, *, before: int | None = None, count: int = 100) -> list[Entry]:
        """The newest first, up to `count`, of numbers below `before`."""
        end = len(self._entries) if before is None else max(0, before - 1)
        return self._entries[:end][::-1][:count]

    async def head(self) -> tuple[int, str]:
        """Number and hash of the last entry."""
        if not self._entries:
            return 0, NOTHING_BEFORE
        return self._entries[-1].number, self._entries[-1].hash
