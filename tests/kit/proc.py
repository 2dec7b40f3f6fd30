"""The kernel's data on a process: its memory, CPU time, open descriptors (Linux)."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from pathlib import Path


def rss_bytes(pid: int) -> int:
    """The memory that it uses now."""
    return _status(pid, "VmRSS")


def peak_rss_bytes(pid: int) -> int:
    """The most memory that it has used."""
    return _status(pid, "VmHWM")


def cpu_s(pid: int) -> float:
    """The CPU time that it has used, in user and kernel mode."""
    # The program's name, in brackets, may contain spaces; fields are counted after it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(pid: int) -> int:
    """How many descriptors it has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def children(pid: int, program: str = "") -> list[int]:
    """Its running children whose command line contains `program`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                command = (entry / "cmdline").read_bytes()
                if int(parent) == pid and state != "Z" and program.encode() in command:
                    found.append(int(entry.name))
    return sorted(found)


def is_stopped(pid: int) -> bool:
    """Has SIGSTOP stopped it?"""
    return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()


def unread_bytes(end: socket.socket) -> int:
    """How many bytes the other end of a connection over 127.0.0.1 has received and not read."""
    here, there = end.getsockname()[1], end.getpeername()[1]
    wanted = f":{there:04X}", f":{here:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if (local[-5:], remote[-5:]) == wanted:
            return int(queues.partition(":")[2], 16)
    return 0


def _status(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found is not None, f"no {name} of process {pid}"
    return int(found[1]) * 1024
