"""The tap reads what the limiter sends to Redis."""

from __future__ import annotations

import asyncio

from gateway.domain.limits import Check, Decision, Limit
from gateway.stores.limits.limiter import RedisLimiter, probe
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.connection import StoreConnection
from tests.kit.redis_server import RedisServer
from tests.kit.store_tap import StoreTap

PLAN = Limit("plan", "rate", 2, 60_000_000)
DAILY = Limit("daily", "quota", 10, 86_400_000_000)
STREAMS = Limit("streams", "concurrency", 5, 6_000_000)


async def test_it_records_every_decision() -> None:
    """Each check of each batch, with its counters, cost, answer and time; also one with a lease."""
    server = RedisServer().start()
    try:
        async with StoreTap(server.port) as tap:
            link = StoreConnection(parse_url(tap.url), timeout_s=5.0, setup=probe())
            limiter = RedisLimiter(link)
            link.start()
            await link.wait_up()
            tap.decisions.clear()
            plain = Check((PLAN,), ("gw:limit:{a}:plan",))
            both = Check((PLAN, DAILY), ("gw:limit:{a}:plan", "gw:limit:{a}:daily"))
            held = Check((STREAMS, PLAN), ("gw:limit:{b}:streams", "gw:limit:{b}:plan"), lease=7)
            expensive = Check((DAILY,), ("gw:limit:{c}:daily",), cost=4)
            checks = [plain, both, both, held, expensive, plain.at_cost(0)]
            decisions = await asyncio.gather(*(decide(limiter, check) for check in checks))
            # Another script, like those for usage.
            other = (await link.ask("SCRIPT", "LOAD", "return ARGV[1]")).decode()
            assert await link.ask("EVALSHA", other, "1", "gw:usage", "1") == b"1"
            await link.stop()
        assert [found.counters for found in tap.decisions] == [check.counters for check in checks]
        assert [found.cost for found in tap.decisions] == [1, 1, 1, 1, 4, 0]
        assert [found.allowed for found in tap.decisions] == [True, True, False, True, True, True]
        assert [found.at_us for found in tap.decisions] == [one.now_us for one in decisions]
    finally:
        server.stop()


async def decide(limiter: RedisLimiter, check: Check) -> Decision:
    decided: asyncio.Future[Decision | None] = asyncio.get_running_loop().create_future()
    limiter.decide(check, decided.set_result)
    decision = await decided
    assert decision is not None
    return decision
