"""Runs the busy site for some minutes and draws the dashboard from Prometheus' data.

python -m tests.helm.picture --minutes 4 > helm/scripts/panels.svg
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from helm.scripts import panels
from tests.helm.busy import busy

#: Slow enough for clients to be within their limits most of the time.
PAUSE_S = 0.06
#: Long enough to be visible in a small picture.
OUTAGE_S = 15.0


async def run(minutes: float) -> int:
    """Half of the time as usual, then the rare events, then as usual again."""
    with tempfile.TemporaryDirectory() as folder:
        async with busy(Path(folder), PAUSE_S) as site:
            await asyncio.sleep(minutes * 30)
            await site.trouble(OUTAGE_S)
            await asyncio.sleep(max(site.since_s + minutes * 60 - time.time(), 0))
            address = f"http://127.0.0.1:{site.prometheus.port}"
            arguments = ["--prometheus", address, "--minutes", str(minutes)]
            return await asyncio.to_thread(panels.main, arguments)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=4)
    sys.exit(asyncio.run(run(parser.parse_args().minutes)))
