"""Traces: the policy's setting, and which requests are sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LOW_64_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Tracing:
    """Spans of requests are exported.

    sample:   the share of the requests without a valid traceparent that is sampled, 0 to 1. A
              request with one is sampled if its parent was
    identity: spans have the key's id, its account and its plan
    """

    sample: float = 0.01
    identity: bool = False


def sampled_below(share: float) -> int:
    """For a share of all traces: those are sampled whose id has its low 64 bits below this.

    The same as OpenTelemetry's TraceIdRatioBased, so that other services with that share choose the
    same traces.
    """
    return round(share * (_LOW_64_BITS + 1))


def is_sampled(trace_id: int, below: int) -> bool:
    """Is the trace sampled? below: of `sampled_below`"""
    return trace_id & _LOW_64_BITS < below
