"""Cached refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.limits import Check, Decision, Limit
from gateway.limiting.memory import MemoryLimiter
from gateway.limiting.refusal_cache import AGE_NS, NEVER_US, RESET_GRACE_NS, RefusalCache
from tests.kit.reach import reached, reaches
from tests.stores.limits.test_limiter import DAILY, FIVE, FREE, check_of
from tests.suites.limiter import START_US, examples

Done = Callable[[Decision | None], None]


class Clocked:
    """A refusal cache over a limiter in memory that counts its checks."""

    def __init__(self, *, capacity: int = 100) -> None:
        self.now_us = START_US
        self.asked = 0
        self.local = False
        self.away = False
        self.limiter = MemoryLimiter(lambda: self.now_us)
        self.on_refused: Callable[[Check, Decision], None]
        self.refusals = RefusalCache(self, self.now_ns, capacity=capacity)

    def now_ns(self) -> int:
        return (self.now_us - START_US) * 1000

    def decide(self, check: Check, done: Done) -> None:
        self.asked += 1
        decision = self.limiter.decide_now(check)
        decision.local = self.local
        if not self.away and not decision.allowed:
            self.on_refused(check, decision)
        done(None if self.away else decision)

    def ask(self, check: Check) -> Decision:
        decisions: list[Decision | None] = []
        self.refusals.decide(check, decisions.append)
        (decision,) = decisions
        assert decision is not None
        return decision

    def spend(self, check: Check) -> Decision:
        """Send the check until it is refused; return the refusal."""
        while (decision := self.ask(check)).allowed:
            pass
        self.asked = 0
        return decision

    def is_asked(self, check: Check) -> bool:
        """Does the check reach the limiter behind the cache?"""
        before = self.asked
        self.ask(check)
        return self.asked > before


@pytest.fixture
def clocked() -> Clocked:
    return Clocked()


def test_a_refusal_is_cached_for_its_retry_time(clocked: Clocked) -> None:
    """Until the retry time is over the cache answers; then the limiter is asked, and admits."""
    check = check_of(FREE, FIVE)
    first = clocked.spend(check)
    assert first.retry_us is not None
    for passed_us in (0, 50_000, 1_000_000, first.retry_us - 1):
        clocked.now_us = first.now_us + passed_us
        decision = clocked.ask(check)
        assert decision == replace(
            first,
            retry_us=first.retry_us - passed_us,
            now_us=first.now_us + passed_us,
            standings=decision.standings,
        )
        assert [(s.remaining, s.reset_us + passed_us) for s in decision.standings] == [
            (s.remaining, s.reset_us) for s in first.standings
        ]
    assert clocked.ask(check) is decision  # the same object is returned for a moment
    assert clocked.asked == 0
    clocked.now_us = first.now_us + first.retry_us
    assert clocked.ask(check).allowed
    assert len(clocked.refusals) == 0


def test_a_limit_that_is_full_first(clocked: Clocked) -> None:
    """The reset of a limit that is full again before the retry time is over stays at 0."""
    second = Limit("second", "rate", 9, 1_000_000)
    check = check_of(second, FIVE)
    first = clocked.spend(check)
    clocked.now_us += 30_000_000
    assert clocked.ask(check).standings[0].reset_us == 0 < first.standings[0].reset_us


@pytest.mark.parametrize(
    "other",
    [
        check_of(FIVE, name="other"),
        check_of(replace(FIVE, amount=6)),
        check_of(FIVE, DAILY),
        check_of(FIVE).at_cost(0),
        check_of(FIVE).at_cost(2),
        replace(check_of(FIVE), dry=True),
        replace(check_of(FIVE), costs=(1,)),
    ],
    ids=["subject", "figures", "limits", "question", "cost", "dry", "costs"],
)
def test_another_check(clocked: Clocked, other: Check) -> None:
    """A check of another subject, limit or cost reaches the limiter."""
    clocked.spend(check_of(FIVE))
    assert not clocked.is_asked(check_of(FIVE))
    assert clocked.is_asked(other)


def test_a_refusal_is_for_its_costs(clocked: Clocked) -> None:
    """Of checks that cost the same as a whole, each is refused for its own costs."""
    check = check_of(FIVE, FREE)
    both, second = (replace(check, cost=3, costs=costs) for costs in ((3, 1), (0, 3)))
    clocked.spend(both)
    assert not clocked.is_asked(replace(both, costs=(3, 1)))
    assert clocked.is_asked(second)
    assert clocked.ask(second).allowed


def test_equal_limits(clocked: Clocked) -> None:
    """Two routes with the same limits share cached refusals."""
    clocked.spend(check_of(FREE))
    assert not clocked.is_asked(check_of(replace(FREE)))


def test_never(clocked: Clocked) -> None:
    """A cost that can never pass is cached for a moment, and refused as such."""
    check = check_of(FIVE).at_cost(6)
    assert clocked.ask(check).retry_us is None
    clocked.now_us += NEVER_US - 1
    assert (clocked.is_asked(check), clocked.ask(check).retry_us) == (False, None)
    clocked.now_us += 1
    assert clocked.is_asked(check)


@pytest.mark.parametrize("what", ["local", "dry", "question", "concurrency"])
def test_not_cached(clocked: Clocked, what: str) -> None:
    """Local, dry and cost-0 refusals are not cached, nor those by leases, which may end soon."""
    check = check_of(FIVE)
    if what == "concurrency":
        check = check_of(FREE, Limit("held", "concurrency", 1, 6_000_000))
        assert clocked.ask(check.leased(1)).allowed
    elif what == "local":
        clocked.local = True
        clocked.limiter.decide_now(check.at_cost(5))
    elif what == "dry":
        clocked.limiter.decide_now(check.at_cost(5))
        check = replace(check, dry=True)
    else:
        clocked.limiter.decide_now(check.at_cost(5))
        check = check_of(replace(FIVE, amount=3)).at_cost(0)
    assert not clocked.ask(check).allowed
    assert len(clocked.refusals) == 0


def test_a_rate_beside_leases(clocked: Clocked) -> None:
    """A refusal that a rate governs is cached, even if there are leases as well."""
    check = check_of(FIVE, Limit("held", "concurrency", 99, 6_000_000))
    clocked.spend(check)
    assert not clocked.is_asked(check.leased(3))


def test_no_answer(clocked: Clocked) -> None:
    """A missing decision is passed on."""
    clocked.away = True
    answers: list[Decision | None] = []
    clocked.refusals.decide(check_of(FIVE), answers.append)
    assert answers == [None]


def test_invalidate(clocked: Clocked) -> None:
    """After an invalidation the limiter is asked, and for a moment nothing is cached for it."""
    checks = [check_of(FIVE, name=name) for name in ("a", "b")]
    for check in checks:
        clocked.spend(check)
    clocked.refusals.invalidate(checks[0].counters[0])
    assert [clocked.is_asked(check) for check in checks] == [True, False]
    # A refusal by the deleted counters may have been under way.
    assert clocked.is_asked(checks[0])
    clocked.now_us += RESET_GRACE_NS // 1000
    assert [clocked.is_asked(checks[0]) for _ in range(2)] == [True, False]
    clocked.refusals.invalidate()
    assert len(clocked.refusals) == 0


@pytest.mark.parametrize("reset", [0, 1])
def test_a_reset_of_one_of_several_counters(clocked: Clocked, reset: int) -> None:
    """Whichever of a check's counters is reset, its refusal is dropped."""
    check = check_of(FIVE, DAILY)
    clocked.spend(check)
    clocked.refusals.invalidate(check.counters[reset])
    assert clocked.is_asked(check)


