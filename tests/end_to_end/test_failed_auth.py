"""Clients that try keys: the limit of their address, over all workers."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter

import pytest

from gateway.domain.key_format import mint
from tests.end_to_end.conftest import Serve
from tests.kit.redis_server import RedisServer
from tests.kit.wire import Wire, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMIT = 640


def decisions(server: RedisServer) -> int:
    """How many scripts the store has run."""
    with server.client() as client:
        return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


async def test_a_flood_of_bad_keys(serve: Serve) -> None:
    """No more than the limit are answered with 401, close to it; the store decides fewer."""
    server = RedisServer().start()
    try:
        gateway = await serve(
            *("--workers", "2"),
            store=server.url,
            gateway=f"failed_auth: {{rate: {LIMIT}/minute}}\n",
        )
        seen = Counter[int]()

        async def tries() -> None:
            async with await Wire.connect(gateway.port) as wire:
                for _ in range(100):
                    key, _ = mint("production", secrets.randbelow)
                    answer = await wire.request("GET", "/api/x", bearer(key))
                    seen[answer.status] += 1
                    assert int(answer["X-RateLimit-Limit"]) == LIMIT
                    assert 0 <= int(answer["X-RateLimit-Remaining"]) < LIMIT

        before = decisions(server)
        await asyncio.gather(*(tries() for _ in range(12)))
        assert set(seen) == {401, 429}
        assert seen.total() == 1_200
        # What a worker counted ahead and had no use for is lost: at most a sixteenth at a time.
        assert LIMIT * 3 // 4 <= seen[401] <= LIMIT
        assert decisions(server) - before < seen[401]
    finally:
        server.stop()
