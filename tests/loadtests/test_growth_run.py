"""The growth measurement on a small scale: that it works, not what it measures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.compare import growth, probe, wrk
from loadtests.compare.growth import Site, measure_growth
from loadtests.compare.keys import make_many
from loadtests.compare.measure import Timing
from loadtests.compare.spread import Verdict
from loadtests.compare.wrk import Load
from tests.loadtests.upstream import upstream

REQUESTS = 12


@pytest.fixture
def port() -> Iterator[int]:
    with upstream() as found:
        yield found


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces wrk: a few requests, line by line as its script would; returns each run's lines."""
    seen: list[str] = []

    def run(url: str, connections: int, seconds: float, script: str, *words: str) -> Load:
        file, order, form, other = words
        assert order in ("random", "sequence")
        seen.append(form)
        port = int(url.removeprefix("http://127.0.0.1:").rstrip("/"))
        lines = Path(file).read_text().splitlines()
        for number in range(REQUESTS):
            line = lines[number % len(lines)]
            key, path = (line, other) if form == "key" else (other, line)
            answer = probe.ask(port, path, key)
            assert answer.status == 200, (path, answer)
        return Load(REQUESTS, 100, 1.5, 2)

    monkeypatch.setattr(wrk, "run", run)
    return seen


def small_pair() -> Iterator[tuple[str, float, tuple[Site, Site]]]:
    """One pair with lines of both kinds."""
    routes = [f"/area/thing{number}/**" for number in range(5)]
    many = Site("routes", paths=routes), Site("keys", keys=make_many(3), lines="key")
    yield "routes and keys", 5.0, many


def middle(found: list[Verdict], title: str) -> float:
    """The median of the value with this title."""
    (spread,) = (each.found for each in found if each.title == title)
    assert spread is not None
    return spread.middle


@pytest.mark.usefixtures("patient")
def test_growth_is_measured(
    port: int, tmp_path: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pair and each measurement of one gateway has a value; idle connections are held."""
    monkeypatch.setattr(growth, "_pairs", small_pair)
    monkeypatch.setattr(growth, "IDLE", 50)
    monkeypatch.setattr(growth, "ROUNDS", 1)
    printed: list[str] = []
    found = measure_growth(Timing(1, 1), upstream=port, folder=tmp_path, say=printed.append)
    assert len(printed) == len(found) == 4
    assert all(one.found is not None for one in found), found
    assert middle(found, "a worker at rest") > 10
    assert set(loads) == {"key", "path"}
    # wrk's latency is 1.5 ms here, with the gateway and without.
    assert middle(found, "p50 added over the direct call, one at a time") == 0


def test_a_failed_pair_has_its_reason(port: int, tmp_path: Path) -> None:
    """A gateway that does not start has no value; the others have theirs."""
    bad = Site("bad", paths=["no path"])
    found = growth._pair("pair", 5.0, (bad, bad), Timing(1, 1), port, tmp_path)
    assert found.found is None
    assert "it ended at once" in found.note
