"""At the end of a run that fails: the command that repeats each failure.

The report of each test with its output is above it, in pytest's own summary.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator
from typing import Final

import pytest

#: More failures than this have one cause, and repeating some of them shows it.
_MOST: Final = 10


def command(nodes: list[str], seed: int | None) -> str:
    """Repeat these tests with the same seed of random numbers."""
    words = [".venv/bin/python", "-m", "pytest", *nodes]
    if seed is not None:
        words.insert(3, f"--randomly-seed={seed}")
    return shlex.join(words)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    """After all that others write."""
    yield
    reports = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    nodes = list(dict.fromkeys(report.nodeid for report in reports))
    if nodes:
        seed = config.getoption("randomly_seed", None)
        words = command(nodes[:_MOST], seed if isinstance(seed, int) else None)
        terminalreporter.write_line(f"to repeat: {words}")
