"""Seven reloads under 40 keep-alive clients."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest
from redis.asyncio import Redis

from gateway.stores.keys.store import RedisKeyStore
from tests.end_to_end.conftest import add_key
from tests.end_to_end.test_observed import counted
from tests.hostile.backend import Backend
from tests.hostile.conftest import Serve
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.kit.wire import Wire, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLIENTS, RELOADS = 40, 7
BUDGET = 1_000_000
ROUTES = 'routes:\n  api: {match: "* /**", upstream: api}\n'


async def test_reloads_fail_no_request(
    backend: Backend, serve: Serve, redis_server: RedisServer
) -> None:
    """Edits and SIGHUPs in turn: every answer is 200, and no counter is lost."""
    async with Redis(port=redis_server.port) as client:
        key, _ = await add_key(RedisKeyStore(client), "any")
    gateway = await serve(backend.url, store=redis_server.url, routes=ROUTES)
    statuses: Counter[int] = Counter()
    done = asyncio.Event()

    async def keep_asking() -> None:
        async with await Wire.connect(gateway.port) as wire:
            while not done.is_set():
                statuses[(await wire.request("GET", "/short", bearer(key))).status] += 1

    async def reloads() -> float:
        return await counted(gateway, "gateway_policy_reload_total", result="success")

    async def reload(number: int) -> None:
        """Change the rate, and wait until 40 more answers report the new one."""
        before = await reloads()
        budget = BUDGET + number
        path = gateway.policies / "plans.yaml"
        draft = path.with_suffix(".new")
        draft.write_text(f"plans:\n  any: {{rate: {budget}/hour}}\n")
        draft.replace(path)
        if number % 2:
            gateway.signal(signal.SIGHUP)

        async def is_loaded() -> bool:
            answer = await gateway.fetch("/v1/auth/verify", key=key)
            return answer["X-RateLimit-Limit"] == str(budget)

        await eventually(is_loaded, f"reload {number} is loaded")
        assert await reloads() > before
        enough = statuses.total() + CLIENTS
        await eventually(lambda: statuses.total() >= enough, "requests still flow")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(keep_asking())
        try:
            for number in range(1, RELOADS + 1):
                await reload(number)
        finally:
            done.set()
    print(f"\n{RELOADS} reloads under {CLIENTS} clients: {dict(statuses)}")
    assert set(statuses) == {200}
    answer = await gateway.fetch("/v1/auth/verify", key=key)
    assert int(answer["X-RateLimit-Remaining"]) == BUDGET + RELOADS - statuses.total()
