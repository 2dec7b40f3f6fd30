"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.redis_server import RedisServer

pytest_plugins = ["tests.kit.needs"]


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[RedisServer]:
    server = RedisServer().start()
    yield server
    server.stop()


@pytest.fixture
def redis_server(_redis_server: RedisServer) -> RedisServer:
    """A real Redis, empty at the start of each test. Shared: do not kill or pause this one."""
    with _redis_server.client() as client:
        client.flushall()
    return _redis_server
