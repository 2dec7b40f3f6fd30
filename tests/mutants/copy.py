"""A copy of the checkout, in which mutants are tried one by one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from tests.kit.tiers import MARKERS
from tests.mutants.table import ROOT, Mutant

#: What `make test` runs. The markers are named as well, because a file that is named itself runs in
#: any tier.
SELECTION: Final = ("--tier", "quick", "-m", f"not ({' or '.join(MARKERS)})")
#: Tests are in the same order each time, so that a result can be repeated.
PYTEST: Final = (
    *("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"),
    *("-p", "tests.mutants.plugin", *SELECTION),
)
#: What is made, or is not part of the code.
_LEFT_OUT: Final = shutil.ignore_patterns(
    *(".git", ".venv", "build", "__pycache__", "*.egg-info"),
    *(".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"),
)


class Stopped(Exception):
    """A signal from elsewhere ended the tests, which says nothing about a mutant."""


@dataclass(frozen=True, slots=True)
class Run:
    """How a run of tests ended. seconds: how long it took; output: of pytest"""

    passed: bool
    seconds: float
    output: str


class Copy:
    """A copy in this folder. The checkout itself is never written to."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder
        shutil.copytree(root, folder, ignore=_LEFT_OUT, symlinks=True, dirs_exist_ok=True)
        paths = os.pathsep.join([str(folder), str(folder / "client")])
        # The environment has the checkout installed; a path of this variable precedes that, also in
        # the processes that tests start.
        self._environment = {**os.environ, "PYTHONPATH": paths}

    def imported_from(self, package: str) -> Path:
        """Where a process in another folder imports the package from."""
        done = subprocess.run(
            [sys.executable, "-c", f"import {package}; print({package}.__file__)"],
            cwd=self.folder.anchor,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return Path(done.stdout.strip())

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Apply the mutant until the end of the block."""
        path = self.folder / mutant.file
        text = path.read_text("utf-8")
        _write(path, mutant.apply(text))
        try:
            yield
        finally:
            _write(path, text)

    def test(self, tests: Sequence[str], timeout_s: float | None = None) -> Run:
        """Run these tests. What takes longer than this has failed. Raises Stopped."""
        began = time.monotonic()
        output = self.folder / ".output"
        with output.open("wb") as written:
            process = subprocess.Popen(
                [sys.executable, *PYTEST, *tests],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                status = 1
            finally:
                _kill_group(process.pid)
                process.wait()
        if status == -signal.SIGKILL:
            raise Stopped(f"the tests were killed: {' '.join(tests)}")
        return Run(status == 0, time.monotonic() - began, output.read_text("utf-8", "replace"))


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    if path.suffix == ".py":
        # A module of the same second and the same length would be taken from here.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def _kill_group(leader: int) -> None:
    """End the tests, if they still run, and the servers that they have left."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
