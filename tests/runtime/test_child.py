"""The environment of a worker's process, and the description of its end."""

from __future__ import annotations

import ast
import os
import signal
import sys
from pathlib import Path

import pytest

import gateway
from gateway.runtime.child import describe_status, environment, launch_successor
from tests.kit.eventually import eventually

HOME = str(Path(gateway.__file__).parent.parent)


def test_a_worker_is_given_no_secret_by_its_environment() -> None:
    """Secrets are sent by the channel; the rest of the environment is unchanged."""
    ours = {"PATH": "/bin", "GATEWAY_STORE_PASSWORD": "hunter2", "GATEWAY_STORE": "redis://c"}
    ours |= {"NOTIFY_SOCKET": "/run/notify", "LISTEN_FDS": "1", "LISTEN_PID": "1"}
    assert environment(ours) == {"PATH": "/bin", "PYTHONPATH": HOME}


def test_a_worker_is_the_same_program() -> None:
    """It is searched first where this program was found."""
    assert environment({"PYTHONPATH": "/x"})["PYTHONPATH"] == f"{HOME}{os.pathsep}/x"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-signal.SIGKILL, "was ended by SIGKILL"),
        (-50, "was ended by signal 50"),
    ],
)
def test_an_end_in_words(status: int, words: str) -> None:
    """The status, or the signal's name if it has one."""
    assert describe_status(status) == words


async def test_a_successor_is_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent adopts orphans, as systemd does; its environment asks for a take-over.

    Sockets from systemd are for another process, whose id it might have got.
    """
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        monkeypatch.setenv(name, "1")
    about = "[os.environ.get(n) for n in ('GATEWAY_TAKE_OVER', 'NOTIFY_SOCKET', 'LISTEN_PID')]"
    words = f"os.getppid(), {about}, [n for n in os.environ if n.startswith('LISTEN')], sys.argv"
    # A bare machine has python3 on its PATH, and no python.
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    note = tmp_path / "note"
    draft = "import os, sys, pathlib as p; f = p.Path(sys.argv[1] + '.draft')"
    text = f"{draft}; f.write_text(repr(({words}))); f.rename(sys.argv[1])"
    launch_successor([Path(sys.executable).name, "-c", text, str(note), "a word"])
    await eventually(note.exists, "it runs")
    parent, *told = ast.literal_eval(note.read_text())
    assert parent != os.getpid()
    assert told == [["true", "/run/notify", None], [], ["-c", str(note), "a word"]]


def test_a_missing_successor() -> None:
    """If its program is missing, as during an upgrade, the error names it."""
    with pytest.raises(FileNotFoundError, match="No such file"):
        launch_successor(["/nowhere/gateway", "serve"])
