"""Commands in this process: what they get and leave. That the entry points do the same is in
tests/cli/test_main.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.kit.command import run, run_aside
from tests.kit.gateway import keys_command
from tests.kit.redis_server import RedisServer


def test_streams_and_status() -> None:
    """Both streams are apart and together; a command that does nothing has an exit status."""
    done = run("--version")
    assert (done.returncode, done.stderr, done.output) == (0, "", done.stdout)
    done = run("nothing")
    assert (done.returncode, done.stdout, done.output) == (2, "", done.stderr)


def test_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets its input, its folder and variables, and no variable of another gateway."""
    monkeypatch.setenv("GATEWAY_POLICIES", "/nowhere")
    (tmp_path / "own").mkdir()
    streams, folder = (sys.stdin, sys.stdout, sys.stderr), os.getcwd()
    done = run("validate", "own", folder=tmp_path)
    assert (done.returncode, "own" in done.stderr) == (1, True)
    done = run("keys", "list", environment={"GATEWAY_STORE": "memory://"})
    assert (done.returncode, "memory://" in done.stderr) == (2, True)
    assert (sys.stdin, sys.stdout, sys.stderr) == streams
    assert os.getcwd() == folder
    assert os.environ["GATEWAY_POLICIES"] == "/nowhere"
    assert "GATEWAY_STORE" not in os.environ


async def test_several_at_once(redis_server: RedisServer) -> None:
    """Each has its own output, and the event loop of the test goes on meanwhile."""
    words = ("--name", "{}", "--plan", "free")
    made = await asyncio.gather(
        *(
            keys_command(redis_server.url, "create", *(word.format(at) for word in words))
            for at in range(8)
        ),
        run_aside("nothing"),
    )
    assert [key["name"] for key in made[:-1]] == [str(at) for at in range(8)]
    assert made[-1].returncode == 2
