"""Tables, and the file that they are written into."""

from __future__ import annotations

from pathlib import Path

from loadtests.compare import report
from loadtests.compare.measure import Figures, Results
from loadtests.compare.scenarios import MAIN, WORKLOADS, Scenario
from loadtests.compare.spread import Spread, Verdict

REFUSED = Scenario(WORKLOADS["refused"])


BEGIN, END = "<!-- report: begin -->", "<!-- report: end -->"


def figures(cpu_us: float, store_us: float = 5.0, store_calls: float = 0.1) -> Figures:
    return Figures(12_345.6, 1.25, 9.5, cpu_us, store_us, store_calls, 56.4)


def results() -> Results:
    return Results(
        {
            (MAIN, "ours"): [figures(35), figures(30), figures(36)],
            (MAIN, "nginx-lua"): [figures(70, 15), figures(64, 14), figures(72, 17)],
            (REFUSED, "ours"): [figures(14, 0, 0)] * 3,
        }
    )


def test_the_report_holds_all_of_it() -> None:
    """Machine, remarks, verdicts, a table per scenario with ratios to each peer, and reasons."""
    found = results()
    found.failures[MAIN, "haproxy"] = "it ended | at once"
    told = [Verdict("one of them", Spread.of([1.25, 1.5]), 2, "ms", "a note", rounds=2)]
    text = report.write(found, told, {"CPU": "a CPU"}, ["three rounds"])
    assert "| CPU | a CPU |" in text
    assert "- three rounds" in text
    assert f"### {MAIN.title}" in text
    assert f"### {REFUSED.title}" in text
    assert cells(text, "nginx + Lua + Redis")[1:] == [
        *("70.0 (64.0 to 72.0)", "15.0", "0.50 (0.47 to 0.50)", "12,346", "1.25", "9.50", "56")
    ]
    assert cells(text, "one of them")[1:] == ["1.38 (1.25 to 1.50) ms", "2 ms", "pass", "a note"]
    assert "HAProxy: it ended | at once" in text


def cells(text: str, title: str) -> list[str]:
    """The cells of the row that begins with this."""
    row = next(line for line in text.splitlines() if line.startswith(f"| {title}"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_report_without_objectives_or_figures() -> None:
    """A run that measured nothing of a part does not have its heading."""
    assert "## Figures" not in report.write(Results(), [], {}, [])
    assert "## What it has to reach" not in report.write(results(), [], {}, [])


def test_tables_are_tables() -> None:
    """Each row has as many cells as the table's head, whatever their content."""
    text = report.write(results(), [Verdict("a | b", None, 1, "%", "c\nd")], {}, [])
    blocks = [block.splitlines() for block in text.split("\n\n")]
    tables = [[line for line in block if line.startswith("|")] for block in blocks]
    widths = [{line.replace("\\|", "").count("|") for line in table} for table in tables if table]
    assert widths
    assert [width for width in widths if len(width) > 1] == []


def test_a_report_is_written_between_its_marks(tmp_path: Path) -> None:
    """The rest of the file is kept, also when a second report replaces the first."""
    path = tmp_path / "README.md"
    path.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\n# After\n")
    report.put(path, "first\n")
    report.put(path, "second\n")
    expected = f"# Before\n\n{BEGIN}\n\nsecond\n\n{END}\n\n# After\n"
    assert path.read_text() == expected


def test_a_file_without_marks_is_written_whole(tmp_path: Path) -> None:
    """A new file has the report alone, between marks for the next one."""
    path = tmp_path / "report.md"
    report.put(path, "first\n")
    report.put(path, "second\n")
    assert path.read_text() == f"{BEGIN}\n\nsecond\n\n{END}\n"
