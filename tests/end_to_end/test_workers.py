"""Several workers: one port, one set of counters, one access log, one reload and one end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Serve, Site
from tests.end_to_end.test_observed import counted
from tests.end_to_end.test_reload import rewrite
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process, ServedGateway, keys_command, run_command
from tests.kit.policies import PLANS, write_policies
from tests.kit.ports import free_port
from tests.kit.proc import rss_bytes
from tests.kit.upstream import Exchange
from tests.kit.wire import Response, Wire, bearer, build_request, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

TWO = ("--workers", "2")


def worker_of(answer: Response) -> str:
    """The worker that sent it: each numbers its requests with its own prefix."""
    return answer["X-Request-Id"].rpartition("-")[0]


async def ask_all(
    gateway: ServedGateway, holds: Callable[[Response], bool], key: str | None = None
) -> None:
    """Request on new connections until each of two workers has given an expected answer."""
    seen: set[str] = set()

    async def all_did() -> bool:
        answer = await gateway.fetch("/v1/auth/verify" if key else "/health", key=key)
        if holds(answer):
            seen.add(worker_of(answer))
        return len(seen) == 2

    await eventually(all_did, "both workers answer as they should")


async def readiness(gateway: ServedGateway) -> tuple[int, dict[str, Any]]:
    answer = await fetch(gateway.admin_port, "/readyz")
    return answer.status, answer.json()


async def test_two_workers_share_port_and_counts(site: Site, serve: Serve) -> None:
    """Both serve, one scrape has the sum of both, and they share a limit."""
    gateway = await serve(*TWO)
    assert len(gateway.worker_pids()) == 2
    assert all(rss_bytes(pid) < 60 * 2**20 for pid in gateway.worker_pids())
    key = await site.key("free")
    by_worker: Counter[str] = Counter()
    for _ in range(40):
        answer = await gateway.fetch("/api/x", key=key)
        by_worker[worker_of(answer)] += 1
    assert len(by_worker) == 2
    assert answer["X-RateLimit-Remaining"] == "20"
    assert await counted(gateway, "gateway_requests_total", route="api") == 40
    assert await counted(gateway, "gateway_workers", state="live") == 2
    # Each has loaded the files once, which counts as one reload.
    assert await counted(gateway, "gateway_policy_reload_total", result="success") == 1
    status, answer = await readiness(gateway)
    assert (status, answer["ready"], answer["checks"]["workers"]) == (200, True, "2 of 2")
    assert answer["checks"]["store"] == "ok"


async def test_sighup_reaches_all(site: Site, serve: Serve) -> None:
    """Each worker loads the files again, and reopens the access log."""
    gateway = await serve(*TWO)
    key = await site.key("free")
    moved = gateway.access_log.with_suffix(".1")
    gateway.access_log.rename(moved)
    rewrite(gateway, "plans", PLANS.replace("60/minute,   burst", "70/minute,   burst"))
    gateway.signal(signal.SIGHUP)
    await ask_all(gateway, lambda answer: answer["X-RateLimit-Limit"] == "70", key)
    await eventually(gateway.access_log.exists, "a new log is opened")
    seen: set[str] = set()
    while len(seen) < 2:
        seen.add(worker_of(await gateway.fetch("/api/after", key=key)))
    await gateway.stop()
    logged = {line["request_id"].rpartition("-")[0] for line in gateway.log_lines()}
    assert seen <= logged
    assert "/api/after" not in moved.read_text()


REQUESTS, CLIENTS = 40, 8


async def load(gateway: ServedGateway) -> list[str]:
    """Send requests over connections to both workers; return their ids."""
    ids: list[str] = []

    async def client(number: int) -> None:
        for part in range(2):
            async with await Wire.connect(gateway.port) as wire:
                for count in range(REQUESTS // 2):
                    target = f"/api/{number}/{part}/{count}/{'x' * 500}"
                    ids.append((await wire.request("GET", target))["X-Request-Id"])

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return ids


@pytest.mark.parametrize("kind", ["file", "pipe"])
async def test_one_access_log(site: Site, serve: Serve, tmp_path: Path, kind: str) -> None:
    """Exactly one whole line for each request, whichever worker served it."""
    path = tmp_path / "shared.log"
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    if kind == "pipe":
        os.mkfifo(path)
        reader.start()
    gateway = await serve(*TWO, "--access-log", str(path))
    ids = await load(gateway)
    assert len({each.rpartition("-")[0] for each in ids}) == 2
    assert await gateway.stop() == 0
    if kind == "file":
        read.append(path.read_bytes())
    else:
        await asyncio.to_thread(reader.join, 20)
    lines = [json.loads(line) for line in read[0].splitlines()]
    assert sorted(line["request_id"] for line in lines) == sorted(ids)


async def test_ctrl_c_drains_once(site: Site, serve: Serve) -> None:
    """The terminal's SIGINT counts as one signal: streams are completed, exit 0."""
    gateway = await serve(*TWO)
    release = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await release.wait()
        await exchange.write(b"1\r\nb\r\n0\r\n\r\n")

    site.upstream.script = script
    key = await site.key("pro")
    streams = [await Wire.connect(gateway.port) for _ in range(12)]
    heads = []
    for wire in streams:
        await wire.send(build_request("GET", "/api/x", bearer(key)))
        heads.append(await wire.read_head())
        assert await wire.read_chunk() == b"a"
    assert len({worker_of(head) for head in heads}) == 2
    gateway.interrupt()

    async def is_refused() -> bool:
        try:
            await (await Wire.connect(gateway.port)).close()
        except OSError:
            return True
        return False

    await eventually(is_refused, "no new connection is accepted")
    assert (await readiness(gateway))[0] == 503
    release.set()
    for wire, head in zip(streams, heads, strict=True):
        assert await wire.read_body(head) == b"b"
        await wire.close()
    assert await gateway.ended() == 0
    assert "Traceback" not in gateway.output()


