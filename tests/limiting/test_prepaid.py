"""Failed authentications are counted ahead, never beyond the limit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.limits import Check, Decision, Limit
from gateway.limiting.memory import MemoryLimiter
from gateway.limiting.prepaid import MOST_UNITS, PART_OF_USED, PrepaidLimiter
from gateway.limiting.refusal_cache import RefusalCache
from tests.kit.reach import reached, reaches

SECOND_US = 1_000_000
START_US = 1_767_292_772 * SECOND_US
LARGE = Limit("failed_auth", "rate", 1_000_000, 60 * SECOND_US)
SMALL = Limit("failed_auth", "rate", 60, 60 * SECOND_US)


class Store:
    """A limiter that counts, and answers at once or when told to.

    asked: the cost of each check
    """

    def __init__(self) -> None:
        self.on_refused: Callable[[Check, Decision], None] = lambda _check, _decision: None
        self.now_us = START_US
        self.counts = MemoryLimiter(lambda: self.now_us)
        self.asked: list[int] = []
        self.is_slow = False
        self.is_away = False
        self._late: list[tuple[Check, Callable[[Decision | None], None]]] = []

    def now_ns(self) -> int:
        return self.now_us * 1000

    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        self.asked.append(check.cost)
        self._late.append((check, done))
        if not self.is_slow:
            self.answer()

    def answer(self) -> None:
        """Answer what was asked."""
        late, self._late = self._late, []
        for check, done in late:
            decision = None if self.is_away else self.counts.decide_now(check)
            if decision is not None and not decision.allowed:
                self.on_refused(check, decision)
            done(decision)

    def left(self, limit: Limit, address: str = "a") -> int:
        return self.counts.decide_now(Check((limit,), (address,), 0)).remaining


#: As in a policy, all checks of a limit have the same ones.
LIMITS: dict[Limit, tuple[Limit, ...]] = {}


def failure(limit: Limit, address: str = "a") -> Check:
    return Check(LIMITS.setdefault(limit, (limit,)), (address,), ahead=True)


def fail(limiter: PrepaidLimiter, limit: Limit, count: int, address: str = "a") -> list[Decision]:
    """So many failures in a row, which are all decided at once."""
    found: list[Decision | None] = []
    for _ in range(count):
        limiter.decide(failure(limit, address), found.append)
    assert len(found) == count
    return [decision for decision in found if decision is not None]


def test_few_questions_for_many_failures() -> None:
    """The first cost one unit each; later ones come in steps that grow with what was used."""
    store = Store()
    found = fail(PrepaidLimiter(store, store.now_ns), LARGE, 20_000)
    assert store.asked[:12] == [*[1] * 8, 2, 2, 2, 2]
    assert max(store.asked) == 1 + MOST_UNITS
    assert len(store.asked) < 120
    assert all(decision.allowed for decision in found)
    # Each says what would be left without counting ahead.
    assert [decision.remaining for decision in found] == [
        LARGE.amount - count for count in range(1, 20_001)
    ]


@pytest.mark.parametrize("each", [1, 5, 8, 9, 20, 100, 1_000])
def test_few_units_are_lost(each: int) -> None:
    """At a steady rate, at most an eighth more is counted than failures came."""
    store = Store()
    limiter = PrepaidLimiter(store, store.now_ns)
    for _ in range(50):
        fail(limiter, LARGE, each)
        store.now_us += SECOND_US
    assert 50 * each <= sum(store.asked) <= 50 * each * 9 // 8


def test_a_small_limit_is_used_up_exactly() -> None:
    """Close to the limit units are counted one by one, so that none is lost."""
    store = Store()
    found = fail(PrepaidLimiter(store, store.now_ns), SMALL, 70)
    assert [decision.allowed for decision in found] == [True] * 60 + [False] * 10
    assert [decision.remaining for decision in found] == [*range(59, -1, -1), *[0] * 10]
    assert max(store.asked) == 3


def test_units_are_lost_with_their_slot() -> None:
    """A unit is used in the slot that it was counted in, so that no window has too many."""
    store = Store()
    limiter = PrepaidLimiter(store, store.now_ns)
    store.now_us += SECOND_US // 2
    fail(limiter, LARGE, 100)
    asked = len(store.asked)
    store.now_us += SECOND_US // 2 - 1
    fail(limiter, LARGE, 1)
    assert len(store.asked) == asked
    store.now_us += 1
    fail(limiter, LARGE, 1)
    assert len(store.asked) == asked + 1


def test_units_of_long_slots_last_a_second() -> None:
    """A slot of a daily limit has 24 minutes; nothing is kept for that long."""
    store = Store()
    limiter = PrepaidLimiter(store, store.now_ns)
    daily = Limit("failed_auth", "rate", 1_000_000, 86_400 * SECOND_US)
    fail(limiter, daily, 100)
    asked = len(store.asked)
    store.now_us += SECOND_US
    fail(limiter, daily, 1)
    assert len(store.asked) == asked + 1


def test_failures_wait_for_a_decision_and_share_the_next() -> None:
    """While the store decides, further failures ask nothing; they are answered in order."""
    store = Store()
    store.is_slow = True
    limiter = PrepaidLimiter(store, store.now_ns)
    found: list[tuple[int, int]] = []
    for number in range(80):
        limiter.decide(failure(LARGE), lambda d, number=number: found.append((number, d.remaining)))
    assert store.asked == [1]
    store.answer()
    assert (store.asked, len(found)) == ([1, 79], 1)
    store.answer()
    assert found == [(number, LARGE.amount - number - 1) for number in range(80)]
    assert store.left(LARGE) == LARGE.amount - 80
    limiter.decide(failure(LARGE), lambda _: None)
    assert store.asked == [1, 79, 1 + 80 // PART_OF_USED]


def test_an_answer_after_the_slot_admits_one() -> None:
    """The failures that asked are admitted, however late; later ones ask again."""
    store = Store()
    store.is_slow = True
    limiter = PrepaidLimiter(store, store.now_ns)
    found: list[Decision | None] = []
    for _ in range(3):
        limiter.decide(failure(LARGE), found.append)
    store.now_us += 2 * SECOND_US
    store.answer()
    assert (len(found), store.asked) == (1, [1, 2])


def test_a_refusal_of_several_is_asked_again_for_one() -> None:
    """If another worker has used what was left, some of it may still be."""
    store = Store()
    limiter = PrepaidLimiter(store, store.now_ns)
    cache = RefusalCache(limiter, store.now_ns)
    limit = Limit("failed_auth", "rate", 100, 60 * SECOND_US)
    store.is_slow = True
    found: list[Decision | None] = []
    for _ in range(10):
        cache.decide(failure(limit), found.append)
    while store.left(limit) > 5:
        store.counts.decide_now(Check((limit,), ("a",)))
    store.answer()
    assert store.asked == [1, 9]
    store.answer()  # nine are refused
    assert store.asked == [1, 9, *[1] * 9]
    store.answer()
    assert [decision is not None and decision.allowed for decision in found] == (
        [True] * 5 + [False] * 5
    )
    # The refusal of one is cached, that of nine is not: nothing else is asked.
    cache.decide(failure(limit), found.append)
    assert len(store.asked) == 11
    assert len(found) == 11


def test_the_last_unit_is_for_one_of_two() -> None:
    """Two failures that are refused together are asked for one by one."""
    store = Store()
    limiter = PrepaidLimiter(store, store.now_ns)
    limit = Limit("failed_auth", "rate", 2, 60 * SECOND_US)
    store.is_slow = True
    found: list[Decision | None] = []
    for _ in range(3):
        limiter.decide(failure(limit), found.append)
    for _ in range(3):
        store.answer()
    assert store.asked == [1, 2, 1, 1]
    assert [decision is not None and decision.allowed for decision in found] == [True, True, False]


def test_a_refusal_of_one_is_passed_on() -> None:
    """The cache around it then refuses the next failures of the address without the store."""
    store = Store()
    limiter = PrepaidLimiter(store, store.now_ns)
    cache = RefusalCache(limiter, store.now_ns)
    limit = Limit("failed_auth", "rate", 3, 60 * SECOND_US)
    found: list[Decision | None] = []
    for _ in range(100):
        cache.decide(failure(limit), found.append)
    assert [decision is not None and decision.allowed for decision in found] == (
        [True] * 3 + [False] * 97
    )
    assert store.asked == [1] * 4


def test_refusals_of_other_checks_are_passed_on() -> None:
    """What is refused while several units of its counter are asked for is not a part of them."""
    store = Store()
    limiter = PrepaidLimiter(store, store.now_ns)
    refused: list[Check] = []
    limiter.on_refused = lambda check, _decision: refused.append(check)
    fail(limiter, LARGE, 100)
    store.is_slow = True
    limiter.decide(failure(LARGE), lambda _: None)
    assert store.asked[-1] > 1
    other = Check(failure(LARGE).limits, ("a",), LARGE.amount)
    limiter.decide(other, lambda _: None)
    store.answer()
    assert refused == [other]


@pytest.mark.parametrize("waiting", [1, 5])
def test_an_outage_answers_all(waiting: int) -> None:
    """Without a decision none that waits has one, and the next one asks again."""
    store = Store()
    store.is_slow = store.is_away = True
    limiter = PrepaidLimiter(store, store.now_ns)
    found: list[Decision | None] = []
    for _ in range(waiting):
        limiter.decide(failure(LARGE), found.append)
    store.answer()
    assert found == [None] * waiting
    assert len(limiter) == 0
    store.is_slow = store.is_away = False
    assert fail(limiter, LARGE, 1)[0].allowed


@pytest.mark.parametrize("is_slow", [False, True])
def test_another_limit_has_no_units_of_the_old_one(is_slow: bool) -> None:
    """After a reload units of the old limit are not used, nor what remained of it reported."""
    store = Store()
    limiter = PrepaidLimiter(store, store.now_ns)
    fail(limiter, LARGE, 5_000)
    store.is_slow = is_slow
    found: list[Decision | None] = []
    limiter.decide(failure(LARGE), found.append)
    for _ in range(20):
        limiter.decide(failure(SMALL), found.append)
    while is_slow and len(found) < 21:
        store.answer()
    assert found[0] is not None
    assert found[0].allowed
    assert [decision is not None and decision.allowed for decision in found[1:]] == [False] * 20
    assert all(decision is not None and decision.remaining == 0 for decision in found[1:])


def test_a_callback_that_fails_affects_no_other() -> None:
    """It is reported to the event loop."""

    async def run() -> list[object]:
        reports: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
        store = Store()
        store.is_slow = True
        limiter = PrepaidLimiter(store, store.now_ns)
        found: list[Decision | None] = []
        limiter.decide(failure(LARGE), lambda _: 1 / 0)
        limiter.decide(failure(LARGE), found.append)
        store.answer()
        store.answer()
        assert len(found) == 1
        return reports

    assert len(asyncio.run(run())) == 1


def test_a_callback_may_bring_the_next_failure() -> None:
    """A connection's next request comes while the answers to others are given."""
    store = Store()
    limiter = PrepaidLimiter(store, store.now_ns)
    seen = Counter[bool]()

    def again(decision: Decision | None) -> None:
        assert decision is not None
        seen[decision.allowed] += 1
        if sum(seen.values()) < 80:
            limiter.decide(failure(SMALL), again)

    limiter.decide(failure(SMALL), again)
    assert seen == {True: 60, False: 20}


