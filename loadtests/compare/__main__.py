"""Compares the gateway with nginx + Lua + Redis, Envoy, HAProxy and plain nginx, on this machine.

    python -m loadtests.compare --quick
    python -m loadtests.compare --report loadtests/README.md
    python -m loadtests.compare --growth
    python -m loadtests.compare --only small/envoy --only small/ours

Everything runs on free ports of 127.0.0.1 and is stopped at the end. Nothing is installed: missing
programs are reported with the command that installs them, and left out.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from loadtests.compare import machine, objectives, report, scenarios, tools
from loadtests.compare.growth import measure_growth
from loadtests.compare.keys import KeySet, make_many
from loadtests.compare.measure import Results, Timing, measure
from loadtests.compare.peers import PEERS, Peer, upstream
from loadtests.compare.spread import ROUNDS, Verdict

_MANY_KEYS = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; 1 if something failed or misses its objective."""
    given = _parse(arguments)
    # Started programs are then stopped, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lacking = tools.missing(["nginx", "wrk", "redis-server"])
    if lacking:
        tools.say_missing(lacking)
        return 1
    peers, left_out = _available()
    results, told = Results(), list[Verdict]()
    with tempfile.TemporaryDirectory(prefix="gateway-compare-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # nginx's workers are not root, even where root runs this
        place = folder / "upstream"
        place.mkdir(mode=0o755)
        with upstream(place) as port:
            if not given.growth:
                results = _compare(given, peers, port, folder)
                told += objectives.verdicts(results)
            if given.growth or not (given.quick or given.only):
                told += measure_growth(given.timing, upstream=port, folder=folder)
    remarks = [_how(given.timing), *left_out]
    text = report.write(results, told, machine.describe(_tool_names(peers)), remarks)
    print(f"\n{text}")
    if given.report is not None:
        report.put(given.report, text)
    return 1 if results.failures or any(each.word == "FAIL" for each in told) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="the main scenario alone")
    parser.add_argument("--growth", action="store_true", help="what growth costs us, alone")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORKLOAD/PEER",
        help=f"repeatable; {', '.join(scenarios.WORKLOADS)}; {', '.join(PEERS)}; either may be "
        "left out: small, /ours",
    )
    parser.add_argument("--seconds", type=float, default=3, help="of one round (default: 3)")
    parser.add_argument(
        *("--rounds",), type=int, default=ROUNDS, help="default and least for verdicts: %(default)s"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="where to write the report")
    given = parser.parse_args(arguments)
    if given.seconds < 1 or given.rounds < 1:
        parser.error("--seconds and --rounds are at least 1")
    try:
        given.only = scenarios.read_only(given.only, PEERS)
    except ValueError as error:
        parser.error(f"--only: {error}")
    given.timing = Timing(given.rounds, given.seconds)
    return given


def _compare(given: argparse.Namespace, peers: list[Peer], port: int, folder: Path) -> Results:
    rows = [scenarios.MAIN] if given.quick else scenarios.full()
    chosen = {
        row.workload.name
        for row in rows
        if any(scenarios.is_chosen(given.only, row.workload.name, peer) for peer in PEERS)
    }
    keys = KeySet(
        many=make_many(_MANY_KEYS if "keys" in chosen else 0),
        guesses=make_many(_MANY_KEYS if "guesses" in chosen else 0),
    )
    return measure(
        rows, peers, given.timing, upstream=port, keys=keys, folder=folder, only=given.only
    )


def _available() -> tuple[list[Peer], list[str]]:
    """The peers whose tools are installed, and a sentence on each of the others."""
    here, left_out = [], []
    for peer in PEERS.values():
        if lacking := tools.missing(peer.needs):
            tools.say_missing(lacking)
            names = ", ".join(tool.name for tool in lacking)
            left_out.append(f"{peer.title} was left out: {names} is not on this machine")
        else:
            here.append(peer)
    return here, left_out


def _how(timing: Timing) -> str:
    return f"{timing.rounds} rounds of {timing.seconds:g} s each, in turns"


def _tool_names(peers: Sequence[Peer]) -> list[str]:
    return list(dict.fromkeys(["nginx", "wrk", *(need for peer in peers for need in peer.needs)]))


def run() -> None:
    """The command: an interrupted comparison ends without a traceback."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
