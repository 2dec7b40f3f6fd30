"""What admin listeners share: ended sessions and token marks, and their form in Redis."""

from __future__ import annotations

import pytest

from gateway.domain.ports import StoreDown
from gateway.stores.admin import MemoryAdminStore, RedisAdminStore
from gateway.stores.names import ADMIN_TOKEN, ENDED_PREFIX
from tests.suites.admin import NAME, ONE, OTHER, AdminStoreSuite


@pytest.fixture
def redis_store(store_client):
    return RedisAdminStore(store_client)


class TestMemory(AdminStoreSuite):
    @pytest.fixture
    def clock(self):
        """Its time in seconds, in a list."""
        return [0.0]

    @pytest.fixture
    def store(self, clock):
        return MemoryAdminStore(lambda: clock[0])

    @pytest.fixture
    def pass_time(self, clock):
        def pass_time(seconds):
            clock[0] += seconds

        return pass_time


class TestRedis(AdminStoreSuite):
    @pytest.fixture
    def store(self, redis_store):
        return redis_store

    @pytest.fixture
    def pass_time(self, redis_server):
        return redis_server.pass_time


async def test_everything_expires(redis_store, redis_server):
    """Every name that is written expires."""
    await redis_store.end_session(NAME, 60)
    await redis_store.mark_token(ONE, 60)
    await redis_store.mark_token(ONE, 60)
    with redis_server.client() as client:
        assert set(client.keys()) == {(ENDED_PREFIX + NAME).encode(), ADMIN_TOKEN.encode()}
        assert all(0 < client.ttl(name) <= 60 for name in client.scan_iter())


@pytest.mark.parametrize(
    "content", [b"", b"x", b"\xff\xfe a b", b"00 a", b"00 a b c", b"a" * 100_000]
)
async def test_foreign_values_are_unknown_marks(redis_store, redis_server, content):
    """A foreign value is an unknown mark until it expires, and no error."""
    with redis_server.client() as client:
        client.set(ADMIN_TOKEN, content)
    found = await redis_store.mark_token(ONE, 60)
    assert found.digest != ONE.digest


async def test_a_value_of_another_type_is_reported(redis_store, redis_server):
    """It is StoreDown, like other failures of the store."""
    with redis_server.client() as client:
        client.lpush(ADMIN_TOKEN, "x")
        client.lpush(ENDED_PREFIX + NAME, "x")
    with pytest.raises(StoreDown):
        await redis_store.mark_token(ONE, 60)
    with pytest.raises(StoreDown):
        await redis_store.has_ended(NAME)


async def test_an_unavailable_store_is_reported(lost_client):
    """Every method raises StoreDown."""
    store = RedisAdminStore(lost_client)
    for ask in (store.end_session(NAME, 1), store.has_ended(NAME), store.mark_token(OTHER, 1)):
        with pytest.raises(StoreDown):
            await ask
