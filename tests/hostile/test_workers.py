"""Workers that are killed, stopped, or orphaned: what clients and operators see."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gateway.stores.keys.store import RedisKeyStore
from tests.end_to_end.conftest import add_key
from tests.end_to_end.test_observed import counted
from tests.end_to_end.test_workers import readiness, worker_of
from tests.hostile.backend import Backend
from tests.hostile.conftest import LONG, PAUSE_S, ROUTES, Serve
from tests.hostile.test_drain import Held, drains, stream
from tests.kit.certificates import make_certificate
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.redis_server import RedisServer
from tests.kit.wire import Wire, WireError, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

TWO = ("--workers", "2")
CLIENTS = 8


async def kill(gateway: ServedGateway, pids: list[int]) -> None:
    """Kill -9 these workers, and wait until they have ended."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not set(pids) & set(gateway.worker_pids()), "they are dead")


async def are_back(gateway: ServedGateway, count: int = 2) -> None:
    """Wait until this many workers serve."""

    async def all_live() -> bool:
        return await counted(gateway, "gateway_workers", state="live") == count

    await eventually(all_live, f"{count} workers serve")


@dataclass
class Load:
    """Clients that send requests all the time. `lost`: broken connections, by when they began."""

    gateway: ServedGateway
    answered: int = 0
    lost: list[float] = field(default_factory=list)
    statuses: set[int] = field(default_factory=set)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def on_new_connections(self) -> None:
        """Each exchange has a new connection."""
        while not self.done.is_set():
            began = asyncio.get_running_loop().time()
            try:
                self._note((await fetch(self.gateway.port, "/short")).status)
                await asyncio.sleep(PAUSE_S)
            except (OSError, WireError):
                self.lost.append(began)

    async def on_kept_connections(self) -> None:
        """A connection is used until it breaks."""
        while not self.done.is_set():
            began = asyncio.get_running_loop().time()
            try:
                async with await Wire.connect(self.gateway.port) as wire:
                    while not self.done.is_set():
                        self._note((await wire.request("GET", "/short")).status)
                        await asyncio.sleep(PAUSE_S)
            except (OSError, WireError):
                self.lost.append(began)

    async def more(self, count: int = 50) -> None:
        """Wait for this many further answers."""
        enough = self.answered + count
        await eventually(lambda: self.answered >= enough, "requests are answered")

    def _note(self, status: int) -> None:
        self.statuses.add(status)
        self.answered += 1


@asynccontextmanager
async def loaded(
    gateway: ServedGateway, ways: list[Callable[[Load], Awaitable[None]]]
) -> AsyncIterator[Load]:
    """Load by this many clients of each kind, until the block ends."""
    load = Load(gateway)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            for way in ways:
                tasks.create_task(way(load))  # type: ignore[arg-type]
        try:
            await load.more()
            yield load
        finally:
            load.done.set()


async def test_one_of_two_is_killed(
    backend: Backend, serve: Serve, redis_server: RedisServer
) -> None:
    """Only what was in flight on it breaks; it is replaced; and no counter ever decreases."""
    gateway = await serve(backend.url, *TWO, store=redis_server.url)
    first, second = gateway.worker_pids()
    counts: list[float] = []
    ways = [Load.on_new_connections, Load.on_kept_connections]

    async with loaded(gateway, ways) as load, asyncio.TaskGroup() as tasks:

        async def watch() -> None:
            while not load.done.is_set():
                counts.append(await counted(gateway, "gateway_requests_total"))

        tasks.create_task(watch())
        try:
            await kill(gateway, [first])
            dead = asyncio.get_running_loop().time()
            await load.more(200)
            await are_back(gateway)
            await load.more(200)
        finally:
            load.done.set()
    assert load.statuses == {200}
    assert [began for began in load.lost if began > dead] == []
    # Each client had one connection at a time, and each worker at most all of them.
    assert len(load.lost) <= 2 * CLIENTS
    assert counts == sorted(counts)
    assert counts[-1] >= 400
    assert second in gateway.worker_pids()
    assert await counted(gateway, "gateway_worker_restarts_total") == 1
    (line,) = [line for line in gateway.output().splitlines() if "SIGKILL" in line]
    assert f"pid {first}" in line
    assert "restarting now" in line