def test_a_callback_takes_no_unit_of_others() -> None:
    """What arrives while answers are given is counted as well, not admitted in their place."""
    store = Store()
    store.is_slow = True
    limiter = PrepaidLimiter(store, store.now_ns)
    admitted = 0

    def again(decision: Decision | None) -> None:
        nonlocal admitted
        assert decision is not None
        admitted += decision.allowed
        if admitted < 300:
            limiter.decide(failure(LARGE), again)

    for _ in range(10):
        limiter.decide(failure(LARGE), again)
    while admitted < 300:
        store.answer()
    assert admitted <= sum(store.asked)
    assert store.left(LARGE) == LARGE.amount - sum(store.asked)


def test_other_checks_pass() -> None:
    """What reports the counter, or is of another limit, is asked as it is."""
    store = Store()
    limiter = PrepaidLimiter(store, store.now_ns)
    found: list[Decision | None] = []
    for cost in (0, 1, 5):
        limiter.decide(Check((SMALL,), ("a",), cost), found.append)
    assert (store.asked, len(found), len(limiter)) == ([0, 1, 5], 3, 0)


def test_addresses_are_bounded() -> None:
    """Beyond the capacity the oldest one is dropped; a decision on it is still delivered."""
    store = Store()
    store.is_slow = True
    limiter = PrepaidLimiter(store, store.now_ns, capacity=3)
    found: list[Decision | None] = []
    for address in "abcde":
        limiter.decide(failure(SMALL, address), found.append)
    assert len(limiter) == 3
    store.answer()
    assert len(found) == 5


@reaches(0.1)
@given(
    st.integers(1, 200),
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 60), st.integers(0, 3_000_000)), max_size=60
    ),
)
def test_never_beyond_the_limit(amount: int, steps: list[tuple[int, int, int]]) -> None:
    """Three workers, bursts and pauses: no minute has more admissions than the limit."""
    store = Store()
    limit = Limit("failed_auth", "rate", amount, 60 * SECOND_US)
    workers = [PrepaidLimiter(store, store.now_ns) for _ in range(3)]
    admitted: list[int] = []
    for worker, count, pause_us in steps:
        store.now_us += pause_us
        for decision in fail(workers[worker], limit, count):
            if decision.allowed:
                admitted.append(store.now_us)
    for first, at_us in enumerate(admitted):
        reached()
        within = [each for each in admitted[first:] if each < at_us + 60 * SECOND_US]
        assert len(within) <= amount
