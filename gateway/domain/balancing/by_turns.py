"""Each server in turn; one with a weight of 3 has three turns, spread over the round.

The rule of nginx: each turn every server gains its weight, the one with the most is picked, and
pays the sum of all. Workers begin at different places, so that they do not all ask the same server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.domain.balancing.rule import Asking, Below, C


def build(candidates: Sequence[C], by: str, below: Below) -> Callable[[Asking], C]:
    """Pick by turns."""
    weights = [each.weight for each in candidates]
    total = sum(weights)
    standings = [0] * len(candidates)

    def turn() -> int:
        for at, weight in enumerate(weights):
            standings[at] += weight
        at = standings.index(max(standings))
        standings[at] -= total
        return at

    for _ in range(below(min(total, 1_000))):
        turn()
    return lambda request: candidates[turn()]
