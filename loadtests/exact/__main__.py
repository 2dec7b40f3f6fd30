"""Checks that several gateways with several workers on one store admit exactly the limit.

    python -m loadtests.exact
    python -m loadtests.exact --gateways 3 --workers 2 --seconds 30 --skew 3600

Starts them as real processes on one Redis, every third with a clock that is ahead and every third
with one that is behind (--skew 0: all are right), and sends more requests to every worker than each
limit allows. Admissions are recounted from the store's replies. Exits with 1 if anything was
admitted beyond a limit, or refused while the limit was not used up.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from loadtests.exact.run import Outcome, run
from loadtests.exact.site import open_site
from tests.kit.skewed import FAKETIME

_HEAD = (
    "| limit | requests | admitted | allowed at most | over-admission | refused with room |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: |"
)


def table(outcome: Outcome) -> str:
    """The results as a Markdown table, and below it how reliable they are."""
    rows = [
        f"| {row.limit} | {row.requests} | {row.admitted} | {row.allowed} | {row.over} "
        f"| {row.untimely} |"
        for row in outcome.verdicts
    ]
    others = ", ".join(f"{count} with {status}" for status, count in outcome.unexpected.items())
    seen = (
        f"{outcome.decided} admissions seen at the store, {outcome.passed} upstream, "
        f"{outcome.told} by clients; other answers: {others or 'none'}; decided without the "
        f"store: {outcome.local:.0f} decisions, {outcome.overadmitted:.0f} units beyond a limit"
    )
    return "\n".join((_HEAD, *rows, "", seen))


async def _outcome(gateways: int, workers: int, seconds: float, skew_s: float) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="gateway-exact-") as folder:
        async with open_site(
            Path(folder), gateways=gateways, workers=workers, skew_s=skew_s
        ) as site:
            return await run(site, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.exact", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="of each gateway")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long it is asked")
    parser.add_argument(
        "--skew", type=float, default=3600.0, help="seconds by which clocks are wrong; 0: none"
    )
    given = parser.parse_args(arguments)
    if given.gateways < 1 or given.workers < 1:
        parser.error("there must be at least one gateway, and one worker of each")
    if given.skew and shutil.which(FAKETIME) is None:
        parser.error(
            f"{FAKETIME} is not on PATH: apt-get install --no-install-recommends {FAKETIME}, "
            "or leave the clocks right with --skew 0"
        )
    outcome = asyncio.run(_outcome(given.gateways, given.workers, given.seconds, given.skew))
    print(table(outcome))
    return 0 if outcome.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
