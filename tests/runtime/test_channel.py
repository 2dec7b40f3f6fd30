"""Messages between supervisor and worker arrive whole and in order, until one of them ends."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import MappingProxyType

import pytest

from gateway.admin.readiness import Readiness
from gateway.observe.metrics import Metrics
from gateway.policies.load import load
from gateway.routing import Requested, read_request_line
from gateway.runtime.channel import (
    Adopt,
    Channel,
    Failed,
    FromWorker,
    PolicyLoaded,
    Report,
    RequestReport,
    Serving,
    Start,
    ToWorker,
)
from gateway.runtime.settings import Settings
from gateway.stores.redis.address import StoreAddress
from tests.kit.policies import write_policies


async def pair() -> tuple[Channel, Channel]:
    one, other = socket.socketpair()
    return await Channel.open(one), await Channel.open(other)


async def test_messages_arrive_as_they_were_sent(tmp_path: Path) -> None:
    """Settings with their secret, a policy, counts: equal values arrive, in order."""
    policy = load(write_policies(tmp_path / "policies", "http://127.0.0.1:9"))
    store = StoreAddress("tcp", host="cache", port=6379, password="hunter2")
    settings = Settings(tmp_path, store=store, worker=(1, 2))
    metrics = Metrics("1")
    metrics.policy_loaded("abc", 1.0, ["api"])
    metrics.ended("api", "GET", 200, "upstream", 0.1, "backend", 0.1)
    sent: list[ToWorker | FromWorker] = [
        Start(settings, ((3,), (4, 5)), policy, None, "info"),
        Report(metrics.snapshot(), Readiness(True, {"store": "ok"}), 30.0),
        RequestReport(),
        Adopt(1),
        Failed("no"),
        Serving(),
    ]
    one, other = await pair()
    for message in sent:
        one.send(message)
    received = [await other.receive() for _ in sent]
    assert received[1:] == sent[1:]
    assert received[0].settings == settings
    assert received[0].settings.store.password == "hunter2"
    assert received[0].policy.hash == policy.hash
    one.abort()
    other.abort()


async def test_a_policy_decides_the_same_after_its_way(tmp_path: Path) -> None:
    """Its table still matches, and its mappings are still read-only."""
    policy = load(write_policies(tmp_path / "policies", "http://127.0.0.1:9"))
    one, other = await pair()
    one.send(PolicyLoaded(policy))
    taken = (await other.receive()).policy
    assert isinstance(taken.plans, MappingProxyType) == isinstance(policy.plans, MappingProxyType)
    assert (taken.plans, taken.upstreams) == (policy.plans, policy.upstreams)
    for segments in (("api", "search", "x"), ("v1", "connectors"), ("nothing",), ("health",)):
        assert taken.table.match("GET", segments) == policy.table.match("GET", segments)
    asked = read_request_line(b"GET /health HTTP/1.1", taken)
    assert isinstance(asked, Requested)
    assert asked.own
    verify = read_request_line(b"GET /v1/auth/verify HTTP/1.1", taken)
    assert isinstance(verify, Requested)
    assert verify.route.limits == (policy.auth_verify,)
    one.abort()
    other.abort()


@pytest.mark.parametrize("cut", [b"", b"\x00\x00", b"\x00\x00\x00\x09half"])
async def test_a_killed_process_ends_the_channel(cut: bytes) -> None:
    """Even in the middle of a message; messages sent to it later raise no error."""
    dying, end = socket.socketpair()
    other = await Channel.open(end)
    dying.sendall(cut)
    dying.close()
    async with asyncio.timeout(10):
        assert await other.receive() is None
    for _ in range(20):
        other.send(RequestReport())
        await asyncio.sleep(0)
    other.abort()
    other.send(RequestReport())


@pytest.mark.parametrize("size", [10, 1_000_000])
async def test_messages_before_the_end_arrive(size: int) -> None:
    """A last message, and then the end; also from one that writes before it reads."""
    one, other = await pair()
    word = Failed("x" * size)
    one.send(word)
    closing = asyncio.gather(one.close())
    for _ in range(20):
        other.send(RequestReport())
        await asyncio.sleep(0)
    assert await other.receive() == word
    assert await other.receive() is None
    other.abort()
    await closing


async def test_closing_does_not_wait_for_an_ended_process() -> None:
    """The receiver of its last messages has ended."""
    one, other = await pair()
    other.abort()
    one.send(Failed("nobody hears it"))
    async with asyncio.timeout(10):
        await one.close()
