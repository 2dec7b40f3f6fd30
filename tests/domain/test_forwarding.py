"""Budgets of retries: no more than a share of the requests, beyond a reserve."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.forwarding import RESERVE, RetryBudget
from tests.kit.reach import reached, reaches


@reaches(0.2)
@given(st.lists(st.booleans(), max_size=400), st.floats(0.001, 1))
def test_retries_are_a_share_of_the_requests(steps: list[bool], share: float) -> None:
    """However requests (False) and failed attempts (True) alternate, and whatever was saved up."""
    budget = RetryBudget()
    requests = retries = 0
    for wants in steps:
        if wants:
            retries += budget.take()
        else:
            budget.add(share)
            requests += 1
        reached()
        assert retries <= RESERVE + share * requests + 1e-6


def test_a_budget_is_used_up_and_filled_again() -> None:
    """The reserve is there from the start; then it takes five requests for a retry at 20 %."""
    budget = RetryBudget()
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]
    for _ in range(4):
        budget.add(0.25)
    assert [budget.take(), budget.take()] == [True, False]
    for _ in range(1000):
        budget.add(0.25)
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]
