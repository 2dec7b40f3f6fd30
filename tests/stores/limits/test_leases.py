"""Leases: taken with the decision, renewed during their requests, released, or expired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.limits import LEASE_US, SECOND_US, Check, Decision, Limit, Member
from gateway.domain.ports import Review
from gateway.limiting.fallback import FallbackLimiter
from gateway.limiting.memory import MemoryLimiter
from gateway.stores.limits.leases import (
    BATCH_LEASES,
    MOST_COUNTERS,
    RENEW_S,
    LeaseKeeper,
    RedisLeases,
)
from gateway.stores.limits.limiter import RedisLimiter
from gateway.stores.redis.connection import StoreConnection
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.kit.tiers import examples
from tests.stores.limits.test_limiter import FIVE, check_of, decided, linked
from tests.suites.limiter import START_US

HELD = Limit("held", "concurrency", 5, LEASE_US)
CHECK = check_of(HELD)
(NAME,) = CHECK.counters


class Book:
    """Records its calls."""

    def __init__(self) -> None:
        self.renewed: list[tuple[str, set[Member]]] = []
        self.released: list[tuple[str, Member]] = []

    def renew(self, name: str, members: Collection[Member]) -> None:
        self.renewed.append((name, set(members)))

    def release(self, name: str, member: Member) -> None:
        self.released.append((name, member))


class Rig:
    """A keeper around a limiter of the test's process, and the clock of both."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.store = Book()
        self.limiter = MemoryLimiter(lambda: START_US + int(self.now_s * SECOND_US))
        self.keeper = self.another()

    def another(self) -> LeaseKeeper:
        """One more gateway on the same counter."""
        return LeaseKeeper(self.limiter, (self.limiter, self.store), lambda: self.now_s)

    def open(self, number: int, check: Check = CHECK) -> bool:
        decisions: list[Decision | None] = []
        self.keeper.decide(check.leased(number), decisions.append)
        (decision,) = decisions
        return decision is not None and decision.allowed


def test_what_has_no_lease_passes_untouched() -> None:
    """A check without a lease goes directly to the limiter, with the caller's own callback."""
    asked: list[tuple[Check, Any]] = []

    class Limiter:
        def decide(self, check: Check, done: Any) -> None:
            asked.append((check, done))

    keeper = LeaseKeeper(Limiter(), (), lambda: 0.0)
    check, done = check_of(FIVE), print
    keeper.decide(check, done)
    assert asked == [(check, done)]
    keeper.release(check)
    assert keeper.held == 0


def test_renewed_while_held() -> None:
    """Held leases are renewed every two seconds, and so outlive the time of a lease."""
    rig = Rig()
    assert [rig.open(number) for number in range(1, 7)] == [True] * 5 + [False]
    for _ in range(10):
        rig.now_s += RENEW_S
        rig.keeper.renew_due()
    assert rig.store.renewed == [(NAME, {1, 2, 3, 4, 5})] * 10
    assert not rig.open(7)


def test_lapses_with_its_keeper() -> None:
    """Without renewals all leases end after the time of a lease, not before."""
    rig = Rig()
    assert all(rig.open(number) for number in range(1, 6))
    rig.now_s += LEASE_US / SECOND_US - 0.001
    assert not rig.open(6)
    rig.now_s += 0.001
    assert rig.open(7)


def test_given_back_once() -> None:
    """The end of a request releases its lease at once; ending it again changes nothing."""
    rig = Rig()
    checks = [CHECK.leased(number) for number in range(1, 6)]
    assert all(rig.open(check.lease) for check in checks)
    for _ in range(2):
        rig.keeper.release(checks[2])
    assert rig.store.released == [(NAME, 3)]
    assert (rig.open(6), rig.open(7)) == (True, False)
    for check in checks:
        rig.keeper.release(check)
    rig.keeper.release(CHECK.leased(6))
    rig.now_s += RENEW_S
    rig.keeper.renew_due()
    assert (rig.keeper.held, rig.store.renewed) == (0, [])


