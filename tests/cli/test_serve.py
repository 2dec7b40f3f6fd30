"""What `gateway serve` refuses before it starts, and how it starts itself again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.cli.serve import own_command


def test_memory_is_not_taken_over(tmp_path: Path) -> None:
    """The data of memory:// would be lost silently: a usage error, in one line."""
    words = ["serve", "--policies", str(tmp_path), "--store", "memory://", "--take-over"]
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 2
    assert "--take-over: memory:// is inside the running gateway" in refused.output


def test_its_own_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file that was run, which may lead to another version by now; else its interpreter."""
    program = tmp_path / "gateway"
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "serve", "--workers", "2"])
    assert own_command() == [str(program), "serve", "--workers", "2"]
    program.chmod(0o644)
    monkeypatch.setattr(sys, "orig_argv", ["/bin/python", "-m", "gateway", "serve"])
    assert own_command() == ["/bin/python", "-m", "gateway", "serve"]
