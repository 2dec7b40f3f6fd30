"""When a server's answers eject it: too many are errors, or too many are slow.

Answers are counted over a window, in slices of a tenth of it; the oldest slice is dropped as a
whole. Nothing is decided before the window has a least number of answers. Time is passed in.
"""

from __future__ import annotations

from typing import Final

from gateway.domain.upstreams import Ejection

_SLICES: Final = 10


class Window:
    """The answers of one server, as far as the rule counts them."""

    __slots__ = ("_at", "_counts", "_rule", "_width_s")

    def __init__(self, rule: Ejection) -> None:
        self._rule = rule
        self._width_s = rule.window_s / _SLICES
        self.clear()

    def clear(self) -> None:
        """Drop all answers."""
        self._at = 0
        #: By slice: answers, errors, slow ones.
        self._counts = [[0, 0, 0] for _ in range(_SLICES)]

    def is_error(self, status: int) -> bool:
        """Does an answer with this status count as an error?"""
        return self._rule.errors_percent is not None and status >= 500

    def is_slow(self, waited_s: float) -> bool:
        """Does an answer after this time count as slow?"""
        return self._rule.latency_s is not None and waited_s > self._rule.latency_s

    def add(self, now: float, *, error: bool, slow: bool) -> str | None:
        """Count an answer; return why the server is to be ejected for it, or None."""
        self._advance(int(now / self._width_s))
        counts = self._counts[self._at % _SLICES]
        counts[0] += 1
        counts[1] += error
        counts[2] += slow
        return self._fault() if error or slow else None

    def _advance(self, at: int) -> None:
        """Clear the slices since the last answer."""
        for passed in range(max(self._at + 1, at - _SLICES + 1), at + 1):
            self._counts[passed % _SLICES] = [0, 0, 0]
        self._at = max(self._at, at)

    def _fault(self) -> str | None:
        rule = self._rule
        answers, errors, slow = map(sum, zip(*self._counts, strict=True))
        if answers < rule.least:
            return None
        if rule.errors_percent is not None and errors * 100 >= rule.errors_percent * answers:
            return f"{errors} of {answers} answers are errors"
        if rule.latency_s is not None and slow * 2 > answers:
            return f"{slow} of {answers} answers took more than {rule.latency_s:g} s"
        return None