def test_what_was_not_granted_is_not_held() -> None:
    """A refusal or a missing decision leaves nothing to renew or release."""
    rig = Rig()
    for number in range(1, 7):
        rig.open(number)
    assert rig.keeper.held == 5

    class Unreachable:
        def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
            done(None)

    keeper = LeaseKeeper(Unreachable(), (rig.store,), lambda: 0.0)
    keeper.decide(CHECK.leased(7), lambda _: None)
    keeper.release(CHECK.leased(7))
    assert (keeper.held, rig.store.released) == (0, [])


def test_only_counts_of_leases_hold() -> None:
    """A request has a lease of each of its concurrency limits, and of no other limit."""
    rig = Rig()
    other = Limit("sessions", "concurrency", 9, LEASE_US, per="account")
    check = check_of(FIVE, HELD, other)
    assert rig.open(1, check)
    rig.now_s += RENEW_S
    rig.keeper.renew_due()
    assert [name for name, _ in rig.store.renewed] == list(check.counters[1:])
    rig.keeper.release(check.leased(1))
    assert rig.store.released == [(name, 1) for name in check.counters[1:]]


def test_what_costs_nothing_holds_nothing() -> None:
    """A request that costs nothing, or nothing in this limit, has no lease to renew or release."""
    rig = Rig()
    check = check_of(FIVE, HELD)
    free = Check(check.limits, check.counters, 1, costs=(1, 0))
    for number, one in enumerate((free, check.at_cost(0)), 1):
        assert rig.open(number, one)
        assert rig.keeper.held == 0
        rig.keeper.release(one.leased(number))
    rig.now_s += RENEW_S
    rig.keeper.renew_due()
    assert (rig.store.renewed, rig.store.released) == ([], [])


def test_many_counts_are_renewed_in_turns() -> None:
    """A check renews a bounded number of counters, those that have waited longest first."""
    rig = Rig()
    checks = [check_of(HELD, name=str(index)) for index in range(2 * MOST_COUNTERS + 1)]
    for number, check in enumerate(checks, 1):
        assert rig.open(number, check)
    rig.now_s += RENEW_S
    told = []
    for _ in range(4):
        rig.keeper.renew_due()
        told.append(len(rig.store.renewed))
    assert told == [MOST_COUNTERS, 2 * MOST_COUNTERS, 2 * MOST_COUNTERS + 1, 2 * MOST_COUNTERS + 1]
    assert [name for name, _ in rig.store.renewed] == [check.counters[0] for check in checks]


def test_a_store_that_is_back_hears_at_once() -> None:
    """After an outage all held leases are renewed at the next check, due or not."""
    rig = Rig()
    rig.open(1)
    rig.keeper.renew_due()
    assert rig.store.renewed == []
    rig.keeper.renew_soon()
    rig.keeper.renew_due()
    assert rig.store.renewed == [(NAME, {1})]
    rig.keeper.renew_due()
    assert len(rig.store.renewed) == 1


async def test_the_end_gives_all_back() -> None:
    """A keeper renews by itself until it is stopped, and then releases all leases."""
    rig = Rig()
    rig.keeper.start()
    assert rig.open(1)
    assert rig.open(2, check_of(HELD, name="other"))
    rig.now_s += RENEW_S
    await eventually(lambda: len(rig.store.renewed) == 2, "both are renewed")
    await rig.keeper.stop()
    assert sorted(number for _, number in rig.store.released) == [1, 2]
    assert rig.keeper.held == 0
    await rig.keeper.stop()


