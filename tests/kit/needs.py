"""Tools that a test needs and a machine may lack: a skip with a reason, or a failure in CI.

Loaded as a pytest plugin by `tests/conftest.py`. With CI=true every skip fails, for whatever
reason: the machine that accepts a change must have run all tests.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator

import pytest


def needs(*tools: str) -> pytest.MarkDecorator:
    """A mark: skip unless each of these programs is on PATH."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    # A machine without them passes the tests, too, and reports what it skipped. In CI a skip fails.
    return pytest.mark.skipif(bool(missing), reason=f"not on PATH: {', '.join(missing)}")


def is_ci() -> bool:
    return os.environ.get("CI") == "true"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a test's skip into a failure with CI=true; an expected failure stays one."""
    report = yield
    if report.skipped and is_ci() and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where CI=true: {report.longreprtext}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole module that skips itself during collection."""
    report = yield
    if report.skipped and is_ci():
        report.outcome = "failed"
        report.longrepr = f"skipped where CI=true: {report.longreprtext}"
    return report
