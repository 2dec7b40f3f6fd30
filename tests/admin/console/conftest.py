"""The console in this process, and a browser that is signed in to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.kit.console import Browser, Console
from tests.kit.redis_server import RedisServer


@pytest_asyncio.fixture
async def console() -> AsyncIterator[Console]:
    async with Console() as console:
        yield console


@pytest_asyncio.fixture
async def anna(console: Console) -> Browser:
    return await console.signed_in()


@pytest_asyncio.fixture
async def hooked(redis_server: RedisServer) -> AsyncIterator[Console]:
    """A console with webhooks, which need a Redis."""
    async with Console(webhooks_at=redis_server.url) as console:
        yield console


@pytest_asyncio.fixture
async def olga(hooked: Console) -> Browser:
    """A browser that is signed in to the console with webhooks."""
    return await hooked.signed_in()
