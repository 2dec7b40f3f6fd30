"""Latencies as a sketch: counts in buckets whose bounds grow by a constant factor, as in DDSketch.

Sketches are merged by adding their counts. A quantile is the middle of its bucket, so that it
differs from the exact one by ACCURACY at most, between 0.1 ms and an hour.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from math import ceil, log
from typing import Final

#: The largest relative error of a quantile.
ACCURACY: Final = 0.1
_GROWTH: Final = (1 + ACCURACY) / (1 - ACCURACY)
#: Latencies up to SHORTEST_S are in the first bucket, those above LONGEST_S in the last one.
SHORTEST_S: Final = 0.0001
LONGEST_S: Final = 3_600.0
#: The upper bound of each bucket but the last, seconds.
BOUNDS: Final = tuple(
    SHORTEST_S * _GROWTH**number
    for number in range(ceil(log(LONGEST_S / SHORTEST_S) / log(_GROWTH)) + 1)
)
#: The number of the last bucket.
LAST: Final = len(BOUNDS)
#: The quantiles that are shown, by name.
QUANTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def bucket_of(seconds: float) -> int:
    """The number of the bucket of a latency."""
    return bisect_left(BOUNDS, seconds)


def count(seconds: Sequence[float]) -> dict[int, int]:
    """The sketch of these latencies. Of many in few buckets, each takes a tenth of a single one."""
    ordered, counts, start = sorted(seconds), dict[int, int](), 0
    while start < len(ordered):
        number = bucket_of(ordered[start])
        end = bisect_right(ordered, BOUNDS[number], start) if number < LAST else len(ordered)
        counts[number] = end - start
        start = end
    return counts


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The latency that this share of the requests did not exceed, seconds; None: no requests.

    counts: requests by number of their bucket
    """
    rank, below = ceil(share * sum(counts.values())), 0
    for number in sorted(counts):
        below += counts[number]
        if below >= rank and below:
            return _middle(number)
    return None


def _middle(number: int) -> float:
    if number == 0:
        return SHORTEST_S
    # As far from both bounds, relative to each of them.
    return BOUNDS[number - 1] * (1 + ACCURACY) if number < LAST else BOUNDS[-1]
