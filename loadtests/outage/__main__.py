"""Runs all kinds of failures of a store, one after another, and prints a Markdown table.

    python -m loadtests.outage
    python -m loadtests.outage --seconds 5 "SIGSTOP, SIGCONT" READONLY

Each case has its own gateway and redis-server, as processes, with the shipped store timeout of
50 ms. Five clients with cached keys send requests all the time. Added latency is the longest wait
for an answer after the failure, minus the median before it; over-admission is that of a key that
had 10 of its 60 a minute remaining at the failure; recovery ends when the store decides everything
again.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from loadtests.outage.cases import CASES, Case
from loadtests.outage.run import Outcome, run
from loadtests.outage.site import open_site

_HEAD = (
    "| case | added latency at worst (ms) | errors | over-admission | time to recover (s) |\n"
    "| --- | ---: | ---: | ---: | ---: |"
)


async def _outcome(case: Case, seconds: float) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="gateway-outage-") as folder:
        async with open_site(Path(folder), proxied=case.proxied, mode=case.mode) as site:
            return await run(case, site, seconds)


def _row(name: str, case: Case, outcome: Outcome) -> str:
    over = "unlimited" if case.mode == "open" else f"{outcome.over} of {outcome.admitted}"
    return (
        f"| {name} | {outcome.added_s * 1000:.0f} | {outcome.errors(case.allowed)} of "
        f"{outcome.statuses.total()} | {over} | {outcome.recovered_s:.2f} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases, and print the table row by row."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.outage", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("cases", nargs="*", help="those to run, by name; all, if none is given")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long the store is away")
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.cases) - set(CASES)):
        parser.error(f"no such case: {', '.join(unknown)}; there are: {'; '.join(CASES)}")
    print(_HEAD, flush=True)
    for name in given.cases or CASES:
        outcome = asyncio.run(_outcome(CASES[name], min(given.seconds, 20.0)))
        print(_row(name, CASES[name], outcome), flush=True)


if __name__ == "__main__":
    main()
