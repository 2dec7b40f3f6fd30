"""What is measured. Each round has a Redis, endpoints and a courier of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from redis import Redis

from gateway.stores.webhooks.queue import SHARDS, Attempt, Claimed
from loadtests.deliver.beside import RATE, Requests, core_apart, costs, requests_of_a_gateway
from loadtests.deliver.site import Site, courier, naive, open_site
from tests.kit.ports import free_port

#: Figures of a round by what they are: "deliveries a second".
Round = dict[str, float]
#: The part of the deliveries between which a rate is measured: the start and the end are left out.
_FROM, _TO = 0.1, 0.95
#: Of the accepted events, that many are claimed at a time where Redis alone is measured.
_CLAIMED: Final = 64
#: Watches of an integration, where there are many endpoints.
_EACH: Final = 50
#: Of the CPU times that the kernel counts.
_TICK_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much a round does. Rates are deliveries a second; times are seconds.

    endpoints: a tenth of them is dead where some are; slow and many ones have numbers of their own
    """

    endpoints: int = 200
    quick: int = 12_000
    slow: int = 6_000
    slots: int = 1_000
    some_dead: int = 8_000
    steady: float = 300.0
    steady_s: float = 8.0
    many: int = 200
    redis: int = 5_000
    turns: int = 20
    requests: int = 800

    def scaled(self, by: float) -> Sizes:
        """For a trial."""
        its = {each.name: getattr(self, each.name) * by for each in fields(self)}
        steady = {"steady": self.steady, "steady_s": max(1.0, its["steady_s"])}
        kept = {"endpoints": self.endpoints, **steady}
        return Sizes(**{name: kept.get(name, max(2, int(value))) for name, value in its.items()})


async def quick(sizes: Sizes) -> Round:
    """Endpoints of 1 ms."""
    async with _opened() as (site, folder), courier(site, folder):
        endpoints = await site.endpoints("quick", sizes.endpoints)
        return await _drained(site, endpoints, sizes.quick)


async def naively(sizes: Sizes) -> Round:
    """Endpoints of 1 ms and a worker that promises nothing."""
    async with _opened() as (site, folder), naive(site, folder):
        urls = [site.url("1", str(number)) for number in range(sizes.endpoints)]
        site.queue_naively(urls, len(urls))
        await site.arrived(len(urls))
        with site.paused():
            site.queue_naively(urls, sizes.quick)
        return await _rates(site, len(urls), sizes.quick)