@pytest.mark.parametrize("workers", [1, 2])
async def test_all_are_killed(
    backend: Backend, serve: Serve, redis_server: RedisServer, workers: int
) -> None:
    """A client that connects while no worker serves waits a moment for a successor."""
    gateway = await serve(backend.url, "--workers", str(workers), store=redis_server.url)
    async with loaded(gateway, [Load.on_new_connections]) as load:
        await kill(gateway, gateway.worker_pids())
        dead = asyncio.get_running_loop().time()
        await load.more()
        await are_back(gateway, workers)
    assert load.statuses == {200}
    assert [began for began in load.lost if began > dead] == []
    assert len(load.lost) <= CLIENTS


async def test_a_worker_that_dies_repeatedly(
    backend: Backend, serve: Serve, redis_server: RedisServer
) -> None:
    """Restarts are delayed more and more; the other serves, and the gateway is ready."""
    gateway = await serve(backend.url, *TWO, store=redis_server.url)
    healthy = max(gateway.worker_pids())
    seen: set[str] = set()

    async def slows_down() -> bool:
        for pid in gateway.worker_pids():
            if pid != healthy:
                await kill(gateway, [pid])
        assert (await gateway.fetch("/short")).status == 200
        status, answer = await readiness(gateway)
        assert status == 200
        seen.add(answer["checks"]["workers"])
        return "restarting in 0.4 s" in gateway.output()

    await eventually(slows_down, "each restart is later")
    delays = [line.split("restarting ")[1].split('"')[0] for line in deaths(gateway)]
    assert delays == ["now", "in 0.1 s", "in 0.2 s", "in 0.4 s"]
    assert "1 of 2" in seen
    await are_back(gateway)


def deaths(gateway: ServedGateway) -> list[str]:
    return [line for line in gateway.output().splitlines() if "restarting" in line]


async def test_a_stopped_worker_is_replaced_temporarily(
    backend: Backend, serve: Serve, redis_server: RedisServer
) -> None:
    """One that hangs gets no new clients for long: the other accepts them."""
    gateway = await serve(backend.url, *TWO, store=redis_server.url)
    stopped, _ = gateway.worker_pids()
    os.kill(stopped, signal.SIGSTOP)
    try:
        # Some of these are assigned to it, and wait until the other accepts them.
        answers = await asyncio.gather(*(gateway.fetch("/short") for _ in range(20)))
        assert {answer.status for answer in answers} == {200}
        status, answer = await readiness(gateway)
        assert (status, answer["checks"]["workers"]) == (200, "1 of 2")
    finally:
        os.kill(stopped, signal.SIGCONT)
    await eventually(lambda: len(gateway.worker_pids()) == 2, "it lives")

    async def counted_on() -> bool:
        return bool((await readiness(gateway))[1]["checks"]["workers"] == "2 of 2")

    await eventually(counted_on, "it serves again")


async def test_an_orphan_drains_and_ends(serve: Serve, redis_server: RedisServer) -> None:
    """Kill -9 of the supervisor: streams are completed, and the port is free at once."""
    async with Held() as upstream:
        long_timeouts = LONG.replace("drain: 1s", "drain: 10m")
        gateway = await serve(upstream.url, *TWO, store=redis_server.url, gateway=long_timeouts)
        pids = gateway.worker_pids()
        streams = [await stream(gateway) for _ in range(10)]
        gateway.signal(signal.SIGKILL)
        await gateway.ended()

        async def is_refused() -> bool:
            try:
                await (await Wire.connect(gateway.port)).close()
            except OSError:
                return True
            return False

        await eventually(is_refused, "the port is closed")
        async with await serve(
            upstream.url,
            store=redis_server.url,
            ports=(gateway.port, gateway.admin_port),
            gateway=long_timeouts,
        ) as successor:
            assert (await successor.fetch("/health")).status == 200
        upstream.release.set()
        for wire, head in streams:
            assert await wire.read_body(head) == b"second"
            await wire.close()
        await eventually(lambda: not any(map(lives, pids)), "the workers end")


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_drain_of_two(serve: Serve, redis_server: RedisServer) -> None:
    """SIGTERM with streams in progress in both workers loses nothing; exit 0."""
    async with Held() as upstream:
        long_timeouts = LONG.replace("drain: 1s", "drain: 10m")
        gateway = await serve(upstream.url, *TWO, store=redis_server.url, gateway=long_timeouts)
        streams = [await stream(gateway) for _ in range(20)]
        assert len({worker_of(head) for _, head in streams}) == 2
        await drains(gateway)
        upstream.release.set()
        for wire, head in streams:
            assert await wire.read_body(head) == b"second"
            await wire.close()
        assert await gateway.ended() == 0
    assert [line["status"] for line in gateway.log_lines()] == [200] * 20


