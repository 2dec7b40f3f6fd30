"""Runs `make demo` as a new user does: starts it, tries what it prints, ends it, checks leftovers.

    python3 .ci/demo.py FOLDER

Run it in a checkout. FOLDER: the only folder that it may use, also for temporary files. It needs no
packages.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path

LAST_LINE = "Ctrl-C ends the demo and removes its data."
START_S = 600  # it installs what it needs
END_S = 30


def main(folder: Path) -> None:
    # Programs that a shell starts in the background ignore it, and so would make.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Ctrl-C at a terminal reaches all processes, and make is ended by SIGINT.
    run(folder, lambda demo: os.killpg(demo.pid, signal.SIGINT), -signal.SIGINT)
    # If only the gateway gets it, make exits with the gateway's status.
    run(folder, lambda demo: os.kill(child_of(demo.pid), signal.SIGINT), 0)
    print("make demo: as it should be")


def run(folder: Path, interrupt: Callable[[subprocess.Popen[str]], None], status: int) -> None:
    """Run one demo from start to end, and check make's status."""
    ports = {"GATEWAY_LISTEN": free_port(), "GATEWAY_ADMIN": free_port()}
    print("make demo", *(f"{name}=127.0.0.1:{port}" for name, port in ports.items()), flush=True)
    demo = subprocess.Popen(
        ["make", "demo"],
        env=os.environ | {name: f"127.0.0.1:{port}" for name, port in ports.items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signal.alarm(START_S)
    printed = ""
    while LAST_LINE not in printed:
        line = demo.stdout.readline()
        assert line, f"make demo ended with status {demo.wait()}:\n{printed}"
        printed += line
    signal.alarm(END_S)
    try_it(ports, printed)
    interrupt(demo)
    rest, _ = demo.communicate()
    assert rest == "\nThe demo ends.\n", f"it ended with {rest!r}"
    assert demo.returncode == status, f"make ended with {demo.returncode}, expected {status}"
    signal.alarm(0)
    left = os.listdir(tempfile.gettempdir())
    assert left == [], f"left in {tempfile.gettempdir()}: {left}"
    assert processes_of(folder) == [], f"still running: {processes_of(folder)}"


def try_it(ports: dict[str, int], printed: str) -> None:
    """Send the requests of the first curl commands, and check the answers."""
    (key,) = re.findall(r"^  pro +(\S+)$", printed, re.MULTILINE)
    listen = ports["GATEWAY_LISTEN"]
    status, headers = get(listen, "/v1/connectors", {"Authorization": f"Bearer {key}"})
    assert (status, headers["X-RateLimit-Limit"]) == (200, "600"), (status, headers)
    assert get(listen, "/v1/connectors", {})[0] == 401
    assert get(ports["GATEWAY_ADMIN"], "/readyz", {})[0] == 200
    assert "Store     a private Redis" in printed, printed


def get(port: int, path: str, headers: dict[str, str]) -> tuple[int, HTTPMessage]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, answer.headers


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def processes_of(folder: Path) -> list[str]:
    """The command lines of all processes that use something in the folder, except ours."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if str(folder) in words and int(process.name) not in (os.getpid(), os.getppid()):
            found.append(words)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
