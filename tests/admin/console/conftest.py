"""The console in this process, and a browser that is signed in to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.kit.console import Browser, Console


@pytest_asyncio.fixture
async def console() -> AsyncIterator[Console]:
    async with Console() as console:
        yield console


@pytest_asyncio.fixture
async def anna(console: Console) -> Browser:
    return await console.signed_in()
