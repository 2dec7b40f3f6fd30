"""Runs wrk, and parses its output."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import Final

from loadtests.compare import render, tools

_MILLISECONDS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}


class BadLoad(Exception):
    """wrk failed, or received unexpected answers."""


@dataclass(frozen=True, slots=True)
class Load:
    """One run of wrk. other: answers that were neither 2xx nor 3xx; broken: connections, reads,
    writes and waits that failed.
    """

    requests: int
    rate: float
    p50_ms: float
    p99_ms: float
    other: int = 0
    broken: int = 0


def run(url: str, connections: int, seconds: float, script: str, *arguments: str) -> Load:
    """Send requests as fast as they are answered. script: in the folder conf. Raises BadLoad."""
    done = subprocess.run(
        [
            *(str(tools.path_of("wrk")), "-t", "1", "-c", str(connections)),
            *("-d", f"{max(1, round(seconds))}s", "--timeout", "10s", "--latency"),
            *("-s", str(render.FOLDER / script), url, "--", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=False,
    )
    if done.returncode != 0:
        raise BadLoad(f"wrk ended with {done.returncode}: {done.stderr.strip()}")
    return parse(done.stdout)


def parse(text: str) -> Load:
    """Parse the output of wrk --latency. Raises BadLoad."""
    broken = re.search(
        r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text
    )
    other = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    return Load(
        requests=int(_find(r"(\d+) requests in", text)),
        rate=float(_find(r"Requests/sec:\s+([\d.]+)", text)),
        p50_ms=milliseconds(_find(r"^ +50%\s+(\S+)", text)),
        p99_ms=milliseconds(_find(r"^ +99%\s+(\S+)", text)),
        other=int(other[1]) if other else 0,
        broken=sum(map(int, broken.groups())) if broken else 0,
    )


def milliseconds(text: str) -> float:
    """A time as wrk writes it: "640.00us", "1.23ms", "2.00s", "1.50m"."""
    found = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text)
    if found is None:
        raise BadLoad(f"wrk wrote a time as {text!r}")
    return float(found[1]) * _MILLISECONDS[found[2]]


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise BadLoad(f"wrk printed nothing like {pattern!r}: {text[-300:]!r}")
    return found[1]
