"""Any server, at random, by weight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from gateway.domain.balancing.rule import Asking, Below, C


def build(candidates: Sequence[C], by: str, below: Below) -> Callable[[Asking], C]:
    """Pick at random."""
    pick = weighted(candidates, below)
    return lambda request: pick()


def weighted(candidates: Sequence[C], below: Below) -> Callable[[], C]:
    """Pick each in proportion to its weight."""
    ends = list(accumulate(each.weight for each in candidates))
    total = ends[-1]
    return lambda: candidates[bisect_right(ends, below(total))]
