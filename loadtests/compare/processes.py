"""Starts and stops programs for a run, and reads their CPU time and memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kit.proc import rss_bytes

#: A program that takes longer to start or to end is broken.
TIMEOUT_S: Final = 20.0


class NotStarted(Exception):
    """A program ended at its start or did not get ready; the text has the end of its log."""


class Program:
    """A program of a run, in its own session: Ctrl-C reaches only us, and we stop it."""

    def __init__(
        self, folder: Path, *command: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = folder / "output.log"
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def until(self, is_ready: Callable[[], bool]) -> None:
        """Wait until it is ready. Raises NotStarted."""
        give_up = time.monotonic() + TIMEOUT_S
        while not is_ready():
            if self._process.poll() is not None:
                raise NotStarted(f"it ended at once: {self._said()}")
            if time.monotonic() > give_up:
                raise NotStarted(f"it did not get ready: {self._said()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it, then all processes that it started. Idempotent."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(TIMEOUT_S)
        # A process group keeps its id as long as one of its processes lives.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def _said(self) -> str:
        return self.log.read_text(errors="replace")[-600:].strip() or "(nothing was printed)"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process and its descendants have used so far. pids: of all of them."""

    cpu_s: float
    rss_bytes: int
    pids: frozenset[int]


def usage(pid: int) -> Usage:
    """The usage of a process tree. Processes that end meanwhile are left out."""
    pids = tree(pid)
    cpu, rss = 0.0, 0
    for member in pids:
        with contextlib.suppress(OSError, AssertionError):
            rss += rss_bytes(member)
            cpu += cpu_s(member)
    return Usage(cpu, rss, frozenset(pids))


def rss_of_workers(pid: int) -> int:
    """The memory of the largest descendant of this process, or its own if it has none."""
    members = tree(pid)
    return max(map(rss_bytes, members[1:] or members))


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found


def cpu_s(pid: int) -> float:
    """The CPU time of all threads of a process, to the nanosecond; in /proc it is to 10 ms."""
    # The kernel's number of another process's CPU clock: see clock_getcpuclockid(3).
    return time.clock_gettime((~pid << 3) | 2)
