"""What `gateway serve` refuses before it starts, and the command for its successor."""

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
    """The program that was run, which may be a newer version now; otherwise its interpreter's."""
    program = tmp_path / "gateway"
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "serve", "--workers", "2"])
    assert own_command() == [str(program), "serve", "--workers", "2"]
    program.chmod(0o644)
    monkeypatch.setattr(sys, "orig_argv", ["/bin/python", "-m", "gateway", "serve"])
    assert own_command() == ["/bin/python", "-m", "gateway", "serve"]
