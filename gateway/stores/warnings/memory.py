"""Warnings of limits in process, for memory:// and tests."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from gateway.domain.warnings import MOST_A_MINUTE, MOST_KEPT, KeptWarning, LimitWarning

_MINUTE_US: Final = 60_000_000


class MemoryWarningStore:
    """domain.ports.WarningStore over a list; it never raises StoreDown.

    clock_us: the clock of the warnings' windows
    """

    def __init__(self, clock_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._clock_us = clock_us
        self._kept: deque[KeptWarning] = deque(maxlen=MOST_KEPT)
        self._number = 0
        #: By counter and level: until when there is no further warning.
        self._until: dict[tuple[str, int], int] = {}
        self._this_minute = 0
        self._minute_until_us = 0

    async def warn(self, warning: LimitWarning) -> bool:
        """Store a warning, the first of its window. False: there is one already."""
        now_us = self._clock_us()
        self._until = {name: until for name, until in self._until.items() if until > now_us}
        name = warning.counter, warning.level
        if name in self._until:
            return False
        self._until[name] = now_us + warning.for_us
        if now_us >= self._minute_until_us:
            self._this_minute, self._minute_until_us = 0, now_us + _MINUTE_US
        self._this_minute += 1
        if self._this_minute <= MOST_A_MINUTE:
            self._keep(warning)
        return True

    async def newest(self, *, before: str | None = None, count: int = 100) -> list[KeptWarning]:
        """The newest first, up to `count`, of those before an id."""
        end = self._number + 1 if before is None else _number_in(before)
        older = (kept for kept in reversed(self._kept) if _number_in(kept.id) < end)
        return list(islice(older, count))

    def _keep(self, warning: LimitWarning) -> None:
        self._number += 1
        self._kept.append(
            KeptWarning(
                f"{self._number}-0",
                warning.at_us,
                warning.key_id,
                warning.plan,
                warning.limit,
                warning.level,
            )
        )


def _number_in(warning_id: str) -> int:
    return int(warning_id.partition("-")[0])
