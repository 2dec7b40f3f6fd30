"""The less busy of two servers picked at random.

This is nearly as even as the least busy of all, and independent gateways do not all pick the same
server (Mitzenmacher, "The Power of Two Choices"). With weights, both are picked by weight, and the
requests in progress count in proportion to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.domain.balancing import uniform
from gateway.domain.balancing.rule import Asking, Below, C


def build(candidates: Sequence[C], by: str, below: Below) -> Callable[[Asking], C]:
    """Pick by requests in progress."""
    if len(candidates) == 1:
        return lambda request: candidates[0]
    if len({each.weight for each in candidates}) > 1:
        return _weighted(candidates, below)
    number, rest = len(candidates), len(candidates) - 1

    def pick(request: Asking) -> C:
        at = below(number)
        second = below(rest)
        one, other = candidates[at], candidates[second + 1 if second >= at else second]
        return one if one.busy <= other.busy else other

    return pick


def _weighted(candidates: Sequence[C], below: Below) -> Callable[[Asking], C]:
    first = uniform.weighted(candidates, below)
    #: For each, how to pick one of the others.
    seconds = [
        uniform.weighted([*candidates[:at], *candidates[at + 1 :]], below)
        for at in range(len(candidates))
    ]
    places = {id(each): at for at, each in enumerate(candidates)}

    def pick(request: Asking) -> C:
        one = first()
        other = seconds[places[id(one)]]()
        return one if one.busy * other.weight <= other.busy * one.weight else other

    return pick
