"""Values of other programs in the store: they affect only their own key, and no other client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from gateway.domain.keys import KeyRecord
from gateway.stores.keys.records import write_record
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.names import USED, WORKERS, account_name, key_name
from tests.end_to_end.conftest import Site, add_key
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.redis_server import RedisServer
from tests.kit.wire import TIMEOUT_S, Response, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

HEALTHY = 20
ROUNDS = 3


@dataclass
class Rig:
    """A gateway with its own store, with healthy keys and one whose values a test changes."""

    gateway: ServedGateway
    redis: Redis
    healthy: list[str]
    tampered: str
    record: KeyRecord

    async def change(self, **fields: Any) -> None:
        """Write the tampered key's record with other values in these fields."""
        found = json.loads(await self.redis.get(key_name(self.record.id)))
        await self.redis.set(key_name(self.record.id), json.dumps(found | fields))

    async def ask(self, key: str, target: str = "/api/things") -> Response:
        return await asyncio.wait_for(self.gateway.fetch(target, key=key), TIMEOUT_S)

    async def all_are_served(self) -> None:
        """While the tampered key is used as well, every healthy key is served."""
        for _ in range(ROUNDS):
            answers = await asyncio.gather(
                *(self.ask(key) for key in (*self.healthy, self.tampered))
            )
            assert [answer.status for answer in answers[:-1]] == [200] * HEALTHY

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[None]:
        """Meanwhile no connection to the store is lost, and no callback fails."""
        connections = {one["id"] for one in await self.redis.client_list()}
        yield
        assert connections <= {one["id"] for one in await self.redis.client_list()}
        assert "a callback for the store's replies failed" not in self.gateway.output()

    async def beats(self, count: int) -> None:
        """Wait until the worker's connection has sent this many heartbeats."""

        async def beaten() -> int:
            return int((await self.redis.info("commandstats"))["cmdstat_del"]["calls"])

        until = await beaten() + count

        async def is_over() -> bool:
            return await beaten() >= until

        await eventually(is_over, "the store is asked again")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def _rig(_site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    server = RedisServer().start()
    try:
        async with Redis(port=server.port) as client:
            keys = RedisKeyStore(client)
            healthy = [(await add_key(keys, "enterprise"))[0] for _ in range(HEALTHY)]
            tampered, record = await add_key(keys, "enterprise", account="acme")
            folder = tmp_path_factory.mktemp("tampered")
            async with ServedGateway(folder, _site.policies, server.url) as gateway:
                yield Rig(gateway, client, healthy, tampered, record)
    finally:
        server.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def rig(_rig: Rig) -> Rig:
    """The rig with its original values."""
    redis, record = _rig.redis, _rig.record
    await redis.set(key_name(record.id), write_record(record))
    await redis.delete(account_name("acme"), USED, WORKERS)

    async def is_served() -> bool:
        return (await _rig.ask(_rig.tampered)).status == 200

    await eventually(is_served, "the key is good")
    return _rig


SPLIT = "acme\r\nX-Admin: 1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
LIMIT = {"kind": "rate", "window_us": 60_000_000, "burst": None, "per": "key", "shadow": False}
#: Fields that would end a header, fail a batch or a page, or exceed a worker's time limit.
FIELDS: dict[str, dict[str, Any]] = {
    "an account with line breaks": {"account": SPLIT},
    "scopes with line breaks": {"scopes": [SPLIT]},
    "a plan with line breaks": {"plan": SPLIT},
    "a huge amount": {"limits": {"plan": {**LIMIT, "amount": 10**400}}},
    "a huge window": {"limits": {"plan": {**LIMIT, "amount": 1, "window_us": 10**300}}},
    "a huge expiry": {"expires_us": 10**30},
    "an expiry of no size": {"expires_us": 1e999},
    "a million scopes": {"scopes": ["a"] * 1_000_000},
    "surrogates": {"name": "\ud800", "account": "\udfff"},
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
async def test_a_record_that_was_tampered_with(
    site: Site, rig: Rig, fields: dict[str, Any]
) -> None:
    """Its own key gets 503 in time; nothing of it is in a forwarded request, a page or a log."""
    await rig.change(**fields)
    await rig.all_are_served()
    for target in ("/api/things", "/v1/auth/verify"):
        answer = await rig.ask(rig.tampered, target)
        assert (answer.status, answer.json()["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert all(request.target != "/smuggled" for request in site.upstream.requests)
    assert all("X-Admin" not in dict(request.headers) for request in site.upstream.requests)

    async def is_named() -> bool:
        await rig.change(**fields)  # one line a second, which another record may have used
        await rig.ask(rig.tampered)
        return f"the store's record of key {rig.record.id} cannot be read" in rig.gateway.output()

    await eventually(is_named, "the log names the key")
    assert "X-Admin" not in rig.gateway.output()
    listed = await fetch(
        rig.gateway.admin_port,
        "/admin/v1/keys?count=200",
        key=rig.gateway.admin_token,
        headers=[("Host", "127.0.0.1")],
    )
    assert listed.status == 200
    ids = {item["id"] for item in listed.json()["items"]}
    assert ids >= {key.split("_")[2] for key in rig.healthy}
    assert rig.record.id not in ids


Write = Callable[[Rig], Awaitable[Any]]


async def put_a_list(rig: Rig) -> None:
    await rig.redis.delete(key_name(rig.record.id))
    await rig.redis.lpush(key_name(rig.record.id), "x")


#: Values of another type or size where a key's record or account should be.
OF_ONE_KEY: dict[str, Write] = {
    "a list for the key": put_a_list,
    "a hash for the account": lambda rig: rig.redis.hset(account_name("acme"), "a", "b"),
    "megabytes for the account": lambda rig: rig.redis.set(account_name("acme"), b"x" * 50_000_000),
    "an account that nests": lambda rig: rig.redis.set(account_name("acme"), b"[" * 100_000),
}
#: The same where a worker's own data should be.
OF_A_WORKER: dict[str, Write] = {
    "a text for last use": lambda rig: rig.redis.set(USED, "x"),
    "a text for the workers": lambda rig: rig.redis.set(WORKERS, "x"),
    "members that are no workers": lambda rig: rig.redis.zadd(
        WORKERS, {b"\xff\xfe%d" % number: 2e12 for number in range(1_000)}
    ),
    "names of no key": lambda rig: rig.redis.mset(
        {"gw:{keys}:key:\r\n\0": "x", "gw:{keys}:account:%ff%00": "x", "gw:{keys}:reset:": "x"}
    ),
}


@pytest.mark.parametrize("write", OF_ONE_KEY.values(), ids=OF_ONE_KEY)
async def test_a_value_that_is_no_record(rig: Rig, write: Write) -> None:
    """Its own key gets 503, others are served, and the worker keeps its connection."""
    async with rig.undisturbed():
        await write(rig)
        await rig.all_are_served()
        assert (await rig.ask(rig.tampered)).status == 503
        await rig.beats(2)


@pytest.mark.parametrize("write", OF_A_WORKER.values(), ids=OF_A_WORKER)
async def test_a_foreign_value(rig: Rig, write: Write) -> None:
    """All clients are served, and the worker keeps its connection."""
    async with rig.undisturbed():
        await write(rig)
        await rig.all_are_served()
        await rig.beats(6)  # every fourth also writes last uses and the worker's registration
        await rig.all_are_served()
    metrics = await rig.gateway.metrics()
    assert "gateway_store_up 1.0" in metrics
    assert "gateway_store_fallback_active 0.0" in metrics


async def test_counters_that_were_tampered_with(rig: Rig) -> None:
    """Changed counters refuse their own key for a window at most; other keys are not affected."""
    # A separate key, as it is refused for a minute.
    key, _ = await add_key(RedisKeyStore(rig.redis), "enterprise", account="counted")
    assert (await rig.ask(key)).status == 200
    names = [name async for name in rig.redis.scan_iter("gw:limit:{counted}*")]
    assert names
    for name in names:
        value = bytearray(await rig.redis.get(name))
        value[26:34] = b"\0\0\0\0\0\0\xf0\x40"  # a total above that of its slots
        await rig.redis.set(name, bytes(value))
    refused, _ = await asyncio.gather(rig.ask(key), rig.all_are_served())
    assert refused.status == 429
    assert "gateway_store_up 1.0" in await rig.gateway.metrics()
    assert "the store cannot decide" not in rig.gateway.output()
