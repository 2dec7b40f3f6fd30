"""A gateway as users run it, its store, a proxy between them if needed, and keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis

from gateway.stores.keys.store import RedisKeyStore
from tests.end_to_end.conftest import add_key, build_key
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.policies import write_policies
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.store_proxy import StoreProxy
from tests.kit.upstream import ScriptedUpstream
from tests.kit.wire import Response, fetch

#: Requests a minute of a key on the plan "tight": less than its clients send in a second.
TIGHT: Final = 60
_PLANS: Final = f"plans:\n  loose: {{rate: 1000000/minute}}\n  tight: {{rate: {TIGHT}/minute}}\n"
_ROUTES: Final = 'routes:\n  api: {match: "* /api/**", upstream: api}\n'


@dataclass(slots=True)
class Site:
    """The parts of a run. loading: a slow start of the server"""

    server: RedisServer
    proxy: StoreProxy
    gateway: ServedGateway
    upstream: ScriptedUpstream
    loading: asyncio.Future[RedisServer] | None = None

    async def key(self, plan: str) -> str:
        """The text of a new key."""
        async with Redis(port=self.server.port) as client:
            return (await add_key(RedisKeyStore(client), plan))[0]

    async def meet(self, key: str) -> None:
        """Make the gateway cache the key, at no cost."""

        async def is_known() -> bool:
            return (await self.gateway.fetch("/v1/auth/verify", key=key)).status == 200

        await eventually(is_known, "the key is known")

    async def ask_unknown(self) -> Response:
        """The answer to a well-formed key that is not cached."""
        return await self.gateway.fetch("/api/x", key=build_key("loose")[0])

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        families = text_string_to_metric_families(await self.gateway.metrics())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def readiness(self) -> dict[str, Any]:
        """`checks` of /readyz, and `ready`."""
        told = (await fetch(self.gateway.admin_port, "/readyz")).json()
        return {**told["checks"], "ready": told["ready"]}

    async def counts(self) -> dict[bytes, bytes | None]:
        """The counters in the store, in their format."""
        async with Redis(port=self.server.port) as client:
            names = sorted([name async for name in client.scan_iter("gw:limit:*:rate:*")])
            return dict(zip(names, await client.mget(names), strict=True))

    async def is_relied_on(self) -> bool:
        """Is the store up, and does it make all decisions again?"""
        return (
            (await self.readiness())["store"] == "ok"
            and await self.metric("gateway_store_up") == 1
            and await self.metric("gateway_store_fallback_active") == 0
        )


@asynccontextmanager
async def open_site(
    folder: Path,
    *,
    proxied: bool = False,
    mode: str = "local",
) -> AsyncIterator[Site]:
    """Start everything, with the shipped timeout of the store.

    proxied: the gateway connects to its store through the proxy; mode: on_store_failure
    """
    async with AsyncExitStack() as stack:
        server = RedisServer(*DURABLE)
        stack.callback(server.stop)
        server.start()
        proxy = await stack.enter_async_context(StoreProxy(server.port))
        upstream = await stack.enter_async_context(ScriptedUpstream())
        policies = write_policies(
            folder / "policies",
            upstream.url,
            plans=_PLANS,
            routes=_ROUTES,
            gateway=f"on_store_failure: {mode}\nstore: {{timeout: 50ms}}\n",
        )
        store = proxy.url if proxied else server.url
        gateway = ServedGateway(folder / "gateway", policies, store)
        await stack.enter_async_context(gateway)
        yield Site(server, proxy, gateway, upstream)
