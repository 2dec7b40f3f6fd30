"""The store's time in this process: with scripted answers and clocks, and with real ones."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.ports import StoreDown
from gateway.stores.managed import open_managed
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clock import LATEST_US, ClockKeeper, StoreClock
from gateway.stores.redis.errors import translated
from tests.kit.eventually import eventually
from tests.kit.reach import reached, reaches
from tests.kit.redis_server import RedisServer

HOUR = 3_600_000_000
NOW = 1_800_000_000_000_000


class Host:
    """A host whose clocks the test sets. The time of day may step; the other is monotonic."""

    def __init__(self) -> None:
        self.day_us = NOW - HOUR
        self.steady_us = 5_000_000
        self.clock = StoreClock(lambda: self.day_us, lambda: self.steady_us)

    def run(self, micros: int) -> None:
        self.day_us += micros
        self.steady_us += micros

    def ask(self, store_us: int, there_us: int = 0, back_us: int = 0) -> bool:
        """Update the clock. there_us, back_us: the durations of the request and of the answer.

        store_us: the store's time when it answers
        """
        sent_us = self.steady_us
        self.run(there_us + back_us)
        return self.clock.update(sent_us, told(store_us))


def told(store_us: int) -> list[bytes]:
    """Redis's answer to TIME."""
    seconds, micros = divmod(store_us, 1_000_000)
    return [b"%d" % seconds, b"%d" % micros]


def test_before_the_first_answer() -> None:
    """Before the first answer the host's time of day is used, even if it steps."""
    host = Host()
    assert host.clock.now_us() == NOW - HOUR
    host.day_us += 5 * HOUR
    assert host.clock.now_us() == NOW + 4 * HOUR


def test_the_clock_is_the_stores() -> None:
    """After the first answer the clock is the store's, advanced by the monotonic clock."""
    host = Host()
    assert host.ask(NOW)
    assert host.clock.now_us() == NOW
    host.run(HOUR)
    assert host.clock.now_us() == NOW + HOUR


@pytest.mark.parametrize("step_us", [-HOUR, HOUR, 10_000 * HOUR])
def test_a_step_of_the_host_changes_nothing(step_us: int) -> None:
    """Steps of the host's time of day have no effect, also during a long outage."""
    host = Host()
    host.ask(NOW)
    host.day_us += step_us
    assert host.clock.now_us() == NOW
    host.run(30 * HOUR)
    assert host.clock.now_us() == NOW + 30 * HOUR


def test_a_step_of_the_store_is_followed() -> None:
    """The clock follows the store, also to a server whose clock is behind or ahead."""
    host = Host()
    for store_us in (NOW, NOW - HOUR, NOW + HOUR):
        host.ask(store_us)
        assert host.clock.now_us() == store_us


trips = st.lists(
    st.tuples(st.integers(0, 2_000_000), st.integers(0, 500_000), st.integers(0, 500_000)),
    min_size=1,
)


@reaches(0.3)
@given(trips, st.integers(-(10**9), 10**9))
def test_it_is_wrong_by_a_round_trip_at_most(
    trips: list[tuple[int, int, int]], ahead_us: int
) -> None:
    """The error is at most the round trip, and no correction is larger than the error before it."""
    host = Host()
    first_us = host.steady_us
    for pause_us, there_us, back_us in trips:
        host.run(pause_us)
        store_us = NOW + ahead_us + host.steady_us - first_us + there_us
        before_us = host.clock.now_us() - host.steady_us
        known = host.clock._ahead_us is not None
        host.ask(store_us, there_us, back_us)
        true_us = store_us + back_us
        reached()
        assert abs(host.clock.now_us() - true_us) <= there_us + back_us
        if known:
            moved_us = abs(host.clock.now_us() - host.steady_us - before_us)
            wrong_us = abs(before_us - (true_us - host.steady_us))
            assert moved_us <= wrong_us


def test_consistent_answers_change_nothing() -> None:
    """An answer that is consistent with the clock does not change it."""
    host = Host()
    host.ask(NOW, 100, 100)
    moments = []
    for there_us, back_us in ((500, 0), (0, 500), (900, 900)):
        host.run(1_000_000)
        before_us = host.clock.now_us()
        host.ask(before_us + there_us, there_us, back_us)
        moments.append(host.clock.now_us() - host.steady_us)
    assert all(first == second for first, second in pairwise(moments))


@pytest.mark.parametrize(
    "reply",
    [
        *(None, 5, b"1800000000", [], [b"1800000000"], [b"1", b"2", b"3"], [1_800_000_000, 0]),
        *([b"-1", b"0"], [b"1e9", b"0"], [b"", b""], [b"\xb2", b"0"], [b"1" * 5_000, b"0"]),
        [b"%d" % (LATEST_US // 1_000_000 + 1), b"0"],
        StoreDown("away"),
    ],
    ids=lambda reply: repr(reply)[:30],
)
def test_invalid_times(reply: Any) -> None:
    """An impossible time is not used."""
    host = Host()
    assert not host.clock.update(host.steady_us, reply)
    assert host.clock.now_us() == NOW - HOUR
    host.ask(NOW)
    assert not host.clock.update(host.steady_us, reply)
    assert host.clock.now_us() == NOW


async def test_a_keeper_asks_on_request() -> None:
    """`sync` asks the store at once, and raises if the store does not answer."""
    host, answers = Host(), [told(NOW), b"x"]

    async def ask() -> object:
        if not answers:
            raise StoreDown("away")
        return answers.pop(0)

    keeper = ClockKeeper(host.clock, ask)
    await keeper.sync()
    assert host.clock.now_us() == NOW
    for words in ("reply to TIME is not a time", "away"):
        with pytest.raises(StoreDown, match=words):
            await keeper.sync()
    assert host.clock.now_us() == NOW
    await keeper.stop()


async def test_a_keeper_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper continues after errors of the store."""
    monkeypatch.setattr("gateway.stores.redis.clock.REFRESH_S", 0.0)
    host, asked = Host(), 0

    async def ask() -> object:
        nonlocal asked
        asked += 1
        if asked < 5:
            raise StoreDown("away")
        return told(NOW)

    keeper = ClockKeeper(host.clock, ask)
    keeper.start()
    try:
        await eventually(lambda: host.clock.now_us() == NOW, "the store is heard")
    finally:
        await keeper.stop()


async def test_a_keeper_ends_though_its_cancellation_is_ignored() -> None:
    """Stopping completes, even if the store's client ignores its cancellation."""
    asking = asyncio.Event()

    @translated()
    async def ask() -> object:
        asking.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return told(NOW)

    keeper = ClockKeeper(StoreClock(), ask)
    keeper.start()
    await asking.wait()
    await asyncio.wait_for(keeper.stop(), 20)


async def test_management_uses_the_stores_time(redis_server: RedisServer) -> None:
    """Commands and the console use the store's time, whatever the host's time of day is."""
    async with open_managed(parse_url(redis_server.url), lambda: 0) as stores:
        await stores.sync()
        with redis_server.client() as client:
            seconds, _ = client.time()
        assert abs(stores.clock_us() // 1_000_000 - seconds) <= 1


async def test_without_the_store_the_hosts_time_is_used() -> None:
    """Without the store the host's time is used, until the store answers."""
    server = RedisServer()
    async with open_managed(parse_url(server.url), lambda: 7) as stores:
        with pytest.raises(StoreDown):
            await stores.sync()
        assert stores.clock_us() == 7
        try:
            server.start()
            await eventually(lambda: stores.clock_us() > NOW // 2, "the store is heard")
        finally:
            server.stop()
