"""The limiter of one process: for `memory://`, and for the fallback in an outage.

It runs the reference arithmetic. A counter is dropped after it has expired. Each decision checks a
few counters for that, so that no decision takes long; at most `capacity` counters are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from gateway.domain.limits import LEASE_US, Check, Decision, Member
from gateway.domain.ports import Review
from gateway.domain.window import Leases, State, decide, expires_us, release, renew

#: Counters checked for expiry per decision. A decision adds a few at most.
_SWEPT: Final = 4


class MemoryLimiter:
    """Implements `domain.ports.ReviewedLimiter`; `done` is called before `decide` returns.

    Also implements `stores.limits.leases.LeaseStore`.

    clock_us: Unix time in microseconds
    capacity: the most counters kept; beyond it those that were swept longest ago are dropped
    sweep_above: up to this many counters nothing is swept: if the clock steps forward and back
              again, they still exist, as they would in Redis
    """

    def __init__(
        self, clock_us: Callable[[], int], *, capacity: int = 100_000, sweep_above: int = 1_000
    ) -> None:
        self.clock_us = clock_us
        self._capacity = capacity
        self._sweep_above = sweep_above
        #: By name: the state and when it expires, in the order of the sweep.
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
        """Decide a check, without a callback."""
        now_us = self.clock_us()
        kept = self._kept
        states = [None if (held := kept.get(name)) is None else held[0] for name in check.counters]
        decision, changed = decide(states, check, now_us)
        for name, limit, state, standing in zip(
            check.counters, check.limits, changed, decision.standings, strict=True
        ):
            if state is not None:
                kept[name] = state, expires_us(standing.reset_us, limit, now_us)
        self._sweep(now_us)
        return decision

    def renew(self, name: str, members: Iterable[Member]) -> None:
        """Hold these leases of a counter for their full time from now on, lost ones included."""
        now_us = self.clock_us()
        self._kept[name] = renew(self._state(name), members, now_us), now_us + LEASE_US
        self._sweep(now_us)

    def release(self, name: str, member: Member) -> None:
        """Release a lease of a counter; harmless when it is not held."""
        kept = self._kept.get(name)
        if kept is not None:
            self._kept[name] = release(kept[0], member), kept[1]

    def is_connected(self, name: str, tag: int) -> bool:
        """Does a connection hold a lease of this counter?"""
        state, now_us = self._state(name), self.clock_us()
        return isinstance(state, Leases) and any(
            isinstance(member, tuple) and member[0] == tag and until_us > now_us
            for member, until_us in state.until_us.items()
        )

    def reset(self, name: str) -> None:
        """Drop a counter; harmless when there is none."""
        self._kept.pop(name, None)

    def _state(self, name: str) -> State | None:
        kept = self._kept.get(name)
        return None if kept is None else kept[0]

    def _sweep(self, now_us: int) -> None:
        for _ in range(_SWEPT):
            if len(self._kept) <= self._sweep_above:
                break
            name = next(iter(self._kept))
            if self._kept[name][1] <= now_us:
                del self._kept[name]
            else:
                self._kept.move_to_end(name)
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