async def slow(sizes: Sizes) -> Round:
    """Endpoints of 1 s."""
    async with _opened() as (site, folder), courier(site, folder, slots=sizes.slots):
        endpoints = await site.endpoints("slow", sizes.slots // 4, delay="1000")
        return await _drained(site, endpoints, sizes.slow)


async def some_dead(sizes: Sizes) -> Round:
    """The healthy ones before and after as many as a tenth are dead, and then at a steady rate."""
    async with _opened() as (site, folder), courier(site, folder):
        few = sizes.endpoints // 10
        healthy = await site.endpoints("healthy", sizes.endpoints - few)
        before = (await _drained(site, healthy, sizes.some_dead))["deliveries/s"]
        dead = [
            await site.integration(f"dead{number}", [_dead(site, number)]) for number in range(few)
        ]
        done = (await site.figures()).count
        with site.paused():
            await site.accept(_turns([*healthy, *dead], sizes.some_dead * 10 // 9))
        found = await _rates(site, done, sizes.some_dead)
        rate = found["deliveries/s"]
        ages = await _steady(site, healthy, dead, sizes, each=1)
        return {
            "deliveries/s of healthy ones, none dead": before,
            "deliveries/s of healthy ones": rate,
            "share of the undisturbed rate (%)": 100 * rate / before,
            **ages,
        }


async def many(sizes: Sizes) -> Round:
    """50 times as many endpoints, of which half hang; the others have answered before."""
    async with _opened() as (site, folder), courier(site, folder):
        healthy = await site.endpoints("healthy", sizes.many // 2, each=_EACH)
        count = _EACH * len(healthy)
        await site.accept(healthy)
        await site.arrived(count)
        hanging = await site.endpoints("hanging", sizes.many // 2, each=_EACH, delay="hang")
        # Each of them has a delivery in flight or waiting, from now on.
        await site.accept(hanging)
        return await _steady(site, healthy, hanging, sizes, each=_EACH)


async def beside(sizes: Sizes) -> Round:
    """Requests through a gateway, while its courier delivers, another's does, or none."""
    with core_apart() as core:
        async with (
            _opened() as (site, folder),
            requests_of_a_gateway(site, folder, core) as requests,
            _opened() as (other, other_folder),
            courier(other, other_folder),
        ):
            return await _beside(site, other, requests, sizes)


async def _beside(site: Site, other: Site, requests: Requests, sizes: Sizes) -> Round:
    for each in (site, other):
        endpoints = await each.endpoints("quick", sizes.endpoints)
        await each.accept(endpoints)
        await each.arrived(sizes.endpoints)
    names = _turns(endpoints, int(60 * RATE))
    alone, own, others = await costs(
        requests, (None, site, other), names, sizes.turns, sizes.requests
    )
    return {
        "us of a worker's CPU for a request, no deliveries": alone.cost_us,
        "us of it beside deliveries of its courier": own.cost_us,
        "us of it beside those of another gateway's": others.cost_us,
        "more by its own courier (%)": 100 * own.more_than(others),
        "deliveries/s of its courier": own.delivered / own.seconds,
        "deliveries/s of the other one": others.delivered / others.seconds,
    }


async def redis_alone(sizes: Sizes) -> Round:
    """The scripts, without a courier: events of one delivery."""
    async with _opened() as (site, _), asyncio.timeout(60):
        endpoints = await site.endpoints("quick", sizes.endpoints)
        with site.server.client() as client:
            nothing = _used(client)
            await site.accept(endpoints)  # The scripts are loaded.
            empty = _used(client)
            found: Round = {}
            client.config_resetstat()
            await site.accept(_turns(endpoints, sizes.redis))
            found["us to accept"] = _spent_us(client) / sizes.redis
            found["bytes of an event that waits"] = (_used(client) - empty) / sizes.redis
            claim_us = finish_us = 0.0
            deliveries = sizes.endpoints + sizes.redis
            finished = 0
            while finished < deliveries:
                client.config_resetstat()
                claimed = await _claim_all(site)
                claim_us += _spent_us(client)
                client.config_resetstat()
                for shard, each in claimed:
                    assert await _finish(site, shard, each)
                finish_us += _spent_us(client)
                finished += len(claimed)
            found["us to claim a delivery"] = claim_us / deliveries
            found["us to finish a delivery"] = finish_us / deliveries
            found["bytes of an event that is over"] = (_used(client) - nothing) / deliveries
        return found


SCENARIOS: Final = {
    "1 ms": quick,
    "1 ms, naive worker": naively,
    "1 s, 1,000 slots": slow,
    "10 % dead": some_dead,
    "10,000 endpoints, half hang": many,
    "requests beside it": beside,
    "Redis alone": redis_alone,
}


@asynccontextmanager
async def _opened() -> AsyncIterator[tuple[Site, Path]]:
    with tempfile.TemporaryDirectory(prefix="gateway-deliver-") as folder:
        async with open_site(Path(folder)) as site:
            yield site, Path(folder)


async def _drained(site: Site, endpoints: Sequence[str], count: int) -> Round:
    """How quickly a backlog is delivered, once each endpoint has answered."""
    await site.accept(endpoints)
    await site.arrived(len(endpoints))
    with site.paused():
        await site.accept(_turns(endpoints, count))
    return await _rates(site, len(endpoints), count)


async def _rates(site: Site, done: int, count: int) -> Round:
    """Of a backlog that is being delivered. done: deliveries before it"""
    began = (await site.arrived(done + int(_FROM * count))).count
    first = site.spent()
    ended = (await site.arrived(done + int(_TO * count))).count
    last = site.spent()
    figures = await site.arrived(done + count)
    number = max(1, ended - began)
    # The kernel counts CPU time in steps of 10 ms, which a short trial may not reach.
    worker_s = max(last.worker_s - first.worker_s, _TICK_S)
    redis_s = last.redis_s - first.redis_s
    return {
        "deliveries/s": number / max(last.at - first.at, _TICK_S),
        "deliveries/s of the worker's CPU": number / worker_s,
        "us of the worker's CPU for a delivery": 1e6 * worker_s / number,
        "us of Redis' CPU for a delivery": 1e6 * redis_s / number,
        "lost": done + count - figures.count,
        "duplicates": figures.duplicates,
    }


async def _steady(
    site: Site, healthy: Sequence[str], others: Sequence[str], sizes: Sizes, *, each: int
) -> Round:
    """How old events are when they arrive. each: deliveries of an event"""
    done = (await site.figures()).count
    # Evenly mixed.
    step = len(healthy) // len(others)
    turns = [
        name
        for number, other in enumerate(others)
        for name in (*healthy[number * step : (number + 1) * step], other)
    ]
    rate = max(1.0, sizes.steady / each)
    names = _turns(turns, int(rate * sizes.steady_s))
    await site.steadily(names, rate)
    known = frozenset(healthy)
    count = each * sum(name in known for name in names)
    await site.arrived(done + count)
    figures = await site.figures(done)
    ages = sorted(figures.ages_ms)
    return {
        "deliveries/s offered": rate * each,
        "ms to the first attempt, p50": ages[len(ages) // 2],
        "ms to the first attempt, p99": ages[int(0.99 * len(ages))],
        "requests that hang": figures.hung,
        "lost": done + count - figures.count,
        "duplicates": figures.duplicates,
    }


def _turns(names: Sequence[str], count: int) -> list[str]:
    return [names[number % len(names)] for number in range(count)]


def _dead(site: Site, number: int) -> str:
    """Every other one hangs, and the others refuse connections."""
    return site.url("hang", "x") if number % 2 else f"https://127.0.0.1:{free_port()}/x"


async def _claim_all(site: Site) -> list[tuple[int, Claimed]]:
    """What is due in any shard and may begin."""
    found: list[tuple[int, Claimed]] = []
    for shard in range(SHARDS):
        claim = await site.stores.queues[shard].claim(f"{shard}", _CLAIMED, _CLAIMED)
        found += [(shard, each) for each in claim.deliveries]
    return found


async def _finish(site: Site, shard: int, delivery: Claimed) -> bool:
    attempt = Attempt(1, 5, 200, "ok")
    return await site.stores.queues[shard].finish(delivery, "delivered", attempt) is not None


def _spent_us(client: Redis) -> float:
    """What scripts have taken since RESETSTAT."""
    stats = client.info("commandstats")
    return sum(float(stats[name]["usec"]) for name in ("cmdstat_evalsha",) if name in stats)


def _used(client: Redis) -> int:
    return int(client.info("memory")["used_memory"])
