"""A missing tool: a skip on a developer's machine, a failure in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INNER = """
import pytest
from tests.kit.needs import needs

@needs("python-of-no-kind", "sh")
def test_skipped(): ...

@needs("sh")
def test_run(): ...

@pytest.mark.xfail(reason="known")
def test_expected(): raise ValueError
"""
WHOLE_MODULE = "import pytest\npytest.skip('all of it', allow_module_level=True)\n"


@pytest.mark.parametrize(
    ("ci", "inner", "status", "summary"),
    [
        ("", INNER, 0, "1 passed, 1 skipped, 1 xfailed"),
        ("true", INNER, 1, "1 passed, 1 xfailed, 1 error"),
        ("", WHOLE_MODULE, 5, "1 skipped"),
        ("true", WHOLE_MODULE, 2, "1 error"),
    ],
)
def test_a_skip_fails_in_ci(tmp_path: Path, ci: str, inner: str, status: int, summary: str) -> None:
    """Every skip fails there, a whole module's too; an expected failure stays one."""
    (tmp_path / "test_inner.py").write_text(inner)
    options = ["-p", "tests.kit.needs", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)],
        # The other plugins take longer to import than the tests to run.
        env={**os.environ, "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert summary in done.stdout.splitlines()[-1]
    if ci and inner is INNER:
        assert "not on PATH: python-of-no-kind" in done.stdout
