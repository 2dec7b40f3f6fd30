"""Measuring: which answers are expected, and how peers that fail are reported."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadtests.compare import measure as subject
from loadtests.compare import probe, tools, wrk
from loadtests.compare.keys import TINY_PEAK, KeySet, make_many
from loadtests.compare.measure import (
    Figures,
    Timing,
    check_load,
    come_through,
    measure,
    measure_load,
    medians,
)
from loadtests.compare.peers import PEERS, Peer, Running, Site
from loadtests.compare.processes import NotStarted, Usage
from loadtests.compare.scenarios import LAYERS, MAIN, WORKLOADS, Layer, Scenario
from loadtests.compare.wrk import BadLoad, Load
from tests.kit.rows import each_row
from tests.loadtests.upstream import upstream

#: Peers whose tools this machine has; the gateway is always one. Missing peers are not skips, as no
#: machine needs to have them.
HERE = [peer for peer in PEERS.values() if not tools.missing(peer.needs)]


@pytest.fixture
def port() -> Iterator[int]:
    with upstream() as found:
        yield found


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("peer", "layer"),
    [
        (peer.name, layer)
        for peer in HERE
        for layer in peer.layers
        # The gateway with all features is checked where it is measured, below.
        if (peer.name, layer) != ("ours", "all")
    ],
)
def test_a_peer_does_what_its_layer_says(
    peer: str, layer: Layer, port: int, short_path: Path
) -> None:
    """Each peer that is installed starts, refuses what it should, and passes each workload."""
    short_path.chmod(0o755)
    keys = KeySet(many=make_many(3))
    site = Site(short_path, port, layer, 1, keys)
    with ExitStack() as stack:
        running = PEERS[peer].start(site, stack)
        PEERS[peer].check(running, site)
        # A floor checks nothing, so only admissions can be tried.
        layer = "proxy" if PEERS[peer].is_floor else layer
        names = [name for name, workload in WORKLOADS.items() if workload.is_forwarded]
        assert names
        for name in [*names, *(["refused"] if layer in ("all", "redis") else [])]:
            probe.check_workload(running.port, WORKLOADS[name], layer, keys)


@each_row(
    ("load", "status", "is_good"),
    [
        (Load(1000, 1, 1, 1), 200, True),
        (Load(1000, 1, 1, 1, other=1), 200, False),
        (Load(1000, 1, 1, 1, broken=1), 200, False),
        (Load(0, 0, 0, 0), 200, False),
        (Load(1000, 1, 1, 1, other=1000), 429, True),
        (Load(1000, 1, 1, 1, other=990), 429, True),
        (Load(1000, 1, 1, 1, other=900), 429, False),
        (Load(1000, 1, 1, 1, other=0), 401, False),
    ],
)
def test_wrong_answers_are_not_measured(load: Load, status: int, is_good: bool) -> None:
    """Admissions must have one status, refusals few admissions, and no connection may break."""
    if is_good:
        assert check_load(load, status) is load
    else:
        with pytest.raises(BadLoad):
            check_load(load, status)


def test_each_value_has_its_own_median() -> None:
    """One bad round has no effect; each value has its own median."""
    rounds = [Figures(*(row,) * 7) for row in (1.0, 100.0, 2.0)]
    rounds[0] = Figures(50.0, *(1.0,) * 6)
    assert medians(rounds) == Figures(50.0, *(2.0,) * 6)


def test_come_through_sends_all_lines() -> None:
    """Runs get longer until one has sent all lines."""
    asked: list[float] = []

    def run(seconds: float) -> Load:
        asked.append(seconds)
        return Load(int(seconds * 100), 100, 1, 1)

    come_through(1000, run)
    assert len(asked) == 2
    assert asked[-1] >= 10


def test_a_request_costs_what_the_process_took() -> None:
    """The cost is the CPU time of the peer's process by requests; without Redis its part is 0."""

    def load() -> Load:
        probe_until = subject.usage(os.getpid()).cpu_s + 0.05
        while subject.usage(os.getpid()).cpu_s < probe_until:
            pass
        return Load(10, 100, 1, 2)

    found = measure_load(Running(1, os.getpid()), load)
    assert found.cpu_us >= 5000
    assert (found.store_us, found.store_calls) == (0, 0)
    assert found.rss_mb > 1


