"""What a fleet needs: the arithmetic, and the report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.usage_table import MOST_ENTRIES
from gateway.stores.keys.cache import CAPACITY
from loadtests.compare.spread import Spread
from loadtests.fleet import __main__ as fleet_main
from loadtests.fleet import units
from loadtests.fleet.plan import (
    MOST_KEYS,
    NODE_LOAD,
    WORKER_LOAD,
    Costs,
    Fleet,
    entries_a_second,
    most_keys,
    plan,
    used_keys,
)
from loadtests.fleet.report import write
from tests.kit.rows import each_row

COSTS = Costs(
    worker=70.0,
    decision=20.0,
    busy_decision=9.0,
    look_up=5.0,
    usage_entry=1.0,
    usage_merge=10.0,
    heartbeat=40.0,
)
FLEET = Fleet(100, 2_000_000, 10_000)


def test_workers_and_masters() -> None:
    """As many as are busy as planned; each gateway has the same number of workers."""
    found = plan(FLEET, COSTS)
    assert found.workers == 200  # 2,000,000 * 70 us / 0.7 = 200 cores
    assert found.masters == (30, 67)  # 2,000,000 * 9 us / 0.6 = 30, and * 20 us = 66.7
    assert plan(replace(FLEET, requests_s=2_000_001), COSTS).workers == 300


def test_the_keys_node() -> None:
    """Workers that do nothing ask four times a second; all keys are read once after a start."""
    found = plan(FLEET, COSTS)
    assert found.idle == pytest.approx(200 * 4 * 40e-6)
    assert found.start_s == pytest.approx(200 * 10_000 * 2 * 5e-6)
    assert found.look_ups == 0
    # 10,000 requests a second of a worker: nearly all keys within five seconds and in a minute.
    assert found.usage == pytest.approx(200 * (10_000 / 5 * 1e-6 + 10_000 / 60 * 10e-6), rel=0.01)
    assert found.keys_node == found.usage + found.idle


def test_more_keys_than_a_worker_caches() -> None:
    """Requests whose key is not cached read its record and its account's."""
    found = plan(replace(FLEET, keys=2 * CAPACITY), COSTS)
    assert found.look_ups == pytest.approx(2_000_000 / 2 * 2 * 5e-6)
    assert found.start_s == pytest.approx(200 * CAPACITY * 2 * 5e-6)


def test_each_key_at_one_gateway() -> None:
    """A worker then has the keys of its gateway only."""
    found = plan(replace(FLEET, keys=2 * CAPACITY, by_key=True), COSTS)
    assert found.look_ups == 0
    assert found.start_s == pytest.approx(200 * 2_000 * 2 * 5e-6)
    assert found.usage < plan(replace(FLEET, keys=2 * CAPACITY), COSTS).usage / 10


@each_row(
    ("rate_s", "keys", "entries_s"),
    [
        (0.001, 1_000_000, 0.001),  # each request is an entry
        (1e6, 1_000, 1_000),  # all keys, each second
        (1e6, 3_000, 1_500),  # more than 2,000: each two seconds
        (1e6, 50_000, 10_000),  # each five seconds at most
        (1e9, 10_000_000, MOST_ENTRIES),  # as many as the table holds, at once
        (15_000, 10_000_000, 15_000),  # half of it in four seconds
    ],
)
def test_entries_of_usage(rate_s: float, keys: int, entries_s: float) -> None:
    """Many are written less often, as `usage.writer` does."""
    assert entries_a_second(rate_s, keys) == pytest.approx(entries_s, rel=0.01)


@given(st.floats(1, 1e8), st.floats(1, 1e8))
def test_used_keys(requests: float, keys: float) -> None:
    """At most all keys, and at most as many as there are requests."""
    assert 0 < used_keys(requests, keys) <= min(requests, keys) * 1.000001


@given(st.integers(1, 500), st.floats(1, 1e7), st.booleans())
def test_most_keys(gateways: int, requests_s: float, by_key: bool) -> None:
    """With that number the node is as busy as planned at most, and with more it is busier."""
    fleet = Fleet(gateways, requests_s, 1, by_key)
    most = most_keys(fleet, COSTS)
    if most is None:
        assert plan(replace(fleet, keys=MOST_KEYS), COSTS).keys_node <= NODE_LOAD
        return
    if most:
        assert plan(replace(fleet, keys=most), COSTS).keys_node <= NODE_LOAD
    assert plan(replace(fleet, keys=most + 1_000), COSTS).keys_node > NODE_LOAD


def test_report() -> None:
    """It says what was measured, and the plans that follow from the medians."""
    spread = Spread.of([19.0, 20.0, 22.0])
    names = (field for field in units.Units().__dataclass_fields__)
    text = write(dict.fromkeys(names, spread), (spread, spread), 10, 70_000, [1_000, 2_000])
    assert "| a decision that comes alone " in text
    assert "20.0 (19.0 to 22.0)" in text
    assert "each key at one gateway" in text
    assert "10 gateways, 70,000 requests a second" in text
    assert f"Workers are {WORKER_LOAD:.0%} busy" in text


def test_missing_programs_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without wrk nothing is started."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert fleet_main.main([]) == 1
    assert "wrk" in capsys.readouterr().err