async def test_through_an_outage() -> None:
    """In an outage the local limiter has the held leases, and takes new ones; a store that recovers
    empty gets all of them at the next renewal.
    """

    class Store(MemoryLimiter):
        is_away = False

        def decide(
            self,
            check: Check,
            done: Callable[[Decision | None], None],
            review: Review | None = None,
        ) -> None:
            if self.is_away:
                done(None if review is None else review(check, None))
            else:
                super().decide(check, done, review)

        def renew(self, name: str, members: Iterable[Member]) -> None:
            if not self.is_away:
                super().renew(name, members)

    rig = Rig()
    clock_us = rig.limiter.clock_us
    store, local = Store(clock_us), MemoryLimiter(clock_us)
    fallback = FallbackLimiter(store, local, lambda: "local")
    rig.keeper = LeaseKeeper(fallback, (store, local), lambda: rig.now_s)
    assert [rig.open(number) for number in (1, 2, 3)] == [True] * 3
    rig.now_s += RENEW_S
    rig.keeper.renew_due()
    store.is_away = True
    assert [rig.open(number) for number in (4, 5, 6)] == [True, True, False]
    for _ in range(5):
        rig.now_s += RENEW_S
        rig.keeper.renew_due()
    assert not rig.open(7)
    rig.keeper.release(CHECK.leased(1))
    assert rig.open(8)

    store.is_away = False
    assert store.decide_now(CHECK.at_cost(0)).remaining == 5
    rig.keeper.renew_soon()
    rig.keeper.renew_due()
    assert store.decide_now(CHECK.at_cost(0)).remaining == 0
    fallback.close()


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 2)),
        st.tuples(st.just("close"), st.integers(0, 50)),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 0.5, 1.0, 1.9])),
        st.tuples(st.just("die"), st.integers(0, 2)),
    ),
    min_size=1,
    max_size=60,
)


@given(moves=MOVES)
@settings(max_examples=examples(150), deadline=None, database=None)
def test_never_more_than_the_limit_live(moves: list[tuple[str, Any]]) -> None:
    """However gateways open, close and end: the leases never exceed the limit, and after the time
    of a lease those of ended gateways are free again.
    """
    rig = Rig()
    keepers = [rig.keeper, rig.another(), rig.another()]
    living: list[tuple[LeaseKeeper, Check]] = []
    for number, (move, value) in enumerate(moves, 1):
        if move == "wait":
            rig.now_s += value
            for keeper in keepers:
                keeper.renew_due()
        elif move == "die":
            living = [(keeper, check) for keeper, check in living if keeper is not keepers[value]]
            keepers[value] = rig.another()
        elif move == "close" and living:
            keeper, check = living.pop(value % len(living))
            keeper.release(check)
        elif move == "open":
            rig.keeper = keepers[value]
            if rig.open(number):
                living.append((rig.keeper, CHECK.leased(number)))
        assert len(living) <= HELD.amount
        assert sum(keeper.held for keeper in keepers) == len(living)
    for _ in range(7):
        rig.now_s += 1.0
        for keeper in keepers:
            keeper.renew_due()
    opened = sum(rig.open(10_000 + number) for number in range(9))
    assert opened == HELD.amount - len(living)


# -- connections -----------------------------------------------------------------------------------

CLIENTS = Limit("clients", "connections", 2, LEASE_US)
CONNECTED = check_of(CLIENTS)
(COUNTER,) = CONNECTED.counters


