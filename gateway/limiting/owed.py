"""What this worker has admitted and the store does not know of: a debt for each counter.

No I/O and no clock: times are passed in, and the fallback limiter writes back. A debt has the same
form as the counter, by slot or by period, so that units which leave their window before the store
recovers are no longer owed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from gateway.domain.limits import Limit
from gateway.domain.window import MOST, Period, State, Window, advance, count

#: The most counters with a debt; beyond it, the oldest debt is dropped.
MOST_COUNTERS: Final = 100_000


@dataclass(slots=True)
class Debt:
    """What is owed to one counter.

    limit:   the counter's whole limit, as last checked
    written: the store has confirmed that the debt was counted
    """

    name: str
    limit: Limit
    state: State
    written: bool = False

    def due(self, now_us: int) -> int:
        """The units that are still within their window or period."""
        return _total(advance(self.state, self.limit, now_us)[0])

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
        return any(name in debts for name in names)

    def add(self, name: str, limit: Limit, cost: int, now_us: int) -> None:
        """Add a cost that was admitted without the store."""
        debt = self._debts.get(name)
        state, _ = advance(None if debt is None else debt.state, limit, now_us)
        self._keep(name, limit, count(state, limit, cost, now_us))

    def take(self, most: int) -> list[Debt]:
        """Remove the oldest debts, to write them back."""
        return [self._debts.popitem(last=False)[1] for _ in range(min(most, len(self._debts)))]

    def put_back(self, debt: Debt, now_us: int) -> None:
        """Return a debt that could not be written back, and add what was admitted since."""
        newer = self._debts.pop(debt.name, None)
        limit = debt.limit if newer is None else newer.limit
        state, _ = advance(debt.state, limit, now_us)
        if newer is not None:
            state = _sum(state, advance(newer.state, limit, now_us)[0])
        self._keep(debt.name, limit, state)

    def _keep(self, name: str, limit: Limit, state: State) -> None:
        debt = self._debts.get(name)
        if debt is not None:
            debt.limit, debt.state = limit, state
            return
        if len(self._debts) >= self._capacity:
            self._debts.popitem(last=False)
            self.dropped += 1
        self._debts[name] = Debt(name, limit, state)


def _total(state: State) -> int:
    if isinstance(state, Window):
        return sum(state.counts)
    return state.count if isinstance(state, Period) else 0


def _sum(one: State, other: State) -> State:
    """The sum of two states of one counter, both as of now. Buckets are ignored."""
    if isinstance(one, Window) and isinstance(other, Window):
        pairs = zip_longest(one.counts, other.counts, fillvalue=0)
        return Window(one.slot, tuple(map(sum, pairs)))
    assert isinstance(one, Period)
    return Period(one.index, _total(one) + _total(other))
