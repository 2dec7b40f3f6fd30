"""What a fleet needs, measured on a small scale: with one Redis, a cluster and gateways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.compare import probe, wrk
from loadtests.compare.wrk import Load
from loadtests.fleet import units, worker
from tests.loadtests.upstream import upstream


def test_units_are_measured() -> None:
    """Each has a value for each round, above zero."""
    with units.one_node(workers=units.TOGETHER, commands=64) as node:
        found = units.measure(node, 2, counters=20, used=20).spreads()
    assert set(found) == set(units.Units().__dataclass_fields__)
    for name, spread in found.items():
        assert spread.count == 2, name
        assert name == "further_limit" or spread.least > 0, name


@pytest.fixture
def site() -> Iterator[int]:
    with upstream() as port:
        yield port


@pytest.mark.usefixtures("patient")
def test_a_worker_is_measured(site: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one Redis and with a cluster: each key is accepted by both."""
    asked: list[str] = []

    def run(url: str, connections: int, seconds: float, script: str, *words: str) -> Load:
        port = int(url.removeprefix("http://127.0.0.1:").rstrip("/"))
        file, _, _, path = words
        for key in Path(file).read_text().splitlines():
            assert probe.ask(port, path, key).status == 200
            asked.append(key)
        return Load(len(asked), 100, 1, 2)

    monkeypatch.setattr(wrk, "run", run)
    single, cluster = worker.measure(tmp_path, site, rounds=2, seconds=1, masters=2, keys=3)
    assert len(single) == len(cluster) == 2
    assert min(single + cluster) > 0
    assert len(set(asked)) == 3
