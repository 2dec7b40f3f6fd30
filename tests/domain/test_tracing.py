"""Which traces are sampled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.tracing import is_sampled, sampled_below

IDS = st.integers(1, 2**128 - 1)


@given(IDS)
def test_none_and_all(trace_id: int) -> None:
    """A share of 0 samples no trace, a share of 1 every one."""
    assert not is_sampled(trace_id, sampled_below(0.0))
    assert is_sampled(trace_id, sampled_below(1.0))


@given(IDS, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_has_the_traces_of_a_smaller_one(
    trace_id: int, one: float, other: float
) -> None:
    """So a service that samples more has the traces of one that samples less."""
    less, more = sorted((one, other))
    assert is_sampled(trace_id, sampled_below(less)) <= is_sampled(trace_id, sampled_below(more))


@given(IDS, st.sampled_from([0.0, 0.00001, 0.01, 0.5, 1.0]))
def test_opentelemetry_decides_alike(trace_id: int, share: float) -> None:
    """Services with TraceIdRatioBased and the same share choose the same traces."""
    sampling = pytest.importorskip("opentelemetry.sdk.trace.sampling")
    theirs = sampling.TraceIdRatioBased(share).should_sample(None, trace_id, "GET").decision
    assert is_sampled(trace_id, sampled_below(share)) == theirs.is_sampled()
