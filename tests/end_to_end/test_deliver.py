"""`gateway deliver`: couriers alone, with metrics and probes of their own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process, ServedGateway
from tests.kit.hooks import ENVIRONMENT, ROUTES
from tests.kit.policies import PLANS, write_policies
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.wire import Response, fetch


class Deliver:
    """It runs."""

    def __init__(self, folder: Path, store: str) -> None:
        self.admin_port = free_port()
        self.process = Process(
            folder,
            *("deliver", "--couriers", "2", "--store", store, "--data", str(folder / "data")),
            *("--policies", str(write_policies(folder / "policies", "http://127.0.0.1:9"))),
            *("--listen", "127.0.0.1:0", "--admin", f"127.0.0.1:{self.admin_port}"),
            environment=ENVIRONMENT,
        )

    async def ask(self, path: str) -> Response:
        return await fetch(self.admin_port, path, headers=[("Host", "127.0.0.1")])

    async def has(self, line: str) -> bool:
        """A line of the metrics."""
        return line in (await self.ask("/metrics")).body.decode().splitlines()

    async def serves(self) -> bool:
        assert self.process.process.poll() is None, self.process.output()
        try:
            return await self.has('gateway_couriers{state="live"} 2.0')
        except OSError:
            return False

    async def words(self) -> str:
        answer = await self.ask("/readyz")
        assert answer.status == 200, "it captures webhooks, into its file"
        return str(answer.json()["checks"]["couriers"])


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of its own, which the test stops."""
    started = RedisServer().start()
    yield started
    started.stop()


@pytest.fixture
async def deliver(tmp_path: Path, server: RedisServer) -> AsyncIterator[Deliver]:
    made = Deliver(tmp_path / "deliver", server.url)
    try:
        await eventually(made.serves, "both couriers serve", READY_S)
        yield made
    finally:
        assert await made.process.stop() == 0


async def test_an_outage_of_the_store(deliver: Deliver, server: RedisServer) -> None:
    """The metric says so, as that of workers does, and the probe says why."""
    await eventually(lambda: deliver.has("gateway_store_up 1.0"), "the store is available")
    assert await deliver.words() == "2 of 2"
    server.stop()
    await eventually(lambda: deliver.has("gateway_store_up 0.0"), "it is unavailable")
    assert "Connection refused" in await deliver.words()
    server.start()
    await eventually(lambda: deliver.has("gateway_store_up 1.0"), "it is available again")


async def test_workers_report_the_store(tmp_path: Path, redis_server: RedisServer) -> None:
    """Of a gateway with couriers as well there is one figure, which is theirs.

    Slow steps are those of each kind of process.
    """
    policies = write_policies(tmp_path / "policies", "http://127.0.0.1:9")
    async with ServedGateway(
        *(tmp_path / "gateway", policies, redis_server.url, "--couriers", "1"),
        environment=ENVIRONMENT,
    ) as gateway:

        async def has_courier() -> bool:
            return 'gateway_couriers{state="live"} 1.0' in await gateway.metrics()

        await eventually(has_courier, "the courier serves", READY_S)
        text = await gateway.metrics()
        found = [line for line in text.splitlines() if line.startswith("gateway_store_up")]
        assert found == ["gateway_store_up 1.0"]
        steps = re.findall(r'^gateway_slow_steps_total\{where="(.*)"\}', text, re.MULTILINE)
        assert sorted(steps) == ["admin", "courier", "worker"]


async def test_without_couriers(tmp_path: Path) -> None:
    """On memory:// there are none, and the routes of webhooks say so."""
    policies = write_policies(
        tmp_path / "policies", "http://127.0.0.1:9", plans=PLANS, routes=ROUTES
    )
    async with ServedGateway(tmp_path / "gateway", policies, "memory://") as gateway:
        path = "/hooks/" + "0" * 32
        answer = await fetch(gateway.port, path, method="POST", body=b"{}")
        assert (answer.status, answer.json()["code"]) == (503, "NO_COURIERS")
        assert "gateway_couriers" not in await gateway.metrics()
