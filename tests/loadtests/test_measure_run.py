"""Measuring on a small scale: the peers that this machine has, each with all that it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadtests.compare import probe, tools, wrk
from loadtests.compare.keys import TINY_PEAK, KeySet, make_many
from loadtests.compare.measure import Timing, measure
from loadtests.compare.peers import PEERS, Site
from loadtests.compare.scenarios import MAIN, WORKLOADS, Layer, Scenario
from tests.loadtests.upstream import requests, upstream

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
