"""The benchmark of our own code and its comparison work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import hot
from tests.bench.cases import CASES, Case
from tests.bench.instructions import interpreter, read_total
from tests.bench.rig import rig
from tests.kit.rows import each_row

HERE = interpreter()


@each_row("case", CASES)
def test_case_runs(case: Case) -> None:
    """Each case does what its name says, and can be run repeatedly."""
    with rig() as parts:
        once = case.build(parts)
        for _ in range(20):
            once()


def test_measures() -> None:
    """Measuring gives the microseconds of each case, and of the calibration loop."""
    (figure,) = hot.measure(CASES[:1], run_s=0.001)
    assert figure.name == CASES[0].name
    assert figure.us > 0
    assert figure.loops > 0


def test_names_are_keys() -> None:
    """The baseline has cases by their names, so all names are distinct."""
    assert len({case.name for case in CASES}) == len(CASES)


def test_baseline_is_of_these_cases() -> None:
    """The recorded baseline has a count for every case."""
    _, instructions = hot.read_baseline()
    assert set(instructions) == {case.name for case in CASES}


def test_reads_what_it_recorded(tmp_path: Path) -> None:
    """A baseline that is recorded reads the same, with the Python it was counted with."""
    hot.record({"GET": 88_732}, tmp_path / "baseline.json")
    assert hot.read_baseline(tmp_path / "baseline.json") == (HERE, {"GET": 88_732})


@each_row(
    ("now", "counted_with", "good", "words"),
    [
        (104_900, HERE, True, ""),
        (105_100, HERE, False, "more than 5% beyond the baseline: GET"),
        (90_000, HERE, True, ""),
        # Another Python takes other instructions for the same code.
        (200_000, "CPython 3.9", True, "the baseline is of CPython 3.9: its counts do not compare"),
    ],
)
def test_growth_is_reported(now: int, counted_with: str, good: bool, words: str) -> None:
    """A case that takes 5 % more than the baseline of the same Python fails, and is named."""
    changes = hot.compare({"GET": now}, {"GET": 100_000})
    assert hot.judge(changes, counted_with, HERE) == (good, words)


def test_new_case_has_no_growth() -> None:
    """A case that is not in the baseline is shown, and does not fail."""
    (change,) = hot.compare({"new": 10}, {"GET": 100_000})
    assert change.growth is None
    assert not change.has_grown


def test_baseline_of_a_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Recording only some of the cases would lose the others."""
    with pytest.raises(SystemExit) as ended:
        hot.main(["--record", "--only", "GET"])
    assert ended.value.code == 2
    assert "a baseline is of all cases" in capsys.readouterr().err


def test_reads_a_count() -> None:
    """The instructions are the total in a file of callgrind."""
    assert read_total("version: 1\nevents: Ir\nsummary: 7\n\nfn=(1)\ntotals: 406789\n") == 406_789
