"""The keys with MCP connections in process, for memory:// and tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class MemoryConnectionStore:
    """domain.ports.ConnectionStore over a dictionary; it never raises StoreDown."""

    def __init__(self) -> None:
        self._reports: dict[str, Mapping[str, int]] = {}

    async def report(self, worker: str, connected: Mapping[str, int]) -> None:
        """How many connections keys have open at a worker, by id."""
        self._reports[worker] = dict(connected)

    async def connected(self) -> Mapping[str, int]:
        """The same, of all workers added up."""
        found: Counter[str] = Counter()
        for report in self._reports.values():
            found.update(report)
        return found
