"""Where a request's microseconds go: kernel, event loop, our code step by step, and Redis.

    python -m tests.bench.profile               the table
    python -m tests.bench.profile --markdown    the same for a document

An admitted GET with a known key and one limit, 64 connections. CPU time per request is what the
kernel counted for the processes under load; samples of `perf` give the parts of the kernel and the
event loop, and without perf the kernel reports its own part. The rest is our code, split in the
proportions that `steps` measures. Tools of nginx, wrk and perf that are missing are named, and the
rows that need them left out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench import loaded, steps
from tests.bench.instructions import interpreter

#: The samples leave out a second at both ends of the load.
SAMPLED_S: Final = loaded.SECONDS - 2

SEND: Final = "kernel: send"
RECEIVE: Final = "kernel: receive"
WAIT: Final = "kernel: wait for sockets"
KERNEL: Final = "kernel: the rest"
LOOP: Final = "event loop (uvloop)"
REPLIES: Final = "reading replies (hiredis)"
OURS: Final = "our code"
REDIS: Final = "Redis"

_CALLS: Final = {
    **dict.fromkeys(("sendto", "sendmsg", "write", "writev"), SEND),
    **dict.fromkeys(("recvfrom", "recvmsg", "read", "readv"), RECEIVE),
    **dict.fromkeys(("epoll_wait", "epoll_pwait", "epoll_ctl"), WAIT),
}
#: The kernel's entry functions have several names; which are in a stack depends on its build.
_system_call = re.compile(r"\b(?:__(?:x64_|arm64_)?sys_|ksys_|do_)(\w+)").search
_place = re.compile(r"\(([^()]*)\)$").search


@dataclass(frozen=True, slots=True)
class Row:
    """One line: its title, and its CPU microseconds per request."""

    name: str
    us: float


def kind_of(frames: Sequence[str]) -> str:
    """The row that a sample belongs to. frames: as `perf script` prints them, innermost first."""
    for frame in frames:
        call = _system_call(frame)
        if call is not None and call[1] in _CALLS:
            return _CALLS[call[1]]
    found = _place(frames[0]) if frames else None
    where = "" if found is None else found[1]
    if where.startswith(("[kernel", "[guest")):
        return KERNEL
    if "uvloop" in where:
        return LOOP
    return REPLIES if "hiredis" in where else OURS


def kinds_in(script: str) -> Counter[str]:
    """The number of samples of each kind in the output of `perf script`."""
    samples = (sample.split("\n") for sample in script.strip().split("\n\n"))
    stacks = ([line for line in sample if line.startswith("\t")] for sample in samples)
    return Counter(kind_of(stack) for stack in stacks if stack)


def sample(pid: int) -> Counter[str]:
    """Samples of a process for a while; none if this machine does not permit them."""
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder:
        data = str(Path(folder) / "perf.data")
        recorded = subprocess.run(
            [
                *("perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-g"),
                *("-p", str(pid), "-o", data, "--", "sleep", str(SAMPLED_S)),
            ],
            capture_output=True,
            check=False,
        )
        if recorded.returncode:
            return Counter()
        printed = subprocess.run(
            ["perf", "script", "-i", data, "-F", "ip,sym,dso"],
            capture_output=True,
            text=True,
            check=False,
        )
        return kinds_in(printed.stdout)


def times_s(pids: Sequence[int]) -> tuple[float, float]:
    """CPU time of these processes: their own, and the kernel's for them."""
    user = system = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user += int(fields[11])
        system += int(fields[12])
    tick = os.sysconf("SC_CLK_TCK")
    return user / tick, system / tick


async def under_load() -> list[Row]:
    """The rows of a gateway under load, with our code as one of them; the cheapest round counts."""
    if shutil.which("perf") is None:
        print("\nperf is not on PATH: the kernel is one row, and the event loop is in our code's")
    async with loaded.loaded() as at:
        rounds = [await _round(at) for _ in range(loaded.ROUNDS)]
    return min(rounds, key=lambda rows: sum(row.us for row in rows))


async def _round(at: loaded.Loaded) -> list[Row]:
    gateway = at.pids[0]
    before = times_s(gateway)
    load = asyncio.to_thread(loaded.wrk, at.ways[loaded.LIMITED], at.key, at.pids)
    running = asyncio.ensure_future(load)
    await asyncio.sleep(1)
    seen = await asyncio.to_thread(sample, at.worker) if shutil.which("perf") else Counter()
    run = await running
    if not seen:
        user_s, system_s = (
            end - start for start, end in zip(before, times_s(gateway), strict=True)
        )
        seen = Counter({OURS: round(user_s * 1000), KERNEL: round(system_s * 1000)})
    samples = seen.total()
    rows = [
        Row(kind, run.gateway_us * seen[kind] / samples)
        for kind in (RECEIVE, SEND, WAIT, KERNEL, LOOP, REPLIES, OURS)
        if seen[kind]
    ]
    return [*rows, Row(REDIS, run.redis_us)]


def combined(rows: Sequence[Row], split: dict[str, float]) -> list[Row]:
    """The rows, with our code's split into its steps, in the same proportions."""
    whole = sum(split.values())
    out: list[Row] = []
    for row in rows:
        if row.name == OURS:
            out += [Row(step, row.us * us / whole) for step, us in split.items()]
        else:
            out.append(row)
    return out


def table(rows: Sequence[Row], *, markdown: bool) -> str:
    """The rows, their shares, and their sum."""
    whole = sum(row.us for row in rows)
    lines = [(row.name, f"{row.us:.1f}", f"{row.us / whole:.0%}") for row in rows]
    lines.append(("all", f"{whole:.1f}", ""))
    if markdown:
        head = ["| step | µs | share |", "| --- | ---: | ---: |"]
        return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)])
    return "\n".join(f"{name:28}{us:>8}{share:>7}" for name, us, share in lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--markdown", action="store_true", help="print the table for a document")
    options = parser.parse_args(arguments)
    whole_us, split = steps.split()
    print(f"{interpreter()}; our code alone: {whole_us:.1f} us a request\n")
    print(table([Row(*step) for step in split.items()], markdown=options.markdown))
    if lacking := loaded.missing():
        print(f"\nno load was put on a gateway: not on PATH: {', '.join(lacking)}")
        return
    rows = asyncio.run(under_load())
    print("\nunder load, CPU of gateway and Redis\n")
    print(table(combined(rows, split), markdown=options.markdown))


if __name__ == "__main__":
    main()
