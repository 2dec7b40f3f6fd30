"""Upstream pools alone: a policy of upstreams only, and exchanges that use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from gateway.domain.policy import Policy, Timeouts
from gateway.domain.targets import Answer, Target, targets_of
from gateway.domain.upstreams import Server, Upstream
from gateway.errors import Refusal
from gateway.observe.metrics import Metrics
from gateway.proxy.lookups import LookUp
from gateway.proxy.upstream_connection import UpstreamConnection
from gateway.proxy.upstream_pool import UpstreamPools
from tests.kit.upstream import ScriptedUpstream
from tests.kit.wire import TIMEOUT_S


class FakeExchange:
    """The part of an exchange that the pools use."""

    def __init__(self, upstream: str = "api") -> None:
        self.upstream = upstream
        self.is_over = False
        self.answered = asyncio.get_running_loop().create_future()

    def connected(self, connection: UpstreamConnection) -> None:
        self.answered.set_result(connection)

    def subject_of(self, by: str) -> str:
        return f"{by} of a test"

    def fail(self, refusal: Refusal) -> None:
        self.answered.set_result(refusal)

    async def outcome(self) -> UpstreamConnection | Refusal:
        return await asyncio.wait_for(self.answered, TIMEOUT_S)


def policy_of(*upstreams: Upstream, **timeouts: float) -> Policy:
    return Policy(
        environment="production",
        plans={},
        routes={},
        table=None,  # type: ignore[arg-type]
        upstreams={upstream.name: upstream for upstream in upstreams},
        timeouts=replace(Timeouts(), **timeouts),
    )


def server_of(upstream: ScriptedUpstream) -> Server:
    return Server("http", "127.0.0.1", upstream.port)


def closed_server() -> Server:
    """A server that refuses connections: nothing listens on port 1."""
    return Server("http", "127.0.0.1", 1)


def target_of(server: Server) -> Target:
    """The target of a server that is given by its address."""
    return Target(server, (server.host,))


def names(known: Mapping[str, Sequence[str]], ttl_s: float = 300.0) -> LookUp:
    """Looks names up in a mapping; the next look-up sees what has changed in it."""

    async def look_up(server: Server) -> Answer:
        if server.host not in known:
            raise OSError(f"{server.host} is not known")
        return Answer(targets_of(server, known[server.host]), ttl_s)

    return look_up


@asynccontextmanager
async def pools_for(policy: Policy, **options: Any) -> AsyncIterator[UpstreamPools]:
    pools = UpstreamPools(Metrics("test"), **options)
    pools.use(policy)
    try:
        yield pools
    finally:
        await pools.stop()


async def ask(pools: UpstreamPools, upstream: str = "api") -> UpstreamConnection:
    exchange = FakeExchange(upstream)
    pools.serve(upstream, exchange)  # type: ignore[arg-type]
    connection = await exchange.outcome()
    assert isinstance(connection, UpstreamConnection), connection
    return connection


async def refused(pools: UpstreamPools, upstream: str = "api") -> Refusal:
    exchange = FakeExchange(upstream)
    pools.serve(upstream, exchange)  # type: ignore[arg-type]
    refusal = await exchange.outcome()
    assert isinstance(refusal, Refusal), refusal
    return refusal


def health_metric(metrics: Metrics, server: Server) -> int | None:
    """The health metric of a server of the upstream `api`; None: it has none."""
    return metrics._health.get(("api", server.authority))
