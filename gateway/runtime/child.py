"""Launches the processes that a supervisor starts, and describes how they ended.

A worker is a newly executed program, not a fork: a forked event loop with its threads and
descriptors cannot be used safely. It has its own process group, so that Ctrl-C in a terminal
reaches only the supervisor, which then stops its workers in order.

A successor is a supervisor that takes over from this one. It may be of a newer version, and
outlives this process.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import gateway
from gateway.runtime import systemd
from gateway.runtime.channel import Start

#: Starts the command in its arguments, and exits immediately.
_DETACH: Final = (
    "import os, sys\n"
    "try: os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)\n"
    "except OSError as error: sys.exit(error.errno)"
)
#: How long a process may take to end after it has closed its channel, before it is killed.
GONE_S: Final = 5.0


def launch(
    command: Sequence[str], start_message: Start
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Run a worker: its process, and our end of its channel. Raises OSError.

    The worker inherits the bound sockets, the shared memory and its end of the channel, whose
    descriptor is appended to the command.
    """
    ours, theirs = socket.socketpair()
    passed = [descriptor for one in start_message.sockets for descriptor in one]
    if start_message.inflight is not None:
        passed.append(start_message.inflight)
    try:
        process = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
            [*command, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *passed),
            process_group=0,
            env=environment(os.environ),
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """A worker's variables: without GATEWAY_…, whose values it gets in its first message.

    Otherwise a secret among them could be read in one more place. Those of systemd are for the
    supervisor only.
    """
    systemds = (*systemd.VARIABLES, systemd.NOTIFY)
    theirs = {
        name: value
        for name, value in ours.items()
        if not name.startswith("GATEWAY_") and name not in systemds
    }
    # The worker must import the same package as this process, wherever that is.
    home = str(Path(gateway.__file__).parent.parent)
    theirs["PYTHONPATH"] = os.pathsep.join(filter(None, (home, ours.get("PYTHONPATH"))))
    return theirs


def launch_successor(command: Sequence[str]) -> None:
    """Start this program again, to take over from this process. Raises OSError.

    If the take-over fails, the new process says why on the same standard error.
    """
    # Started by a process that exits immediately, so that systemd becomes its parent: when a
    # service stops, systemd waits only for a main process that is its child, and kills others.
    # systemd's variables about sockets are for the process with the id in LISTEN_PID, which this
    # successor may reuse once the first process has ended.
    inherited = {name: text for name, text in os.environ.items() if name not in systemd.VARIABLES}
    process = subprocess.run(  # noqa: S603 - our own command line, no shell
        [sys.executable, "-I", "-S", "-c", _DETACH, *command],
        stdin=subprocess.DEVNULL,
        env={**inherited, "GATEWAY_TAKE_OVER": "true"},
        check=False,
    )
    if process.returncode:
        raise OSError(process.returncode, os.strerror(process.returncode))


def reap(process: subprocess.Popen[bytes]) -> int:
    """The exit status of a process that has closed its channel, its last action."""
    try:
        return process.wait(GONE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def describe_status(status: int) -> str:
    """An exit status of `subprocess` in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
