"""Computes what a large fleet needs, from what single things cost on this machine.

    python -m loadtests.fleet
    python -m loadtests.fleet --gateways 20 --requests 200000 --keys 5000 --keys 50000
    python -m loadtests.fleet --report loadtests/README.md

It starts a cluster of one node, then one of 16 nodes and two gateways, on free ports of 127.0.0.1,
measures for some minutes, and stops all of it. The exit status is 1 if that failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from loadtests.compare import report as reports
from loadtests.compare import tools
from loadtests.compare.peers import upstream
from loadtests.compare.processes import NotStarted
from loadtests.compare.spread import ROUNDS, Spread
from loadtests.compare.wrk import BadLoad
from loadtests.fleet import units, worker
from loadtests.fleet.report import write

MARK: Final = "fleet"
_KEYS: Final = (10_000, 100_000, 1_000_000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compute, print and write."""
    given = _parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if lacking := tools.missing(["nginx", "wrk", "redis-server"]):
        tools.say_missing(lacking)
        return 1
    with units.one_node(commands=given.commands) as node:
        of_node = units.measure(node, given.rounds, used=given.commands // 4).spreads()
    try:
        of_worker = _measure_worker(given)
    except (NotStarted, BadLoad) as error:
        print(f"fleet: {error}", file=sys.stderr)
        return 1
    text = write(of_node, of_worker, given.gateways, given.requests, given.keys or _KEYS)
    print(text)
    if given.report is not None:
        reports.put(given.report, text, MARK)
    return 0


def _measure_worker(given: argparse.Namespace) -> tuple[Spread, Spread]:
    with tempfile.TemporaryDirectory(prefix="gateway-fleet-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # nginx's workers are not root, even where root runs this
        place = folder / "upstream"
        place.mkdir(mode=0o755)
        with upstream(place) as port:
            single, cluster = worker.measure(
                folder, port, rounds=given.rounds, seconds=given.seconds
            )
    return Spread.of(single), Spread.of(cluster)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--gateways", type=int, default=100, help="default: 100")
    add("--requests", type=float, default=2e6, help="a second, of all gateways (default: 2000000)")
    add("--keys", type=int, action="append", help="repeatable (default: 10000, 100000, 1000000)")
    add("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    add("--seconds", type=float, default=3, help="of one round of a gateway (default: 3)")
    add("--commands", type=int, default=20_000, help="of one round of a node (default: 20000)")
    add("--report", type=Path, metavar="FILE", help="where to write it, between its marks")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
