"""A courier as it is composed: it delivers with the right key only, and stops in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.courier import CourierProcess
from gateway.domain.upstreams import Server
from gateway.policies.load import load
from gateway.runtime.settings import CannotStart, CourierAddress, Settings
from gateway.runtime.sockets import bind_shared, close_all
from gateway.runtime.worker import WorkerInit
from gateway.stores.redis.address import parse_url
from gateway.webhooks.master import VARIABLE, Master, read_master
from tests.kit.eventually import eventually
from tests.kit.policies import write_policies
from tests.kit.redis_server import RedisServer
from tests.kit.wire import fetch

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


async def test_the_metrics(scene: Scene) -> None:
    """Its report has what it did, and what the store has."""
    courier = await scene.run()

    def names() -> set[str]:
        return {series.family.name for series in courier.report().metrics.series if series.values}

    await eventually(lambda: "webhook_bytes_used" in names(), "it has looked at the store")
    assert {"webhook_deliveries", "webhook_slots"} <= names()


async def test_authorities_that_cannot_be_used(scene: Scene) -> None:
    """It does not start, and names the setting."""
    courier, _ = scene.build()
    file = scene.policies / "empty.pem"
    file.write_text("")
    settings = replace(courier._policy.webhooks, ca=str(file))
    courier._policy = replace(courier._policy, webhooks=settings)
    with pytest.raises(CannotStart, match=r"webhooks\.ca: .*empty\.pem"):
        await courier.start()
