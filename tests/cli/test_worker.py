"""What a worker is made of: no more than it serves with."""

from __future__ import annotations

import subprocess
import sys


def test_a_worker_loads_nothing_of_the_admin_side() -> None:
    """Each worker holds its libraries once more: those that it never uses stay out."""
    heavy = ("aiohttp", "prometheus_client", "click", "jinja2", "gateway.manage")
    code = (
        f"import sys, gateway.cli.worker;print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_worker_without_a_supervisor_ends() -> None:
    """Without a process at the other end of its channel it ends."""
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