def test_a_replaced_process_fails_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU time of a worker that ended is lost, so the round fails."""
    usages = iter([{1, 2}, {1, 3}])
    monkeypatch.setattr(subject, "usage", lambda _: Usage(1.0, 1, frozenset(next(usages))))
    with pytest.raises(BadLoad, match="not the same"):
        measure_load(Running(1, 1), lambda: Load(10, 100, 1, 2))


def requests(count: int) -> Callable[..., Load]:
    """Replaces wrk: this many requests, with the key of the file that it would have read."""

    def run(url: str, connections: int, seconds: float, script: str, *words: str) -> Load:
        key = Path(words[0]).read_text().split()[0]
        method, body = ("POST", b"x" * int(words[2])) if "POST" in words else ("GET", None)
        port, _, path = url.removeprefix("http://127.0.0.1:").partition("/")
        answers = [
            probe.ask(int(port), f"/{path}", key, method=method, body=body) for _ in range(count)
        ]
        return Load(count, 100, 1, 2, other=sum(answer.status >= 400 for answer in answers))

    return run


@pytest.mark.usefixtures("patient")
def test_the_gateway_is_measured(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each scenario has a value each round; an admission calls the store, unless it is away.

    Before that, the gateway does what is measured.
    """
    monkeypatch.setattr(wrk, "run", requests(10))
    rows = [Scenario(workload) for workload in WORKLOADS.values()]
    printed: list[str] = []
    keys = KeySet(many=make_many(TINY_PEAK), guesses=make_many(3))
    results = measure(
        *(rows, [PEERS["ours"]], Timing(2, 1)),
        upstream=port,
        keys=keys,
        folder=tmp_path,
        say=printed.append,
    )
    assert not results.failures
    assert [row for row, _ in results.rounds] == rows
    mains = results.rounds[MAIN, "ours"]
    for main in mains:
        assert main.cpu_us > main.store_us > 0
        assert main.store_calls >= 1
    # One per request; the gateway has two others a second, of which a slow round has many.
    assert min(main.store_calls for main in mains) < 2
    away = results.rounds[Scenario(WORKLOADS["away"]), "ours"]
    assert [(each.store_us, each.store_calls) for each in away] == [(0, 0), (0, 0)]
    assert len(printed) == len(rows)


def peer(name: str, start: Callable[[Site, ExitStack], Running]) -> Peer:
    return Peer(name, PEERS[name].title, (), tuple(LAYERS), start, "")


def test_a_failed_peer_is_reported_with_the_reason(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that does not start, or skips a check, has no value; the others have theirs."""

    def broken(site: Site, stack: ExitStack) -> Running:
        raise NotStarted("it ended at once:\n a reason")

    def idle(site: Site, stack: ExitStack) -> Running:
        return Running(port, os.getpid())  # the upstream, which checks nothing

    monkeypatch.setattr(wrk, "run", requests(5))
    peers = [peer("envoy", broken), peer("haproxy", idle), PEERS["nginx"]]
    peers[2] = Peer("nginx", "floor", (), ("proxy", "log"), idle, "")
    results = measure(
        *([MAIN], peers, Timing(1, 1)),
        upstream=port,
        keys=KeySet(),
        folder=tmp_path,
        say=lambda _: None,
    )
    assert results.failures[MAIN, "envoy"] == "it ended at once: a reason"
    assert "instead of 403" in results.failures[MAIN, "haproxy"]
    assert list(results.rounds) == [(MAIN, "nginx")]


def test_a_floor_has_no_refusals(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that checks nothing has no value for refusals, which is not a failure."""
    monkeypatch.setattr(wrk, "run", requests(5))
    floor = Peer("nginx", "floor", (), ("proxy",), lambda *_: Running(port, os.getpid()), "")
    rows = [Scenario(WORKLOADS[name]) for name in ("refused", "unknown", "away", "big")]
    results = measure(
        *(rows, [floor], Timing(1, 1)),
        upstream=port,
        keys=KeySet(),
        folder=tmp_path,
        say=lambda _: None,
    )
    assert not results.failures
    assert [row.workload.name for row, _ in results.rounds] == ["big"]
