"""The arithmetic of limits, step by step; suites/limiter has the properties for all values."""

from __future__ import annotations

import pytest

from gateway.domain.limits import LEASE_US, Check, Limit
from gateway.domain.window import (
    Leases,
    Period,
    State,
    Window,
    advance,
    decide,
    expires_us,
    release,
    renew,
)

SECOND = 1_000_000
#: Slots of one second; the bucket refills one unit a second.
FREE = Limit("plan", "rate", 60, 60 * SECOND, 100)
PLAIN = Limit("plain", "rate", 5, 60 * SECOND)
DAILY = Limit("daily", "quota", 3, 86_400 * SECOND)
#: A lease lasts 6 s.
HELD = Limit("held", "concurrency", 2, LEASE_US)


def run(limit: Limit, *steps: tuple[float, int]) -> list[tuple[bool, int, int, int | None]]:
    """(seconds, cost) by (seconds, cost): allowed, remaining, reset and retry in seconds.

    With leases, each step has its own.
    """
    state: State | None = None
    answers = []
    for number, (now_s, cost) in enumerate(steps, 1):
        check = Check((limit,), ("x",), cost).leased(number)
        decision, (kept,) = decide([state], check, int(now_s * SECOND))
        state = kept or state
        retry = decision.retry_us
        answers.append(
            (
                decision.allowed,
                decision.remaining,
                decision.reset_us // SECOND,
                None if retry is None else retry // SECOND,
            )
        )
    return answers


@pytest.mark.parametrize(
    ("limit", "steps", "last"),
    [
        # -- the window
        (PLAIN, [(1000, 1)], (True, 4, 61, None)),
        (PLAIN, [(1000, 5), (1059, 1)], (False, 0, 2, 2)),  # still within the minute
        (PLAIN, [(1000, 5), (1060, 1)], (False, 0, 1, 1)),  # its slot is partly outside, and counts
        (PLAIN, [(1000, 5), (1061, 1)], (True, 4, 61, None)),
        (PLAIN, [(1000, 2), (1010, 3), (1020, 3)], (False, 0, 51, 51)),  # both must leave
        (PLAIN, [(1000, 2), (1010, 3), (1020, 2)], (False, 0, 51, 41)),  # the older must leave
        (PLAIN, [(1000, 2), (5000, 1)], (True, 4, 61, None)),
        # -- cost 0: only a question
        (PLAIN, [(1000, 0)], (True, 5, 0, None)),
        (PLAIN, [(1000, 5), (1000, 0)], (True, 0, 61, None)),
        # -- the bucket: 100 at once, then one a second, of which 60 are advertised
        (FREE, [(1000, 1)], (True, 59, 61, None)),
        (FREE, [(1000, 60)], (True, 0, 61, None)),
        (FREE, [(1000, 60), (1000, 40)], (True, 0, 100, None)),
        (FREE, [(1000, 100), (1000, 1)], (False, 0, 100, 61)),  # the window has 100
        (FREE, [(1000, 100), (1061, 61)], (True, 0, 100, None)),  # and the bucket has refilled 61
        (FREE, [(1000, 100), (1061, 62)], (False, 0, 39, 1)),
        (FREE, [(1000, 100), (1070, 0)], (True, 30, 30, None)),
        # -- the quota
        (DAILY, [(86_400, 1)], (True, 2, 86_400, None)),
        (DAILY, [(86_400, 3), (100_000, 1)], (False, 0, 72_800, 72_800)),
        (DAILY, [(86_400, 3), (172_800, 1)], (True, 2, 86_400, None)),
        (DAILY, [(86_400, 4)], (False, 0, 86_400, None)),
        # -- the clock steps back: what was counted in the future counts as of now
        (PLAIN, [(1000, 5), (500, 1)], (False, 0, 61, 61)),
        (PLAIN, [(1000, 5), (500, 1), (560, 1)], (False, 0, 1, 1)),
        (PLAIN, [(1000, 5), (500, 1), (561, 1)], (True, 4, 61, None)),
        (PLAIN, [(1000, 2), (1010, 3), (1005, 2)], (False, 0, 61, 56)),
        (FREE, [(1000, 100), (500, 1)], (False, 0, 100, 61)),
        (FREE, [(1000, 100), (500, 0), (560, 0)], (True, 0, 40, None)),
        (DAILY, [(172_800, 3), (100_000, 1)], (False, 0, 72_800, 72_800)),
        (DAILY, [(172_800, 3), (100_000, 1), (172_800, 1)], (True, 2, 86_400, None)),
        # -- leases: one a request, whatever it costs, for six seconds
        (HELD, [(1000, 1)], (True, 1, 6, None)),
        (HELD, [(1000, 9), (1001, 1)], (True, 0, 6, None)),
        (HELD, [(1000, 1), (1001, 1), (1002, 1)], (False, 0, 5, 1)),  # the wait is an estimate
        (HELD, [(1000, 1), (1001, 1), (1005.5, 1)], (False, 0, 1, 1)),
        (HELD, [(1000, 1), (1001, 1), (1006, 1)], (True, 0, 6, None)),  # the first has lapsed
        (HELD, [(1000, 1), (1001, 1), (1006, 0)], (True, 1, 1, None)),
        (HELD, [(1000, 1), (1001, 1), (1002, 0)], (True, 0, 5, None)),  # full, and cost 0 passes
        (HELD, [(1000, 0)], (True, 2, 0, None)),
        (HELD, [(1000, 1), (500, 0)], (True, 1, 6, None)),
        (HELD, [(1000, 1), (500, 1), (506, 1)], (True, 1, 6, None)),
        (HELD, [(1000, 1), (500, 0), (506, 0)], (True, 2, 0, None)),
        # -- forward and back: a question forgets nothing
        (PLAIN, [(1000, 5), (2000, 0), (1000, 1)], (False, 0, 61, 61)),
    ],
)
def test_figures(
    limit: Limit, steps: list[tuple[float, int]], last: tuple[bool, int, int, int | None]
) -> None:
    """The last step of each row returns allowed, remaining, reset and retry."""
    assert run(limit, *steps)[-1] == last


