"""Try the mutants of table.toml: how many of them do the tests kill?

    python -m tests.mutants               all of them
    python -m tests.mutants owed.py 12    those of the files of this name, and the 12th
    python -m tests.mutants --jobs 4      four at once

Each mutant is applied to a copy of the checkout, and its tests are run there. It is killed if one
of them fails, or all take much longer than without it. The status is 1 if fewer are killed than
the tests should.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Final

from tests.mutants.copy import Copy, Run, Stopped
from tests.mutants.table import Mutant, Unusable, chosen, read_table

#: The least share of the mutants that the tests kill.
LEAST_KILLED: Final = 0.92
#: Tests have failed that take this many times as long as without a mutant, and these seconds more.
MOST_TIMES: Final = 3
MORE_S: Final = 30.0
_PACKAGES: Final = ("gateway", "gateway_client")

Tests = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mutant."""

    mutant: Mutant
    killed: bool
    seconds: float

    @property
    def line(self) -> str:
        mutant, word = self.mutant, "killed" if self.killed else "SURVIVED"
        return f"{mutant.number:4}  {word:8}  {self.seconds:5.1f} s  {mutant.file}: {mutant.what}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("which", nargs="*", help="a number, or a part of a file's path")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at once")
    asked = parser.parse_args(words)
    try:
        mutants = chosen(read_table(), asked.which)
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    if not mutants:
        print("no mutant is of this number or file", file=sys.stderr)
        return 2
    with TemporaryDirectory(prefix="mutants-") as folder:
        trial = Trial([Copy(Path(folder) / str(job)) for job in range(asked.jobs)])
        try:
            if complaint := trial.prepare(mutants):
                print(complaint, file=sys.stderr)
                return 2
            results = trial.run(mutants)
        except Stopped as error:
            print(error, file=sys.stderr)
            return 2
    print(summary(results))
    return int(share_killed(results) < LEAST_KILLED)


class Trial:
    """Tries mutants, each in one of the copies that is free."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._jobs = len(copies)
        self._copies: SimpleQueue[Copy] = SimpleQueue()
        for copy in copies:
            self._copies.put(copy)
        #: How long tests take without a mutant.
        self._seconds: dict[Tests, float] = {}

    def prepare(self, mutants: Sequence[Mutant]) -> str | None:
        """Run the tests without a mutant; return why nothing can be tried, or None."""
        copy = self._copies.get()
        self._copies.put(copy)
        for package in _PACKAGES:
            if not copy.imported_from(package).is_relative_to(copy.folder):
                return f"{package} is not imported from the copy of the checkout"
        distinct = list(dict.fromkeys(mutant.tests for mutant in mutants))
        print(f"{len(distinct)} selections of tests without a mutant ...", flush=True)
        with ThreadPoolExecutor(self._jobs) as pool:
            for tests, run in zip(distinct, pool.map(self._test, distinct), strict=True):
                if not run.passed:
                    return f"{run.output}\nThese tests fail without a mutant: {' '.join(tests)}"
                self._seconds[tests] = run.seconds
        return None

    def run(self, mutants: Sequence[Mutant]) -> list[Result]:
        """Try each mutant, and print what becomes of it."""
        began, results = time.monotonic(), []
        with ThreadPoolExecutor(self._jobs) as pool:
            for result in pool.map(self._try, mutants):
                results.append(result)
                print(result.line, flush=True)
        print(f"{len(mutants)} mutants took {time.monotonic() - began:.0f} s.")
        return results

    def _test(self, tests: Tests) -> Run:
        copy = self._copies.get()
        try:
            return copy.test(tests)
        finally:
            self._copies.put(copy)

    def _try(self, mutant: Mutant) -> Result:
        copy = self._copies.get()
        try:
            with copy.mutated(mutant):
                most_s = MOST_TIMES * self._seconds[mutant.tests] + MORE_S
                run = copy.test(mutant.tests, most_s)
        finally:
            self._copies.put(copy)
        return Result(mutant, not run.passed, run.seconds)


def share_killed(results: Sequence[Result]) -> float:
    return sum(result.killed for result in results) / len(results)


def summary(results: Sequence[Result]) -> str:
    """The mutants killed in each file, those that survived, and the share of all."""
    tried = Counter(result.mutant.file for result in results)
    killed = Counter(result.mutant.file for result in results if result.killed)
    lines = ["", *(f"{killed[file]:4} of {number:3}  {file}" for file, number in tried.items()), ""]
    survivors = [result.line for result in results if not result.killed]
    if survivors:
        lines += [*survivors, ""]
    lines.append(
        f"{killed.total()} of {tried.total()} killed: {share_killed(results):.1%}; "
        f"at least {LEAST_KILLED:.0%} should be"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
