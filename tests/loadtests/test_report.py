"""Tables and verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.compare import report
from loadtests.compare.growth import Growth
from loadtests.compare.measure import Figures, Results
from loadtests.compare.scenarios import MAIN, WORKLOADS, Scenario

REFUSED = Scenario(WORKLOADS["refused"])


def figures(cpu_us: float, store_us: float = 5.0, store_calls: float = 0.1) -> Figures:
    return Figures(12_345.6, 1.25, 9.5, cpu_us, store_us, store_calls, 56.4)


def results(ours: float = 35, nginx: float = 50, envoy: float = 70, refusal: float = 14) -> Results:
    return Results(
        {
            (MAIN, "ours"): figures(ours),
            (MAIN, "nginx-lua"): figures(nginx, 15),
            (MAIN, "envoy"): figures(envoy, 0),
            (REFUSED, "ours"): figures(refusal, 0, 0),
        }
    )


def words(found: Results) -> list[str]:
    return [each.word for each in report.verdicts(found, [])]


def test_met_objectives_pass() -> None:
    """A value that is exactly at its objective passes, such as 0.70 of nginx + Lua + Redis."""
    assert words(results()) == ["pass"] * 5


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (results(nginx=49), ["FAIL", "pass", "pass", "pass", "pass"]),
        (results(envoy=49), ["pass", "FAIL", "pass", "pass", "pass"]),
        (results(refusal=18), ["pass", "pass", "pass", "FAIL", "pass"]),
    ],
)
def test_missed_objectives_fail(found: Results, expected: list[str]) -> None:
    """Each verdict is about its own value."""
    assert words(found) == expected


def test_the_store_is_checked_separately() -> None:
    """More than 6 microseconds a decision fail, and so does a refusal that calls the store."""
    found = results()
    found.figures[MAIN, "ours"] = figures(35, store_us=6.1)
    found.figures[REFUSED, "ours"] = figures(10, store_calls=0.5)
    assert words(found) == ["pass", "pass", "FAIL", "pass", "FAIL"]


def test_values_that_were_not_measured_do_not_pass() -> None:
    """Without a peer there is no ratio to it, and the report says so."""
    found = results()
    del found.figures[MAIN, "envoy"], found.figures[REFUSED, "ours"]
    assert words(found) == ["pass", "not measured", "pass", "not measured", "not measured"]


def test_growth_is_checked_without_a_comparison() -> None:
    """A run of growth alone has its own verdicts only."""
    growth = [Growth("routes", 5.1, 5, "%"), Growth("at rest", 59, 60, "MB")]
    told = report.verdicts(Results(), growth)
    assert [(each.title, each.word) for each in told] == [("routes", "FAIL"), ("at rest", "pass")]


def test_the_report_holds_all_of_it() -> None:
    """Machine, remarks, verdicts, a table per scenario with ratios to each peer, and reasons."""
    found = results()
    found.failures[MAIN, "haproxy"] = "it ended | at once"
    text = report.write(found, [], {"CPU": "a CPU"}, ["three rounds"])
    assert "| CPU | a CPU |" in text
    assert "- three rounds" in text
    assert f"### {MAIN.title}" in text
    assert f"### {REFUSED.title}" in text
    row = next(line for line in text.splitlines() if line.startswith("| nginx + Lua"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:] == ["50.0", "15.0", "0.70", "12,346", "1.25", "9.50", "56"]
    assert "HAProxy: it ended | at once" in text


def test_tables_are_tables() -> None:
    """Each row has as many cells as the table's head, whatever their content."""
    text = report.write(results(), [Growth("a | b", None, 1, "%", "c\nd")], {}, [])
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in lines}) <= 1, block


def test_a_report_is_written_between_its_marks(tmp_path: Path) -> None:
    """The rest of the file is kept, also when a second report replaces the first."""
    path = tmp_path / "README.md"
    path.write_text(f"# Before\n\n{report.BEGIN}\nold\n{report.END}\n\n# After\n")
    report.put(path, "first\n")
    report.put(path, "second\n")
    expected = f"# Before\n\n{report.BEGIN}\n\nsecond\n\n{report.END}\n\n# After\n"
    assert path.read_text() == expected


def test_a_file_without_marks_is_written_whole(tmp_path: Path) -> None:
    """A new file has the report alone, between marks for the next one."""
    path = tmp_path / "report.md"
    report.put(path, "first\n")
    report.put(path, "second\n")
    assert path.read_text() == f"{report.BEGIN}\n\nsecond\n\n{report.END}\n"
