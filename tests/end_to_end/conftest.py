"""One site for all of these tests: an upstream, a Redis, and two gateways on it.

Starting them takes a second, so they are shared; each test creates its own keys and thereby its
own counters. A test that edits policies, or stops or kills anything, starts its own gateway.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from gateway.domain.keys import Account, KeyRecord
from gateway.stores.keys.store import RedisKeyStore
from tests.kit.gateway import ServedGateway
from tests.kit.keys import make_key
from tests.kit.policies import write_policies
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import ScriptedUpstream, echo

Serve = Callable[..., Awaitable[ServedGateway]]


@dataclass
class Site:
    """What the tests share. gateway: one of two on the same store; other: the other one."""

    upstream: ScriptedUpstream
    store: str
    policies: Path
    keys: RedisKeyStore
    gateway: ServedGateway
    other: ServedGateway

    async def key(self, plan: str = "free", **fields: Any) -> str:
        """The text of a new key; `fields` replace the defaults of its record."""
        return (await add_key(self.keys, plan, **fields))[0]


def build_key(plan: str, **fields: Any) -> tuple[str, KeyRecord]:
    """A new key that no store has yet: its text and its record."""
    return make_key(secrets.randbelow, plan=plan, **fields)


async def add_key(keys: RedisKeyStore, plan: str, **fields: Any) -> tuple[str, KeyRecord]:
    """Write a new key directly into the store; return its text and its record."""
    text, record = build_key(plan, **fields)
    await keys.add(record)
    return text, record


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def _site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    async with AsyncExitStack() as stack:
        server = RedisServer().start()
        stack.callback(server.stop)
        upstream = await stack.enter_async_context(ScriptedUpstream())
        client = Redis(port=server.port)
        stack.push_async_callback(client.aclose)
        policies = write_policies(folder / "policies", upstream.url)
        gateways = [
            await stack.enter_async_context(ServedGateway(folder / name, policies, server.url))
            for name in ("one", "two")
        ]
        yield Site(upstream, server.url, policies, RedisKeyStore(client), *gateways)


@pytest_asyncio.fixture(loop_scope="session")
async def site(_site: Site) -> AsyncIterator[Site]:
    """The shared site, whose upstream has received nothing and echoes."""
    _site.upstream.requests.clear()
    _site.upstream.script = echo
    yield _site
    # Other tests reach the upstream by gateways of their own.
    _site.upstream.script = echo


@pytest_asyncio.fixture(loop_scope="session")
async def serve(site: Site, tmp_path: Path) -> AsyncIterator[Serve]:
    """Start a separate gateway: `await serve(upstream=…, store=…, plans="…")`.

    Its policy folder is separate, too: `gateway.policies`. What is not given is the site's.
    """
    async with AsyncExitStack() as stack:
        count = 0

        async def start(
            *arguments: str, upstream: str = "", store: str = "", **files: str
        ) -> ServedGateway:
            nonlocal count
            folder = tmp_path / f"gateway-{(count := count + 1)}"
            policies = write_policies(folder / "policies", upstream or site.upstream.url, **files)
            served = ServedGateway(folder, policies, store or site.store, *arguments)
            return await stack.enter_async_context(served)

        yield start


async def enable(site: Site, account: str, *services: str) -> None:
    """Enable services for an account."""
    await site.keys.put_account(Account(account, services))
