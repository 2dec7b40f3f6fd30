"""What an attack is told to do, and what came of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["slow-header", "slow-body", "slow-read", "pipeline", "pipeline-unread"]


@dataclass(frozen=True, slots=True)
class Attack:
    """What is done. every_s: the time between two bytes; key: an API key to show, or ""."""

    kind: Kind
    port: int
    connections: int = 1500
    seconds: float = 30.0
    every_s: float = 0.5
    path: str = "/"
    key: str = ""


@dataclass(slots=True)
class Outcome:
    """What came of it.

    opened, refused: connections that were, and were not, to be had
    statuses:        what the answers said, by status
    ended:           connections that the gateway ended, with an answer or without
    held:            those still open when the attack's time was up
    lives_s:         how long each of the ended ones lasted
    """

    opened: int = 0
    refused: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    ended: int = 0
    held: int = 0
    lives_s: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, object]:
        """As the tool prints it."""
        lives = sorted(self.lives_s)
        return {
            "opened": self.opened,
            "refused": self.refused,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "ended": self.ended,
            "held": self.held,
            "shortest_life_s": round(lives[0], 2) if lives else None,
            "longest_life_s": round(lives[-1], 2) if lives else None,
        }
