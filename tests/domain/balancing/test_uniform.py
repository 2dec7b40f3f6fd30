"""Any server, by weight."""

from __future__ import annotations

import pytest

from gateway.domain.balancing.uniform import build
from tests.domain.balancing.candidates import Request, counted, servers


@pytest.mark.parametrize("weights", [(1,), (1, 1, 1), (1, 3), (2, 1, 7)])
def test_each_in_proportion_to_its_weight(weights: tuple[int, ...]) -> None:
    """Of all random numbers, a server has as many as its weight."""
    candidates = servers(*weights)
    numbers = iter(range(sum(weights)))
    pick = build(candidates, "", lambda below: next(numbers))
    assert counted(pick, candidates, sum(weights)) == list(weights)
    assert next(numbers, None) is None


def test_the_range_of_random_numbers() -> None:
    """It asks for a number below the sum of all weights."""
    asked = []

    def below(number: int) -> int:
        asked.append(number)
        return 0

    build(servers(2, 3), "", below)(Request())
    assert asked == [5]
