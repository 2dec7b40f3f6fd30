"""Values of several rounds, and what they allow to say about an objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

#: With fewer rounds a comparison has no verdict: too little is known of how much it varies.
ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of values, and their number."""

    least: float
    middle: float
    most: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """values: one a round, at least one"""
        return cls(min(values), median(values), max(values), len(values))

    def text(self, places: int = 2) -> str:
        """Such as "0.58 (0.55 to 0.61)"; a single value has no range."""
        middle = f"{self.middle:,.{places}f}"
        if self.count == 1:
            return middle
        return f"{middle} ({self.least:,.{places}f} to {self.most:,.{places}f})"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours divided by theirs, round by round: two of a round were measured in the same seconds."""
    return Spread.of([one / other for one, other in zip(ours, theirs, strict=True)])


@dataclass(frozen=True, slots=True)
class Verdict:
    """A value and its objective. found: None if it was not measured; rounds: that it needs"""

    title: str
    found: Spread | None
    at_most: float
    unit: str = ""
    note: str = ""
    rounds: int = ROUNDS

    @property
    def word(self) -> str:
        """A result only where all rounds agree."""
        if self.found is None:
            return "not measured"
        if self.found.count < self.rounds:
            return "too few rounds"
        if self.found.most <= self.at_most:
            return "pass"
        return "FAIL" if self.found.least > self.at_most else "undecided"
