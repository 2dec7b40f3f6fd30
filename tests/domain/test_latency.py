"""The sketch of latencies."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.latency import (
    ACCURACY,
    BOUNDS,
    LAST,
    LONGEST_S,
    QUANTILES,
    SHORTEST_S,
    count,
    quantile,
)
from gateway.domain.usage import Measures

SECONDS = st.lists(
    st.floats(0, 20_000) | st.sampled_from((*BOUNDS, 0.0, SHORTEST_S, LONGEST_S)), max_size=200
)


@given(SECONDS, st.sampled_from([*QUANTILES.values(), 0.001, 1.0]))
def test_a_quantile_is_within_the_stated_error(seconds, share):
    """Of any latencies from 0.1 ms to an hour; shorter and longer ones are shown as these."""
    found = quantile(count(seconds), share)
    if not seconds:
        assert found is None
        return
    exact = sorted(seconds)[ceil(share * len(seconds)) - 1]
    shown = min(max(exact, SHORTEST_S), BOUNDS[-1])
    assert found == pytest.approx(shown, rel=ACCURACY + 1e-9)


@given(st.lists(SECONDS, max_size=5))
def test_merging_is_adding(parts):
    """The sum of sketches is the sketch of all latencies together."""
    merged = Measures()
    for seconds in parts:
        merged.add(Measures(0, 0, count(seconds)))
    everything = [one for seconds in parts for one in seconds]
    assert merged.latencies == count(everything)
    assert sum(merged.latencies.values()) == len(everything)


def test_bounds():
    """The buckets reach from 0.1 ms to an hour, and their numbers have two hexadecimal digits."""
    assert BOUNDS[0] == SHORTEST_S
    assert BOUNDS[-2] < LONGEST_S <= BOUNDS[-1]
    assert LAST < 256
    assert count([0.0, SHORTEST_S, 86_400.0]) == Counter({0: 2, LAST: 1})
