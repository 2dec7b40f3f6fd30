"""Measures what growth costs: many routes, many keys, many IP ranges, idle connections.

Each pair, small and grown, runs side by side and is measured alternately. The cost of a request is
the CPU time of gateway and Redis together. Both of a pair get the same load except for what has
grown: random requests out of 10 lines or out of 100,000, by the same script, after each line was
sent once. A value is the median, over the rounds, of the difference between the two.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from loadtests.compare import ours, wrk
from loadtests.compare.keys import (
    ApiKey,
    make_key,
    make_many,
    write_gateway_keys,
    write_lines,
)
from loadtests.compare.measure import (
    Figures,
    Timing,
    check_load,
    come_through,
    measure_load,
    medians,
)
from loadtests.compare.peers import Running, start_store
from loadtests.compare.processes import NotStarted, rss_of_workers
from loadtests.compare.spread import ROUNDS, Spread, Verdict

CONNECTIONS: Final = 64
IDLE: Final = 10_000
#: The last of these ranges is the client's.
_RANGES: Final = (*(f"10.0.{number}.0/24" for number in range(19)), "127.0.0.0/8")


@dataclass(slots=True)
class Site:
    """A gateway with all features on, its routes and its keys.

    lines: "key" for requests with a key at random, "path" for those with a path at random
    """

    title: str
    keys: list[ApiKey] = field(default_factory=lambda: [make_key()])
    paths: list[str] = field(default_factory=lambda: ["/small"])
    lines: str = "path"
    workers: int = 1

    def start(self, folder: Path, upstream: int, stack: ExitStack) -> Running:
        """Start the gateway, with its own Redis."""
        folder.mkdir()
        store = start_store(stack)
        write_gateway_keys(store.url, self.keys, is_full=True)
        policies = ours.write_policies(folder / "policies", upstream, "all", self.paths)
        served = ours.serve(folder, policies, store.url, stack, workers=self.workers)
        keys, paths = [key.text for key in self.keys], map(_within, self.paths)
        write_lines(folder / "lines.txt", keys if self.lines == "key" else paths)
        return Running(served.port, served.pid, store)

    def load(
        self, running: Running, folder: Path, connections: int, seconds: float, order: str
    ) -> wrk.Load:
        """One run of wrk over its lines. Raises BadLoad."""
        other = _within(self.paths[0]) if self.lines == "key" else self.keys[0].text
        words = ("wrk_lines.lua", str(folder / "lines.txt"), order, self.lines, other)
        url = f"http://127.0.0.1:{running.port}/"
        return check_load(wrk.run(url, connections, seconds, *words), 200)


def measure_growth(
    timing: Timing, *, upstream: int, folder: Path, say: Callable[[str], None] = print
) -> list[Verdict]:
    """Measure all pairs and values, in a few minutes."""
    found: list[Verdict] = []
    for title, at_most, sites in _pairs():
        found.append(_pair(title, at_most, sites, timing, upstream, folder))
        say(_line(found[-1]))
    for one in _alone(timing, upstream, folder):
        found.append(one)
        say(_line(one))
    return found


def _within(match: str) -> str:
    """A path that matches the route."""
    return match.replace("/**", "/item")


def _line(one: Verdict) -> str:
    figure = "not measured" if one.found is None else f"{one.found.text()} {one.unit}"
    return f"{one.title}: {figure} {one.note}".rstrip()


def _pairs() -> Iterator[tuple[str, float, tuple[Site, Site]]]:
    routes = [f"/area{number % 30}/thing{number}/**" for number in range(1000)]
    yield (
        "CPU of a request: 1,000 routes instead of 10",
        5.0,
        (Site("10-routes", paths=routes[:10]), Site("1000-routes", paths=routes)),
    )
    yield (
        "CPU of a request: 100,000 keys instead of 10",
        5.0,
        (
            Site("10-keys", keys=make_many(10), lines="key"),
            Site("100000-keys", keys=make_many(100_000), lines="key"),
        ),
    )
    yield (
        "CPU of a request: 20 IP ranges on a key instead of one",
        5.0,
        (Site("1-range"), Site("20-ranges", keys=[make_key(networks=_RANGES)])),
    )
    yield (
        "CPU of a request: two workers instead of one",
        10.0,
        (Site("1-worker"), Site("2-workers", workers=2)),
    )


def _pair(
    title: str,
    at_most: float,
    sites: tuple[Site, Site],
    timing: Timing,
    upstream: int,
    folder: Path,
) -> Verdict:
    """By how much a request of the second site costs more than one of the first."""
    rounds: tuple[list[Figures], list[Figures]] = ([], [])
    try:
        with ExitStack() as stack:
            places = [folder / site.title for site in sites]
            runs = [
                site.start(place, upstream, stack)
                for site, place in zip(sites, places, strict=True)
            ]
            for site, running, place in zip(sites, runs, places, strict=True):
                _warm_up(site, running, place)
            for number in range(max(ROUNDS, timing.rounds)):
                turns = list(zip(sites, runs, places, rounds, strict=True))
                # They alternate in going first, so that none always gets the warmer machine.
                for site, running, place, figures in turns if number % 2 else reversed(turns):
                    figures.append(_round(site, running, place, timing))
    except (NotStarted, wrk.BadLoad) as error:
        return Verdict(title, None, at_most, "%", str(error))
    small, grown = (medians(each).cpu_us for each in rounds)
    return Verdict(
        title,
        more_percent([each.cpu_us for each in rounds[0]], [each.cpu_us for each in rounds[1]]),
        at_most,
        "%",
        f"{small:.1f} to {grown:.1f} us",
    )


def more_percent(small: Sequence[float], grown: Sequence[float]) -> Spread:
    """How much more the second cost, over the rounds."""
    return Spread.of(
        [(after / before - 1) * 100 for before, after in zip(small, grown, strict=True)]
    )


def _warm_up(site: Site, running: Running, place: Path) -> None:
    """Send requests until each line was sent once."""
    count = max(len(site.keys), len(site.paths))
    come_through(count, partial(site.load, running, place, CONNECTIONS, order="sequence"))


def _round(site: Site, running: Running, place: Path, timing: Timing) -> Figures:
    return measure_load(
        running, lambda: site.load(running, place, CONNECTIONS, timing.seconds, "random")
    )


def _alone(timing: Timing, upstream: int, folder: Path) -> Iterator[Verdict]:
    """Values of one gateway: added latency, memory at rest, idle connections."""
    site = Site("alone")
    place = folder / site.title
    with ExitStack() as stack:
        running = site.start(place, upstream, stack)
        at_rest = rss_of_workers(running.pid)
        yield _once("a worker at rest", at_rest / 1e6, 60, "MB")
        yield _idle(running, site.keys[0])
        direct, through = [], []
        for _ in range(timing.rounds):
            straight = Running(upstream, running.pid)
            direct.append(site.load(straight, place, 1, timing.seconds, "random").p50_ms)
            through.append(site.load(running, place, 1, timing.seconds, "random").p50_ms)
        added = Spread.of([one - other for one, other in zip(through, direct, strict=True)])
        note = f"{median(direct):.3f} to {median(through):.3f} ms"
        yield Verdict("p50 added over the direct call, one at a time", added, 0.4, "ms", note)


def _once(title: str, found: float, at_most: float, unit: str) -> Verdict:
    """A value that is measured once, as it does not vary."""
    return Verdict(title, Spread.of([found]), at_most, unit, rounds=1)


def _idle(running: Running, key: ApiKey) -> Verdict:
    title = f"an idle connection, {IDLE:,} held"
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < IDLE + 100:
        return Verdict(title, None, 8, "KB", f"only {most} descriptors are allowed here")
    before = rss_of_workers(running.pid)
    with _descriptors(most):
        held = asyncio.run(_hold(running.port, key.text, lambda: rss_of_workers(running.pid)))
    return _once(title, (held - before) / IDLE / 1000, 8, "KB")


@contextmanager
def _descriptors(most: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def _hold(port: int, key: str, look: Callable[[], int]) -> int:
    """Open connections, have one request answered on each, keep them open, and measure."""
    request = f"GET /small HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    writers: list[asyncio.StreamWriter] = []

    async def open_one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        writer.write(request)
        await reader.readuntil(b"hello\n")

    try:
        for _ in range(IDLE // 50):
            await asyncio.gather(*(open_one() for _ in range(50)))
        return look()
    finally:
        for writer in writers:
            writer.close()
