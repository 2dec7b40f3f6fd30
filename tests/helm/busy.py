"""A busy gateway that shows everything a dashboard can, and a Prometheus that scrapes it.

`async with busy(folder) as site` starts two workers on a separate Redis. Clients keep them busy
until the end: admitted, near a limit, limited, shadowed, 401, 403, failing upstreams. One sends
webhooks, which are delivered to a receiver that takes them and one that fails.
`await site.trouble()` adds rare events: an outage of Redis, a policy that is loaded and one whose
reload fails, the end of a worker.
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
from tests.helm import hooked
from tests.kit.certificates import make_certificate
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
  search:
    {match: GET /api/search/*, upstream: search, rate: 120/minute, candidate: {rate: 30/minute}}
  batch:      {match: POST /api/**/batch, upstream: api, rate: 60/minute}
  connectors: {match: GET /v1/connectors, upstream: api, scopes: ["connectors:read"]}
  gone:       {match: GET /api/gone, upstream: api, retries: 1}
  trial:
    match: GET /api/trial/**
    upstream: api
    limits: [{name: trial, rate: 30/minute, mode: shadow}]
  mcp:        {match: "* /mcp", upstream: api, mcp: {}}
  hooks:      {match: POST /hooks/*, upstream: webhooks, auth: none}
  api:        {match: "* /**", upstream: api, canary: {upstream: beta, share: 50%}}
"""

#: Long enough for a machine that is busy with other tests, short enough to notice an outage.
STORE = "store: {timeout: 500ms}\n"

#: The clients' requests, which they repeat: plan, method and path. "": without a key.
REQUESTS = (
    *[("enterprise", "GET", "/api/orders")] * 4,
    *[("pro", "GET", "/api/orders/7")] * 3,
    *[("free", "GET", "/api/orders")] * 2,
    ("pro", "GET", "/api/search/boots"),
    ("pro", "GET", "/mcp"),
    # Not sent as JSON: refused.
    ("pro", "POST", "/mcp"),
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
    """An upstream's answers: mostly good, sometimes not."""
    if exchange.request.target == "/api/broken":
        await exchange.read_body()
        await exchange.write(build_response(500))
    elif exchange.request.target == "/api/gone":
        exchange.abort()
    else:
        await echo(exchange)


@dataclass
class Busy:
    """The site. since_s: its start, in Prometheus' time"""

    gateway: ServedGateway
    prometheus: Prometheus
    redis: RedisServer
    since_s: float = field(default_factory=time.time)

    async def trouble(self, outage_s: float = 0.0) -> None:
        """Cause each rare event once; return when Prometheus has seen it.

        outage_s: how long Redis stays down after that
        """
        # Prometheus must have seen a first value to notice the second.
        await self.shows("gateway_worker_restarts_total >= 0")
        self.redis.pause()
        try:
            await self.shows("gateway_store_fallback_active == 1")
            await self.shows('rate(gateway_ratelimit_decisions_total{decision="local"}[10s]) > 0')
            await asyncio.sleep(outage_s)
        finally:
            self.redis.resume()
        await self.shows("gateway_store_fallback_active == 0 and gateway_store_up == 1")
        # Whether there is TLS is decided at the start; the metric tells what the policy names.
        made = make_certificate(self.gateway.policies / "tls", ["gateway.test"])
        text = f"tls: {{certificate: {made.certificate}, key: {made.key}}}\n"
        (self.gateway.policies / "tls.yaml").write_text(text, encoding="utf-8")
        await self.shows("gateway_certificate_expiry_timestamp_seconds > 0")
        plans = self.gateway.policies / "plans.yaml"
        plans.write_text(PLANS.replace("6000/minute, ", "9000/minute, "), encoding="utf-8")
        await self.shows('gateway_policy_reload_total{result="success"} > 2')
        plans.write_text("plans: none", encoding="utf-8")
        await self.shows('gateway_policy_reload_total{result="refused"} > 0')
        os.kill(self.gateway.worker_pids()[0], signal.SIGKILL)
        await self.shows("gateway_worker_restarts_total >= 1")

    async def shows(self, query: str) -> None:
        """Wait until the query has a result."""

        async def has() -> bool:
            return bool((await self.prometheus.ask("query", query=query))["result"])

        await eventually(has, query)


@asynccontextmanager
async def busy(folder: Path, pause_s: float = 0.01) -> AsyncIterator[Busy]:
    """Start everything, keep it busy, stop it. pause_s: of each client between two requests"""
    async with AsyncExitStack() as stack:
        redis = RedisServer().start()
        stack.callback(redis.stop)
        upstream = await stack.enter_async_context(ScriptedUpstream(answer))
        receiver, ca = hooked.receivers(folder / "receiver")
        await stack.enter_async_context(receiver)
        address = f'{{servers: ["{upstream.url}"]}}'
        policies = write_policies(
            folder / "policies",
            upstream.url,
            # All clients share one address, and some requests fail on purpose.
            gateway=GATEWAY.replace("6000/minute", "60000/minute"),
            routes=ROUTES,
            store=STORE,
            webhooks=hooked.settings(ca),
            upstreams=f"upstreams:\n  api: {address}\n  search: {address}\n  beta: {address}\n"
            # Its look-ups fail: no name ends in .invalid (RFC 6761).
            "  gone: {servers: ['http://gone.invalid']}\n",
        )
        words = ("--workers", "2", "--couriers", "1")
        serving = ServedGateway(folder / "gateway", policies, redis.url, *words)
        gateway = await stack.enter_async_context(serving)
        watching = Prometheus(folder / "prometheus", [gateway.admin_port], RULES)
        prometheus = await stack.enter_async_context(watching)
        site = Busy(gateway, prometheus, redis)
        # Requests before the first scrape are no increase to Prometheus.
        await site.shows("gateway_build_info")
        keys = await _make_keys(redis)
        clients = [
            asyncio.ensure_future(_ask(gateway, keys, number, pause_s)) for number in range(CLIENTS)
        ]
        capture = await hooked.register(gateway, redis, receiver)
        clients.append(asyncio.ensure_future(hooked.send(gateway, capture, pause_s * 10)))
        stack.push_async_callback(_end, clients)
        yield site


async def _make_keys(redis: RedisServer) -> dict[str, str]:
    """A key on each plan, a revoked one, and none."""
    async with Redis(port=redis.port) as client:
        store = RedisKeyStore(client)
        keys = {plan: (await add_key(store, plan))[0] for plan in ("free", "pro", "enterprise")}
        return {**keys, "revoked": (await add_key(store, "pro", status="revoked"))[0], "": ""}


async def _ask(gateway: ServedGateway, keys: dict[str, str], number: int, pause_s: float) -> None:
    """One client, with its own order of the same requests."""
    for plan, method, path in itertools.cycle((*REQUESTS[number:], *REQUESTS[:number])):
        body = b"[]" if method == "POST" else b""
        # A killed worker ends its connections.
        with suppress(OSError, WireError):
            await gateway.fetch(path, method=method, key=keys[plan] or None, body=body)
        await asyncio.sleep(pause_s)


async def _end(clients: Iterable[asyncio.Future[None]]) -> None:
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
