"""Endpoints that hang, flap or are gone, beside healthy ones, for a long time.

    python -m loadtests.deliver.soak                # 100 watches, 30 minutes
    python -m loadtests.deliver.soak --minutes 1    # a trial

Every fifth part of the run prints a line: how old events were when healthy endpoints got them, and
the memory of the courier and of Redis. At the end each delivery is accounted for: it arrived, it
still waits, or its watch was disabled. The exit status is 1 if one is missing or came twice.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

from gateway.domain.webhooks.watches import Watch
from loadtests.compare.processes import rss_of_workers
from loadtests.deliver.site import Site, courier, open_site

#: Watches by the path of their endpoint.
WATCHES: Final = {"1": 70, "hang": 10, "flap": 10, "gone": 10}
_PARTS: Final = 5
#: How long what is on its way may take at the end.
_END_S: Final = 60.0


async def soak(site: Site, minutes: float, rate: float) -> list[str]:
    """Run, print a line for each part, and return what is wrong. rate: events a second"""
    names = {path: await site.endpoints(path, count, delay=path) for path, count in WATCHES.items()}
    turns = cycle([(path, name) for path, its in names.items() for name in its])
    accepted: Counter[str] = Counter()
    number = int(minutes * 60 * rate / _PARTS)
    for part in range(_PARTS):
        seen = len((await site.figures(0)).ages_ms)
        some = [next(turns) for _ in range(number)]
        await site.steadily([name for _, name in some], rate)
        accepted.update(path for path, _ in some)
        arrived = sorted((await site.figures(seen)).ages_ms)
        with site.server.client() as client:
            used = int(client.info("memory")["used_memory"])
        print(
            f"{(part + 1) * minutes / _PARTS:5.1f} min: {ages(arrived)}; courier "
            f"{rss_of_workers(site.worker) / 2**20:.1f} MiB, Redis {used / 2**20:.1f} MiB",
            flush=True,
        )
    return await _judged(site, names, accepted)


def ages(arrived: Sequence[float]) -> str:
    """The ages of what arrived in a part, in words. arrived: in milliseconds, sorted"""
    if not arrived:
        return "nothing arrived"
    middle, late = (arrived[int(share * len(arrived))] for share in (0.5, 0.99))
    return f"p50 {middle:,.0f} ms, p99 {late:,.0f} ms"


async def _judged(
    site: Site, watched: Mapping[str, Sequence[str]], accepted: Counter[str]
) -> list[str]:
    """watched, accepted: integrations and events, by the path of their endpoint"""
    faults = []
    end = asyncio.get_running_loop().time() + _END_S
    while True:
        states = {path: await _states(site, names) for path, names in watched.items()}
        figures = await site.figures()
        # Attempts go on meanwhile, to endpoints that flap: one may fall between the two readings.
        delivered = states["1"]["delivered"] + states["flap"]["delivered"]
        is_settled = not states["1"].keys() - {"delivered"} and figures.count == delivered
        are_disabled = await _healths(site, watched["gone"]) == {"disabled"}
        if (is_settled and are_disabled) or asyncio.get_running_loop().time() > end:
            break
        await asyncio.sleep(0.2)
    for path, found in states.items():
        print(f"{path}: {accepted[path]:,} accepted; {dict(found)}")
    if states["1"] != Counter(delivered=accepted["1"]):
        faults.append("a delivery to a healthy endpoint is missing")
    if figures.duplicates:
        faults.append(f"{figures.duplicates} deliveries came twice")
    if figures.count != delivered:
        faults.append("the store and the endpoints do not agree on what was delivered")
    for path in ("hang", "flap"):
        if sum(states[path].values()) != accepted[path]:
            faults.append(f"a delivery to an endpoint of {path!r} is missing")
    if not are_disabled:
        faults.append("a watch whose endpoint is gone is not disabled")
    return faults


async def _states(site: Site, names: Sequence[str]) -> Counter[str]:
    """Of all deliveries to these integrations."""
    found: Counter[str] = Counter()
    for name in names:
        watch = await _watch(site, name)
        queue, before_us = site.stores.queue_of(name), 0
        while True:
            page = await queue.deliveries(watch.id, 1000, before_us)
            found.update(each.state for each in page)
            before_us = page.next_us
            if not before_us:
                break
    return found


async def _healths(site: Site, names: Sequence[str]) -> set[str]:
    """The states of the watches of these integrations."""
    watches = [await _watch(site, name) for name in names]
    return {(await site.stores.resources.health(each)).state for each in watches}


async def _watch(site: Site, integration: str) -> Watch:
    (watch,) = await site.stores.resources.watches(integration)
    return watch


async def _run(minutes: float, rate: float) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="gateway-soak-") as folder:
        async with open_site(Path(folder)) as site, courier(site, Path(folder)):
            return await soak(site, minutes, rate)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.deliver.soak", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=20.0, help="events a second")
    given = parser.parse_args(arguments)
    if given.minutes <= 0 or given.rate <= 0:
        parser.error("--minutes and --rate: expected more than 0")
    faults = asyncio.run(_run(given.minutes, given.rate))
    print("\n".join(faults) or "every delivery is accounted for")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
