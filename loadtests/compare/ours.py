"""The gateway as it is measured: `gateway serve` with policies of the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loadtests.compare import probe
from loadtests.compare.keys import (
    BENCH_PEAK,
    BENCH_RATE,
    ENVIRONMENT,
    SCOPE,
    TINY_PEAK,
    TINY_RATE,
)
from loadtests.compare.processes import Program
from loadtests.compare.scenarios import Layer
from tests.kit.ports import free_port

#: The failed attempts of one address are limited by default; here they are measured.
_GATEWAY: Final = f"environment: {ENVIRONMENT}\nfailed_auth: {{rate: {BENCH_RATE}/minute}}\n"
_PLANS: Final = f"""
plans:
  bench: {{rate: {BENCH_RATE}/minute, burst: {BENCH_PEAK}}}
  tiny:  {{rate: {TINY_RATE}/minute, burst: {TINY_PEAK}}}
  several:
    rate: {BENCH_RATE}/minute
    burst: {BENCH_PEAK}
    limits:
      - {{name: at-once, rate: {BENCH_RATE}/second}}
      - {{name: hourly, rate: {BENCH_RATE}/hour}}
      - {{name: daily, quota: {BENCH_RATE}/day}}
      - {{name: monthly, quota: {BENCH_RATE}/month}}
"""
#: What a layer requires of a request, as fields of a route.
_ACCESS: Final[dict[Layer, str]] = {
    "proxy": "auth: none",
    "key": "plan_limits: false",
    "process": "auth: key",
    "redis": "auth: key",
    "all": f'scopes: ["{SCOPE}"]',
    "log": f'scopes: ["{SCOPE}"]',
}


@dataclass(frozen=True, slots=True)
class Served:
    """A running gateway. pid: of the started process; workers may be its children.

    until: wait for a condition; raises NotStarted if the gateway ends, or after a time
    """

    port: int
    pid: int
    until: Callable[[Callable[[], bool]], None]


def write_policies(folder: Path, upstream: int, layer: Layer, paths: list[str]) -> Path:
    """A policy folder with one route for each path."""
    folder.mkdir()
    routes = "".join(
        f'  r{number}: {{match: "* {path}", upstream: api, {_ACCESS[layer]}}}\n'
        for number, path in enumerate(paths)
    )
    texts = {
        "gateway": _GATEWAY,
        "plans": _PLANS,
        "upstreams": f'upstreams:\n  api: {{servers: ["http://127.0.0.1:{upstream}"]}}\n',
        "routes": f"routes:\n{routes}",
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def serve(
    folder: Path,
    policies: Path,
    store: str,
    stack: ExitStack,
    *,
    workers: int = 1,
    access_log: bool = False,
) -> Served:
    """Start a gateway, to be stopped by the stack. store: its URL. Raises NotStarted."""
    port, admin = free_port(), free_port()
    program = Program(
        folder,
        *(sys.executable, "-m", "gateway", "serve", "--policies", str(policies)),
        *("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"),
        *("--store", store, "--data", str(folder / "data"), "--workers", str(workers)),
        *("--couriers", "0"),  # the others deliver no webhooks either
        *("--access-log", str(folder / "access.log") if access_log else "off"),
        environment={k: v for k, v in os.environ.items() if not k.startswith("GATEWAY_")},
    )
    stack.callback(program.stop)
    program.until(lambda: _is_ready(admin))
    return Served(port, program.pid, program.until)


def _is_ready(admin: int) -> bool:
    return probe.is_up(admin, "/readyz")