class Later:
    """A limiter whose decisions the test gives, in order."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Decision | None], None]] = []

    def decide(self, _check: Check, done: Callable[[Decision | None], None]) -> None:
        self.asked.append(done)

    def answer(self, allowed: bool | None) -> None:
        done = self.asked.pop(0)
        done(None if allowed is None else Decision(allowed, 0, None, START_US, ()))


class Pending:
    """A keeper over such a limiter, and the requests 1, 2, … of connection 101."""

    def __init__(self) -> None:
        self.store, self.limiter = Book(), Later()
        self.keeper = LeaseKeeper(self.limiter, (self.store,), lambda: 0.0, tag=7)
        self.checks = [CONNECTED.leased(number, 101) for number in range(1, 6)]

    def ask(self, *numbers: int) -> None:
        for number in numbers:
            self.keeper.decide(self.checks[number - 1], lambda _: None)

    def answer(self, *allowed: bool | None) -> None:
        for one in allowed:
            self.limiter.answer(one)

    def end(self, *numbers: int) -> None:
        for number in numbers:
            self.keeper.release(self.checks[number - 1])


def test_the_last_request_of_a_connection_releases_it() -> None:
    """Its lease is held once, and released when no request has it, whatever ends twice."""
    pending = Pending()
    pending.ask(1, 2, 3)
    pending.answer(True, True, False)
    assert pending.keeper.held == 1
    pending.end(1, 1, 3)
    assert pending.store.released == []
    pending.end(2, 2)
    assert pending.store.released == [(COUNTER, (101, 7))]
    assert pending.keeper.held == 0


def test_a_release_waits_for_a_decision() -> None:
    """While another request of the connection is being decided, the end of one releases nothing: in
    the store the release would follow the decision, and remove what that took.
    """
    pending = Pending()
    pending.ask(1)
    pending.answer(True)
    pending.ask(2)
    pending.end(1)
    assert pending.store.released == []
    pending.answer(True)
    assert (pending.keeper.held, pending.store.released) == (1, [])
    pending.end(2)
    assert pending.store.released == [(COUNTER, (101, 7))]


@pytest.mark.parametrize("decision", [False, None])
def test_a_release_after_a_decision(decision: bool | None) -> None:
    """If the last decision that was awaited admits nothing, the lease is released then."""
    pending = Pending()
    pending.ask(1, 2)
    pending.answer(True)
    pending.ask(3)
    pending.end(1)
    pending.answer(decision)
    assert pending.store.released == []
    pending.answer(decision)
    assert (pending.store.released, pending.keeper.held) == ([(COUNTER, (101, 7))], 0)


def test_a_refused_connection_releases_nothing() -> None:
    """A connection that was never admitted has nothing to renew or release."""
    pending = Pending()
    pending.ask(1, 2)
    pending.answer(False, None)
    pending.end(1, 2)
    pending.keeper.renew_soon()
    pending.keeper.renew_due()
    assert (pending.store.released, pending.store.renewed) == ([], [])


def test_a_connection_is_renewed_while_a_decision_is_awaited() -> None:
    """A lease that is kept for a request that is being decided does not expire meanwhile."""
    pending = Pending()
    pending.ask(1)
    pending.answer(True)
    pending.ask(2)
    pending.end(1)
    pending.keeper.renew_soon()
    pending.keeper.renew_due()
    assert pending.store.renewed == [(COUNTER, {(101, 7)})]


SESSIONS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 1), st.sampled_from([101, 101, 102, 103, 0])),
        st.tuples(st.just("answer"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("close"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("wait"), st.sampled_from([5, 19]), st.just(0)),
    ),
    min_size=20,
    max_size=60,
)


class Pipeline:
    """A worker's connection to a store in memory: what is sent arrives in order, and later."""

    def __init__(self, store: MemoryLimiter) -> None:
        self.store = store
        self.sent: list[Callable[[], object]] = []

    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        self.sent.append(lambda: self.store.decide(check, done))

    def renew(self, name: str, members: Collection[Member]) -> None:
        kept = list(members)
        self.sent.append(lambda: self.store.renew(name, kept))

    def release(self, name: str, member: Member) -> None:
        self.sent.append(lambda: self.store.release(name, member))

    def arrive(self, most: int = 10_000) -> None:
        for _ in range(min(most, len(self.sent))):
            self.sent.pop(0)()


@given(moves=SESSIONS)
@settings(max_examples=examples(150), deadline=None, database=None)
def test_connections_of_two_workers(moves: list[tuple[str, int, int]]) -> None:
    """However requests of connections begin, are decided late and end in two workers, the limit
    holds; and once all has arrived, the store counts exactly the connections that have a request.
    """
    now_s = 1_000.0
    store = MemoryLimiter(lambda: START_US + int(now_s * SECOND_US))
    lines = [Pipeline(store), Pipeline(store)]
    keepers = [LeaseKeeper(line, (line,), lambda: now_s) for line in lines]
    living: list[tuple[LeaseKeeper, Check]] = []

    def admit(keeper: LeaseKeeper, check: Check, decision: Decision | None) -> None:
        if decision is not None and decision.allowed:
            living.append((keeper, check))

    for number, (move, value, more) in enumerate(moves, 1):
        if move == "open":
            check = CONNECTED.leased(number, more)
            keepers[value].decide(check, partial(admit, keepers[value], check))
        elif move == "answer":
            lines[value].arrive(more)
        elif move == "close" and living:
            keeper, check = living.pop(value % len(living))
            keeper.release(check)
        elif move == "wait":
            for line in lines:
                line.arrive()
            now_s += value / 10
            for keeper in keepers:
                keeper.renew_due()
        open_now = {check.connection or -check.lease for _, check in living}
        assert len(open_now) <= CLIENTS.amount
    for line in lines:
        line.arrive()
    open_now = {check.connection or -check.lease for _, check in living}
    left = store.decide_now(CONNECTED.at_cost(0)).remaining
    assert left == CLIENTS.amount - len(open_now)


