"""A gateway to which everything happens that a dashboard can show, and a Prometheus that watches.

`async with busy(folder) as site` starts two workers on a Redis of their own. Clients keep them at
work until the end: admitted, near a limit, limited, shadowed, 401, 403, failing upstreams.
`await site.trouble()` adds what is not for every day: Redis is away for a moment, policies are
taken up and refused, a worker dies.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from redis.asyncio import Redis

from gateway.stores.keys.store import RedisKeyStore
from tests.end_to_end.conftest import add_key
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.policies import GATEWAY, PLANS, write_policies
from tests.kit.prometheus import Prometheus
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import Exchange, ScriptedUpstream, build_response, echo
from tests.kit.wire import WireError

RULES = Path(__file__).parents[2] / "helm/files/rules.yaml"

ROUTES = """
routes:
  search:     {match: GET /api/search/*,  upstream: search, rate: 120/minute}
  batch:      {match: POST /api/*/batch,  upstream: api, rate: 60/minute}
  connectors: {match: GET /v1/connectors, upstream: api, scopes: ["connectors:read"]}
  trial:
    match: GET /api/trial/**
    upstream: api
    limits: [{name: trial, rate: 30/minute, mode: shadow}]
  api:        {match: "* /**", upstream: api}
"""

#: Long enough for a machine that is busy with other tests, short enough for an outage to be felt.
STORE = "store: {timeout: 500ms}\n"

#: What the clients ask for, over and over: plan, method and path. "": without a key.
REQUESTS = (
    *[("enterprise", "GET", "/api/orders")] * 4,
    *[("pro", "GET", "/api/orders/7")] * 3,
    *[("free", "GET", "/api/orders")] * 2,
    ("pro", "GET", "/api/search/boots"),
    ("enterprise", "GET", "/api/search/hats"),
    ("enterprise", "POST", "/api/orders/batch"),
    ("enterprise", "GET", "/api/trial/new"),
    ("pro", "GET", "/v1/connectors"),
    ("", "GET", "/api/orders"),
    ("revoked", "GET", "/api/orders"),
    ("enterprise", "GET", "/api/broken"),
    ("enterprise", "GET", "/api/gone"),
)
CLIENTS = 4


async def answer(exchange: Exchange) -> None:
    """As an upstream of any service does: mostly well, sometimes not."""
    if exchange.request.target == "/api/broken":
        await exchange.read_body()
        await exchange.write(build_response(500))
    elif exchange.request.target == "/api/gone":
        exchange.abort()
    else:
        await echo(exchange)


@dataclass
class Busy:
    """The site. since_s: when it began, as Prometheus has the time"""

    gateway: ServedGateway
    prometheus: Prometheus
    redis: RedisServer
    since_s: float = field(default_factory=time.time)

    async def trouble(self, outage_s: float = 0.0) -> None:
        """What seldom happens, once each; over when Prometheus has seen it.

        outage_s: for how long Redis stays away after that
        """
        # Prometheus has to have seen a first count to notice the second.
        await self.shows("gateway_worker_restarts_total >= 0")
        self.redis.pause()
        try:
            await self.shows("gateway_store_fallback_active == 1")
            await self.shows('rate(gateway_ratelimit_decisions_total{decision="local"}[10s]) > 0')
            await asyncio.sleep(outage_s)
        finally:
            self.redis.resume()
        await self.shows("gateway_store_fallback_active == 0 and gateway_store_up == 1")
        plans = self.gateway.policies / "plans.yaml"
        plans.write_text(PLANS.replace("6000/minute, ", "9000/minute, "), encoding="utf-8")
        await self.shows('gateway_policy_reload_total{result="success"} > 1')
        plans.write_text("plans: none", encoding="utf-8")
        await self.shows('gateway_policy_reload_total{result="refused"} > 0')
        os.kill(self.gateway.worker_pids()[0], signal.SIGKILL)
        await self.shows("gateway_worker_restarts_total >= 1")

    async def shows(self, query: str) -> None:
        """Wait until Prometheus has something to answer."""

        async def has() -> bool:
            return bool((await self.prometheus.ask("query", query=query))["result"])

        await eventually(has, query)


@asynccontextmanager
async def busy(folder: Path, pause_s: float = 0.01) -> AsyncIterator[Busy]:
    """Start it all, keep it at work, end it all. pause_s: of each client between two requests"""
    async with AsyncExitStack() as stack:
        redis = RedisServer().start()
        stack.callback(redis.stop)
        upstream = await stack.enter_async_context(ScriptedUpstream(answer))
        address = f'{{servers: ["{upstream.url}"]}}'
        policies = write_policies(
            folder / "policies",
            upstream.url,
            # All clients share one address, and some of them fail on purpose.
            gateway=GATEWAY.replace("6000/minute", "60000/minute"),
            routes=ROUTES,
            store=STORE,
            upstreams=f"upstreams:\n  api: {address}\n  search: {address}\n",
        )
        serving = ServedGateway(folder / "gateway", policies, redis.url, "--workers", "2")
        gateway = await stack.enter_async_context(serving)
        watching = Prometheus(folder / "prometheus", [gateway.admin_port], RULES)
        prometheus = await stack.enter_async_context(watching)
        site = Busy(gateway, prometheus, redis)
        # What is counted before the first scrape is no increase to Prometheus.
        await site.shows("gateway_build_info")
        keys = await _make_keys(redis)
        clients = [
            asyncio.ensure_future(_ask(gateway, keys, number, pause_s)) for number in range(CLIENTS)
        ]
        stack.push_async_callback(_end, clients)
        yield site


async def _make_keys(redis: RedisServer) -> dict[str, str]:
    """A key on each plan, one that was revoked, and none."""
    async with Redis(port=redis.port) as client:
        store = RedisKeyStore(client)
        keys = {plan: (await add_key(store, plan))[0] for plan in ("free", "pro", "enterprise")}
        return {**keys, "revoked": (await add_key(store, "pro", status="revoked"))[0], "": ""}


async def _ask(gateway: ServedGateway, keys: dict[str, str], number: int, pause_s: float) -> None:
    """One client, each with its own order of the same requests."""
    for plan, method, path in itertools.cycle((*REQUESTS[number:], *REQUESTS[:number])):
        body = b"[]" if method == "POST" else b""
        # A worker that is killed takes its connections with it.
        with suppress(OSError, WireError):
            await gateway.fetch(path, method=method, key=keys[plan] or None, body=body)
        await asyncio.sleep(pause_s)


async def _end(clients: Iterable[asyncio.Future[None]]) -> None:
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
