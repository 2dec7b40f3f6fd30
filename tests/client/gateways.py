"""Gateways as processes for the client's tests, which are not coroutines: a loop in a thread."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from redis.asyncio import Redis

from gateway.cli.demo_upstream import serve_demo_upstream
from gateway.cli.shipped import find_policies
from gateway.domain.keys import KeyRecord
from gateway.domain.webhooks.events import Integration
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.resources import Resources
from tests.kit.gateway import READY_S, ServedGateway
from tests.kit.hooks import ENVIRONMENT
from tests.kit.keys import make_key
from tests.kit.policies import STORE_TIMEOUT

T = TypeVar("T")

#: The cost that the shipped policies suggest for a batch, in place of one unit.
BATCH = "batch:        {match: POST /api/**/batch, upstream: api, rate: 10/minute}"
COST = (
    "batch: {match: POST /api/**/batch, upstream: api, rate: 100/minute, "
    "cost: {json: ids, max: 50}}"
)


class Background:
    """A loop in a thread, within its `with`; what was entered in `stack` is left at the end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.stack = AsyncExitStack()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it to its end, which has to come before a gateway's would be given up."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(READY_S * 2)

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self.run(self.stack.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def serve(self, *arguments: Any, **options: Any) -> ServedGateway:
        """A gateway that is ready. Arguments are those of ServedGateway."""
        started = ServedGateway(*arguments, **options)
        return self.run(self.stack.enter_async_context(started))

    def demo_upstream(self) -> str:
        port = self.run(self.stack.enter_async_context(serve_demo_upstream("127.0.0.1", 0)))
        return f"http://127.0.0.1:{port}"

    def add_key(self, store: str, **fields: Any) -> tuple[str, KeyRecord]:
        """Write a new key into the store; return its text and its record."""
        environment = fields.pop("environment", "production")
        text, record = make_key(secrets.randbelow, environment, **fields)
        self.run(_add_key(store, record))
        return text, record

    def add_integration(self, store: str, name: str, account: str) -> None:
        self.run(_add_integration(store, Integration(name, account, "generic", "Builds", 1)))


async def _add_key(store: str, record: KeyRecord) -> None:
    async with Redis.from_url(store) as client:
        await RedisKeyStore(client).add(record)


async def _add_integration(store: str, integration: Integration) -> None:
    async with redis_client(parse_url(store)) as client:
        assert await Resources(executing(client)).add_integration(integration)


def write_shipped(folder: Path, upstream: str) -> Path:
    """The shipped policies in front of this upstream; their batches cost what they suggest.

    The store may take its time, as on a busy machine it does, and endpoints may be here.
    """
    folder.mkdir(parents=True)
    for path in find_policies().glob("*.yaml"):
        (folder / path.name).write_text(path.read_text("utf-8"), "utf-8")
    servers = f'{{servers: ["{upstream}"]}}'
    (folder / "upstreams.yaml").write_text(f"upstreams:\n  api: {servers}\n  mcp: {servers}\n")
    (folder / "webhooks.yaml").write_text("webhooks: {allow: [127.0.0.0/8]}\n")
    _replace(folder / "gateway.yaml", "store:\n  timeout: 50ms\n  keep_keys: 5m\n", STORE_TIMEOUT)
    _replace(folder / "routes.yaml", BATCH, COST)
    return folder


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{path.name} has changed: {old}"
    path.write_text(text.replace(old, new), "utf-8")


class Site:
    """The shipped policies with a courier, in front of the demo's upstream."""

    def __init__(self, background: Background, folder: Path, store: str) -> None:
        self.background = background
        self.store = store
        policies = write_shipped(folder / "policies", background.demo_upstream())
        self.gateway = background.serve(
            *(folder / "gateway", policies, store, "--couriers", "1"), environment=ENVIRONMENT
        )
        self.url = f"http://127.0.0.1:{self.gateway.port}"

    def key(self, **fields: Any) -> str:
        """A new key, with its own account unless the fields have one."""
        return self.background.add_key(self.store, **fields)[0]