async def test_connections_in_redis(redis_server: RedisServer) -> None:
    """A connection through two gateways counts once, also after a FLUSHALL, until the last of its
    requests has ended; its members have the tags of both workers.
    """
    first, second, third = (CONNECTED.leased(number, 101) for number in (1, 2, 3))
    other = check_of(replace(CLIENTS, amount=1))
    async with linked(redis_server) as one, linked(redis_server) as two:
        (keeper, leases), (another, its_leases) = redis_keeper(one), redis_keeper(two)
        for asked, check in ((keeper, first), (keeper, second), (another, third)):
            (decision,) = await decided(asked, [check])
            assert decision is not None
            assert (decision.allowed, decision.remaining) == (True, 1)
        members = await one.ask("ZRANGE", COUNTER, 0, -1)
        assert sorted(members) == sorted(b"101:%d" % check.holder for check in (first, third))
        await one.ask("FLUSHALL")
        for one_keeper, one_leases in ((keeper, leases), (another, its_leases)):
            one_keeper.renew_due()
            await one_leases.flushed()
        assert await one.ask("ZCARD", COUNTER) == 2
        for ended, of, left in ((first, keeper, 0), (second, keeper, 0), (third, another, 1)):
            of.release(ended)
            await leases.flushed()
            await its_leases.flushed()
            (decision,) = await decided(keeper, [other.at_cost(0)])
            assert decision is not None
            assert decision.remaining == left
        assert await one.ask("EXISTS", COUNTER) == 0


async def test_a_release_behind_a_decision_in_redis(redis_server: RedisServer) -> None:
    """A request ends while the next one of its connection is being decided: the lease stays."""
    async with linked(redis_server) as link:
        keeper, leases = redis_keeper(link)
        first, second = CONNECTED.leased(1, 101), CONNECTED.leased(2, 101)
        await decided(keeper, [first])
        answers: list[Decision | None] = []
        keeper.decide(second, answers.append)
        await asyncio.sleep(0)  # the check is on its way
        keeper.release(first)
        await eventually(lambda: len(answers) == 1, "it is decided")
        await leases.flushed()
        assert await link.ask("ZCARD", COUNTER) == 1
        keeper.release(second)
        await leases.flushed()
        assert await link.ask("ZCARD", COUNTER) == 0


async def test_more_leases_than_are_read(redis_server: RedisServer) -> None:
    """Beyond a bound the leases are not read but each counts as a connection: it is then full."""
    most = check_of(replace(CLIENTS, amount=1_000))
    async with linked(redis_server) as link:
        latest = (await link.ask("TIME"))[0].decode() + "000000"
        far = int(latest) + 5_000_000
        for start in range(0, 4_000, 500):
            words = [word for n in range(start, start + 500) for word in (far, f"{n % 9}:{n}")]
            await link.ask("ZADD", COUNTER, *words)
        (few,) = await decided(RedisLimiter(link), [most.at_cost(0)])
        await link.ask("ZADD", COUNTER, far, "1:99999")
        (full,) = await decided(RedisLimiter(link), [most.at_cost(0)])
    assert few is not None
    assert full is not None
    assert (few.remaining, full.remaining) == (991, 0)


# -- in Redis --------------------------------------------------------------------------------------


