"""The less busy of two servers picked at random, with and without weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.balancing.least_busy import build
from tests.domain.balancing.candidates import Request, Server, below, counted, servers


def picks(*numbers: int) -> Callable[[int], int]:
    """A random number generator that returns these numbers, one after the other."""
    sequence = iter(numbers)
    return lambda below: next(sequence) % below


@pytest.mark.parametrize(
    ("busy", "numbers", "chosen"),
    [
        ([3], (), 0),
        ([3, 1], (0, 0), 1),
        ([1, 3], (1, 0), 0),
        ([2, 2], (1, 0), 1),  # a tie: the first picked
        ([5, 4, 0], (0, 0), 1),  # 0 and 1 are picked: 2 is not looked at
        ([5, 4, 0], (2, 1), 2),
        ([0, 4, 5], (2, 0), 0),
    ],
)
def test_the_less_busy_of_two(busy: list[int], numbers: tuple[int, ...], chosen: int) -> None:
    """Two different ones are picked, and the less busy of them is chosen."""
    candidates = [Server(str(at), busy=each) for at, each in enumerate(busy)]
    assert build(candidates, "", picks(*numbers))(Request()) is candidates[chosen]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_busiest_is_never_chosen(state: list[tuple[int, int]], random: object) -> None:
    """A server that is busier for its weight than all others loses to any other one."""
    candidates = [Server(str(at), weight, busy) for at, (busy, weight) in enumerate(state)]
    chosen = build(candidates, "", random.randrange)(Request())  # type: ignore[attr-defined]
    most = max(each.busy / each.weight for each in candidates)
    busiest = [each for each in candidates if each.busy / each.weight == most]
    assert len(busiest) > 1 or chosen is not busiest[0]


def test_weights_of_idle_servers() -> None:
    """Without requests in progress, shares are those of the weights."""
    candidates = servers(1, 3, 6)
    shares = counted(build(candidates, "", below()), candidates, 10_000)
    assert [round(each, -3) for each in shares] == [1_000, 3_000, 6_000]


def test_weights_of_busy_servers() -> None:
    """A server with three times the weight has three times the requests in progress."""
    candidates = servers(1, 3)
    pick = build(candidates, "", below())
    for _ in range(400):
        pick(Request()).busy += 1
    assert [each.busy for each in candidates] == pytest.approx([100, 300], abs=1)
