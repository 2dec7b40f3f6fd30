"""`gateway` commands in this process: their output and exit status, without a start of Python.

What only a process of its own can show is in `tests.kit.gateway`: a gateway that serves, signals,
terminals, closed pipes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import chdir, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from gateway.cli import main

#: A command writes to the streams of the whole process, and reads its environment and folder.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended. output: both streams, as a terminal shows them"""

    returncode: int
    stdout: str
    stderr: str
    output: str


def run(
    *words: str,
    typed: str = "",
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
) -> Result:
    """Run `gateway WORDS` to its end, without settings of gateways from the environment.

    An exception that the command line does not handle, of which a process would print the
    traceback, is the caller's. Threads may call it; other threads must not print meanwhile.

    typed: what it reads from stdin; environment: further variables; folder: the current one
    """
    inherited = dict.fromkeys(name for name in os.environ if name.startswith("GATEWAY_"))
    runner = CliRunner(env={**inherited, **(environment or {})})
    with (
        _ONE_AT_A_TIME,
        chdir(folder) if folder else nullcontext(),
        runner.isolation(typed) as streams,
    ):
        returncode = main.run(words)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        out, err, both = (stream.getvalue().decode() for stream in streams)
    return Result(returncode, out, err, both)


async def run_aside(*words: str, **options: Any) -> Result:
    """Run a command in a thread, so that this event loop goes on. Arguments are those of `run`."""
    return await asyncio.to_thread(run, *words, **options)
