"""A client of a real Redis that is empty."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from tests.kit.redis_server import RedisServer


@pytest.fixture
async def store_client(redis_server: RedisServer) -> AsyncIterator[Redis]:
    client = redis_client(parse_url(redis_server.url))
    yield client
    await client.aclose()
