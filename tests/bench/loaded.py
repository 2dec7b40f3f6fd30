"""The cost of a request under load: CPU microseconds of gateway and Redis, in front of nginx.

    python -m tests.bench.loaded

wrk sends as fast as it is answered over loopback, so requests per second depend on the machine and
on the share of wrk and nginx; CPU time per request, from /proc, depends less on either. Each way is
measured in rounds, alternately, and the medians are shown.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests.kit.gateway import ServedGateway, create_key
from tests.kit.policies import write_policies
from tests.kit.ports import free_port
from tests.kit.proc import cpu_s
from tests.kit.redis_server import RedisServer
from tests.kit.wire import fetch

ROUNDS: Final = 3
SECONDS: Final = 4
CONNECTIONS: Final = 64
#: The way of most requests.
LIMITED: Final = "key, plan's limit"

#: Limits that each request counts for, and none reaches.
PLANS: Final = "plans:\n  bench: {rate: 100000000/minute}\n"
ROUTES: Final = """
routes:
  open:    {match: GET /open,    upstream: api, auth: none}
  limited: {match: GET /limited, upstream: api, rate: 100000000/minute}
  keyed:   {match: GET /keyed,   upstream: api}
"""

NGINX: Final = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "hello\\n"; }} }}
}}
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One round of wrk. CPU in microseconds per request, latencies in milliseconds."""

    gateway_us: float
    redis_us: float
    rate: float
    p50_ms: float
    p99_ms: float


def wrk(url: str, key: str, pids: tuple[list[int], list[int]]) -> Run:
    """Load one address for a while; return the cost for the gateway's processes and Redis."""
    before = [sum(map(cpu_s, group)) for group in pids]
    done = subprocess.run(
        [
            *("wrk", "-t", "1", "-c", str(CONNECTIONS), "-d", f"{SECONDS}s", "--latency"),
            *("-H", f"Authorization: Bearer {key}", url),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    after = [sum(map(cpu_s, group)) for group in pids]
    if "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        raise SystemExit(f"some requests failed:\n{done.stdout}")
    count = int(_find(r"(\d+) requests in", done.stdout))
    gateway_s, redis_s = (end - start for start, end in zip(before, after, strict=True))
    return Run(
        gateway_us=gateway_s / count * 1e6,
        redis_us=redis_s / count * 1e6,
        rate=float(_find(r"Requests/sec:\s+([\d.]+)", done.stdout)),
        p50_ms=_milliseconds(_find(r"^ +50%\s+(\S+)", done.stdout)),
        p99_ms=_milliseconds(_find(r"^ +99%\s+(\S+)", done.stdout)),
    )


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, text
    return found[1]


def _milliseconds(text: str) -> float:
    number = text.rstrip("mus")
    return float(number) * {"us": 0.001, "ms": 1, "s": 1000}[text.removeprefix(number)]


@contextmanager
def nginx(folder: Path) -> Iterator[int]:
    """An nginx that answers everything with a few bytes; its port."""
    port = free_port()
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    process = subprocess.Popen(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")])
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


async def until_up(port: int) -> None:
    give_up = time.monotonic() + 10
    while True:
        try:
            await fetch(port, "/")
            return
        except OSError:
            assert time.monotonic() < give_up, "nginx does not answer"
            await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A gateway with everything that the runs need.

    ways: the addresses to measure, by their descriptions
    pids: the processes of the gateway, and of Redis
    """

    ways: dict[str, str]
    key: str
    pids: tuple[list[int], list[int]]
    worker: int


def missing() -> list[str]:
    """The needed programs that are not on PATH."""
    return [tool for tool in ("nginx", "wrk") if shutil.which(tool) is None]


@asynccontextmanager
async def loaded() -> AsyncIterator[Loaded]:
    """Start nginx, a Redis, and a gateway between them."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-bench-")))
        upstream = stack.enter_context(nginx(folder))
        await until_up(upstream)
        server = RedisServer().start()
        stack.callback(server.stop)
        policies = write_policies(
            folder / "policies", f"http://127.0.0.1:{upstream}", plans=PLANS, routes=ROUTES
        )
        _, key = await create_key(server.url, policies, plan="bench")
        gateway = await stack.enter_async_context(
            ServedGateway(folder / "gateway", policies, server.url, "--access-log", "off")
        )
        with server.client() as client:
            redis = int(client.info("server")["process_id"])
        base = f"http://127.0.0.1:{gateway.port}"
        yield Loaded(
            {
                "nginx alone": f"http://127.0.0.1:{upstream}/",
                "proxied, no key": f"{base}/open",
                LIMITED: f"{base}/keyed",
                "key, plan's and route's": f"{base}/limited",
            },
            key,
            ([gateway.process.pid, *gateway.worker_pids()], [redis]),
            gateway.worker_pid,
        )


async def main() -> None:
    """Measure the ways alternately, and print the medians."""
    if lacking := missing():
        raise SystemExit(f"not on PATH: {', '.join(lacking)}")
    async with loaded() as at:
        runs: dict[str, list[Run]] = {name: [] for name in at.ways}
        for _ in range(ROUNDS):
            for name, url in at.ways.items():
                runs[name].append(await asyncio.to_thread(wrk, url, at.key, at.pids))
    show(runs)


def show(runs: dict[str, list[Run]]) -> None:
    """A line for each way, with the medians of its rounds."""
    print(f"medians of {ROUNDS} rounds of {SECONDS} s, {CONNECTIONS} connections, "
          f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")  # fmt: skip
    print(f"{'':26}{'gateway us':>12}{'redis us':>10}{'sum us':>8}{'req/s':>9}"
          f"{'p50 ms':>9}{'p99 ms':>9}")  # fmt: skip
    for name, rounds in runs.items():
        gateway, redis, rate, p50, p99 = (
            median(column) for column in zip(*map(astuple, rounds), strict=True)
        )
        print(f"{name:26}{gateway:12.1f}{redis:10.1f}{gateway + redis:8.1f}{rate:9.0f}"
              f"{p50:9.2f}{p99:9.2f}")  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())
