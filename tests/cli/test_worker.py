"""What a worker loads, and when it ends."""

from __future__ import annotations

import subprocess
import sys


def test_a_worker_loads_no_admin_libraries() -> None:
    """Every worker uses memory for its libraries: it imports none that it never uses."""
    heavy = ("aiohttp", "prometheus_client", "click", "jinja2", "gateway.manage")
    code = (
        f"import sys, gateway.cli.worker;print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_worker_without_a_supervisor_ends() -> None:
    """It ends if no process is at the other end of its channel."""
    done = subprocess.run(
        [sys.executable, "-c", _ALONE], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, "")


_ALONE = """
import socket, sys
from gateway.cli.worker import main
ours, theirs = socket.socketpair()
ours.close()
sys.argv = ["worker", str(theirs.detach())]
raise SystemExit(main())
"""
