"""Decides when a dead worker is restarted, and which worker stands in for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

#: After a run of this length, a death counts as the first of a new series.
SETTLED_S: Final = 10.0
FIRST_S: Final = 0.1
MOST_S: Final = 10.0


class Restarts:
    """The restarts of one slot: immediate after a long run, with rising delays after short ones."""

    def __init__(self) -> None:
        self._quick_deaths = 0

    def delay_s(self, lived_s: float) -> float:
        """The delay before the next start. lived_s: how long the last worker ran"""
        if lived_s >= SETTLED_S:
            self._quick_deaths = 0
        self._quick_deaths += 1
        if self._quick_deaths == 1:
            return 0.0
        # Without a bound of the exponent, the float would overflow.
        return min(FIRST_S * 2.0 ** min(self._quick_deaths - 2, 32), MOST_S)


def stand_ins(
    absent: Collection[int], present: Collection[int], now: Mapping[int, int]
) -> dict[int, int]:
    """Which worker accepts connections for which other: absent worker -> present worker.

    Existing stand-ins are kept; a new one is the worker that stands in for the fewest. Empty if no
    worker is present: connections then wait in the kernel.
    """
    if not present:
        return {}
    kept = {one: other for one, other in now.items() if one in absent and other in present}
    for one in sorted(set(absent) - kept.keys()):
        load = {other: list(kept.values()).count(other) for other in sorted(present)}
        kept[one] = min(load, key=load.__getitem__)
    return kept
