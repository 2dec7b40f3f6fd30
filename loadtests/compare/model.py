"""What a request costs the gateway, as a sum of what it consists of, out of the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadtests.compare.measure import Results
from loadtests.compare.objectives import OURS
from loadtests.compare.scenarios import LIMITS, MAIN, WORKLOADS, Scenario
from loadtests.compare.spread import Spread

_KIB: Final = 1024
_BIG_KIB: Final = 64


@dataclass(frozen=True, slots=True)
class Part:
    """What one thing adds to a small request, in CPU microseconds; None: it was not measured."""

    title: str
    us: Spread | None


@dataclass(frozen=True, slots=True)
class Deviation:
    """A scenario that no part comes from: by how much the sum is wrong, in percent."""

    title: str
    percent: Spread


def parts(results: Results) -> list[Part]:
    """The sum's parts; each is the difference of two scenarios, round by round."""
    base = results.values(MAIN, OURS, "cpu_us")
    found = [Part("a small request on a kept connection", Spread.of(base) if base else None)]
    for title, row, count in (
        ("its key is one of 10,000 at random", _row("keys"), 1),
        ("its connection is new", _row("connect"), 1),
        ("each KiB of its body", _row("upload"), _row("upload").workload.body_bytes / _KIB),
        ("each KiB of its answer", _row("big"), _BIG_KIB),
        ("each limit beyond the first", _row("limits"), LIMITS - 1),
        ("it and its answer have fields of their own", _row("own"), 1),
    ):
        rounds = results.values(row, OURS, "cpu_us")
        us = None
        if base and rounds:
            pairs = zip(rounds, base, strict=True)
            us = Spread.of([(one - other) / count for one, other in pairs])
        found.append(Part(title, us))
    return found


def deviations(results: Results, found: Sequence[Part]) -> list[Deviation]:
    """How well the sum of medians predicts scenarios that no part comes from."""
    base, body = found[0].us, found[3].us
    told: list[Deviation] = []
    for row in (_row("post"), Scenario(WORKLOADS["small"], connections=512)):
        rounds = results.values(row, OURS, "cpu_us")
        if base is None or body is None or not rounds:
            continue
        sum_us = base.middle + row.workload.body_bytes / _KIB * body.middle
        told.append(Deviation(row.title, Spread.of([100 * (sum_us / us - 1) for us in rounds])))
    return told


def _row(name: str) -> Scenario:
    (workload,) = (each for each in WORKLOADS.values() if each.name == name)
    return Scenario(workload)
