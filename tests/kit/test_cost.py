"""Costs on a busy machine: time is what the test says that each turn takes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat

import pytest

from tests.kit.cost import cost


def measured(plain_s: Iterable[float], work_s: Iterable[float], most: float) -> tuple[float, int]:
    """The cost of runs that take these times, and the number of turns."""
    now_s, turns = 0.0, 0
    plain_runs, work_runs = iter(plain_s), iter(work_s)

    def plain() -> None:
        nonlocal now_s
        now_s += next(plain_runs)

    def work() -> None:
        nonlocal now_s, turns
        now_s += next(work_runs)
        turns += 1

    return cost(work, plain, most, clock=lambda: now_s), turns


def test_a_cost_below_the_bound_is_found_in_a_few_turns() -> None:
    """It is that of the quietest moments of both."""
    found, turns = measured([5, 2, 1, 2, 2], [4, 3, 9, 3, 4], 10)
    assert found == pytest.approx(3)
    assert turns == 5


def test_noise_is_measured_away() -> None:
    """A quiet moment of the work is awaited."""
    found, turns = measured(repeat(1), chain(repeat(40, 30), repeat(4)), 10)
    assert found == pytest.approx(4)
    assert turns == 31


def test_a_slow_plain_run_hides_nothing() -> None:
    """Work that costs too much does not pass because the plain one was disturbed."""
    found, turns = measured(chain([9], repeat(1)), repeat(12), 10)
    assert found == pytest.approx(12)
    assert turns == 100
