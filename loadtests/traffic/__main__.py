"""Sends traffic to gateways that it starts, and checks the answers.

    python -m loadtests.traffic                              the demo, a minute and a half
    python -m loadtests.traffic --gateways 3 --workers 2     several gateways on one Redis
    python -m loadtests.traffic --gateways 2 --chaos         Redis is killed in the middle
    python -m loadtests.traffic --soak                       half an hour, the memory watched

Starts everything on free ports, lets Locust send requests of each plan, and stops everything.
Clients check each answer against the policies: admissions, the rate-limit fields, and that waiting
Retry-After is enough. Exits with 1 if an objective is not met. Reports go to --out.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from loadtests.compare.processes import NotStarted
from loadtests.traffic.run import Asked, run
from loadtests.traffic.sites import Site, open_demo, open_gateways

#: Long enough to wait for Retry-After of a minute's window.
_SECONDS: Final = 90.0
_SOAK_S: Final = 1800.0
#: A busy machine meets it; a gateway that hangs does not.
_P99_MS: Final = 1000.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.traffic",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--seconds", type=float, help=f"default: {_SECONDS:g}, of --soak {_SOAK_S:g}"
    )
    length.add_argument("--minutes", type=float)
    parser.add_argument("--gateways", type=int, default=0, help="0: the demo")
    parser.add_argument("--workers", type=int, default=1, help="of each gateway")
    parser.add_argument("--keys", type=int, default=8, help="of the plan free; of others fewer")
    parser.add_argument(
        "--users", type=int, help="default: as many as keys, and half as many again"
    )
    parser.add_argument("--pace", type=float, default=1.0, help="2: twice the pauses")
    parser.add_argument("--p99-ms", type=float, default=_P99_MS, help="of what is admitted")
    parser.add_argument("--most-errors", type=float, default=0.0, help="share of all: 0.001")
    parser.add_argument("--chaos", action="store_true", help="kill and restart Redis in the middle")
    parser.add_argument("--soak", action="store_true", help="watch the memory of all processes")
    parser.add_argument("--out", type=Path, default=Path("build/loadtest"), help="for reports")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print the result, and return the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("locust") is None:
        parser.error(
            "Locust is not installed: pip install -e '.[test,load]' -e ./client, or make loadtest"
        )
    if min(given.workers, given.keys) < 1 or given.gateways < 0:
        parser.error("there must be at least one worker and one key")
    gateways = given.gateways or int(given.chaos or given.soak)
    seconds = given.minutes * 60 if given.minutes else given.seconds
    seconds = seconds or (_SOAK_S if given.soak else _SECONDS)
    given.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-traffic-")))
        try:
            site = _open(given, folder, stack, gateways)
        except NotStarted as error:
            print(f"error: the site did not start: {error}", file=sys.stderr)
            return 1
        keys = sum(map(len, site.keys.values()))
        asked = Asked(
            seconds=seconds,
            users=given.users or (keys if not gateways else keys + keys // 2),
            pace=given.pace,
            p99_ms=given.p99_ms,
            most_errors=given.most_errors,
            chaos=given.chaos,
            soak=given.soak,
        )
        return 0 if run(site, asked, given.out.resolve()) else 1


def _open(given: argparse.Namespace, folder: Path, stack: ExitStack, gateways: int) -> Site:
    if not gateways:
        return open_demo(folder, stack)
    return open_gateways(
        folder,
        stack,
        gateways=gateways,
        workers=given.workers,
        keys=given.keys,
        patient=not given.chaos,
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
