"""Measuring: which answers are expected, and how peers that fail are reported."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadtests.compare import measure as subject
from loadtests.compare import wrk
from loadtests.compare.keys import KeySet
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
from loadtests.compare.scenarios import LAYERS, MAIN, WORKLOADS, Scenario
from loadtests.compare.wrk import BadLoad, Load
from tests.kit.rows import each_row
from tests.loadtests.upstream import requests, upstream


@pytest.fixture
def port() -> Iterator[int]:
    with upstream() as found:
        yield found


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
