"""What the usage figures of a key take in Redis, once it was used in every minute for 13 months.

    python -m loadtests.usage --memory
    python -m loadtests.usage --memory --keys 1 100 1000

A Redis of its own is filled by the gateway's own scripts, in simulated time that begins now: at its
end minute by minute, as far back as minutes are kept, before that hour by hour, before that day by
day, which leaves the very same buckets as if each minute had been counted. What would have expired
by then is deleted. What each key takes is told in two ways: by MEMORY USAGE of all that bears its
name, and by how much used_memory has grown.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis

from gateway.domain.ports import UsageBatch
from gateway.domain.usage import GRAIN_S, KEPT_S, Counted, Grain, bucket_start
from gateway.stores.names import usage_name
from gateway.stores.usage.scripts import UsageScripts
from gateway.stores.usage.texts import PERIOD_S
from tests.kit.redis_server import RedisServer

#: What becomes of a key's requests, by how many outcomes there are of them.
OUTCOMES: Final = {
    1: [("api", "admitted")],
    3: [("api", "admitted"), ("api", "limited:plan"), ("search", "admitted")],
    10: [
        (route, outcome)
        for route in ("api", "search", "batch", "connectors", "mcp")
        for outcome in ("admitted", "limited:plan")
    ],
}
KEYS: Final = (1, 100)
#: So many keys are extrapolated to, from the most that were measured.
MANY: Final = 10_000
#: Requests a minute of each outcome, at the most.
_REQUESTS: Final = 20
_CHUNK: Final = 500
#: Steps between two merges; a journal is of one minute, so that only their number is less.
_MERGED_TOGETHER: Final = 60


@dataclass(frozen=True, slots=True)
class Taken:
    """What keys take. names: in Redis, of each; named, grown: bytes a key, by both ways"""

    keys: int
    outcomes: int
    names: float
    named: float
    grown: float


async def measure(keys: int, outcomes: int) -> Taken:
    """Fill a Redis with so many keys, and look."""
    server = RedisServer("--slowlog-log-slower-than", "-1").start()
    try:
        async with Redis(port=server.port) as client:
            ids = [f"{at:012d}" for at in range(keys)]
            begin_s = int(time.time())
            times = list(moments(begin_s))
            # What a server takes once for having run the scripts at all is no key's.
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
            await scripts.add(UsageBatch("loadtest", number, at_s, some))
        if step % _MERGED_TOGETHER == 0:
            await scripts.merge("loadtest", at_s + 3_600)
    await scripts.merge("loadtest", times[-1][0] + 3_600)


async def expire(client: Redis, after_s: int) -> None:
    """Delete what is gone so much later, and the busiest keys, which belong to no key."""
    async for name in client.scan_iter(count=1_000):
        if -1 < await client.ttl(name) <= after_s or b":busiest:" in name:
            await client.delete(name)


def moments(begin_s: int) -> Iterator[tuple[int, int]]:
    """When something is counted, and for how many minutes it stands, until all grains are full."""
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
    """What was measured, and what many keys take by it, as a Markdown table."""
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
    """Measure each, and give the table."""

    async def measured() -> list[Taken]:
        return [await measure(count, mix) for mix in outcomes for count in keys]

    return table(asyncio.run(measured()))


async def _used(client: Redis) -> int:
    # The scripts' cache and what clients have in flight are part of it, and small.
    return int((await client.info("memory"))["used_memory"])


def _kib(size: float) -> str:
    return f"{size / 1024:,.1f} KiB"
