"""The table of rules: what holds for each of them."""

from __future__ import annotations

import pytest

from gateway.domain.balancing.rules import RULES
from gateway.domain.upstreams import Balance
from tests.domain.balancing.candidates import Request, below, servers


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("weights", [(1,), (1, 1), (7, 1, 1_000), (1,) * 256])
def test_every_rule(name: str, weights: tuple[int, ...]) -> None:
    """It picks one of its servers, also if there is only one, and whatever they do."""
    candidates = servers(*weights)
    pick = RULES[name].build(candidates, "key" if RULES[name].goes_by else "", below())
    for at in range(100):
        chosen = pick(Request(str(at)))
        assert chosen in candidates
        chosen.busy += 1


def test_the_default_is_a_rule() -> None:
    """It goes by nothing."""
    assert not RULES[Balance().rule].goes_by
