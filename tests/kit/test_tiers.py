"""What each tier runs, the order of files, and how a failure is repeated."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest

from tests.kit.order import Order, Recorder
from tests.kit.repeat import command
from tests.kit.tiers import (
    FIXTURES,
    MARKERS,
    PLACES,
    TESTS,
    TIERS,
    Tiers,
    examples,
    is_in,
    place_of,
)


def test_places_exist() -> None:
    """Each place is a folder or file of tests, and each marker has a meaning and a tier."""
    missing = [place for place in PLACES if not (TESTS / place).exists()]
    assert not missing
    assert {*PLACES.values(), *FIXTURES.values()} <= MARKERS.keys()
    assert frozenset().union(*TIERS.values()) == MARKERS.keys()


def test_the_place_of_a_file() -> None:
    """A file's own marker comes before its folder's; the others have none."""
    expected = {
        "proxy/test_gate.py": None,
        "hostile/test_drain.py": "process",
        "hostile/test_floods.py": "soak",
        "end_to_end/tidybill/test_bank.py": "process",
        "browser/test_walk.py": "browser",
    }
    assert {name: place_of(TESTS / name) for name in expected} == expected
    assert place_of(Path("/elsewhere/hostile/test_x.py")) is None


def test_what_a_tier_runs() -> None:
    """Quick runs unmarked tests alone, all runs all but soak, and soak nothing else."""
    cases: list[set[str]] = [set(), {"process"}, {"process", "browser"}, {"deep"}, {"soak"}]
    assert [is_in("quick", each) for each in cases] == [True, False, False, False, False]
    assert [is_in("all", each) for each in cases] == [True, True, True, True, False]
    assert [is_in("soak", each) for each in cases] == [False, False, False, False, True]


def run_of(tier: str, *arguments: str) -> Tiers:
    config: Any = SimpleNamespace(args=arguments, getoption=lambda name: tier)
    return Tiers(config)


def test_a_file_of_another_tier_is_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is named."""
    monkeypatch.chdir(TESTS.parent)
    flood, gate = TESTS / "hostile" / "test_floods.py", TESTS / "proxy" / "test_gate.py"
    assert run_of("quick", "tests").pytest_ignore_collect(flood)
    assert not run_of("quick", "tests").pytest_ignore_collect(gate)
    assert run_of("soak", "tests").pytest_ignore_collect(gate)
    assert not run_of("soak", "tests").pytest_ignore_collect(TESTS / "hostile")
    assert not run_of("quick", "tests/hostile/test_floods.py::test_x").pytest_ignore_collect(flood)


def test_what_was_left_out() -> None:
    """A line at the end has the command for the rest."""
    run = run_of("all", "tests")
    run.pytest_testnodedown(SimpleNamespace(workeroutput={"left": {"deep": 3}}))
    assert run.summary() == "left to make soak: 3 files (soak), 3 tests (deep)"


def test_fewer_examples_in_the_quick_tier() -> None:
    """A property that asks for a number of its own gets a quarter of it."""
    assert [hypothesis.settings.get_profile(tier).max_examples for tier in ("quick", "all")] == [
        25,
        100,
    ]
    assert examples(400) == 4 * hypothesis.settings().max_examples


def test_long_files_come_first(tmp_path: Path) -> None:
    """Files that take about as long have the same rank; a file without a record is short."""
    record = tmp_path / "durations.json"
    record.write_text(json.dumps({"a.py": 90.0, "b.py": 70.0, "c.py": 3.0}))
    order = Order(record)
    ranks = [order.rank(TESTS / name) for name in ("a.py", "b.py", "c.py", "d.py")]
    assert ranks[0] == ranks[1] < ranks[2] < ranks[3]


def test_durations_are_recorded(tmp_path: Path) -> None:
    """By file; what did not run keeps its record, and files that are gone lose it."""
    record = tmp_path / "durations.json"
    record.write_text(json.dumps({"gone.py": 9.0, "kit/test_ports.py": 2.0}))
    recorder = Recorder(record)
    for name, duration in (("kit/test_tiers.py", 1.25), ("kit/test_tiers.py", 1.0), ("x.py", 0.1)):
        report: Any = SimpleNamespace(nodeid=f"tests/{name}::test_x[a::b]", duration=duration)
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    assert json.loads(record.read_text()) == {"kit/test_ports.py": 2.0, "kit/test_tiers.py": 2.2}


def test_the_command_that_repeats_a_failure() -> None:
    """It has the seed, and names with spaces are one word of the shell."""
    line = command(["tests/a.py::test_x[a b]"], 17)
    assert shlex.split(line) == [
        *(".venv/bin/python", "-m", "pytest", "--randomly-seed=17", "tests/a.py::test_x[a b]")
    ]
