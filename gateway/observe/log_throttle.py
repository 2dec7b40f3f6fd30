"""Limits similar log lines to one a second, and counts those that were suppressed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

EVERY_S: Final = 1.0


@dataclass(slots=True)
class _Written:
    """When a line about a subject was last written, and how many were suppressed since."""

    at_s: float
    suppressed: int = 0


class LogThrottle:
    """Throttles lines of one kind, separately for each subject."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._written: dict[Hashable, _Written] = {}

    def suppressed(self, subject: Hashable, now_s: float) -> int | None:
        """How many lines were suppressed since the last one. None: suppress this one as well"""
        last = self._written.get(subject)
        if last is not None and now_s - last.at_s < self._every_s:
            last.suppressed += 1
            return None
        self._drop_old(now_s)
        self._written[subject] = _Written(now_s)
        return 0 if last is None else last.suppressed

    def _drop_old(self, now_s: float) -> None:
        """Drop old entries without suppressed lines, which are the same as none."""
        for subject, last in tuple(self._written.items()):
            if not last.suppressed and now_s - last.at_s >= self._every_s:
                del self._written[subject]
