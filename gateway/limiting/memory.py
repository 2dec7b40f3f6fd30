"""The limiter of one process: for `memory://`, and for counting through an outage of the store.

It runs the reference arithmetic. A state is dropped once it says nothing any more, a few looks at
each decision, so that no decision pays for a large sweep; and never more than `capacity` are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from gateway.domain.limits import LEASE_US, Check, Decision
from gateway.domain.ports import Review
from gateway.domain.window import State, decide, dies_us, release, renew

#: States looked at per decision. A decision adds a few at most, so two would nearly do.
_LOOKS: Final = 4


class MemoryLimiter:
    """Implements `domain.ports.ReviewedLimiter`; `done` is called before `decide` returns.

    And `stores.leases.LeaseBook`: the leases that it has granted, or is told of.

    clock_us: Unix time in microseconds
    capacity: the most states kept; beyond it those longest unseen by the sweep are forgotten
    roomy:    up to so many states nothing is swept: they cost nothing, and should the clock step
              forward and back again, they are still there, as they would be in Redis
    """

    def __init__(
        self, clock_us: Callable[[], int], *, capacity: int = 100_000, roomy: int = 1_000
    ) -> None:
        self.clock_us = clock_us
        self._capacity = capacity
        self._roomy = roomy
        #: Name -> the state and when it dies, in the order in which the sweep will come by.
        self._kept: OrderedDict[str, tuple[State, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def decide(
        self,
        check: Check,
        done: Callable[[Decision | None], None],
        review: Review | None = None,
    ) -> None:
        decision = self.decide_now(check)
        done(decision if decision.allowed or review is None else review(check, decision))

    def decide_now(self, check: Check) -> Decision:
        """The decision, without a callback."""
        now_us = self.clock_us()
        states = [self._state(name) for name in check.counters]
        decision, changed = decide(states, check, now_us)
        for name, limit, state in zip(check.counters, check.limits, changed, strict=True):
            if state is not None:
                self._kept[name] = state, dies_us(state, limit, now_us)
        self._sweep(now_us)
        return decision

    def renew(self, name: str, numbers: Iterable[int]) -> None:
        """Hold these leases of a count for their whole time from now on, known or not."""
        now_us = self.clock_us()
        self._kept[name] = renew(self._state(name), numbers, now_us), now_us + LEASE_US
        self._sweep(now_us)

    def release(self, name: str, number: int) -> None:
        """Give a lease of a count back; harmless when it is not held."""
        kept = self._kept.get(name)
        if kept is not None:
            self._kept[name] = release(kept[0], number), kept[1]

    def forget(self, name: str) -> None:
        """Forget a count; harmless when there is none."""
        self._kept.pop(name, None)

    def _state(self, name: str) -> State | None:
        kept = self._kept.get(name)
        return None if kept is None else kept[0]

    def _sweep(self, now_us: int) -> None:
        for _ in range(_LOOKS):
            if len(self._kept) <= self._roomy:
                break
            name = next(iter(self._kept))
            if self._kept[name][1] <= now_us:
                del self._kept[name]
            else:
                self._kept.move_to_end(name)
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
