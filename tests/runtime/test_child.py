"""What a worker's process is given, and what is said of its end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import gateway
from gateway.runtime.child import environment, how_it_ended

HOME = str(Path(gateway.__file__).parent.parent)


def test_a_worker_is_given_no_secret_by_its_environment() -> None:
    """What this program was told there, it is told by the channel; the rest is as it was."""
    ours = {"PATH": "/bin", "GATEWAY_STORE_PASSWORD": "hunter2", "GATEWAY_STORE": "redis://c"}
    assert environment(ours) == {"PATH": "/bin", "PYTHONPATH": HOME}


def test_a_worker_is_the_same_program() -> None:
    """Found where this one was, before whatever else is searched."""
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
    """By its status, or by the signal's name where it has one."""
    assert how_it_ended(status) == words
