"""Limits divided into shares, one for each worker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.limits import LEASE_US, Check, Decision, Limit
from gateway.limiting.memory import MemoryLimiter
from gateway.limiting.shares import RETRY_US, LocalCounters, part, share
from tests.kit.rows import each_row
from tests.limiting.test_memory import MemoryRig
from tests.suites import sample
from tests.suites.limiter import LimiterSuite, Rig

WORKERS = st.integers(1, 300)


def shares(limit: Limit, name: str, workers: int) -> list[Limit | None]:
    return [share(limit, name, rank, workers) for rank in range(workers)]


@each_row(
    ("whole", "workers", "parts"),
    [
        (60, 1, [60]),
        (60, 4, [15, 15, 15, 15]),
        (5, 2, [2, 3]),
        (2, 4, [0, 1, 0, 1]),
        (1, 3, [0, 0, 1]),
        (10, 4, [2, 3, 2, 3]),
    ],
)
def test_part(whole: int, workers: int, parts: list[int]) -> None:
    """The shares of some whole numbers."""
    assert [part(whole, rank, workers) for rank in range(workers)] == parts


@given(amount=st.integers(1, 2**32 - 1), workers=WORKERS, name=st.text())
def test_shares_add_up(amount: int, workers: int, name: str) -> None:
    """The shares of any number of workers add up to the limit, and are nearly equal."""
    limit = Limit("five", "quota", amount, 60_000_000)
    amounts = [own.amount if own else 0 for own in shares(limit, name, workers)]
    assert sum(amounts) == amount
    assert max(amounts) - min(amounts) <= 1


@given(
    amount=st.integers(1, 1_000),
    more=st.integers(0, 1_000),
    workers=WORKERS,
    name=st.text(max_size=9),
)
def test_shares_of_a_burst(amount: int, more: int, workers: int, name: str) -> None:
    """Neither rates nor peaks add up to more than the whole, and each peak covers its rate."""
    limit = Limit("plan", "rate", amount, 60_000_000, amount + more)
    parts = [own for own in shares(limit, name, workers) if own is not None]
    assert sum(own.amount for own in parts) <= amount
    assert sum(own.peak for own in parts) <= amount + more
    assert all(own.burst is not None and 1 <= own.amount <= own.burst for own in parts)


def test_other_fields_of_a_limit_stay() -> None:
    """A share is the same limit except for its values."""
    limit = Limit("held", "concurrency", 9, 6_000_000, per="account", shadow=True)
    own = share(limit, "x", 0, 3)
    assert own == Limit("held", "concurrency", 3, 6_000_000, per="account", shadow=True)
    assert share(limit, "x", 0, 1) is limit


def test_small_limits_are_at_different_workers() -> None:
    """Which workers have a share depends on the counter, so that no worker refuses everything."""
    limit = Limit("few", "rate", 1, 60_000_000)
    lucky = {
        rank
        for name in range(200)
        for rank, own in enumerate(shares(limit, f"gw:limit:{{a}}:key:{name}", 4))
        if own is not None
    }
    assert lucky == {0, 1, 2, 3}


def test_no_share_of_what_costs_nothing() -> None:
    """A limit without a share refuses only what costs something in it; it is reported as full."""
    limits = (
        Limit("plan", "rate", 100, 60_000_000),
        Limit("few", "rate", 1, 60_000_000),
        Limit("held", "concurrency", 1, LEASE_US),
    )
    counters = LocalCounters(MemoryLimiter(lambda: 1_800_000_000_000_000), lambda: (0, 2))
    name = next(
        str(n)
        for n in range(99)
        if share(limits[1], str(n), 0, 2) is None and share(limits[2], str(n), 0, 2) is None
    )
    check = Check(limits, ("plan", name, name), 2, costs=(2, 0, 0))
    free = counters.decide(check)
    assert (free.allowed, free.governing, free.refusing) == (True, 1, 0)
    assert [standing.remaining for standing in free.standings] == [48, 0, 0]
    for costs, governing, refusing in [((2, 1, 0), 1, 2), ((2, 0, 1), 2, 4)]:
        refused = counters.decide(Check(limits, check.counters, 2, costs=costs))
        assert (refused.allowed, refused.governing) == (False, governing)
        assert (refused.refusing, refused.retry_us) == (refusing, RETRY_US)
    assert counters.decide(check).standings[0].remaining == 46


def test_a_shadow_without_a_share() -> None:
    """A limit in shadow mode that has no share here does not keep the others from counting."""
    limits = (
        Limit("plan", "rate", 10, 60_000_000),
        Limit("few", "rate", 1, 60_000_000, shadow=True),
    )
    counters = LocalCounters(MemoryLimiter(lambda: 1_800_000_000_000_000), lambda: (0, 2))
    name = next(str(n) for n in range(99) if share(limits[1], str(n), 0, 2) is None)
    decisions = [counters.decide(Check(limits, ("plan", name))) for _ in range(6)]
    assert [decision.allowed for decision in decisions] == [True] * 5 + [False]
    assert [decision.standings[0].remaining for decision in decisions] == [4, 3, 2, 1, 0, 0]


def test_a_connection_without_a_share() -> None:
    """Where a limit has no share, the connections that hold a lease are admitted, and no others."""
    limits = (Limit("plan", "rate", 100, 60_000_000), Limit("few", "connections", 1, LEASE_US))
    local = MemoryLimiter(lambda: 1_800_000_000_000_000)
    counters = LocalCounters(local, lambda: (0, 2))
    name = next(str(n) for n in range(99) if share(limits[1], str(n), 0, 2) is None)
    check = Check(limits, ("plan", name))
    local.renew(name, [(101, 7), 102])
    decisions = [counters.decide(check.leased(n, tag)) for n, tag in ((1, 101), (2, 102), (3, 0))]
    assert [decision.allowed for decision in decisions] == [True, False, False]


def test_what_the_store_refuses() -> None:
    """The lease of a connection stays, as other requests may hold it; a request's own does not."""
    held, clients = (
        Limit("held", "concurrency", 9, LEASE_US),
        Limit("few", "connections", 9, LEASE_US),
    )
    counters = LocalCounters(MemoryLimiter(lambda: 1_800_000_000_000_000), lambda: (0, 1))
    check = Check((held, clients), ("held", "clients"))
    for number, tag in ((1, 101), (2, 0)):
        counters.decide(check.leased(number, tag))
        counters.release(check.leased(number, tag))
    left = [one.remaining for one in counters.decide(check.at_cost(0)).standings]
    assert left == [9, 8]


class SharesRig(MemoryRig):
    """The counters of a worker that has all of each limit to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.counters = LocalCounters(self.limiter, lambda: (0, 1))

    def ask(self, asked: Sequence[tuple[int, Check]]) -> list[Decision]:
        decisions = []
        for self.now_us, check in asked:
            decisions.append(self.counters.decide(check))
        return decisions


class TestShares(sample(LimiterSuite)):
    @pytest.fixture
    def rig(self) -> Rig:
        return SharesRig()


@pytest.mark.parametrize(("amount", "retry_us"), [(10, RETRY_US), (3, None)])
def test_a_cost_beyond_the_share(amount: int, retry_us: int | None) -> None:
    """It is never admitted only if the whole limit cannot admit it; a lease is one at any cost."""
    limits = (
        Limit("plan", "rate", amount, 60_000_000),
        Limit("held", "concurrency", 3, LEASE_US),
    )
    counters = LocalCounters(MemoryLimiter(lambda: 1_800_000_000_000_000), lambda: (0, 4))
    decision = counters.decide(Check(limits, ("a", "b"), 4))
    assert (decision.allowed, decision.retry_us) == (False, retry_us)
