"""A process whose host has the wrong time, by libfaketime (Debian package faketime).

Only the time of day is moved. Timers keep to the monotonic clock, and what the kernel says of files
stays true: both are the same on a host whose clock is wrong.
"""

from __future__ import annotations

import subprocess

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
