"""What this worker has admitted and the store does not know of: a debt for each counter.

No I/O and no clock: times are passed in, and the fallback limiter writes back. A debt is noted by
slot or by period, as in the counter, so that units which leave their window before the store
recovers are no longer owed. Where the clock steps back, later slots count as the current one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.domain.limits import Limit
from gateway.domain.window import MOST, counted_in

#: The most counters with a debt; beyond it, the oldest debt is dropped.
MOST_COUNTERS: Final = 100_000


@dataclass(slots=True)
class Debt:
    """What is owed to one counter.

    limit:   the counter's whole limit, as last checked
    units:   the units by the slot or the period in which they were admitted
    written: the store has confirmed that the debt was counted
    """

    name: str
    limit: Limit
    units: dict[int, int] = field(default_factory=dict)
    written: bool = False

    def add(self, cost: int, now_us: int) -> None:
        """Add what was admitted now."""
        units, (first, current) = self.units, counted_in(self.limit, now_us)
        if current in units:
            units[current] += cost
            return
        for older in [each for each in units if each < first]:
            del units[older]
        units[current] = cost

    def merge(self, other: Debt) -> None:
        """Add another debt to the same counter."""
        for each, units in other.units.items():
            self.units[each] = self.units.get(each, 0) + units

    def due(self, now_us: int) -> int:
        """The units that are still within their window or period."""
        first, _ = counted_in(self.limit, now_us)
        return min(MOST, sum(units for each, units in self.units.items() if each >= first))

    @property
    def shadow(self) -> Limit:
        """The limit by which the debt is written back: it counts, and refuses nothing."""
        return replace(self.limit, shadow=True)

    @property
    def gauge(self) -> Limit:
        """A limit to read the counter with: the counted units are MOST minus what remains."""
        return replace(self.limit, amount=MOST, burst=None, shadow=True)

    def beyond(self, due: int, left: int) -> int:
        """The units written back that exceed the limit. left: remaining by the gauge afterwards"""
        return min(due, max(0, MOST - left - self.limit.peak))


class Owed:
    """The debts of a worker, by counter name. dropped: debts dropped because there were too many"""

    def __init__(self, capacity: int = MOST_COUNTERS) -> None:
        self.dropped = 0
        self._capacity = capacity
        #: Oldest first.
        self._debts: OrderedDict[str, Debt] = OrderedDict()

    def __len__(self) -> int:
        return len(self._debts)

    def owes(self, names: Iterable[str]) -> bool:
        """Is anything owed to one of these counters?"""
        debts = self._debts
        for name in names:  # noqa: SIM110 - a generator would take three times as long
            if name in debts:
                return True
        return False

    def add(self, name: str, limit: Limit, cost: int, now_us: int) -> None:
        """Add a cost that was admitted without the store."""
        debt = self._debts.get(name)
        if debt is None:
            debt = self._keep(Debt(name, limit))
        debt.limit = limit
        debt.add(cost, now_us)

    def take(self, most: int) -> list[Debt]:
        """Remove the oldest debts, to write them back."""
        return [self._debts.popitem(last=False)[1] for _ in range(min(most, len(self._debts)))]

    def put_back(self, debt: Debt) -> None:
        """Return a debt that could not be written back, and add what was admitted since."""
        newer = self._debts.pop(debt.name, None)
        if newer is not None:
            debt.limit = newer.limit
            debt.merge(newer)
        self._keep(Debt(debt.name, debt.limit, debt.units))

    def _keep(self, debt: Debt) -> Debt:
        if len(self._debts) >= self._capacity:
            self._debts.popitem(last=False)
            self.dropped += 1
        self._debts[debt.name] = debt
        return debt
