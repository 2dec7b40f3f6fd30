"""A process whose host has the wrong time, by libfaketime (Debian package faketime).

Only the time of day is moved. Timers keep to the monotonic clock, and what the kernel says of files
stays true: both are the same on a host whose clock is wrong.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

#: The program that a test with a skew needs on PATH.
FAKETIME = "faketime"


def skewed(seconds: float) -> dict[str, str]:
    """The environment of a process whose clock is so far ahead; nothing for one that is right."""
    if not seconds:
        return {}
    # The library lies elsewhere on each kind of machine; the program knows where.
    asked = [FAKETIME, "-m", "-f", "+0s", "printenv", "LD_PRELOAD"]
    library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return {
        "LD_PRELOAD": library,
        "FAKETIME": f"{seconds:+f}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def clean_up(pids: Iterable[int]) -> None:
    """Remove what the library keeps of processes that have ended, and leaves when they are quick.

    A worker ends without the ceremony in which the library would do it.
    """
    for pid in pids:
        for name in ("faketime_shm", "sem.faketime_sem"):
            Path(f"/dev/shm/{name}_{pid}").unlink(missing_ok=True)