def redis_keeper(link: StoreConnection) -> tuple[LeaseKeeper, RedisLeases]:
    """A keeper as in a gateway, whose renewals are always due."""
    leases = RedisLeases(lambda _name, encoded, done: link.send(encoded, done))
    return LeaseKeeper(RedisLimiter(link), (leases,), iter(range(0, 10_000, 10)).__next__), leases


async def admitted(limiter: Any, numbers: Sequence[int], check: Check = CHECK) -> list[bool]:
    decisions = await decided(limiter, [check.leased(number) for number in numbers])
    return [decision is not None and decision.allowed for decision in decisions]


async def test_one_turn_sees_itself(redis_server: RedisServer) -> None:
    """Checks of one batch share the counter: no more are admitted than the limit allows."""
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link)
        decisions = await decided(limiter, [CHECK.leased(number) for number in range(1, 8)])
        assert [d and d.remaining for d in decisions] == [4, 3, 2, 1, 0, 0, 0]
        assert [d and d.allowed for d in decisions] == [True] * 5 + [False] * 2
        assert {d and d.retry_us for d in decisions[5:]} == {SECOND_US}
        assert await link.ask("ZCARD", NAME) == 5
        assert 0 < await link.ask("PTTL", NAME) <= 6_100


async def test_two_gateways_share_the_places(redis_server: RedisServer) -> None:
    """Of twenty concurrent requests to two gateways five are admitted; the end of one frees one."""
    async with linked(redis_server) as one, linked(redis_server) as other:
        keepers = [redis_keeper(link)[0] for link in (one, other)]
        found = await asyncio.gather(
            *(admitted(keepers[n % 2], [n + 1]) for n in range(20)),
        )
        passed = [number for number, (allowed,) in enumerate(found, 1) if allowed]
        assert len(passed) == 5
        keepers[(passed[0] - 1) % 2].release(CHECK.leased(passed[0]))
        await one.ask("PING")
        await other.ask("PING")
        assert await admitted(keepers[0], [21, 22]) == [True, False]


async def test_a_request_without_a_number(redis_server: RedisServer) -> None:
    """Leased and other checks of a subject may share a batch; one without a number holds none."""
    plain = check_of(FIVE, HELD)
    async with linked(redis_server) as link:
        asked = [plain, plain.leased(2**52), plain, plain.leased(1), plain.at_cost(0)]
        decisions = await decided(RedisLimiter(link), asked)
        members = await link.ask("ZRANGE", NAME, 0, -1)
    left = [d and [standing.remaining for standing in d.standings] for d in decisions]
    assert left == [[4, 5], [3, 4], [2, 4], [1, 3], [1, 3]]
    assert sorted(map(int, members)) == [1, 2**52]


async def test_renewed_in_redis(redis_server: RedisServer) -> None:
    """A renewal extends the held leases, and removes expired ones."""
    async with linked(redis_server) as link:
        keeper, leases = redis_keeper(link)
        assert await admitted(keeper, [1]) == [True]
        first = float(await link.ask("ZSCORE", NAME, 1))
        await link.ask("ZADD", NAME, 1_000, 99)
        keeper.renew_due()
        await leases.flushed()
        assert float(await link.ask("ZSCORE", NAME, 1)) > first
        assert await link.ask("ZRANGE", NAME, 0, -1) == [b"1"]
        assert 5_000 < await link.ask("PTTL", NAME) <= 6_000


async def test_a_store_that_forgot(redis_server: RedisServer) -> None:
    """After a FLUSHALL the next renewal restores all held leases, and the rest is free."""
    async with linked(redis_server) as link:
        keeper, leases = redis_keeper(link)
        await admitted(keeper, [1, 2, 3, 4])
        await link.ask("FLUSHALL")
        keeper.renew_due()
        await leases.flushed()
        assert await admitted(keeper, [5, 6]) == [True, False]


