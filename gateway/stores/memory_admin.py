"""`domain.ports.AdminStore` in process, for memory:// and for tests."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.domain.ports import TokenMark


class MemoryAdminStore:
    """domain.ports.AdminStore over dictionaries; it is never down."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        #: Name of an ended session -> when its note expires.
        self._ended: dict[str, float] = {}
        self._mark: TokenMark | None = None
        self._marked_until_s = 0.0

    async def end_session(self, name: str, for_s: int) -> None:
        """Note that a session was ended. for_s: how long the note is needed"""
        now_s = self._clock_s()
        self._ended = {other: end_s for other, end_s in self._ended.items() if end_s > now_s}
        self._ended[name] = now_s + for_s

    async def has_ended(self, name: str) -> bool:
        """Was the session ended?"""
        return self._ended.get(name, 0.0) > self._clock_s()

    async def mark_token(self, mark: TokenMark, for_s: int) -> TokenMark:
        """Set the mark if there is none, or renew one with the same digest; the current mark."""
        now_s = self._clock_s()
        if self._mark is None or self._marked_until_s <= now_s:
            self._mark = mark
        if self._mark.digest == mark.digest:
            self._marked_until_s = now_s + for_s
        return self._mark
