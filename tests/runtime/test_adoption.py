"""A worker that accepts the clients of another, without processes: two gateways in one."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gateway.app import Gateway, Settings
from gateway.policies.load import load
from gateway.runtime import worker as worker_module
from gateway.runtime.channel import Adopt, Channel, Release
from gateway.runtime.sockets import Sockets, bind, close_all
from gateway.runtime.worker import WorkerInit
from gateway.stores.redis.address import StoreAddress
from tests.kit.eventually import eventually
from tests.kit.policies import write_policies
from tests.kit.wire import Response, Wire, fetch


@dataclass
class Pair:
    """Two workers' sockets, and the first of the workers."""

    sockets: tuple[Sockets, ...]
    gateway: Gateway

    def port(self) -> int:
        return int(self.sockets[0][0].getsockname()[1])

    async def ask(self, times: int = 12) -> list[Response]:
        async with asyncio.timeout(20):
            return await asyncio.gather(*(fetch(self.port(), "/health") for _ in range(times)))


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    policies = write_policies(tmp_path / "policies", "http://127.0.0.1:9")
    policy = load(policies)
    sockets = bind("127.0.0.1", 0, 2)
    settings = Settings(policies, admin=None, store=StoreAddress("memory"), worker=(0, 2))
    copies = tuple(tuple(one.dup() for one in each) for each in sockets)
    gateway = Gateway(settings, init=WorkerInit(copies, policy, None, lambda *_: None))
    await gateway.start()
    yield Pair(sockets, gateway)
    await gateway.stop()
    close_all(sockets)


async def test_adopted_clients_are_served(pair: Pair) -> None:
    """Connections that wait at the other worker's socket are answered once it is adopted."""
    pair.sockets[1][0].listen(100)  # its worker listened, and ended
    waiting = asyncio.gather(*(pair.ask(1) for _ in range(12)))
    await pair.gateway.adopt(1)
    await pair.gateway.adopt(1)
    assert {answers[0].status for answers in await waiting} == {200}
    assert {answer.status for answer in await pair.ask()} == {200}


async def test_released_clients_are_left_to_their_worker(pair: Pair) -> None:
    """Their socket stays open, and its own worker accepts from it."""
    await pair.gateway.adopt(1)
    pair.gateway.release(1)
    pair.gateway.release(1)
    settings = replace(pair.gateway.settings, worker=(1, 2))
    copies = tuple(tuple(one.dup() for one in each) for each in pair.sockets)
    async with AsyncExitStack() as stack:
        policy = load(settings.policies)
        owner = Gateway(settings, init=WorkerInit(copies, policy, None, lambda *_: None))
        await owner.start()
        stack.push_async_callback(owner.stop)
        answers = await pair.ask(24)
        assert {answer.status for answer in answers} == {200}
        workers = {answer["X-Request-Id"].rpartition("-")[0] for answer in answers}
        assert len(workers) == 2


async def test_a_failed_adoption_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a free descriptor, a worker keeps serving its own clients."""

    class Poor:
        released: int | None = None

        async def adopt(self, worker: int) -> None:
            raise OSError(24, "Too many open files")

        def release(self, worker: int) -> None:
            self.released = worker

    ours, theirs = socket.socketpair()
    supervisor, channel = await Channel.open(ours), await Channel.open(theirs)
    poor, stopped = Poor(), asyncio.Event()
    worker_module._Worker(poor, channel).announce(stopped.set)  # type: ignore[arg-type]
    for order in (Adopt(1), Release(1)):
        supervisor.send(order)
    supervisor.abort()
    async with asyncio.timeout(20):
        await stopped.wait()
    assert poor.released == 1
    assert "cannot accept connections for worker 1" in caplog.text
    assert "the supervisor has ended" in caplog.text
    await channel.close()


async def test_a_draining_worker_adopts_no_clients(pair: Pair) -> None:
    """An order that arrives during a drain changes nothing: no socket is open any more."""
    port = pair.port()
    close_all(pair.sockets)
    async with await Wire.connect(port):
        stopping = asyncio.gather(pair.gateway.stop())
        await asyncio.sleep(0)
        await pair.gateway.adopt(1)
        assert not stopping.done()
    await stopping
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


async def test_a_report(pair: Pair) -> None:
    """Counts, readiness, and the time that a drain may take."""
    await pair.ask(3)
    report = pair.gateway.report()
    assert report.readiness.ready
    assert report.drain_s == 10.0
    counts = {series.family.name: series.values for series in report.metrics.series}
    assert sum(value for (value,) in counts["requests"].values()) == 3


def test_a_socket_that_workers_share() -> None:
    """Its descriptor is in the sets of several workers, but is closed once."""
    (sockets,) = bind("127.0.0.1", 0, 1)
    descriptor = os.dup(sockets[0].fileno())
    ((one,), (other,)) = worker_module._sockets(((descriptor,), (descriptor,)))
    assert one is other
    assert one.getsockname() == sockets[0].getsockname()
    close_all((sockets, (one,)))


async def test_a_drain_after_a_quiet_moment(pair: Pair) -> None:
    """Open connections are awaited, even if there were none for a while before."""
    await pair.ask(1)
    await eventually(lambda: not len(pair.gateway._context.connections), "no client is connected")
    async with await Wire.connect(pair.port()) as wire:
        stopping = asyncio.gather(pair.gateway.stop())
        await eventually(lambda: pair.gateway._context.draining, "it drains")
        answer = await wire.request("GET", "/health")
        assert (answer.status, answer.closes) == (200, True)
        await stopping
