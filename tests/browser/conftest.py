"""A browser, a console in this process, and one of a running gateway, shared by all tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from gateway.domain.keys import KeyRecord
from tests.kit.browser import open_chromium
from tests.kit.console import Console, fill
from tests.kit.console_webhooks import Hooks, fill_webhooks
from tests.kit.gateway import ServedGateway
from tests.kit.policies import write_policies
from tests.kit.redis_server import RedisServer
from tests.kit.upstream import ScriptedUpstream
from tests.kit.wire import TIMEOUT_S

expect.set_options(timeout=TIMEOUT_S * 1000)


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with open_chromium() as browser:
        yield browser


@dataclass
class Filled:
    """A console after a month of use. keys: by name; hooks: what it has of webhooks"""

    console: Console
    keys: dict[str, KeyRecord]
    hooks: Hooks


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def filled() -> AsyncIterator[Filled]:
    """For tests that only read."""
    store = RedisServer().start()
    try:
        async with Console(webhooks_at=store.url) as console:
            yield Filled(console, await fill(console), await fill_webhooks(console))
    finally:
        store.stop()


@dataclass
class Served:
    """`gateway serve` with a separate store and upstream, and its admin token."""

    gateway: ServedGateway
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.admin_port}"


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    async with AsyncExitStack() as stack:
        store = RedisServer().start()
        stack.callback(store.stop)
        upstream = await stack.enter_async_context(ScriptedUpstream())
        policies = write_policies(folder / "policies", upstream.url)
        served = ServedGateway(folder / "gateway", policies, store.url)
        gateway = await stack.enter_async_context(served)
        token = (folder / "gateway" / "data" / "admin-token").read_text().strip()
        yield Served(gateway, token)
