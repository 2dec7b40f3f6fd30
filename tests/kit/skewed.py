"""A process with a wrong clock, by libfaketime (Debian package faketime).

Only the time of day is shifted. Monotonic timers and the times of files are right, as on a host
with a wrong clock.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

#: The program that such a test needs on PATH.
FAKETIME = "faketime"


@cache
def _library() -> str:
    """The library's path, which differs between machines; the program knows it."""
    asked = [FAKETIME, "-m", "-f", "+0s", "printenv", "LD_PRELOAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def skewed(seconds: float) -> dict[str, str]:
    """The environment of a process whose clock is this much ahead; empty for 0."""
    if not seconds:
        return {}
    clean_up()
    return {
        "LD_PRELOAD": _library(),
        "FAKETIME": f"{seconds:+f}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


class MovedClock:
    """A clock that moves on request, in the environment of a process: the host's, plus a shift."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.shift_s = 0
        self.move(0)

    @property
    def environ(self) -> dict[str, str]:
        """Variables of a process that has this clock."""
        without = skewed(1)
        del without["FAKETIME"]
        return {**without, "FAKETIME_TIMESTAMP_FILE": str(self._file), "FAKETIME_NO_CACHE": "1"}

    def now_s(self) -> float:
        return time.time() + self.shift_s

    def move(self, seconds: int) -> None:
        """Set it forward."""
        self.shift_s += seconds
        draft = self._file.with_suffix(".new")
        draft.write_text(f"+{self.shift_s}s\n")
        draft.replace(self._file)


def clean_up(folder: Path = Path("/dev/shm")) -> None:
    """Remove the library's files of processes that have ended too quickly to do it.

    A worker, and what is killed, ends without the exit handler in which the library does it. With
    such a file a later process that gets the same number does not start.
    """
    for file in folder.glob("*faketime_*_*"):
        if not Path("/proc", file.name.rpartition("_")[2]).exists():
            with suppress(OSError):  # another user's
                file.unlink(missing_ok=True)
