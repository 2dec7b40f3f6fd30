"""The debts to the store."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.limits import Limit
from gateway.domain.window import MOST
from gateway.limiting.memory import MemoryLimiter
from gateway.limiting.owed import Debt, Owed
from tests.kit.rows import each_row
from tests.stores.limits.test_limiter import DAILY, FIVE, FREE, check_of
from tests.suites.limiter import START_US

SECOND_US = 1_000_000


def taken(owed: Owed) -> list[Debt]:
    return owed.take(100)


def test_debts_add_up() -> None:
    """All admissions of one counter are one debt."""
    owed = Owed()
    owed.add("a", FIVE, 2, START_US)
    owed.add("b", DAILY, 7, START_US)
    owed.add("a", FIVE, 1, START_US + 3 * SECOND_US)
    assert len(owed) == 2
    assert (owed.owes(("x", "b")), owed.owes(("x",)), owed.owes(())) == (True, False, False)
    assert [(debt.name, debt.due(START_US + 3 * SECOND_US)) for debt in taken(owed)] == [
        ("a", 3),
        ("b", 7),
    ]
    assert len(owed) == 0


@each_row(
    ("limit", "after_us", "due"),
    [
        (FREE, 0, 5),
        (FREE, 59 * SECOND_US, 5),
        (FREE, 62 * SECOND_US, 0),
        (DAILY, 62 * SECOND_US, 5),
        (DAILY, 86_400 * SECOND_US, 0),
        (FREE, -30 * SECOND_US, 5),  # the clock stepped back
    ],
)
def test_what_is_due(limit: Limit, after_us: int, due: int) -> None:
    """A debt is due as far as it still counts in the current window or period."""
    owed = Owed()
    owed.add("a", limit, 5, START_US)
    (debt,) = taken(owed)
    assert debt.due(START_US + after_us) == due


@pytest.mark.parametrize("limit", [FREE, DAILY])
def test_put_back(limit: Limit) -> None:
    """A debt that could not be written back is owed again, with what was admitted since."""
    owed = Owed()
    owed.add("a", limit, 5, START_US)
    owed.add("b", limit, 1, START_US)
    (debt,) = owed.take(1)
    assert not owed.owes(("a",))
    owed.add("a", limit, 2, START_US + 30 * SECOND_US)
    owed.put_back(debt)
    b, a = taken(owed)
    assert (b.name, a.name) == ("b", "a")
    assert a.due(START_US + 31 * SECOND_US) == 7
    if limit.kind == "rate":
        assert a.due(START_US + 65 * SECOND_US) == 2
    owed.put_back(a)
    assert [debt.due(START_US + 31 * SECOND_US) for debt in taken(owed)] == [7]


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_limit_that_a_reload_changes(is_put_back: bool) -> None:
    """A debt is written back, and reported, by the values that were in effect last."""
    owed = Owed()
    ten = replace(FIVE, name="ten", amount=10, was=(FIVE.name,))
    assert ten.counter == FIVE.counter
    owed.add("a", FIVE, 4, START_US)
    older = owed.take(1) if is_put_back else []
    owed.add("a", ten, 6, START_US)
    for one in older:
        owed.put_back(one)
    (debt,) = taken(owed)
    assert debt.shadow == replace(ten, shadow=True)
    assert (debt.due(START_US), debt.beyond(10, MOST - 13)) == (10, 3)


def test_bounded() -> None:
    """Beyond the capacity the oldest debts are dropped and counted."""
    owed = Owed(capacity=3)
    for name in "abcda":
        owed.add(name, FIVE, 1, START_US)
    assert [debt.name for debt in taken(owed)] == ["c", "d", "a"]
    assert owed.dropped == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans())))
def test_nothing_is_lost_or_doubled(steps: list[tuple[str, int, bool]]) -> None:
    """However often debts are taken and put back, all of it is owed in the end, once."""
    owed, now_us, admitted = Owed(), START_US, dict.fromkeys("abc", 0)
    for name, cost, goes_wrong in steps:
        now_us += SECOND_US // 4
        owed.add(name, DAILY, cost, now_us)
        admitted[name] += cost
        if goes_wrong:
            debts = owed.take(2)
            owed.add(name, DAILY, cost, now_us)
            admitted[name] += cost
            for debt in debts:
                owed.put_back(debt)
    assert {debt.name: debt.due(now_us) for debt in taken(owed)} == {
        name: cost for name, cost in admitted.items() if cost
    }


@each_row(
    ("limit", "before", "due"), product([FREE, FIVE, DAILY], [0, 3, 5, 100, 5_000], [1, 4, 200])
)
def test_how_far_beyond(limit: Limit, before: int, due: int) -> None:
    """The gauge reads a counter of any size; `beyond` is the part of a debt over the limit."""
    limiter = MemoryLimiter(lambda: START_US)
    (name,) = names = check_of(limit).counters
    owed = Owed()
    owed.add(name, limit, due, START_US)
    (debt,) = taken(owed)
    for cost in (before, due):
        limiter.decide_now(check_of(debt.shadow).at_cost(cost))
    check = check_of(debt.gauge).at_cost(0)
    assert check.counters == names
    left = limiter.decide_now(check).standings[0].remaining
    assert MOST - left == before + due
    assert debt.beyond(due, left) == max(0, before + due - max(before, limit.peak))
