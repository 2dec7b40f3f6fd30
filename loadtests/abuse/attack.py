"""The parameters and the result of an attack."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["slow-header", "slow-body", "slow-read", "pipeline", "pipeline-unread"]


@dataclass(frozen=True, slots=True)
class Attack:
    """The parameters. every_s: the time between two bytes; key: an API key to send, or ""."""

    kind: Kind
    port: int
    connections: int = 1500
    seconds: float = 30.0
    every_s: float = 0.5
    path: str = "/"
    key: str = ""


@dataclass(slots=True)
class Outcome:
    """The result.

    opened, refused: connections that could, and could not, be opened
    statuses:        answers by status
    ended:           connections that the gateway closed, with or without an answer
    held:            connections still open at the end of the attack
    lives_s:         how long each of the closed ones lasted
    """

    opened: int = 0
    refused: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    ended: int = 0
    held: int = 0
    lives_s: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, object]:
        """The values that the tool prints."""
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
