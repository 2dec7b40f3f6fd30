"""The memory of a key's usage in Redis, as a load test measures it."""

from __future__ import annotations

from redis.asyncio import Redis

from gateway.domain.usage import GRAIN_S, KEPT_S
from loadtests.usage_memory import Taken, expire, fill, moments, table
from tests.kit.redis_server import RedisServer

BEGIN_S = 1_800_000_000


def test_moments() -> None:
    """Each minute of the kept time is in one count, and the last ones are separate counts."""
    times = list(moments(BEGIN_S))
    starts = [at_s for at_s, _ in times]
    assert starts == sorted(set(starts))
    end_s = starts[-1] + 60
    assert sum(minutes for _, minutes in times) * 60 == end_s - starts[0]
    assert end_s - starts[0] > KEPT_S["day"]
    for grain, width_s in GRAIN_S.items():
        kept = [minutes for at_s, minutes in times if at_s >= end_s - KEPT_S[grain]]
        assert max(kept) * 60 <= width_s


async def test_a_store_is_filled(redis_server: RedisServer) -> None:
    """Entries that expire before the end are deleted; the rest has the keys' names."""
    async with Redis(port=redis_server.port) as client:
        times = [(BEGIN_S, 60), (BEGIN_S + 3_600, 60), (BEGIN_S + 7_200, 1)]
        await fill(client, ["a", "b"], [("api", "admitted")], times)
        await expire(client, 0)
        assert len(await client.keys("gw:{keys}:usage:key:a*")) == 4
        assert await client.keys("gw:{keys}:usage:busiest:*") == []
        await expire(client, 10**10)
        assert await client.keys("gw:{keys}:usage:key:*") == []


def test_a_table() -> None:
    """The measurements, and the extrapolation of the largest one to ten thousand keys."""
    found = [Taken(1, 1, 17.0, 1_024.0, 3_072.0), Taken(100, 1, 17.0, 1_024.0, 2_048.0)]
    assert table(found).splitlines()[2:] == [
        "| 1 | 1 | 17 | 1.0 KiB | 3.0 KiB | 0.0 MiB |",
        "| 100 | 1 | 17 | 1.0 KiB | 2.0 KiB | 0.2 MiB |",
        "| 10,000 (extrapolated) | 1 | 17 | | | 20 MiB |",
    ]