def test_bounded() -> None:
    """Beyond the capacity the oldest refusal is evicted; a subject's new refusal is cached anew."""
    clocked = Clocked(capacity=3)
    checks = [check_of(FIVE, name=str(name)) for name in range(4)]
    for check in checks[:3]:
        clocked.spend(check)
    other = check_of(replace(FIVE, amount=4), name="0")
    assert not clocked.ask(other).allowed
    clocked.spend(checks[3])
    assert len(clocked.refusals) == 3
    assert [clocked.is_asked(check) for check in (other, *checks[2:])] == [False, False, False]
    assert clocked.is_asked(checks[1])


LIMITS = st.lists(
    st.sampled_from(
        [FIVE, FREE, DAILY, replace(FIVE, name="burst", burst=7), replace(DAILY, amount=9)]
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda limit: limit.counter,
)
WAITS = st.one_of(st.integers(0, 70_000_000), st.sampled_from([0, 1, 999_999, 61_000_000]))


@reaches(0.1)
@given(
    limits=LIMITS,
    steps=st.lists(st.tuples(WAITS, st.sampled_from([0, 1, 1, 1, 2, 5, 60])), max_size=40),
)
@examples
def test_admits_as_without(limits: list[Limit], steps: list[tuple[int, int]]) -> None:
    """With or without the cache, a lone client's requests are admitted at the same times."""
    clocked, plain = Clocked(), MemoryLimiter(lambda: clocked.now_us)
    check = check_of(*limits)
    for wait_us, cost in steps:
        clocked.now_us += wait_us
        given, right = clocked.ask(check.at_cost(cost)), plain.decide_now(check.at_cost(cost))
        reached()
        assert given.allowed == right.allowed


@reaches(0.1)
@given(limits=LIMITS, cost=st.integers(1, 6), waits=st.lists(WAITS, max_size=40))
@examples
def test_reports_as_without(limits: list[Limit], cost: int, waits: list[int]) -> None:
    """The answer is the same, at most a moment old: the limit, the remaining, the reset."""
    clocked, plain = Clocked(), MemoryLimiter(lambda: clocked.now_us)
    check = check_of(*limits).at_cost(cost)
    for wait_us in waits:
        clocked.now_us += wait_us
        given, right = clocked.ask(check), plain.decide_now(check)
        late_us = right.now_us - given.now_us
        reached()
        assert 0 <= late_us < AGE_NS // 1000
        assert 0 <= given.reset_us - right.reset_us <= late_us
        assert given.remaining == right.remaining
        assert (given.retry_us is None) == (right.retry_us is None)
        if right.retry_us is not None and given.retry_us is not None:
            assert given.retry_us == right.retry_us + late_us
        # A cached refusal reports limits that do not govern as they were.
        assert (given.allowed, given.governing) == (right.allowed, right.governing)


@reaches(0.3)
@given(st.lists(st.integers(1, 3_000_000), min_size=30, max_size=60))
@settings(deadline=None)
def test_waiting_the_returned_time_is_enough(waits: list[int]) -> None:
    """A client that waits the time of a cached refusal is admitted, however often it asked."""
    clocked, check = Clocked(), check_of(FREE, FIVE)
    for wait_us in waits:
        clocked.now_us += wait_us
        decision = clocked.ask(check)
        if decision.retry_us is not None:
            clocked.now_us += decision.retry_us
            reached()
            assert clocked.ask(check).allowed
