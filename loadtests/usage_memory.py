"""Measures the memory in Redis for the usage of a key that was used every minute for 13 months.

    python -m loadtests.usage --memory
    python -m loadtests.usage --memory --keys 1 100 1000

A separate Redis is filled by the gateway's own scripts, in simulated time that begins now: at its
end minute by minute, as far back as minutes are kept, before that hour by hour, before that day by
day, which leaves the same buckets as counting each minute. Expired entries are deleted. The memory
of a key is measured in two ways: by MEMORY USAGE of all its names, and by the growth of
used_memory.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis

from gateway.domain.latency import count
from gateway.domain.ports import UsageBatch
from gateway.domain.usage import GRAIN_S, KEPT_S, Counted, Grain, Measures, bucket_start
from gateway.stores.names import usage_name
from gateway.stores.usage.scripts import UsageScripts
from gateway.stores.usage.texts import PERIOD_S
from tests.kit.redis_server import RedisServer

#: Number of outcomes -> the outcomes of a key's requests.
OUTCOMES: Final = {
    1: [("api", "admitted:2xx")],
    3: [("api", "admitted:2xx"), ("api", "limited:plan"), ("search", "admitted:2xx")],
    10: [
        (route, outcome)
        for route in ("api", "search", "batch", "connectors", "mcp")
        for outcome in ("admitted:2xx", "limited:plan")
    ],
}
KEYS: Final = (1, 100)
#: The number of keys to extrapolate to, from the largest measured number.
MANY: Final = 10_000
#: Requests a minute of each outcome, at most.
_REQUESTS: Final = 20
_CHUNK: Final = 500
#: The latencies that are drawn for a count; more would be in the same buckets.
_MOST_LATENCIES: Final = 1_000
#: Steps between two merges; a journal covers one minute, so this only reduces their number.
_MERGED_TOGETHER: Final = 60


@dataclass(frozen=True, slots=True)
class Taken:
    """The memory of keys. names: in Redis, per key; named, grown: bytes per key, in both ways"""

    keys: int
    outcomes: int
    names: float
    named: float
    grown: float


async def measure(keys: int, outcomes: int) -> Taken:
    """Fill a Redis with this number of keys, and measure."""
    server = RedisServer("--slowlog-log-slower-than", "-1").start()
    try:
        async with Redis(port=server.port) as client:
            ids = [f"{at:012d}" for at in range(keys)]
            begin_s = int(time.time())
            times = list(moments(begin_s))
            # Run once before measuring: the first run of the scripts takes memory itself.
            await fill(client, ids, OUTCOMES[outcomes], times[-1:])
            await client.flushall()
            before = await _used(client)
            await fill(client, ids, OUTCOMES[outcomes], times)
            await expire(client, times[-1][0] - begin_s)
            names = [name async for name in client.scan_iter(f"{usage_name('key:')}*", count=1_000)]
            grown = await _used(client) - before
            named = sum([await client.memory_usage(name, samples=0) for name in names])
            return Taken(keys, outcomes, len(names) / keys, named / keys, grown / keys)
    finally:
        server.stop()


async def fill(
    client: Redis,
    ids: Sequence[str],
    names: Sequence[tuple[str, str]],
    times: Sequence[tuple[int, int]],
) -> None:
    choose = random.Random(len(ids))
    scripts = UsageScripts(client.execute_command)
    scripts.pause_s = 0
    number = 0
    for step, (at_s, minutes) in enumerate(times):
        counts: dict[Counted, int] = {
            (f"key:{key_id}", route, outcome): minutes * choose.randrange(1, _REQUESTS)
            for key_id in ids
            for route, outcome in names
        }
        items = list(counts.items())
        for start in range(0, len(items), _CHUNK):
            number += 1
            some = dict(items[start : start + _CHUNK])
            measures = {
                (subject, route): _measures(choose, requests)
                for (subject, route, outcome), requests in some.items()
                if outcome.startswith("admitted")
            }
            await scripts.add(UsageBatch("loadtest", number, at_s, some, measures))
        if step % _MERGED_TOGETHER == 0:
            await scripts.merge("loadtest", at_s + 3_600)
    await scripts.merge("loadtest", times[-1][0] + 3_600)


def _measures(choose: random.Random, requests: int) -> Measures:
    """Latencies around 50 ms, as of a database behind an API, and bodies of 2 KB."""
    seconds = [choose.lognormvariate(-3.0, 0.6) for _ in range(min(requests, _MOST_LATENCIES))]
    return Measures(0, requests * choose.randrange(1_000, 3_000), count(seconds))


async def expire(client: Redis, after_s: int) -> None:
    """Delete what has expired after this time, and the busiest keys, which belong to no key."""
    async for name in client.scan_iter(count=1_000):
        if -1 < await client.ttl(name) <= after_s or b":busiest:" in name:
            await client.delete(name)


def moments(begin_s: int) -> Iterator[tuple[int, int]]:
    """The times of counts, and the minutes that each represents, until all grains are full."""
    kept_s = {grain: KEPT_S[grain] + PERIOD_S[grain] for grain in GRAIN_S}
    end_s = begin_s + kept_s["day"]
    hours_s, minutes_s = (
        bucket_start("day", end_s - kept_s[grain]) for grain in ("hour", "minute")
    )
    spans: list[tuple[int, int, Grain]] = [
        (bucket_start("day", begin_s), hours_s, "day"),
        (hours_s, minutes_s, "hour"),
        (minutes_s, end_s, "minute"),
    ]
    for start_s, end_s, grain in spans:
        for at_s in range(start_s, end_s, GRAIN_S[grain]):
            yield at_s, GRAIN_S[grain] // GRAIN_S["minute"]


def table(found: Sequence[Taken]) -> str:
    """The results, and their extrapolation to many keys, as a Markdown table."""
    lines = [
        "| keys | outcomes | names a key | MEMORY USAGE a key | used_memory a key | in all |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in found:
        lines.append(
            f"| {one.keys:,} | {one.outcomes} | {one.names:.0f} | {_kib(one.named)} "
            f"| {_kib(one.grown)} | {one.keys * one.grown / 2**20:,.1f} MiB |"
        )
    most = max(one.keys for one in found)
    for one in found:
        if one.keys == most:
            lines.append(
                f"| {MANY:,} (extrapolated) | {one.outcomes} | {one.names:.0f} | | "
                f"| {MANY * one.grown / 2**20:,.0f} MiB |"
            )
    return "\n".join(lines)


def run(keys: Sequence[int], outcomes: Sequence[int]) -> str:
    """Measure each, and return the table."""

    async def measured() -> list[Taken]:
        return [await measure(count, mix) for mix in outcomes for count in keys]

    return table(asyncio.run(measured()))


async def _used(client: Redis) -> int:
    # It includes the scripts' cache and clients' buffers, which are small.
    return int((await client.info("memory"))["used_memory"])


def _kib(size: float) -> str:
    return f"{size / 1024:,.1f} KiB"
