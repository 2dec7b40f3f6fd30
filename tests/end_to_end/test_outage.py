"""An outage of the store as clients and operators see it."""

from __future__ import annotations

import re

import pytest
from redis.asyncio import Redis

from gateway.domain.keys import KeyRecord
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.names import WORKERS, key_name
from tests.end_to_end.conftest import Serve, add_key, build_key
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.wire import Response, Wire, bearer, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: The checks that the limiter sent to the store.
CHECKS = "gateway_ratelimit_batch_size_sum"
WITH_HEADER = "headers: {fallback: true}\n"


async def ask(served: ServedGateway, key: str, times: int) -> list[Response]:
    """Send this many requests on one connection."""
    async with await Wire.connect(served.port) as wire:
        return [await wire.request("GET", "/api/x", bearer(key)) for _ in range(times)]


async def all_know_of(client: Redis, workers: int) -> None:
    """Wait until every worker has registered in the store and knows all others."""
    listed: dict[bytes, float] = {}

    async def is_listed() -> bool:
        nonlocal listed
        listed = dict(await client.zrange(WORKERS, 0, -1, withscores=True))
        return len(listed) == workers

    async def all_registered_again() -> bool:
        again = dict(await client.zrange(WORKERS, 0, -1, withscores=True))
        return all(again.get(worker, 0) > until for worker, until in listed.items())

    await eventually(is_listed, f"{workers} workers are listed")
    await eventually(all_registered_again, "all have registered again")


async def number(served: ServedGateway, line: str) -> float:
    """The value of a metric; 0 if it has none."""
    found = re.search(rf"^{re.escape(line)} (\S+)$", await served.metrics(), re.MULTILINE)
    return float(found[1]) if found else 0.0


async def lose_all_but(client: Redis, record: KeyRecord) -> None:
    """FLUSHALL, after which the store has only this key, at no moment without it.

    Without the transaction a gateway may look the key up between both, and end its streams.
    """
    name = key_name(record.id)
    kept = await client.dump(name)
    async with client.pipeline(transaction=True) as pipe:
        pipe.flushall()
        pipe.restore(name, 0, kept)
        await pipe.execute()


async def test_outage(serve: Serve) -> None:
    """In an outage two gateways together admit the limit once more, and account for it."""
    server = RedisServer(*DURABLE).start()
    try:
        async with Redis(port=server.port) as client:
            key, _ = await add_key(RedisKeyStore(client), "free")
            served = [await serve(store=server.url, settings=WITH_HEADER) for _ in range(2)]
            await all_know_of(client, 2)
        before = [response for one in served for response in await ask(one, key, 5)]
        assert {response.maybe("X-RateLimit-Fallback") for response in before} == {None}

        server.kill()
        for one in served:
            await eventually(lambda one=one: is_down(one), "the loss is noticed")  # type: ignore[misc]
        during = [response for one in served for response in await ask(one, key, 60)]
        assert [response.status for response in during].count(200) == 100
        assert {response.status for response in during} == {200, 429}
        assert {response["X-RateLimit-Fallback"] for response in during} == {"local"}
        assert {response["X-RateLimit-Limit"] for response in during} == {"60"}
        assert (await served[0].fetch("/api/x", key=build_key("free")[0])).status == 503

        server.start()
        for one in served:
            await eventually(lambda one=one: is_healthy(one), "the store is available again")  # type: ignore[misc]
        after = [response for one in served for response in await ask(one, key, 2)]
        assert {(r.status, r.maybe("X-RateLimit-Fallback")) for r in after} == {(429, None)}
        beyond = [
            await number(one, 'gateway_ratelimit_overadmitted_total{limit="plan"}')
            for one in served
        ]
        assert sum(beyond) == 10
        for one in served:
            assert (
                "store unavailable: deciding by on_store_failure: local, share 1 of 2"
                in one.output()
            )
            assert "units were written back" in one.output()
    finally:
        server.stop()


async def is_down(served: ServedGateway) -> bool:
    answer = await fetch(served.admin_port, "/readyz")
    store = answer.json()["checks"]["store"]
    if store == "ok":
        return False
    assert answer.status == 200
    assert re.fullmatch(r"down for \d+ s: .+; on_store_failure: local, share 1 of 2", store), store
    await eventually(lambda: has(served, "gateway_store_fallback_active", 1), "the metric shows it")
    return await has(served, "gateway_store_up", 0)


async def is_healthy(served: ServedGateway) -> bool:
    answer = await fetch(served.admin_port, "/readyz")
    return answer.json()["checks"]["store"] == "ok" and await has(
        served, "gateway_store_fallback_active", 0
    )


async def has(served: ServedGateway, line: str, value: float) -> bool:
    return await number(served, line) == value


async def test_open(serve: Serve) -> None:
    """With `open` every request is admitted without the store, and its answer says so."""
    server = RedisServer().start()
    try:
        async with Redis(port=server.port) as client:
            key, _ = await add_key(RedisKeyStore(client), "free")
        served = await serve(store=server.url, settings=WITH_HEADER + "on_store_failure: open\n")
        await ask(served, key, 1)
        server.kill()
        responses = await ask(served, key, 150)
        assert {response.status for response in responses} == {200}
        assert responses[-1]["X-RateLimit-Fallback"] == "open"
    finally:
        server.stop()


async def test_the_fallback_header_is_off_by_default(serve: Serve) -> None:
    """The header is off by default."""
    server = RedisServer().start()
    try:
        async with Redis(port=server.port) as client:
            key, _ = await add_key(RedisKeyStore(client), "free")
        served = await serve(store=server.url)
        await ask(served, key, 1)
        server.kill()
        responses = await ask(served, key, 3)
        assert {response.status for response in responses} == {200}
        assert {response.maybe("X-RateLimit-Fallback") for response in responses} == {None}
    finally:
        server.stop()


async def test_refusals_need_no_store(serve: Serve) -> None:
    """Until the retry time of a refusal the store is not called, unless its data was deleted."""
    server = RedisServer().start()
    try:
        async with Redis(port=server.port) as client:
            key, record = await add_key(RedisKeyStore(client), "free")
            served = await serve(store=server.url)
            assert (await ask(served, key, 101))[-1].status == 429

            # Not the store's count of scripts: usage and warnings are written by scripts as well.
            asked = await number(served, CHECKS)
            assert asked == 101
            refused = await ask(served, key, 50)
            assert {response.status for response in refused} == {429}
            assert await number(served, CHECKS) == asked
            await lose_all_but(client, record)

            async def is_admitted() -> bool:
                return (await ask(served, key, 1))[0].status == 200

            await eventually(is_admitted, "the refusal is no longer cached")
    finally:
        server.stop()
