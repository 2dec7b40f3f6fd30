"""Of many alike lines of a log, which to write: one a second, with how many were left out."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

EVERY_S: Final = 1.0


@dataclass(slots=True)
class _Written:
    """When a line about a subject was last written, and how many were not since."""

    at_s: float
    left_out: int = 0


class Seldom:
    """Decides for the lines of one kind, by their subject."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._written: dict[Hashable, _Written] = {}

    def left_out(self, subject: Hashable, now_s: float) -> int | None:
        """How many lines about it were left out since the last; None: so is this one."""
        last = self._written.get(subject)
        if last is not None and now_s - last.at_s < self._every_s:
            last.left_out += 1
            return None
        self._forget(now_s)
        self._written[subject] = _Written(now_s)
        return 0 if last is None else last.left_out

    def _forget(self, now_s: float) -> None:
        """What was written long ago and left nothing out says no more than an absent entry."""
        for subject, last in tuple(self._written.items()):
            if not last.left_out and now_s - last.at_s >= self._every_s:
                del self._written[subject]