MOST = 4


@dataclass
class Streams:
    """Endless answers, by the worker that forwards them. asked: workers that answered."""

    gateway: ServedGateway
    key: str
    held: dict[str, list[Wire]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    async def script(self, exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await exchange.ended()

    async def open(self) -> int:
        """Request on new connections, more than are admitted; return how many were."""
        begun = 0
        for _ in range(4 * MOST):
            wire = await Wire.connect(self.gateway.port)
            await wire.send(build_request("GET", "/api/x", bearer(self.key)))
            head = await wire.read_head()
            self.asked.add(worker_of(head))
            if head.status == 200:
                assert await wire.read_chunk() == b"a"
                self.held.setdefault(worker_of(head), []).append(wire)
                begun += 1
            else:
                assert head.status == 503
                await wire.close()
        return begun

    async def end(self) -> None:
        """Close all of them."""
        for wire in [wire for wires in self.held.values() for wire in wires]:
            await wire.close()
        self.held.clear()

        async def none_is_left() -> bool:
            return await counted(self.gateway, "gateway_inflight_requests") == 0

        await eventually(none_is_left, "they are over")


async def test_an_upstreams_limit_is_one_for_all_workers(site: Site, serve: Serve) -> None:
    """The requests of one worker count for the other, until they end or the worker ends."""
    upstreams = f'upstreams:\n  api: {{servers: ["{site.upstream.url}"], inflight: {MOST}}}\n'
    gateway = await serve(*TWO, upstreams=upstreams)
    streams = Streams(gateway, await site.key("enterprise"))
    site.upstream.script = streams.script
    # The kernel distributes connections at random: repeat until each worker has some.
    while len(streams.held) < 2:
        await streams.end()
        assert await streams.open() == MOST
    os.kill(gateway.worker_pids()[0], signal.SIGKILL)
    ends = {asyncio.create_task(wires[0].read_end()): wires for wires in streams.held.values()}
    (dead, *_), alive = await asyncio.wait(ends, return_when="FIRST_COMPLETED")

    async def both_serve() -> bool:
        return await counted(gateway, "gateway_workers", state="live") == 2

    await eventually(both_serve, "another worker has taken its place")
    assert await streams.open() == len(ends[dead])
    for task in alive:
        task.cancel()
    await streams.end()


async def test_workers_share_the_private_redis(
    site: Site, tmp_path: Path, short_path: Path
) -> None:
    """Without a store there is one private Redis for all of them, which ends with the gateway."""
    policies = write_policies(tmp_path / "policies", site.upstream.url)
    port, admin = free_port(), free_port()
    gateway = Process(
        tmp_path,
        *("serve", "--policies", str(policies), *TWO, "--data", str(short_path / "data")),
        *("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"),
    )
    try:

        async def ready() -> bool:
            try:
                return (await fetch(admin, "/readyz")).status == 200
            except OSError:
                return False

        await eventually(ready, "it is ready", READY_S)
        store = f"unix://{short_path}/data/redis.sock"
        created = await keys_command(
            *(store, "create", "--policies", str(policies), "--name", "x", "--plan", "free")
        )
        remaining, workers = [], set()
        while len(workers) < 2 or len(remaining) < 10:
            answer = await fetch(port, "/api/x", key=created["key"])
            remaining.append(int(answer["X-RateLimit-Remaining"]))
            workers.add(worker_of(answer))
        assert remaining == list(range(59, 59 - len(remaining), -1))
    finally:
        assert await gateway.stop() == 0
    assert not (short_path / "data" / "redis.sock").exists()


async def test_memory_is_for_one_worker(site: Site) -> None:
    """Two workers on memory:// would count separately: a usage error, in one line."""
    done = await asyncio.to_thread(
        run_command, "serve", "--policies", str(site.policies), "--store", "memory://", *TWO
    )
    assert done.returncode == 2
    assert "--workers" in done.stderr
    assert done.stderr.count("\n") == 1


async def test_one_gateway_a_port(site: Site, serve: Serve) -> None:
    """A second one on the same port is refused, although workers share ports."""
    gateway = await serve(*TWO)
    for workers in ("1", "2"):
        done = await asyncio.to_thread(
            run_command,
            *("serve", "--policies", str(site.policies), "--store", site.store),
            *("--listen", f"127.0.0.1:{gateway.port}", "--workers", workers),
            *("--admin", f"127.0.0.1:{free_port()}"),
        )
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("gateway serve: --listen")


@pytest.mark.parametrize("option", ["--access-log", "--data"])
async def test_what_keeps_it_from_starting(site: Site, tmp_path: Path, option: str) -> None:
    """A worker's or the supervisor's reason is printed once, by the command, with status 1."""
    taken = tmp_path / "taken"
    taken.touch()
    store = () if option == "--data" else ("--store", site.store)
    done = await asyncio.to_thread(
        run_command,
        *("serve", "--policies", str(site.policies), *store, *TWO, option, str(taken / "x")),
        *("--listen", f"127.0.0.1:{free_port()}", "--admin", f"127.0.0.1:{free_port()}"),
    )
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith(f"gateway serve: {option}")
    assert "Traceback" not in done.stderr