async def test_a_worker_that_ends(serve: Serve, redis_server: RedisServer) -> None:
    """After SIGTERM a worker drains; the other takes its clients, and it is replaced."""
    async with Held() as upstream:
        long_timeouts = LONG.replace("drain: 1s", "drain: 10m")
        gateway = await serve(upstream.url, *TWO, store=redis_server.url, gateway=long_timeouts)
        (wire, head) = await stream(gateway)
        old = gateway.worker_pids()
        for pid in old:  # the one that has the stream waits for its end
            os.kill(pid, signal.SIGTERM)
        await eventually(lambda: len(set(old) & set(gateway.worker_pids())) == 1, "one has ended")
        await are_back(gateway, 1)
        answers = await asyncio.gather(*(gateway.fetch("/health") for _ in range(20)))
        assert {answer.status for answer in answers} == {200}
        upstream.release.set()
        assert await wire.read_body(head) == b"second"
        await wire.close()
        await are_back(gateway)
        assert not set(old) & set(gateway.worker_pids())
        assert await counted(gateway, "gateway_requests_total", code="200") == 21


async def test_a_restart_under_faulty_policies(
    backend: Backend, serve: Serve, redis_server: RedisServer
) -> None:
    """The previous policy stays, also for a worker that starts while the files are faulty."""
    async with Redis(port=redis_server.port) as client:
        key, _ = await add_key(RedisKeyStore(client), "any")
    gateway = await serve(
        backend.url, store=redis_server.url, routes=ROUTES.replace(", auth: none", "")
    )
    plans = gateway.policies / "plans.yaml"
    plans.write_text("plans:\n  any: {rate: 777/hour}\n")

    async def tells(limit: str) -> bool:
        answer = await gateway.fetch("/v1/auth/verify", key=key)
        return answer["X-RateLimit-Limit"] == limit

    await eventually(lambda: tells("777"), "the new limit is reported")
    plans.write_text("plans:\n  any: {rate: 888/hower}\n")
    await eventually(lambda: "888/hower" in gateway.output(), "the fault is logged")
    await kill(gateway, gateway.worker_pids())
    assert await tells("777")
    await eventually(lambda: gateway.output().count("888/hower") >= 2, "both log what is wrong")
    plans.write_text("plans:\n  any: {rate: 999/hour}\n")
    await eventually(lambda: tells("999"), "the repaired file is loaded")


async def test_a_restart_keeps_settings_that_need_a_restart(
    backend: Backend, serve: Serve, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A worker that starts after `tls` was added has none, like the others."""
    gateway = await serve(backend.url, *TWO, store=redis_server.url)
    made = make_certificate(tmp_path / "tls", ["localhost"])
    text = f"{LONG}tls: {{certificate: {made.certificate}, key: {made.key}}}\n"
    (gateway.policies / "gateway.yaml").write_text(text)
    line = "tls begins or ends after a restart"
    await eventually(lambda: gateway.output().count(line) == 2, "both log that it waits")
    await kill(gateway, gateway.worker_pids()[:1])
    await are_back(gateway)
    answers = await asyncio.gather(*(gateway.fetch("/short") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
    assert len({worker_of(answer) for answer in answers}) == 2
