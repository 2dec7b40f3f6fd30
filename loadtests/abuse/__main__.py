"""Attacks a gateway on this machine with slow clients or floods.

    python -m loadtests.abuse --kind slow-header --connections 1500 --port 8080
    python -m loadtests.abuse --kind slow-body --port 8080 --path /v1/items --key KEY
    python -m loadtests.abuse --kind slow-read --port 8080 --path /v1/export --key KEY
    python -m loadtests.abuse --kind pipeline --connections 6 --port 8080
    python -m loadtests.abuse --kind pipeline-unread --connections 800 --port 8080

slow-read needs a path whose answer is longer than the kernel's buffers, some megabytes. Prints one
line of JSON at the end. `python -m loadtests.abuse.healthy`, run meanwhile, measures the effect on
a normal client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from typing import Final, get_args

from loadtests.abuse import flood, slow
from loadtests.abuse.attack import Attack, Kind

#: A load is for one machine and a short time.
MOST_CONNECTIONS: Final = 10_000
MOST_SECONDS: Final = 600.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Attack, and print the result."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.abuse", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--kind", choices=get_args(Kind), required=True)
    parser.add_argument("--port", type=int, required=True, help="the gateway's, on 127.0.0.1")
    parser.add_argument("--connections", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=30.0, help="the longest it may take")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two bytes")
    parser.add_argument("--path", default="/")
    parser.add_argument("--key", default="", help="an API key to show")
    given = parser.parse_args(arguments)
    attack = Attack(
        kind=given.kind,
        port=given.port,
        connections=min(given.connections, MOST_CONNECTIONS),
        seconds=min(given.seconds, MOST_SECONDS),
        every_s=max(given.every, 0.01),
        path=given.path,
        key=given.key,
    )
    run = flood.run if attack.kind.startswith("pipeline") else slow.run
    print(json.dumps(asyncio.run(run(attack)).figures()))


if __name__ == "__main__":
    main()
