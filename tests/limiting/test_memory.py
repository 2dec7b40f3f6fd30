"""The limiter of one process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.domain.limits import LEASE_US, Check, Decision, Limit
from gateway.limiting.memory import MemoryLimiter
from tests.suites.limiter import START_US, LimiterSuite, Rig

FIVE = Limit("five", "rate", 5, 60_000_000)


class MemoryRig:
    def __init__(self) -> None:
        self.now_us = START_US
        self.used = 0
        self.limiter = MemoryLimiter(lambda: self.now_us)

    def fresh(self, limits: Sequence[Limit]) -> Check:
        self.used += 1
        return Check(tuple(limits), tuple(f"{self.used}:{limit.counter}" for limit in limits))

    def ask(self, asked: Sequence[tuple[int, Check]]) -> list[Decision]:
        decisions: list[Decision | None] = []
        for now_us, check in asked:
            self.now_us = now_us
            self.limiter.decide(check, decisions.append)
        return [decision for decision in decisions if decision is not None]

    def release(self, check: Check) -> None:
        for lease in check.leases:
            self.limiter.release(*lease)


class TestMemoryLimiter(LimiterSuite):
    @pytest.fixture
    def rig(self) -> Rig:
        return MemoryRig()


def check(name: object) -> Check:
    return Check((FIVE,), (str(name),))


def test_states_expire() -> None:
    """Expired states are removed within a few decisions, without a large sweep."""
    now_us = START_US
    limiter = MemoryLimiter(lambda: now_us, sweep_above=0)
    for name in range(400):
        limiter.decide_now(check(name))
    assert len(limiter) == 400
    now_us += 62_000_001
    limiter.decide_now(check("first"))
    assert len(limiter) > 390
    for _ in range(100):
        limiter.decide_now(check("first"))
    assert len(limiter) == 1


def test_a_state_in_use_hides_no_expired_one() -> None:
    """The sweep goes on behind a counter that came first and is used all the time."""
    now_us = START_US
    limiter = MemoryLimiter(lambda: now_us, sweep_above=0)
    for name in ("busy", *range(400)):
        limiter.decide_now(check(name))
    now_us += 62_000_001
    for _ in range(200):
        limiter.decide_now(check("busy"))
    assert len(limiter) == 1


def test_states_that_count_stay() -> None:
    """The sweep removes no state that still counts."""
    limiter = MemoryLimiter(lambda: START_US, sweep_above=0)
    for _ in range(5):
        for name in range(50):
            assert limiter.decide_now(check(name)).allowed
    assert not any(limiter.decide_now(check(name)).allowed for name in range(50))


def test_few_states_are_not_swept() -> None:
    """While there is room, counters survive a clock that jumps ahead and back."""
    now_us = START_US
    limiter = MemoryLimiter(lambda: now_us, sweep_above=10)
    full = check("full").at_cost(5)
    assert limiter.decide_now(full).allowed
    now_us += 3_600_000_000
    for _ in range(20):
        limiter.decide_now(check("other"))
    now_us = START_US
    assert not limiter.decide_now(full).allowed


def test_bounded() -> None:
    """There are never more states than the capacity, however many subjects there are."""
    limiter = MemoryLimiter(lambda: START_US, capacity=100, sweep_above=10)
    for name in range(1_000):
        limiter.decide_now(check(name))
        assert len(limiter) <= 100


def test_who_is_connected() -> None:
    """A connection is, until its lease expires or is released."""
    now_us = START_US
    limiter = MemoryLimiter(lambda: now_us)
    limiter.renew("a", [(101, 7), (102, 7), 103])
    assert [limiter.is_connected("a", tag) for tag in (101, 102, 103, 104)] == [True, True] + (
        [False] * 2
    )
    limiter.release("a", (101, 7))
    assert not limiter.is_connected("a", 101)
    now_us += LEASE_US - 1
    assert limiter.is_connected("a", 102)
    now_us += 1
    assert not limiter.is_connected("a", 102)


def test_a_release_keeps_nothing() -> None:
    """Releasing a lease of an unused counter leaves no state."""
    limiter = MemoryLimiter(lambda: START_US)
    limiter.release("a", 1)
    assert len(limiter) == 0


def test_refusals_and_reads_keep_nothing() -> None:
    """Checks at cost 0 and refused ones leave no state."""
    limiter = MemoryLimiter(lambda: START_US)
    limiter.decide_now(check("a").at_cost(0))
    limiter.decide_now(check("b").at_cost(6))
    assert len(limiter) == 0
