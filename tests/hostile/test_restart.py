"""A gateway that is killed, and its successor."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest
from redis.asyncio import Redis

from gateway.stores.keys.store import RedisKeyStore
from tests.end_to_end.conftest import add_key
from tests.hostile.backend import Backend
from tests.hostile.conftest import Serve
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.kit.wire import Wire, WireError, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROUTES = 'routes:\n  api: {match: "* /**", upstream: api}\n'
CLIENTS, EACH = 8, 25


async def test_a_killed_gateway_is_replaced(
    backend: Backend, serve: Serve, redis_server: RedisServer
) -> None:
    """It is killed under load; its successor on the port continues with the counters.

    A client whose connection broke sends its request again, to the other gateway or the successor;
    no answer is wrong, and no admitted request is lost.
    """
    async with Redis(port=redis_server.port) as client:
        key, _ = await add_key(RedisKeyStore(client), "any")
    dying = await serve(backend.url, store=redis_server.url, routes=ROUTES)
    other = await serve(backend.url, store=redis_server.url, routes=ROUTES)
    statuses: Counter[int] = Counter()
    broken = 0

    async def keep_asking(number: int) -> None:
        nonlocal broken
        ports = [dying.port, other.port]
        for _ in range(EACH):
            while True:
                try:
                    async with await Wire.connect(ports[number % 2]) as wire:
                        statuses[(await wire.request("GET", "/short", bearer(key))).status] += 1
                        break
                except (OSError, WireError):
                    broken += 1
                    number += 1
                    await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            tasks.create_task(keep_asking(number))
        await eventually(lambda: statuses.total() >= CLIENTS, "requests flow")
        dying.signal(signal.SIGKILL)
        await dying.ended()
        successor = await serve(
            backend.url,
            store=redis_server.url,
            ports=(dying.port, dying.admin_port),
            routes=ROUTES,
        )
    assert statuses == {200: CLIENTS * EACH}
    answer = await successor.fetch("/v1/auth/verify", key=key)
    used = 1_000_000 - int(answer["X-RateLimit-Remaining"])
    # A broken request was admitted and counted, though its client got no answer.
    assert CLIENTS * EACH <= used <= CLIENTS * EACH + broken
