"""The tool that tries mutants, on a small checkout; and its table, on this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import plugin
from tests.mutants.__main__ import Result, Trial, share_killed, summary
from tests.mutants.copy import Copy, Run, Stopped
from tests.mutants.table import Mutant, Unusable, chosen, read_table

FILES = {
    "gateway/__init__.py": "",
    "gateway/bounds.py": "def fits(size):\n    return size <= 5\n",
    "client/gateway_client/__init__.py": "",
    "tests/test_bounds.py": "from gateway.bounds import fits\n\n\n"
    "def test_large():\n    assert fits(4) and not fits(9)\n",
    # What selects tests is an option of the tests' own.
    "tests/conftest.py": "def pytest_addoption(parser):\n    parser.addoption('--tier')\n",
    "tests/mutants/plugin.py": Path(plugin.__file__).read_text("utf-8"),
}
#: Both are of one length and one second, as is the unchanged text.
KILLED = """
[[file.mutant]]
what = "everything fits"
old = "size <= 5"
new = "size != 5"
"""
SURVIVOR = """
[[file.mutant]]
what = "what just fits is refused"
old = "size <= 5"
new = "size <  5"
"""
HEAD = """
[[file]]
path = "gateway/bounds.py"
tests = ["tests/test_bounds.py"]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout."""
    folder = tmp_path / "checkout"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def table_of(root: Path, *parts: str) -> Path:
    path = root / "table.toml"
    path.write_text("".join(parts))
    return path


def test_the_table_fits_the_code() -> None:
    """Each entry changes one place of its file; where that has changed, the entry has to follow."""
    assert read_table()


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        (KILLED.replace("<= 5", "<= 6"), "found its old text 0 times, expected it once"),
        (KILLED.replace('"size <= 5"', '"size"'), "found its old text 2 times, expected it once"),
        (KILLED.replace("size != 5", "size <= 5"), "its old and its new text are the same"),
        (KILLED + 'tests = ["tests/x.py::test_x"]\n', "tests/x.py::test_x is missing"),
    ],
    ids=["gone", "twice", "same", "test"],
)
def test_an_entry_that_does_not_fit(root: Path, part: str, fault: str) -> None:
    """It is named, with what is wrong."""
    with pytest.raises(Unusable) as raised:
        read_table(table_of(root, HEAD, SURVIVOR, part), root)
    assert str(raised.value) == f"mutant 2 (gateway/bounds.py: everything fits): {fault}"


def test_all_faults_are_named(root: Path) -> None:
    """Unknown fields and missing files as well."""
    table = table_of(root, HEAD.replace("bounds.py", "x.py"), KILLED, "why = ''\n", SURVIVOR)
    with pytest.raises(Unusable) as raised:
        read_table(table, root)
    assert str(raised.value).splitlines() == [
        "mutant 1: unknown fields: why",
        "mutant 1 (gateway/x.py: everything fits): the file is missing",
        "mutant 2 (gateway/x.py: what just fits is refused): the file is missing",
    ]


def test_mutants_are_chosen() -> None:
    """By their number, or by a part of their path."""
    mutants = [Mutant(number, f"gateway/{number}.py", "", "a", "b", ()) for number in (1, 2, 12)]
    assert chosen(mutants, []) == mutants
    assert chosen(mutants, ["2"]) == [mutants[1]]
    assert chosen(mutants, ["2.py"]) == mutants[1:]
    assert chosen(mutants, ["1", "12.py"]) == [mutants[0], mutants[2]]


def test_the_share_is_told() -> None:
    """Those that survived are repeated at the end."""
    of = [Mutant(number, "gateway/a.py", f"fault {number}", "a", "b", ()) for number in (1, 2, 3)]
    results = [Result(mutant, mutant.number != 2, 1.5) for mutant in of]
    assert share_killed(results) == pytest.approx(2 / 3)
    assert summary(results).splitlines() == [
        "",
        "   2 of   3  gateway/a.py",
        "",
        "   2  SURVIVED    1.5 s  gateway/a.py: fault 2",
        "",
        "2 of 3 killed: 66.7%; at least 92% should be",
    ]


def test_mutants_are_tried_in_a_copy(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each is tried alone, and the checkout stays as it is."""
    mutants = read_table(table_of(root, HEAD, KILLED, SURVIVOR), root)
    copy = Copy(tmp_path / "copy", root)
    trial = Trial([copy])
    assert trial.prepare(mutants) is None
    assert [result.killed for result in trial.run(mutants)] == [True, False]
    for folder in (root, copy.folder):
        assert (folder / "gateway/bounds.py").read_text() == FILES["gateway/bounds.py"]
    assert "SURVIVED" in capfd.readouterr().out


def test_tests_that_fail_without_a_mutant(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is tried with them: they would kill anything."""
    monkeypatch.setattr(Copy, "test", lambda _copy, _tests: Run(False, 0.1, "E  assert 0"))
    mutants = read_table(table_of(root, HEAD, KILLED), root)
    assert Trial([Copy(tmp_path / "copy", root)]).prepare(mutants) == (
        "E  assert 0\nThese tests fail without a mutant: tests/test_bounds.py"
    )


def test_what_hangs_is_ended(root: Path, tmp_path: Path) -> None:
    """Tests that take too long have failed."""
    (root / "tests/test_bounds.py").write_text("while True:\n    pass\n")
    run = Copy(tmp_path / "copy", root).test(["tests/test_bounds.py"], timeout_s=0.1)
    assert not run.passed


def test_what_is_killed_from_elsewhere(root: Path, tmp_path: Path) -> None:
    """It says nothing about a mutant, so it is no result."""
    text = "import os\nimport signal\n\nos.kill(os.getpid(), signal.SIGKILL)\n"
    (root / "tests/test_bounds.py").write_text(text)
    with pytest.raises(Stopped, match=r"the tests were killed: tests/test_bounds\.py"):
        Copy(tmp_path / "copy", root).test(["tests/test_bounds.py"])
