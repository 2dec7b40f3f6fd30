"""What this worker has admitted and the store does not know of: a debt for each count.

Pure bookkeeping: times are handed in, and writing back is the fallback limiter's affair. A debt is
kept as the count itself is, slot by slot or for a period, so that what has left its window by the
time the store is back is owed no more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from gateway.domain.limits import Limit
from gateway.domain.window import MOST, Period, State, Window, count, settle

#: The most counts with a debt; beyond, the oldest is forgotten.
MOST_COUNTS: Final = 100_000


@dataclass(slots=True)
class Debt:
    """What is owed to one count.

    limit:   the count's limit as it was last asked, whole
    written: the store has answered that it has counted it
    """

    name: str
    limit: Limit
    state: State
    written: bool = False

    def due(self, now_us: int) -> int:
        """How much of it still lies in its window or period."""
        return _total(settle(self.state, self.limit, now_us)[0])

    @property
    def shadow(self) -> Limit:
        """The limit as it is written back: it counts, and refuses nothing."""
        return replace(self.limit, shadow=True)

    @property
    def gauge(self) -> Limit:
        """A limit of the same count by which to read it: what it has left of MOST is not used."""
        return replace(self.limit, amount=MOST, burst=None, shadow=True)

    def beyond(self, due: int, left: int) -> int:
        """How much of what was written back went beyond the limit. left: by the gauge, after it."""
        return min(due, max(0, MOST - left - self.limit.peak))


class Ledger:
    """The debts of a worker, by the names of the counts. forgotten: debts given up for room."""

    def __init__(self, capacity: int = MOST_COUNTS) -> None:
        self.forgotten = 0
        self._capacity = capacity
        #: The one that has waited longest comes first.
        self._debts: OrderedDict[str, Debt] = OrderedDict()

    def __len__(self) -> int:
        return len(self._debts)

    def owes(self, names: Iterable[str]) -> bool:
        """Is anything owed to one of these counts?"""
        debts = self._debts
        return any(name in debts for name in names)

    def add(self, name: str, limit: Limit, cost: int, now_us: int) -> None:
        """The cost has been admitted without the store."""
        debt = self._debts.get(name)
        state, _ = settle(None if debt is None else debt.state, limit, now_us)
        self._keep(name, limit, count(state, limit, cost, now_us))

    def take(self, most: int) -> list[Debt]:
        """The oldest debts, to be written back: they are out of the book."""
        return [self._debts.popitem(last=False)[1] for _ in range(min(most, len(self._debts)))]

    def put_back(self, debt: Debt, now_us: int) -> None:
        """It could not be written back; what has been admitted since is added."""
        newer = self._debts.pop(debt.name, None)
        limit = debt.limit if newer is None else newer.limit
        state, _ = settle(debt.state, limit, now_us)
        if newer is not None:
            state = _sum(state, settle(newer.state, limit, now_us)[0])
        self._keep(debt.name, limit, state)

    def _keep(self, name: str, limit: Limit, state: State) -> None:
        debt = self._debts.get(name)
        if debt is not None:
            debt.limit, debt.state = limit, state
            return
        if len(self._debts) >= self._capacity:
            self._debts.popitem(last=False)
            self.forgotten += 1
        self._debts[name] = Debt(name, limit, state)


def _total(state: State) -> int:
    if isinstance(state, Window):
        return sum(state.counts)
    return state.count if isinstance(state, Period) else 0


def _sum(one: State, other: State) -> State:
    """Two settled states of one count as one. The bucket is not looked at: a debt is an amount."""
    if isinstance(one, Window) and isinstance(other, Window):
        pairs = zip_longest(one.counts, other.counts, fillvalue=0)
        return Window(one.slot, tuple(map(sum, pairs)))
    assert isinstance(one, Period)
    return Period(one.index, _total(one) + _total(other))
