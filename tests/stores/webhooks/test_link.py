"""The connection of a courier, from its first moment on."""

from __future__ import annotations

import pytest

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import parse_url
from gateway.stores.webhooks import link
from gateway.stores.webhooks.link import open_link
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer


async def test_connected_at_once(redis_server: RedisServer) -> None:
    """The first command after a start finds the store: it is a webhook that comes only once."""
    async with open_link(parse_url(redis_server.url)) as execute:
        assert await execute("SET", "a", "b") == b"OK"


async def test_without_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens, and says so at each command."""
    monkeypatch.setattr(link, "_TIMEOUT_S", 0.05)
    async with open_link(parse_url(f"redis://127.0.0.1:{free_port()}/0")) as execute:
        with pytest.raises(StoreDown):
            await execute("PING")
