"""What Locust counted in a run, as the values that objectives are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from loadtests.traffic.objectives import Measured

if TYPE_CHECKING:
    from locust.env import Environment

#: The type under which broken assertions are counted, in place of a method.
TRUTH: Final = "truth"
#: Suffixes of the names under which expected refusals are counted.
_LIMITED: Final = " 429"
_REFUSED: Final = (_LIMITED, " 403")


def measure(
    environment: Environment, checks: Mapping[str, int], unchecked: frozenset[str] = frozenset()
) -> Measured:
    """The run so far. checks, unchecked: as of `Measured`"""
    entries = environment.stats.entries.values()
    asked = [entry for entry in entries if entry.method != TRUTH]
    times_ms: Counter[float] = Counter()
    for entry in asked:
        if not entry.name.endswith(_REFUSED):
            times_ms.update(entry.response_times)
    return Measured(
        requests=sum(entry.num_requests for entry in asked),
        errors=sum(entry.num_failures for entry in asked),
        limited=sum(entry.num_requests for entry in asked if entry.name.endswith(_LIMITED)),
        p99_ms=percentile(times_ms, 0.99),
        broken={entry.name: entry.num_failures for entry in entries if entry.method == TRUTH},
        checks=checks,
        unchecked=unchecked,
        exceptions=sum(row["count"] for row in environment.runner.exceptions.values())
        if environment.runner is not None
        else 0,
    )


def percentile(counted: Mapping[float, int], share: float) -> float | None:
    """The value that this share of the values does not exceed; None: there are none."""
    left = sum(counted.values()) * share
    for value in sorted(counted):
        left -= counted[value]
        if left <= 1e-9:
            return value
    return None
