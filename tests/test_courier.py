"""A courier as it is composed: it delivers with the right key only, and stops in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from gateway import tasks
from gateway.courier import CourierProcess
from gateway.domain.upstreams import Server
from gateway.policies.load import load
from gateway.runtime.settings import CannotStart, CourierAddress, Settings
from gateway.runtime.sockets import bind_shared, close_all
from gateway.runtime.worker import WorkerInit
from gateway.stores.redis.address import parse_url
from gateway.webhooks.courier import Courier
from gateway.webhooks.master import VARIABLE, Master, read_master
from tests.kit.eventually import eventually
from tests.kit.policies import write_policies
from tests.kit.redis_server import RedisServer
from tests.kit.wire import Wire, build_request, fetch

KEY, OTHER = "k" * 40, "o" * 40


class Scene:
    def __init__(self, folder: Path, redis: RedisServer, stack: AsyncExitStack) -> None:
        self.policies = write_policies(folder / "policies", "http://127.0.0.1:9")
        self._folder = folder
        self._redis = redis
        self._stack = stack
        self.port = 0

    def build(self, key: str = KEY) -> tuple[CourierProcess, Master]:
        master = read_master({VARIABLE: key}, self._folder)
        sockets = bind_shared("127.0.0.1", 0)
        self._stack.callback(close_all, (sockets,))
        self.port = sockets[0].getsockname()[1]
        settings = Settings(
            self.policies,
            store=parse_url(self._redis.url),
            data=self._folder / "data",
            couriers=CourierAddress(Server("http", "127.0.0.1", self.port), master.token),
            master=master,
        )
        init = WorkerInit((sockets,), load(self.policies), None, lambda *_: None)
        return CourierProcess(settings, init), master

    async def run(self, key: str = KEY) -> CourierProcess:
        courier, _ = self.build(key)
        await courier.start()
        self._stack.push_async_callback(courier.stop)
        return courier


@pytest.fixture
async def scene(tmp_path: Path, redis_server: RedisServer) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        yield Scene(tmp_path, redis_server, stack)


async def test_only_with_the_stores_key(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The first courier decides which key it is; one with another delivers nothing, and says so."""
    first = await scene.run()
    await eventually(lambda: first.report().readiness.checks == {"webhooks": "ok"}, "it delivers")
    second = await scene.run(OTHER)
    wrong = {"webhooks": "another webhook key"}
    await eventually(lambda: second.report().readiness.checks == wrong, "it compared the keys")
    assert f"the webhook key in {VARIABLE} is not the one" in caplog.text
    assert OTHER not in caplog.text


async def test_only_gateways_are_answered(scene: Scene) -> None:
    """A local process without the token learns nothing; one with it gets an answer in JSON."""
    courier, master = scene.build()
    await courier.start()
    try:
        path = "/hooks/" + "0" * 32
        stranger = await fetch(scene.port, path, method="POST", body=b"{}")
        assert (stranger.status, stranger.body) == (404, b"")
        token = ("X-Gateway-Courier", master.token)
        worker = await fetch(scene.port, path, method="POST", body=b"{}", headers=[token])
        assert worker.status == 404
        assert worker.json()
    finally:
        await courier.stop()


async def test_the_time_is_the_stores(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts are signed and noted by it, whatever the clock of the host says."""
    host_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: host_ns() + 3_600 * 10**9)
    courier = await scene.run()
    right_us = host_ns() // 1000
    await eventually(
        lambda: abs(courier._courier._now_us() - right_us) < 600 * 10**6, "it is known"
    )


async def test_deliveries_begin_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a fault: a courier that only captures would look well."""
    monkeypatch.setattr("gateway.courier._AGAIN_S", 0.01)
    runs = 0
    run = Courier.run

    async def fails_once(courier: Courier) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise RuntimeError("a fault of the gateway")
        await run(courier)

    monkeypatch.setattr(Courier, "run", fails_once)
    await scene.run()
    await eventually(lambda: runs == 2, "it runs again")
    assert (
        "deliveries failed, and begin again: RuntimeError('a fault of the gateway')" in caplog.text
    )


async def test_a_stop_before_it_delivers(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing in flight to wait for."""
    await scene.run()
    second, _ = scene.build(OTHER)
    await second.start()
    monkeypatch.setattr("gateway.courier.DRAIN_S", 3_600.0)
    async with asyncio.timeout(20):
        await second.stop()


async def test_the_end_of_requests(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in progress is answered; one that does not end is cut off, when stopping now at once."""
    courier, master = scene.build()
    await courier.start()
    fields = [("X-Gateway-Courier", master.token), ("Content-Length", "2")]
    head = build_request("POST", "/hooks/" + "0" * 32, fields)
    monkeypatch.setattr("gateway.courier.DRAIN_S", 3_600.0)
    monkeypatch.setattr("gateway.courier._LEAST_S", 0.01)
    captures = asyncio.Event()

    async def never(*_: object) -> None:
        captures.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(courier._capture, "_captured_by", never)
    async with await Wire.connect(scene.port) as wire:
        await wire.send(head + b"{}")
        await captures.wait()
        stopping = tasks.spawn(courier.stop(), "stop")
        await eventually(lambda: bool(courier._answering), "requests are waited for")
        courier.stop_now()
        async with asyncio.timeout(20):
            await stopping


async def test_the_metrics(scene: Scene) -> None:
    """Its report has what it did, and what the store has."""
    courier = await scene.run()

    def names() -> set[str]:
        return {series.family.name for series in courier.report().metrics.series if series.values}

    await eventually(lambda: "webhook_bytes_used" in names(), "it has looked at the store")
    assert {"webhook_deliveries", "webhook_slots", "slow_steps"} <= names()


async def test_authorities_that_cannot_be_used(scene: Scene) -> None:
    """It does not start, and names the setting."""
    courier, _ = scene.build()
    file = scene.policies / "empty.pem"
    file.write_text("")
    settings = replace(courier._policy.webhooks, ca=str(file))
    courier._policy = replace(courier._policy, webhooks=settings)
    with pytest.raises(CannotStart, match=r"webhooks\.ca: .*empty\.pem"):
        await courier.start()
