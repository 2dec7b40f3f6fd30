"""Programs of a run, and their CPU time and memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from loadtests.compare.processes import NotStarted, Program, cpu_s, rss_of_workers, tree, usage

#: A parent that starts a child, says so, and waits.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("child", "w").write(str(child.pid))
time.sleep(600)
"""


def start_parent(folder: Path, code: str = PARENT) -> tuple[Program, int]:
    program = Program(folder, sys.executable, "-c", code)
    path = folder / "child"
    program.until(lambda: path.exists() and path.read_text() != "")
    return program, int(path.read_text())


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_program_and_its_children_are_one_tree(tmp_path: Path) -> None:
    """Their memory is added up; the worker's is that of the largest child."""
    program, child = start_parent(tmp_path)
    try:
        assert set(tree(program.pid)) == {program.pid, child}
        found = usage(program.pid)
        assert found.pids == {program.pid, child}
        assert found.cpu_s > 0
        assert found.rss_bytes > rss_of_workers(program.pid) > 1_000_000
        assert rss_of_workers(child) > 1_000_000
    finally:
        program.stop()


def test_stopping_ends_all_of_it(tmp_path: Path) -> None:
    """A child that its parent left behind ends, too; stopping again does nothing."""
    program, child = start_parent(tmp_path)
    program.stop()
    program.stop()
    give_up = time.monotonic() + 20
    while is_alive(child):
        assert time.monotonic() < give_up
        time.sleep(0.01)
    assert not is_alive(program.pid)


def test_its_last_output_is_reported(tmp_path: Path) -> None:
    """The wait for a program that ends at its start stops, and its output is reported."""
    program = Program(tmp_path, sys.executable, "-c", "raise SystemExit('no such setting')")
    with pytest.raises(NotStarted, match="no such setting"):
        program.until(lambda: False)
    program.stop()


def test_cpu_time_only_grows(tmp_path: Path) -> None:
    """It agrees with the process's own measurement."""
    before = cpu_s(os.getpid())
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    assert cpu_s(os.getpid()) - before >= 0.02
    assert cpu_s(os.getpid()) == pytest.approx(time.process_time(), abs=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM end what was started, and remove its folder."""
    code = """
import signal, sys, tempfile, time
from pathlib import Path
from contextlib import ExitStack
from loadtests.compare import __main__ as tool, tools
from loadtests.compare.processes import Program

started = []

def upstream(folder):
    stack = ExitStack()
    program = Program(folder, sys.executable, "-c", "import time; time.sleep(600)")
    stack.callback(program.stop)
    started.append(f"{program.pid} {folder}")
    return stack

def compare(*_):
    Path("child").write_text(*started)
    time.sleep(600)

# A shell that runs the tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
tool.upstream = upstream
tool.tools.missing = lambda names: []
tool._compare = compare
tool.run()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.PIPE,
    )
    path = tmp_path / "child"
    give_up = time.monotonic() + 30
    while not (path.exists() and path.read_text()):
        assert process.poll() is None
        assert time.monotonic() < give_up
        time.sleep(0.02)
    child, folder = path.read_text().split()
    process.send_signal(number)
    _, words = process.communicate(timeout=30)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], words
    assert not is_alive(int(child))
    assert not Path(folder).exists()