async def test_the_end_in_redis(redis_server: RedisServer) -> None:
    """A worker's leases are released in the store before it has ended."""
    async with linked(redis_server) as link:
        keeper, leases = redis_keeper(link)
        assert await admitted(keeper, [1, 2, 3]) == [True] * 3
        await keeper.stop()
        await leases.flushed()
        with redis_server.client() as client:
            assert client.exists(NAME) == 0


async def test_a_silent_store_blocks_nothing() -> None:
    """The end of a worker does not wait long for a silent store."""
    leases = RedisLeases(lambda _name, _encoded, _done: None)
    leases.release(NAME, 1)
    await asyncio.wait_for(leases.flushed(), 20)


async def test_many_leases_of_one_count(redis_server: RedisServer) -> None:
    """All leases of a counter are renewed, in commands of bounded size."""
    sent: list[bytes] = []
    async with linked(redis_server) as link:

        def send(_name: str, encoded: bytes, done: Callable[[Any], None]) -> None:
            sent.append(encoded)
            link.send(encoded, done)

        leases = RedisLeases(send)
        leases.renew(NAME, set(range(1, 2 * BATCH_LEASES + 2)))
        await leases.flushed()
        assert await link.ask("ZCARD", NAME) == 2 * BATCH_LEASES + 1
    assert len(sent) == 3


@pytest.mark.parametrize("foreign", ["string", "hash", "stale", "endless"])
async def test_foreign_values(redis_server: RedisServer, foreign: str) -> None:
    """A foreign value under a counter's name counts as empty, is reported and replaced; an expired
    lease does not count, and one that would last too long is shortened.
    """
    with redis_server.client() as client:
        if foreign == "string":
            client.set(NAME, "x")
        elif foreign == "hash":
            client.hset(NAME, "a", "b")
        else:
            client.zadd(NAME, {"7": 1_000 if foreign == "stale" else 2**52})
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link)
        question, first = await decided(limiter, [CHECK.at_cost(0), CHECK.leased(1)])
        assert question is not None
        assert first is not None
        free = 4 if foreign == "endless" else 5
        assert (question.remaining, first.remaining) == (free, free - 1)
        assert question.reset_us <= LEASE_US
        assert limiter.foreign == (foreign in ("string", "hash"))
        scores = await link.ask("ZRANGE", NAME, 0, -1, "WITHSCORES")
        assert all(int(score) == first.now_us + LEASE_US for score in scores[1::2])
        assert len(scores) == 2 * (5 - first.remaining)


async def test_renewals_replace_foreign_values(redis_server: RedisServer) -> None:
    """A renewal replaces a foreign value."""
    async with linked(redis_server) as link:
        keeper, leases = redis_keeper(link)
        await admitted(keeper, [1])
        await link.ask("SET", NAME, "x")
        keeper.renew_due()
        await leases.flushed()
        assert await link.ask("ZRANGE", NAME, 0, -1) == [b"1"]


async def test_a_renewal_removes_a_bounded_number(redis_server: RedisServer) -> None:
    """One renewal removes a bounded number of expired leases."""
    async with linked(redis_server) as link:
        keeper, leases = redis_keeper(link)
        await admitted(keeper, [1])
        lapsed = [word for number in range(3_000) for word in (number + 1, f"lapsed-{number}")]
        await link.ask("ZADD", NAME, *lapsed)
        keeper.renew_due()
        await leases.flushed()
        assert await link.ask("ZCARD", NAME) == 2_001


async def test_asking_writes_nothing(redis_server: RedisServer) -> None:
    """A check at cost 0, a dry check and a refusal do not change the leases."""
    dry = Check(CHECK.limits, CHECK.counters, 1, dry=True)
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link)
        await decided(limiter, [CHECK.at_cost(0), dry])
        assert await link.ask("EXISTS", NAME) == 0
        await admitted(limiter, [1, 2, 3, 4, 5])
        before = await link.ask("ZRANGE", NAME, 0, -1, "WITHSCORES")
        assert await admitted(limiter, [6]) == [False]
        await decided(limiter, [CHECK.at_cost(0), dry])
        assert await link.ask("ZRANGE", NAME, 0, -1, "WITHSCORES") == before