def test_only_changes_are_kept() -> None:
    """A refusal or a question changes no state; an admission changes all of them."""
    full = Window(1000, (5,))
    check = Check((PLAIN, DAILY), ("a", "b"))
    assert decide([full, None], check, 1000 * SECOND)[1] == (None, None)
    assert decide([full, None], check.at_cost(0), 1000 * SECOND)[1] == (None, None)
    assert decide([None, None], check, 1000 * SECOND)[1] == (
        Window(1000, (1,)),
        Period(0, 1),
    )


def test_a_step_back_is_kept() -> None:
    """After a step back the moved counters are kept, even if nothing was counted."""
    kept = decide([Window(1000, (5,))], Check((PLAIN,), ("a",)), 900 * SECOND)[1]
    assert kept == (Window(900, (5,)),)


def test_counts_are_bounded() -> None:
    """Only slots that can still matter are kept."""
    state: State | None = None
    for second in range(1000, 1200):
        state, _ = advance(state, FREE, second * SECOND)
    assert isinstance(state, Window)
    assert len(state.counts) == 61


def test_a_state_of_the_other_kind() -> None:
    """A limit that finds another kind's state under its name starts with an empty one."""
    assert advance(Period(3, 2), HELD, 0) == (Leases({}), False)
    assert advance(Leases({1: LEASE_US}), PLAIN, 0) == (Window(0, (0,)), False)
    assert advance(Period(3, 2), PLAIN, 1000 * SECOND) == (Window(1000, (0,)), False)
    assert advance(Window(1000, (2,)), DAILY, 0) == (Period(0, 0), False)


def test_renewals() -> None:
    """Renewed leases are held for the full time from then on, including those that were lost."""
    now_us = 1000 * SECOND
    state = renew(renew(None, (1, 2), now_us), (2, 3), now_us + SECOND)
    assert state.until_us == {1: 1006 * SECOND, 2: 1007 * SECOND, 3: 1007 * SECOND}
    assert advance(state, HELD, 1006 * SECOND) == (
        Leases({2: 1007 * SECOND, 3: 1007 * SECOND}),
        False,
    )
    assert renew(Period(3, 2), (1,), now_us) == renew(None, (1,), now_us)


def test_returns() -> None:
    """A returned lease is free at once; returning one that is not held does nothing."""
    state = renew(None, (1, 2), 0)
    assert release(state, 1) == release(release(state, 1), 1) == renew(None, (2,), 0)
    assert release(None, 1) == release(Period(3, 2), 1) == Leases({})


def test_no_number_no_lease() -> None:
    """A check without a lease number is decided like any other, and holds nothing."""
    check = Check((HELD,), ("x",))
    decision, kept = decide([None], check, 0)
    assert (decision.allowed, decision.remaining, kept) == (True, 2, (Leases({}),))
    full = renew(None, (1, 2), 0)
    assert not decide([full], check, 0)[0].allowed


def test_end_of_life() -> None:
    """A state is kept until its reset, and a slot longer; at least for a second."""
    assert expires_us(61 * SECOND, PLAIN, 1000 * SECOND) == 1062 * SECOND
    assert expires_us(LEASE_US, HELD, 0) == LEASE_US + HELD.slot_us
    tiny = Limit("tiny", "rate", 1, 60)
    assert expires_us(0, tiny, 0) == SECOND


def test_two_limits_all_or_nothing() -> None:
    """If one of two refuses, neither counts, and the longer wait governs."""
    check = Check((PLAIN, DAILY), ("a", "b"), 3)
    states: list[State | None] = [None, Period(0, 1)]
    decision, kept = decide(states, check, 1000 * SECOND)
    assert (decision.allowed, decision.governing, decision.refusing) == (False, 1, 2)
    assert [standing.remaining for standing in decision.standings] == [5, 0]
    assert kept == (None, None)
