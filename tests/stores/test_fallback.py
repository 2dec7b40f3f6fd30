"""What is done while the store cannot be asked."""

from __future__ import annotations

from collections.abc import Callable

from gateway.domain.limits import Check, Decision, Limit
from gateway.stores.fallback import FallbackLimiter
from gateway.stores.limiter import RedisLimiter
from gateway.stores.memory import MemoryLimiter
from tests.kit.redis_server import RedisServer
from tests.stores.test_limiter import FIVE, FREE, check_of, decided, linked
from tests.suites.limiter import START_US


class Unreachable:
    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        done(None)


def fall_back(mode: str, workers: int = 1) -> FallbackLimiter:
    local = MemoryLimiter(lambda: START_US)
    return FallbackLimiter(Unreachable(), local, lambda: mode, workers=workers)  # type: ignore[arg-type] # any text


async def test_fallback_local() -> None:
    """Through an outage this process counts by itself, and says so."""
    decisions = await decided(fall_back("local"), [check_of(FIVE)] * 6)
    assert [d and (d.allowed, d.local) for d in decisions] == [(True, True)] * 5 + [(False, True)]


async def test_fallback_share() -> None:
    """Of several processes each admits its share, though never less than one request."""
    limiter = fall_back("local", workers=4)
    decisions = await decided(limiter, [check_of(FREE)] * 26)
    assert sum(d is not None and d.allowed for d in decisions) == 25
    assert decisions[0] is not None
    assert decisions[0].remaining == 14
    assert await decided(limiter, [check_of(FIVE).at_cost(5)]) != [None]
    (costly,) = await decided(fall_back("local", workers=4), [check_of(FIVE).at_cost(5)])
    assert costly is not None
    assert costly.allowed


async def test_fallback_open() -> None:
    """Open lets everything pass, shows full allowances and counts nothing."""
    shadow = Limit("shadow", "rate", 1, 60_000_000, shadow=True)
    decisions = await decided(fall_back("open"), [check_of(shadow, FREE, FIVE)] * 300)
    assert {
        d and (d.allowed, d.governing, d.remaining, d.reset_us, d.local) for d in decisions
    } == {(True, 2, 5, 0, True)}


async def test_fallback_closed() -> None:
    """Closed passes on that nothing was decided."""
    assert await decided(fall_back("closed"), [check_of(FIVE)]) == [None]


async def test_fallback_asks_the_store_first(redis_server: RedisServer) -> None:
    """While the store answers, its answer counts."""
    async with linked(redis_server) as link:
        limiter = FallbackLimiter(
            RedisLimiter(link), MemoryLimiter(lambda: START_US), lambda: "local"
        )
        (decision,) = await decided(limiter, [check_of(FIVE)])
    assert decision is not None
    assert not decision.local
