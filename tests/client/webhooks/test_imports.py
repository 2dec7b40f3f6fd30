"""Webhooks are received without httpx and without the gateway."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[3] / "client"
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
import gateway_client.webhooks, gateway_client.webhooks.asgi, gateway_client.webhooks.wsgi
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - sys.stdlib_module_names))
"""


@pytest.mark.parametrize("flags", [["-I", "-S"], ["-I"]])
def test_nothing_but_the_standard_library(flags: list[str]) -> None:
    """Without any packages, and where httpx and the gateway could be imported."""
    ended = subprocess.run(
        [sys.executable, "-B", "-W", "error", *flags, "-c", PROGRAM, CLIENT],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.stdout, ended.stderr) == ("gateway_client\n", "")
