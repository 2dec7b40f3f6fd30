"""Measures the cost of each scenario: all peers alternately, in rounds.

Within a setup (a layer and a number of workers) all peers run at the same time and idle while
another one is measured, so that a noisy minute of the machine affects all of them equally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Final

from redis.exceptions import RedisError

from loadtests.compare import probe, wrk
from loadtests.compare.keys import KeySet, write_lines
from loadtests.compare.peers import Peer, Running, Site, script_calls
from loadtests.compare.processes import NotStarted, usage
from loadtests.compare.scenarios import Scenario, is_chosen
from loadtests.compare.spread import ROUNDS

#: Before the first round: long enough for connections, caches and just-in-time compilers.
_WARM_UP_S: Final = 1
#: The keys of KeySet of which a workload sends one at random.
_LINES: Final = {"keys": "many", "guesses": "guesses"}
#: The key that a workload uses, if it is not the good one.
_KEYS: Final = {"refused": "tiny", "unknown": "unknown", "limits": "several"}
#: The most admissions among measured refusals: a small plan's bucket refills.
_MAY_PASS: Final = 20


@dataclass(frozen=True, slots=True)
class Figures:
    """The cost of a request in one round, or the medians of several.

    rate:        requests a second
    cpu_us:      CPU microseconds a request of the peer, all of its processes, and of its Redis
    store_us:    how much of that was Redis
    store_calls: calls of a script a request
    rss_mb:      memory of the peer's processes, without Redis
    """

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    store_us: float
    store_calls: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class Timing:
    """How often and how long."""

    rounds: int = ROUNDS
    seconds: float = 3


@dataclass(slots=True)
class Results:
    """The figures of each round by scenario and peer, or the reason why there are none."""

    rounds: dict[tuple[Scenario, str], list[Figures]] = field(default_factory=dict)
    failures: dict[tuple[Scenario, str], str] = field(default_factory=dict)

    def values(self, row: Scenario, peer: str, name: str) -> list[float] | None:
        """One of the figures, round by round; None: not measured. name: of a field of Figures"""
        found = self.rounds.get((row, peer))
        return None if found is None else [getattr(figures, name) for figures in found]


@dataclass(frozen=True, slots=True)
class Target:
    """A running peer, and the wrk script with its arguments for each workload."""

    running: Running
    site: Site
    peer: Peer

    def load(self, scenario: Scenario, seconds: float) -> wrk.Load:
        """Run wrk once, and check that all answers were as expected. Raises BadLoad."""
        return self._run(scenario, seconds, "random")

    def warm_up(self, scenario: Scenario) -> None:
        """Load until the peer has its connections and has cached each key. Raises BadLoad."""
        lines = _LINES.get(scenario.workload.name)
        if lines is not None:
            count = len(getattr(self.site.keys, lines))
            come_through(count, partial(self._run, scenario, order="sequence"))
        self.load(scenario, _WARM_UP_S)

    def round(self, scenario: Scenario, seconds: float) -> Figures:
        """The cost of one round. Raises BadLoad."""
        away = self.running.away if scenario.workload.name == "away" else None
        with nullcontext(self.running) if away is None else away() as running:
            return measure_load(running, partial(self.load, scenario, seconds))

    def _run(self, scenario: Scenario, seconds: float, order: str) -> wrk.Load:
        keys, workload = self.site.keys, scenario.workload
        url = f"http://127.0.0.1:{self.running.port}{workload.path}"
        lines = _LINES.get(workload.name)
        if lines is not None:
            file = self._file(lines, (key.text for key in getattr(keys, lines)))
            words = ["wrk_lines.lua", file, order, "key", workload.path]
        else:
            name = _KEYS.get(workload.name, "good")
            file = self._file(name, [getattr(keys, name).text])
            method = "POST" if workload.body_bytes else "GET"
            ending = "close" if workload.name == "connect" else "keep"
            words = ["wrk_one.lua", file, method, str(workload.body_bytes), ending]
            if workload.name == "own":
                words = ["wrk_own.lua", file]
        return check_load(wrk.run(url, scenario.connections, seconds, *words), workload.status)

    def _file(self, name: str, lines: Iterable[str]) -> str:
        path = self.site.folder / f"{name}.txt"
        return str(path if path.exists() else write_lines(path, lines))


def come_through(count: int, run: Callable[[float], wrk.Load]) -> None:
    """Load repeatedly until that many requests were answered in one run.

    Each run begins with the first line of its file, so that only a long enough run sends the last
    one. Raises BadLoad.
    """
    seconds = 2.0
    while (answered := run(seconds).requests) < count:
        seconds *= 1.3 * count / answered


def check_load(load: wrk.Load, status: int) -> wrk.Load:
    """Return a load whose answers were as expected. Raises BadLoad."""
    if load.broken:
        raise wrk.BadLoad(f"{load.broken} connections or reads failed")
    if not load.requests:
        raise wrk.BadLoad("nothing was answered")
    wrong = load.other if status < 400 else max(0, load.requests - load.other - _MAY_PASS)
    if wrong:
        raise wrk.BadLoad(f"{wrong} of {load.requests} answers were not {status}")
    return load


def measure_load(running: Running, load: Callable[[], wrk.Load]) -> Figures:
    """The cost of a load for a peer. Raises BadLoad, also if a process was replaced meanwhile."""
    before, store_before = usage(running.pid), _store_usage(running)
    done = load()
    after, store_after = usage(running.pid), _store_usage(running)
    if after.pids != before.pids:
        raise wrk.BadLoad("the peer's processes are not the same as before")
    store_us = (store_after[0] - store_before[0]) / done.requests * 1e6
    return Figures(
        rate=done.rate,
        p50_ms=done.p50_ms,
        p99_ms=done.p99_ms,
        cpu_us=(after.cpu_s - before.cpu_s) / done.requests * 1e6 + store_us,
        store_us=store_us,
        store_calls=(store_after[1] - store_before[1]) / done.requests,
        rss_mb=after.rss_bytes / 1e6,
    )


def medians(rounds: Sequence[Figures]) -> Figures:
    """The median of each value."""
    return Figures(
        **{
            name: median(getattr(figures, name) for figures in rounds)
            for name in (each.name for each in fields(Figures))
        }
    )


def measure(
    scenarios: Sequence[Scenario],
    peers: Sequence[Peer],
    timing: Timing,
    *,
    upstream: int,
    keys: KeySet,
    folder: Path,
    only: Sequence[tuple[str, str]] = (),
    say: Callable[[str], None] = print,
) -> Results:
    """Measure each scenario for each peer that has its layer."""
    results = Results()
    setups = groupby(scenarios, key=lambda scenario: scenario.setup)
    for number, ((layer, workers, _), group) in enumerate(setups):
        with ExitStack() as stack:
            rows = list(group)
            targets: list[Target] = []
            for peer in peers:
                wanted = [row for row in rows if _is_wanted(row, peer, only)]
                if not wanted:
                    continue
                place = folder / f"{number}-{peer.name}"
                place.mkdir(mode=0o755)
                site = Site(place, upstream, layer, workers, keys)
                try:
                    running = peer.start(site, stack)
                    peer.check(running, site)
                except _FAULTS as error:
                    results.failures |= {(row, peer.name): _words(error) for row in wanted}
                    say(f"{peer.title}, {layer}, {workers}: FAILED: {_words(error)}")
                    continue
                targets.append(Target(running, site, peer))
            _measure_rows(rows, targets, timing, results, only, say)
    return results


def _measure_rows(
    rows: Sequence[Scenario],
    targets: Sequence[Target],
    timing: Timing,
    results: Results,
    only: Sequence[tuple[str, str]],
    say: Callable[[str], None],
) -> None:
    """Warm up, then measure each scenario for each peer, again and again; leave out what fails.

    A round goes through all of them, so that scenarios can be compared round by round, too.
    """
    pairs = [
        (row, target) for row in rows for target in targets if _is_wanted(row, target.peer, only)
    ]
    for turn in range(timing.rounds + 1):
        for row, target in pairs:
            at = row, target.peer.name
            if at in results.failures:
                continue
            try:
                layer = "proxy" if target.peer.is_floor else row.layer
                probe.check_workload(target.running.port, row.workload, layer, target.site.keys)
                if turn == 0:
                    target.warm_up(row)
                else:
                    results.rounds.setdefault(at, []).append(target.round(row, timing.seconds))
            except _FAULTS as error:
                results.failures[at] = _words(error)
                results.rounds.pop(at, None)
    for row, target in pairs:
        at, title = (row, target.peer.name), target.peer.title
        if at in results.failures:
            say(f"{row.title}: {title}: FAILED: {results.failures[at]}")
        else:
            found = medians(results.rounds[at])
            say(f"{row.title}: {title}: {found.cpu_us:.1f} us CPU, {found.rate:.0f} a second")


_FAULTS: Final = (probe.Wrong, wrk.BadLoad, NotStarted, OSError, RedisError)


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _is_wanted(row: Scenario, peer: Peer, only: Sequence[tuple[str, str]]) -> bool:
    if not is_chosen(only, row.workload.name, peer.name):
        return False
    if peer.is_floor and not row.workload.is_forwarded:
        return False
    if row.workload.only not in ("", peer.name):
        return False
    return row.layer in peer.layers or (peer.is_floor and row.layer == "all")


def _store_usage(running: Running) -> tuple[float, int]:
    """CPU seconds of a peer's Redis, and the number of scripts it has run; zeros without Redis."""
    if running.store is None:
        return 0.0, 0
    with running.store.client() as client:
        pid = int(client.info("server")["process_id"])
    return usage(pid).cpu_s, script_calls(running.store)
