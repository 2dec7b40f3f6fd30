"""What a request costs in our own code: instructions by valgrind, or microseconds.

    python -m tests.bench.hot               the values
    python -m tests.bench.hot --against     the change against the baseline; 1 if a case grew
    python -m tests.bench.hot --record      make this the baseline

Microseconds depend on the machine and its load. `loops` is the same in units of a loop of plain
Python that runs in between, which compares better. Instructions repeat to a percent, with one build
of Python; the baseline says which.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.cases import CASES, Case, Round
from tests.bench.instructions import count_instructions, interpreter
from tests.bench.rig import rig

BASELINE: Final = Path(__file__).with_name("baseline.json")
#: A case that takes this share more than the baseline has grown; counting varies by less.
MOST_GROWTH: Final = 0.05

#: The number of runs and their length; the best counts, as others share the CPU.
RUNS: Final = 9
RUN_S: Final = 0.02
WARM_ROUNDS: Final = 200


@dataclass(frozen=True, slots=True)
class Figure:
    """The cost of a request of one case. loops: `us` by that of one calibration loop."""

    name: str
    us: float
    loops: float


@dataclass(frozen=True, slots=True)
class Change:
    """Instructions of a case, now and in the baseline; None: it is not in the baseline."""

    name: str
    now: int
    before: int | None

    @property
    def growth(self) -> float | None:
        """0.02: it takes 2 % more than before."""
        return None if self.before is None else self.now / self.before - 1

    @property
    def has_grown(self) -> bool:
        return self.growth is not None and self.growth > MOST_GROWTH


def calibration() -> None:
    """Plain Python similar to a request's; some microseconds."""
    seen: dict[bytes, int] = {}
    for at in range(16):
        name, _, value = (b"Name-%d: value" % at).partition(b": ")
        seen[name.lower()] = seen.get(name, 0) + len(value)


def measure(cases: Sequence[Case] = CASES, run_s: float = RUN_S) -> list[Figure]:
    """Measure each case, and the calibration beside it."""
    figures = []
    for case in cases:
        with rig() as parts:
            case_us, loop_us = _best_us(case.build(parts), calibration, run_s)
        us = case_us / case.requests
        figures.append(Figure(case.name, us, us / loop_us))
    return figures


def _best_us(once: Round, other: Round, run_s: float) -> tuple[float, float]:
    """CPU microseconds of a round of each; both run alternately, under the same conditions."""
    rounds = [(function, _rounds_in(function, run_s)) for function in (once, other)]
    gc.collect()
    gc.disable()
    try:
        runs = [[_run_us(*each) for each in rounds] for _ in range(RUNS)]
    finally:
        gc.enable()
    return min(run[0] for run in runs), min(run[1] for run in runs)


def _rounds_in(once: Round, run_s: float) -> int:
    _run_us(once, WARM_ROUNDS)
    return max(1, int(run_s * 1e6 / _run_us(once, WARM_ROUNDS)))


def _run_us(once: Round, rounds: int) -> float:
    begin = time.process_time()
    for _ in range(rounds):
        once()
    # A coarse clock may not have advanced.
    return max(time.process_time() - begin, 1e-9) / rounds * 1e6


def compare(now: Mapping[str, int], before: Mapping[str, int]) -> list[Change]:
    """The change of each case."""
    return [Change(name, count, before.get(name)) for name, count in now.items()]


def show(figures: Sequence[Figure], changes: Sequence[Change]) -> None:
    """A line for each case. changes: empty if no instructions were counted."""
    by_name = {change.name: change for change in changes}
    print(f"{interpreter()}; a request of our own code, best of {RUNS}")
    print(f"{'':36}{'us':>8}{'loops':>8}{'instructions':>14}{'change':>9}")
    for figure in figures:
        change = by_name.get(figure.name)
        counted = "" if change is None else f"{change.now:,}"
        growth = None if change is None else change.growth
        grown = "" if growth is None else f"{growth:+.1%}"
        print(f"{figure.name:36}{figure.us:8.2f}{figure.loops:8.2f}{counted:>14}{grown:>9}")


def read_baseline(path: Path = BASELINE) -> tuple[str, dict[str, int]]:
    """The interpreter of the baseline, and its instructions by case."""
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept["interpreter"], kept["instructions"]


def record(instructions: Mapping[str, int], path: Path = BASELINE) -> None:
    """Make this the baseline."""
    kept = {"interpreter": interpreter(), "instructions": dict(instructions)}
    path.write_text(json.dumps(kept, indent=2) + "\n")


def judge(changes: Sequence[Change], counted_with: str, at_hand: str) -> tuple[bool, str]:
    """Has no case grown? With a sentence if one has, or if they cannot be compared."""
    if counted_with != at_hand:
        return True, f"the baseline is of {counted_with}: its counts do not compare"
    grown = [change.name for change in changes if change.has_grown]
    if grown:
        return False, f"more than {MOST_GROWTH:.0%} beyond the baseline: {'; '.join(grown)}"
    return True, ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.hot", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--against", action="store_true", help="compare with the baseline")
    way.add_argument("--record", action="store_true", help="make this the baseline")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    options = parser.parse_args(arguments)
    cases = [case for case in CASES if options.only in case.name]
    has_valgrind = shutil.which("valgrind") is not None
    if options.record and options.only:
        parser.error("a baseline is of all cases")
    if (options.against or options.record) and not has_valgrind:
        parser.error("instructions are counted with valgrind, which is not on PATH")
    counts = count_instructions(cases) if has_valgrind else {}
    counted_with, before = read_baseline() if options.against else ("", {})
    changes = compare(counts, before)
    show(measure(cases), changes)
    if not has_valgrind:
        print("valgrind is not on PATH: no instructions are counted")
    if options.record:
        record(counts)
    if not options.against:
        return 0
    good, words = judge(changes, counted_with, interpreter())
    if words:
        print(words)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
