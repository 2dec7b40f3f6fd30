"""Measures what one courier delivers, beside a worker that promises nothing.

    python -m loadtests.deliver                     # all scenarios, three rounds of each
    python -m loadtests.deliver --only "1 ms" --rounds 5
    python -m loadtests.deliver --quick             # a trial, in less than a minute

Redis, the courier, and the endpoints, which have TLS, are processes on this machine, and share its
cores. The table has the median of the rounds, the minimum and the maximum.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from importlib.metadata import version
from statistics import median

from loadtests.compare.machine import describe
from loadtests.deliver.scenarios import SCENARIOS, Round, Sizes
from tests.kit.redis_server import release_of, server_binary

_HEAD = "| scenario | figure | median | minimum | maximum |\n| --- | --- | ---: | ---: | ---: |"


def table(measured: dict[str, list[Round]]) -> str:
    """The figures as a Markdown table."""
    rows = []
    for scenario, rounds in measured.items():
        for name in rounds[0]:
            values = [each[name] for each in rounds]
            figures = " | ".join(
                _written(value) for value in (median(values), min(values), max(values))
            )
            rows.append(f"| {scenario} | {name} | {figures} |")
    return "\n".join((_HEAD, *rows))


def _written(value: float) -> str:
    return f"{value:,.1f}" if abs(value) < 100 and value != int(value) else f"{value:,.0f}"


def machine() -> str:
    found = describe([])
    found["Redis"] = ".".join(map(str, release_of(server_binary())))
    found["aiohttp"] = version("aiohttp")
    return "\n".join(f"- {name}: {value}" for name, value in found.items())


async def measure(only: Sequence[str], sizes: Sizes, rounds: int) -> dict[str, list[Round]]:
    """The rounds of each scenario, which take turns: what else the machine does meets all."""
    measured: dict[str, list[Round]] = {name: [] for name in only}
    for number in range(rounds):
        for name in only:
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            measured[name].append(await SCENARIOS[name](sizes))
    return measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and return the exit status: 1 if anything was lost."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.deliver", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="repeatable")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one small round: no figures to keep")
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error("--rounds: expected 1 or more")
    sizes = Sizes().scaled(0.02) if given.quick else Sizes()
    only = given.only or list(SCENARIOS)
    measured = asyncio.run(measure(only, sizes, 1 if given.quick else given.rounds))
    print(f"{machine()}\n\n{table(measured)}")
    return int(any(each.get("lost", 0) for rounds in measured.values() for each in rounds))


if __name__ == "__main__":
    sys.exit(main())
