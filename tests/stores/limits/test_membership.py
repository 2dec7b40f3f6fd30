"""Which workers are alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway.domain.ports import StoreDown
from gateway.stores.limits import membership as module
from gateway.stores.limits.membership import ALIVE_S, STOP_TIMEOUT_S, Membership
from gateway.stores.names import WORKERS
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.kit.rows import each_row
from tests.stores.limits.test_limiter import linked


def unsent(_encoded: bytes, _done: Callable[[Any], None]) -> None:
    raise AssertionError("nothing is to be sent")


def membership(own_id: str = "m", workers: int = 1) -> Membership:
    return Membership(unsent, workers=workers, own_id=own_id)


@asynccontextmanager
async def told(server: RedisServer, own_id: str) -> AsyncIterator[Membership]:
    """A membership of one worker, with its own connection."""
    async with linked(server) as link:
        found = Membership(link.send, own_id=own_id)
        found.start()
        try:
            yield found
        finally:
            await found.stop()


def test_before_anything_is_known() -> None:
    """At first a worker knows only the workers of its own gateway."""
    assert Membership(unsent, index=2, workers=4).position == (2, 4)


def test_order() -> None:
    """Ranks are the order of the ids, in whatever order they are received."""
    known = membership("m")
    known.update(["z", "m", "a"], 0.0)
    assert known.position == (1, 3)


def test_more_are_believed_at_once() -> None:
    """More workers make the share smaller at once."""
    known = membership()
    for ids, position in ((["m"], (0, 1)), (["m", "a"], (1, 2)), (["m", "a", "b", "x"], (2, 4))):
        known.update(ids, 0.0)
        assert known.position == position


def test_fewer_are_believed_later() -> None:
    """Fewer workers count only after the time that a live worker may be silent."""
    known = membership()
    known.update(["a", "b", "m"], 0.0)
    for now_s in (10.0, 12.0, 10.0 + ALIVE_S - 0.1):
        known.update(["m", "z"], now_s)
        assert known.position == (2, 3)
    known.update(["m", "z"], 10.0 + ALIVE_S)
    assert known.position == (0, 2)


def test_doubt_begins_anew() -> None:
    """If the others are listed again, or the store fails meanwhile, the time restarts."""
    known = membership()
    known.update(["a", "m"], 0.0)
    known.update(["m"], 1.0)
    known.update(["a", "m"], 2.0)
    known.update(["m"], 3.0)
    known.update(["m"], 3.0 + ALIVE_S - 0.1)
    assert known.position == (1, 2)
    known.update_failed()
    known.update(["m"], 20.0)
    assert known.position == (1, 2)
    known.update(["m"], 20.0 + ALIVE_S)
    assert known.position == (0, 1)


def test_alone_after_an_outage() -> None:
    """The first worker to recover keeps its share."""
    known = membership()
    known.update(["a", "b", "c", "m"], 0.0)
    known.update_failed()
    for now_s, ids in ((60.0, ["m"]), (61.0, ["b", "m"]), (62.0, ["a", "b", "m"])):
        known.update(ids, now_s)
        assert known.position == (3, 4)
    known.update(["a", "b", "c", "m"], 63.0)
    assert known.position == (3, 4)


async def test_silence() -> None:
    """An unavailable store or an error changes nothing."""
    answers: list[Any] = [StoreDown("away")]

    def send(_encoded: bytes, done: Callable[[Any], None]) -> None:
        done(answers[0])

    known = Membership(send, index=1, workers=3)
    known.start()
    assert known.position == (1, 3)
    await known.stop()


async def test_a_store_that_does_not_hear_good_bye() -> None:
    """Stopping waits for the store, but not forever."""
    known = Membership(lambda _encoded, _done: None)
    known.start()
    async with asyncio.timeout(20 * STOP_TIMEOUT_S):
        await known.stop()


async def test_several_workers(redis_server: RedisServer) -> None:
    """Workers that share a store find each other, and agree on their ranks."""
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(told(redis_server, own_id)) for own_id in "cab"]
        await eventually(
            lambda: [known.position for known in found] == [(2, 3), (0, 3), (1, 3)], "all agree"
        )


async def test_leaving(redis_server: RedisServer) -> None:
    """A worker that stops is removed from the list at once."""
    async with told(redis_server, "a"), linked(redis_server) as link:
        async with told(redis_server, "b"):
            await eventually_listed(link, [b"a", b"b"])
        assert await link.ask("ZRANGE", WORKERS, 0, -1) == [b"a"]


async def eventually_listed(link: Any, ids: list[bytes]) -> None:
    async def is_listed() -> bool:
        return sorted(await link.ask("ZRANGE", WORKERS, 0, -1)) == ids

    await eventually(is_listed, f"{ids} are listed")


async def test_expired_members_are_dropped(redis_server: RedisServer) -> None:
    """Expired members are dropped, and none expires later than a worker may be silent."""
    async with linked(redis_server) as link:
        now_ms = int((await link.ask("TIME"))[0]) * 1000
        await link.ask("ZADD", WORKERS, now_ms - 1, "dead", now_ms + 3_600_000, "of-the-future")
        async with told(redis_server, "a"):
            await eventually_listed(link, [b"a"])
            assert 0 < await link.ask("PTTL", WORKERS) <= ALIVE_S * 1000


@each_row("reply", [None, 5, b"x", [], [b"a"], [5, None], [b"\xff", b"m\r\n"], [[b"m"]], {b"m": 1}])
async def test_what_is_no_roster(reply: Any) -> None:
    """An invalid answer, or one without the worker itself, changes nothing."""
    known = Membership(lambda _encoded, done: done(reply), index=1, workers=3, own_id="m")
    known.start()
    assert known.position == (1, 3)
    await known.stop()


async def test_foreign_members_are_no_workers(redis_server: RedisServer) -> None:
    """Members that are no ids, from other programs, get no share of the limits."""
    async with linked(redis_server) as link:
        until_ms = (int((await link.ask("TIME"))[0]) + 4) * 1000
        for member in (b"\xff\xfe", b"", b"x\r\ny", b"A" * 100, b"b"):
            await link.ask("ZADD", WORKERS, until_ms, member)
        async with told(redis_server, "a") as known:
            await eventually(lambda: known.position == (0, 2), "one is taken for a worker")


async def test_more_members_than_workers_can_be(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set that grew beyond its bound is replaced, by the live workers."""
    monkeypatch.setattr(module, "MOST_WORKERS", 100)
    async with linked(redis_server) as link:
        until_ms = (int((await link.ask("TIME"))[0]) + 4) * 1000
        members = [word for number in range(101) for word in (until_ms, f"{number:016x}")]
        await link.ask("ZADD", WORKERS, *members)
        async with told(redis_server, "a"), told(redis_server, "b"):
            await eventually_listed(link, [b"a", b"b"])


async def test_a_value_of_another_type(redis_server: RedisServer) -> None:
    """A value of another type is replaced by the set."""
    async with linked(redis_server) as link:
        await link.ask("SET", WORKERS, "x")
        async with told(redis_server, "a"):
            await eventually(lambda: is_set(link), "it is a set")


async def is_set(link: Any) -> bool:
    return bool(await link.ask("TYPE", WORKERS) == b"zset")
