"""A short run of the fuzzer: its first inputs, and a few thousand mutations of them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


# Wheels of atheris exist for some machines only. CI needs one: a skip is a failure there.
@pytest.mark.skipif(find_spec("atheris") is None, reason="not installed: atheris (extra `fuzz`)")
def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    """No input of a short run is a finding; no folder is left behind."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.fuzz_downstream"),
            *("-seed=1", "-runs=5000", f"-artifact_prefix={tmp_path}/"),
        ],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        timeout=100,
        check=False,
    )
    output = run.stderr.decode("utf-8", "replace")
    assert run.returncode == 0, output[-4000:]
    assert "Done " in output, output[-4000:]
    assert list(scratch.iterdir()) == []
