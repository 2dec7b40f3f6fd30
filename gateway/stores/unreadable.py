"""Records that cannot be read, in the log: one line a second, however many of them there are."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.domain.ports import CorruptRecord
from gateway.observe.seldom import Seldom

log = logging.getLogger("gateway")


class UnreadableLog:
    """now_s: a clock that never steps back"""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._seldom = Seldom()

    def note(self, error: CorruptRecord) -> None:
        """Name the record, or count it with the next one that is named."""
        left_out = self._seldom.left_out("records", self._now_s())
        if left_out is not None:
            more = f" ({left_out} such lines were left out)" if left_out else ""
            log.error("%s%s", error, more)
