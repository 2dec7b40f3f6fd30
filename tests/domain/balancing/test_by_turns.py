"""Each server in turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.balancing.by_turns import build
from tests.domain.balancing.candidates import Request, counted, servers


def order(weights: tuple[int, ...], begin: int, turns: int) -> str:
    candidates = servers(*weights)
    pick = build(candidates, "", lambda below: begin)
    return "".join("abcdef"[candidates.index(pick(Request()))] for _ in range(turns))


@pytest.mark.parametrize(
    ("weights", "begin", "expected"),
    [
        ((1,), 0, "aaa"),
        ((1, 1, 1), 0, "abcabc"),
        ((1, 1, 1), 2, "cabcab"),
        ((5, 1, 1), 0, "aabacaaaabacaa"),  # the example of nginx
        ((3, 1), 0, "aabaaaba"),
    ],
)
def test_the_order(weights: tuple[int, ...], begin: int, expected: str) -> None:
    """Turns of a server with more weight are spread; workers begin at different places."""
    assert order(weights, begin, len(expected)) == expected


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 50))
def test_a_round_has_each_as_often_as_its_weight(weights: list[int], begin: int) -> None:
    """Exactly, wherever it begins."""
    candidates = servers(*weights)
    pick = build(candidates, "", lambda below: begin % below)
    assert counted(pick, candidates, 2 * sum(weights)) == [2 * each for each in weights]
