"""The limiter over Redis."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from math import inf, isnan, nan
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.limits import LEASE_US, PERIODS_US, Check, Decision, Limit
from gateway.domain.ports import StoreDown
from gateway.stores.limits.leases import member_text
from gateway.stores.limits.limiter import BATCH_CHECKS, RedisLimiter, probe
from gateway.stores.limits.script import build_command, read_reply
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clock import host_us
from gateway.stores.redis.connection import StoreConnection
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.kit.rows import each_row
from tests.limiting.test_memory import MemoryRig
from tests.suites.limiter import START_US, LimiterSuite, Rig, Step, examples, replay, steps, traces

FIVE = Limit("five", "rate", 5, 60_000_000)
FREE = Limit("plan", "rate", 60, 60_000_000, 100)
DAILY = Limit("daily", "quota", 1_000, 86_400_000_000)


def address_of(server: RedisServer) -> StoreAddress:
    return StoreAddress("tcp", host="127.0.0.1", port=server.port)


@asynccontextmanager
async def linked(server: RedisServer, **options: Any) -> AsyncIterator[StoreConnection]:
    """A link that is up, with a timeout for a busy machine."""
    link = StoreConnection(address_of(server), timeout_s=20.0, **options)
    link.start()
    try:
        await asyncio.wait_for(link.wait_up(), 20)
        yield link
    finally:
        await link.stop()


async def decided(limiter: Any, checks: Sequence[Check]) -> list[Decision | None]:
    """The decisions about checks of one turn of the loop."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    decisions: list[Decision | None] = []

    def done(decision: Decision | None) -> None:
        decisions.append(decision)
        if len(decisions) == len(checks):
            future.set_result(None)

    for check in checks:
        limiter.decide(check, done)
    await asyncio.wait_for(future, 30)
    return decisions


def check_of(*limits: Limit, name: str = "k") -> Check:
    return Check(limits, tuple(f"gw:limit:{{a}}:key:{name}:{limit.counter}" for limit in limits))


class RedisRig:
    def __init__(self, server: RedisServer, runner: asyncio.Runner) -> None:
        self.used = 0
        self.runner = runner
        self.now_us = START_US
        self.link = StoreConnection(address_of(server), timeout_s=20.0)
        self.limiter = runner.run(self.open())

    async def open(self) -> RedisLimiter:
        self.link.start()
        await asyncio.wait_for(self.link.wait_up(), 20)
        return RedisLimiter(self.link, clock_us=lambda: self.now_us)

    def fresh(self, limits: Sequence[Limit]) -> Check:
        self.used += 1
        return Check(tuple(limits), tuple(f"{self.used}:{limit.counter}" for limit in limits))

    def ask(self, asked: Sequence[tuple[int, Check]]) -> list[Decision]:
        return self.runner.run(self.ask_all(asked))

    def release(self, check: Check) -> None:
        for name, member in check.leases:
            self.runner.run(self.link.ask("ZREM", name, member_text(member)))

    async def ask_all(self, asked: Sequence[tuple[int, Check]]) -> list[Decision]:
        decisions: list[Decision | None] = []
        for self.now_us, check in asked:
            self.limiter.decide(check, decisions.append)
        await self.link.ask("PING")
        return [decision for decision in decisions if decision is not None]


#: Numbers that no count has, beside those that look right.
NUMBERS = (
    st.floats()
    | st.integers(-(2**60), 2**60).map(float)
    | st.sampled_from([0.0, 1.0, 0.5, -1.0, 1e300, float(START_US), START_US / 1e6, START_US / 1e9])
    | st.integers(-70, 70).map(lambda off: float(START_US // 1_000_000 + off))
)
HEADS = st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 2**32 - 1))
#: Values that others wrote under a count's name in the very form of ours, or nearly.
RATE_VALUES = st.builds(
    lambda head, tail: struct.pack("<2sdddddI", b"gw", *head) + tail,
    HEADS,
    st.integers(0, 60).flatmap(lambda slots: st.binary(min_size=4 * slots, max_size=4 * slots)),
)
QUOTA_VALUES = st.builds(
    lambda was, counted: struct.pack("<2sdd", b"gq", was, counted), NUMBERS, NUMBERS
)
VALUES = RATE_VALUES | QUOTA_VALUES | st.binary(max_size=300)
LEASES = st.dictionaries(
    st.binary(max_size=9), NUMBERS.filter(lambda number: not isnan(number)), max_size=5
)
HOSTILE_LIMITS = (
    Limit("second", "rate", 5, 1_000_000),
    Limit("minute", "rate", 60, 60_000_000, 100),
    Limit("day", "rate", 4_294_967_295, 86_400_000_000, shadow=True),
    Limit("daily", "quota", 1_000, 86_400_000_000),
    Limit("held", "concurrency", 5, LEASE_US),
    Limit("clients", "connections", 5, LEASE_US),
)
#: No time that is told is further off than two days: the longest window, and its slots.
MOST_TOLD = 2 * 86_400_000_000


def decide_together(rig: RedisRig, now_us: int, checks: list[Check]) -> list[Decision]:
    """Decide all checks in one call of the script, like those of one turn of the loop."""

    async def ask() -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        rig.link.send(build_command(checks, now_us), answer.set_result)
        return await asyncio.wait_for(answer, 20)

    reply = rig.runner.run(ask())
    assert isinstance(reply, bytes), reply
    return read_reply(reply, checks)[0]


def singles(check: Check, cost: int) -> list[Check]:
    """A check for each of its limits."""
    pairs = zip(check.limits, check.counters, strict=True)
    return [Check((limit,), (name,), cost) for limit, name in pairs]


class TestRedisLimiter(LimiterSuite):
    @pytest.fixture
    def rig(self, redis_server: RedisServer) -> Iterator[Rig]:
        with asyncio.Runner() as runner:
            rig = RedisRig(redis_server, runner)
            yield rig
            runner.run(rig.link.stop())

    @given(trace=traces(back=True))
    @examples
    def test_as_in_process(self, rig: Rig, trace: tuple[tuple[Limit, ...], list[Step]]) -> None:
        """Every answer equals the memory limiter's, to the microsecond, whatever the clock does."""
        assert replay(rig, *trace) == replay(MemoryRig(), *trace)

    @given(data=st.data())
    @examples
    def test_changing_values(self, rig: Rig, data: st.DataObject) -> None:
        """The same if the values change from check to check and the counters stay."""
        figures = [(9, 14), (2, 3), (5, 5), (60, 100)]
        of = [Limit("plan", "rate", amount, 60_000_000, burst) for amount, burst in figures]
        taken = data.draw(steps(of[:2], back=True))
        asked = [data.draw(st.sampled_from(of)) for _ in taken]
        answers = []
        for tried in (rig, MemoryRig()):
            (name,) = tried.fresh(of[:1]).counters
            checks = (Check((x,), (name,), cost) for x, (_, cost) in zip(asked, taken, strict=True))
            moments = (now_us for now_us, _ in taken)
            answers.append(tried.ask(list(zip(moments, checks, strict=True))))
        assert answers[0] == answers[1]

    def test_replayed_counts_wait(self, rig: RedisRig) -> None:
        """Counters at past times survive a slow replay: they do not expire by real time."""
        check = rig.fresh((Limit("second", "rate", 5, 1_000_000),))
        rig.ask([(START_US, check)])
        assert rig.runner.run(rig.link.ask("TTL", check.counters[0])) > 3_600

    def test_each_cost_of_a_batch_has_its_own_wait(self, rig: RedisRig) -> None:
        """Of checks that share a counter, a larger cost waits for more of its slots to leave."""
        check = rig.fresh((FIVE,))
        for after_s, cost in ((0, 2), (10, 3)):
            rig.ask([(START_US + after_s * 1_000_000, check.at_cost(cost))])
        costs = (1, 3, 2, 5)
        at_us = START_US + 20_000_000
        decisions = decide_together(rig, at_us, [check.at_cost(cost) for cost in costs])
        alone = [rig.ask([(at_us, check.at_cost(cost))])[0] for cost in costs]
        waits = [decision.retry_us for decision in decisions]
        assert waits == [decision.retry_us for decision in alone]
        assert waits[1] == waits[0] + 10_000_000

    @given(data=st.data())
    @examples
    def test_a_value_of_others_harms_no_other_check(
        self, rig: RedisRig, data: st.DataObject
    ) -> None:
        """Whatever was written under a counter's name, the answer's values are valid, and the other
        checks of its batch are not affected.
        """
        hostile, sound = rig.fresh(HOSTILE_LIMITS), rig.fresh(HOSTILE_LIMITS)
        for name, limit in zip(hostile.counters, hostile.limits, strict=True):
            if limit.is_leased:
                for member, score in data.draw(LEASES).items():
                    rig.runner.run(rig.link.ask("ZADD", name, repr(score), member))
            else:
                rig.runner.run(rig.link.ask("SET", name, data.draw(VALUES)))
        cost = data.draw(st.sampled_from([0, 1, 3]))
        bad, good = ([one.at_cost(cost), *singles(one, cost)] for one in (hostile, sound))
        memory, numbers = MemoryRig(), count(1)
        for ahead_us in (0, 1, -5_000_000, 200_000_000_000):
            now_us = START_US + ahead_us
            asked = [check.leased(next(numbers)) for check in (*bad, *good, *bad)]
            decisions = decide_together(rig, now_us, asked)
            undisturbed = slice(len(bad), -len(bad))
            expected = memory.ask([(now_us, check) for check in asked[undisturbed]])
            assert decisions[undisturbed] == expected
            for decision in decisions:
                assert decision.retry_us is None or 0 <= decision.retry_us <= MOST_TOLD
                for standing in decision.standings:
                    assert 0 <= standing.remaining <= 2**32
                    assert 0 <= standing.reset_us <= MOST_TOLD


async def test_server_time(redis_server: RedisServer) -> None:
    """The clock is the server's, in microseconds."""
    async with linked(redis_server) as link:
        before = await link.ask("TIME")
        (decision,) = await decided(RedisLimiter(link), [check_of(FIVE)])
        after = await link.ask("TIME")
    assert decision is not None
    first, last = (int(seconds) * 1_000_000 + int(rest) for seconds, rest in (before, after))
    assert first <= decision.now_us <= last


@pytest.mark.parametrize("days", [-25, 0, 25])
async def test_a_period_by_the_clock_of_the_server(redis_server: RedisServer, days: int) -> None:
    """A month is that of the server's clock, though the gateway's is wrong by weeks."""
    month = Limit("m", "quota", 5, PERIODS_US["month"])
    assert month.calendar is not None
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link, store_us=lambda: host_us() + days * 86_400_000_000)
        first, second = await decided(limiter, [check_of(month)] * 2)
    assert first is not None
    assert second is not None
    assert first.now_us + first.reset_us == month.calendar.bounds(first.now_us).end
    assert (first.remaining, second.remaining) == (4, 3)


async def test_one_call_for_a_turn(redis_server: RedisServer) -> None:
    """Checks of one turn of the loop are one call, in batches of bounded size."""
    batches: list[int] = []
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link, on_batch=lambda checks, _: batches.append(checks))
        checks = [check_of(DAILY) for _ in range(2 * BATCH_CHECKS + 3)]
        decisions = await decided(limiter, checks)
        with redis_server.client() as client:
            calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    left = [decision.remaining for decision in decisions if decision is not None]
    assert left == list(range(999, 999 - len(checks), -1))
    assert batches == [BATCH_CHECKS, BATCH_CHECKS, 3]
    assert calls >= 3


async def test_many_askers_on_two_limiters(redis_server: RedisServer) -> None:
    """A hundred tasks at two gateways on one store are admitted up to exactly the limit."""
    limit = Limit("shared", "quota", 137, 86_400_000_000)
    async with linked(redis_server) as first, linked(redis_server) as second:
        limiters = RedisLimiter(first), RedisLimiter(second)

        async def asker(index: int) -> int:
            admitted = 0
            for _ in range(5):
                (decision,) = await decided(limiters[index % 2], [check_of(limit)])
                admitted += decision is not None and decision.allowed
            return admitted

        assert sum(await asyncio.gather(*map(asker, range(100)))) == 137


async def test_a_lost_script(redis_server: RedisServer) -> None:
    """A server that lost the script gets it again; no check is lost, counted twice or reordered."""
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link)
        order: list[int | None] = []
        for _ in range(5):
            link.send(b"*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n", lambda _: None)
            for _ in range(3):
                limiter.decide(check_of(DAILY), lambda d: order.append(d and d.remaining))
                await asyncio.sleep(0)
        await eventually(lambda: len(order) == 15, "all are answered")
    assert sorted(order, key=lambda left: -(left or 0)) == list(range(999, 984, -1))


class FakeLink:
    """Always connected. sent: the callbacks of unanswered calls; gave_up: the reasons given."""

    def __init__(self) -> None:
        self.is_up = True
        self.on_up: list[Any] = []
        self.sent: list[Callable[[Any], None]] = []
        self.gave_up: list[str] = []

    def reconnect(self, reason: str) -> None:
        self.gave_up.append(reason)

    def send(self, encoded: bytes, done: Callable[[Any], None]) -> None:
        if b"EVALSHA" in encoded:
            self.sent.append(done)


async def test_answers_stay_in_order() -> None:
    """Batches wait for an earlier one that is sent again."""
    link = FakeLink()
    limiter = RedisLimiter(link, clock_us=lambda: START_US)  # type: ignore[arg-type] # a fake link
    answered: list[str] = []
    limiter.decide(check_of(FIVE), lambda _: answered.append("first"))
    limiter.decide(check_of(FIVE), lambda _: answered.append("second"))
    link.sent[0](hiredis.ReplyError("NOSCRIPT No matching script"))
    link.sent[1](StoreDown("lost"))
    assert answered == []
    link.sent[2](hiredis.ReplyError("NOSCRIPT still not"))
    assert answered == ["first", "second"]
    assert len(link.gave_up) == 1


def answer_to(*checks: Check, now_us: int = START_US, foreign: int = 0) -> bytes:
    """The script's answer if it admits all of these checks."""
    answers = [struct.pack("<BBIq", 1, 0, 0, -1) + b"\0" * 16 * len(one.limits) for one in checks]
    return struct.pack("<qq", now_us, foreign) + b"".join(answers)


SOUND = answer_to(check_of(FIVE), check_of(FIVE, DAILY))
#: What is no answer to a check of one limit and one of two.
NO_ANSWERS = {
    "null": None,
    "number": 5,
    "true": True,
    "text": SOUND.decode("latin-1"),
    "list": [SOUND],
    "map": {b"a": b"b"},
    "empty": b"",
    "head alone": SOUND[:16],
    "one byte short": SOUND[:-1],
    "one byte long": SOUND + b"\0",
    "another limit": SOUND[:17] + b"\1" + SOUND[18:],
    "a limit beyond": SOUND[:47] + b"\2" + SOUND[48:],
}


@each_row("reply", NO_ANSWERS.values())
async def test_what_is_no_answer(reply: Any) -> None:
    """After an invalid reply each check is undecided, once, and the connection is closed."""
    link = FakeLink()
    limiter = RedisLimiter(link)  # type: ignore[arg-type] # a fake link
    answered: list[Decision | None] = []
    for _ in range(2):
        limiter.decide(check_of(FIVE), answered.append)
        limiter.decide(check_of(FIVE, DAILY), answered.append)
        await asyncio.sleep(0)
    link.sent[0](reply)
    assert answered == [None, None]
    assert [reason.partition(": ")[0] for reason in link.gave_up] == [
        "the store's decisions cannot be read"
    ]
    link.sent[1](SOUND)
    assert [decision and decision.allowed for decision in answered] == [None, None, True, True]
    assert len(link.gave_up) == 1


#: Checks that cannot be sent, however they came to be.
UNSENDABLE = {
    "amount": Check((Limit("huge", "rate", 10**400, 60_000_000),), ("gw:limit:{a}:x",)),
    "window": Check((Limit("huge", "quota", 1, 10**400),), ("gw:limit:{a}:x",)),
    "name": Check((FIVE,), ("gw:limit:{\ud800}:x",)),
    "cost": Check((FIVE,), ("gw:limit:{a}:x",), 10**400),
    "limits": check_of(*(Limit(str(number), "rate", 5, 1_000_000) for number in range(33))),
}


@pytest.mark.parametrize("check", UNSENDABLE.values(), ids=UNSENDABLE)
async def test_a_check_that_cannot_be_sent(
    redis_server: RedisServer, check: Check, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails alone; the other checks of its turn are decided by one call, in order."""
    batches: list[int] = []
    answered: list[tuple[int, int | None]] = []
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link, on_batch=lambda checks, _: batches.append(checks))
        for number in range(BATCH_CHECKS):
            asked = check if number % 8 == 0 else check_of(DAILY)
            limiter.decide(asked, lambda d, n=number: answered.append((n, d and d.remaining)))  # type: ignore[misc]
        await eventually(lambda: len(answered) == BATCH_CHECKS, "all are answered")
        assert link.is_up
    failed = [number for number, left in answered if left is None]
    assert failed == list(range(0, BATCH_CHECKS, 8))
    counted = [left for _, left in answered if left is not None]
    assert counted == list(range(999, 999 - len(counted), -1))
    assert batches == [len(counted)]
    assert len(caplog.records) == 1
    assert "a check cannot be sent to the store; its limits: " in caplog.text


async def test_only_checks_that_cannot_be_sent(redis_server: RedisServer) -> None:
    """If no check can be sent, there is no call."""
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link)
        assert await decided(limiter, list(UNSENDABLE.values())) == [None] * len(UNSENDABLE)


async def test_a_failing_review(redis_server: RedisServer) -> None:
    """A check is answered even if the review of a refusal raises."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    answered: list[Decision | None] = []

    def fails(_check: Check, _decision: Decision | None) -> Decision | None:
        raise ZeroDivisionError

    async with linked(redis_server) as link:
        limiter = RedisLimiter(link)
        limiter.decide(check_of(FIVE).at_cost(6), answered.append, fails)
        limiter.decide(check_of(FIVE), answered.append, fails)
        await eventually(lambda: len(answered) == 2, "both are answered")
    assert [decision and decision.allowed for decision in answered] == [None, True]
    assert [type(report["exception"]) for report in reports] == [ZeroDivisionError]


async def test_foreign_values(redis_server: RedisServer) -> None:
    """A foreign value under a counter's name is reported and replaced, and harms no other check."""
    names = [check_of(FIVE, name=str(n)).counters[0] for n in range(6)]
    daily = check_of(DAILY)
    with redis_server.client() as client:
        client.hset(names[0], "a", "b")
        client.set(names[1], "x")
        client.set(names[2], "gr" + "x" * 37)
        client.set(names[3], "gr" + "x" * 400)
        client.rpush(names[4], "x")
        client.set(daily.counters[0], "gq-not-ours")
        async with linked(redis_server) as link:
            limiter = RedisLimiter(link)
            checks = [check_of(FIVE, name=str(n)) for n in range(6)]
            first = await decided(limiter, [*checks, daily])
            assert limiter.foreign == 6
            second = await decided(limiter, [*checks, daily])
            assert limiter.foreign == 6
        assert [d and d.remaining for d in first] == [4] * 6 + [999]
        assert [d and d.remaining for d in second] == [3] * 6 + [998]


async def test_a_foreign_value_in_place_of_leases(redis_server: RedisServer) -> None:
    """It is replaced by the request's lease, and harms no other check of its batch."""
    held = check_of(Limit("held", "concurrency", 5, LEASE_US))
    with redis_server.client() as client:
        client.set(held.counters[0], "x")
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link)
        decisions = await decided(limiter, [held.leased(1), check_of(FIVE)])
        assert [d and d.remaining for d in decisions] == [4, 4]
        assert limiter.foreign == 1
        (after,) = await decided(limiter, [held.at_cost(0)])
        assert after is not None
        assert after.remaining == 4


async def test_large_foreign_values(redis_server: RedisServer) -> None:
    """A large value of another type is freed by Redis in the background, not before it answers."""
    rate, daily = check_of(FIVE), check_of(DAILY)
    with redis_server.client() as client:
        for check in (rate, daily):
            client.zadd(check.counters[0], {str(n): n for n in range(1_000)})
        freed = client.info("memory")["lazyfreed_objects"]
        async with linked(redis_server) as link:
            limiter = RedisLimiter(link)
            judged = await decided(limiter, [replace(one, dry=True) for one in (rate, daily)])
            assert [client.type(check.counters[0]) for check in (rate, daily)] == [b"zset"] * 2
            assert [d and d.allowed for d in await decided(limiter, [rate, daily])] == [True] * 2
        assert [d and d.remaining for d in judged] == [5, 1_000]
        await eventually(
            lambda: client.info("memory")["lazyfreed_objects"] == freed + 2, "freed beside"
        )


def rate_value(slots: int = 60, **fields: float) -> bytes:
    """A rate's value as the script writes it, with some of its numbers replaced."""
    now = float(START_US // 1_000_000)
    head = {"kept_until": 0.0, "was": now, "newest": now, "total": 5.0, "full_at": 0.0} | fields
    return struct.pack("<2sdddddI", b"gw", *head.values(), 5) + bytes(4 * slots)


#: Values of our own form that made the script fail, and with it the whole of their batch; and some
#: that would have been told, kept for ever, or brought whole.
POISON = {
    "more than its slots hold": rate_value(total=1_000.0),
    "an endless total": rate_value(total=inf),
    "a total below nothing": rate_value(total=-1e300),
    "no total": rate_value(total=nan),
    "half a slot": rate_value(was=START_US / 1e6 - 30.5),
    "a slot without end": rate_value(was=inf),
    "no slot": rate_value(was=nan),
    "a slot in the far future": rate_value(was=1e300, newest=1e300),
    "a newest slot without end": rate_value(newest=inf),
    "no newest slot": rate_value(newest=nan),
    "a bucket's unit without end": rate_value(newest=-inf, full_at=START_US + 1e7),
    "a bucket's unit below one": rate_value(newest=-3.5, full_at=START_US + 1e7),
    "a bucket's unit of an age": rate_value(newest=-1e300, full_at=START_US + 1e7),
    "a bucket's unit of its own": rate_value(newest=-64.0 * 7 - 61, full_at=START_US + 1e7),
    "a bucket that is never full": rate_value(full_at=inf),
    "a bucket that is full in an age": rate_value(full_at=1e300),
    "many megabytes": b"gw" + bytes(20_000_000),
}


async def test_a_bucket_of_an_older_version(redis_server: RedisServer) -> None:
    """A bucket without its unit is read in the limit's, and then stored with it."""
    free = Limit("plan", "rate", 60, 60_000_000, 100)
    pro = replace(free, amount=600, burst=1_000)
    checks = [Check((limit,), check_of(free).counters) for limit in (free, pro)]
    with redis_server.client() as client:
        client.set(checks[0].counters[0], rate_value(full_at=START_US + 50e6))
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link, clock_us=lambda: START_US)
        answers = [await decided(limiter, [check]) for check in checks]
    # 50 of 100 tokens less one, of which 40 are not reported; then 51 of 1,000 are missing.
    assert [one and one.remaining for (one,) in answers] == [9, 1_000 - 52 - 400]


@pytest.mark.parametrize("value", POISON.values(), ids=POISON)
async def test_a_poisoned_count(redis_server: RedisServer, value: bytes) -> None:
    """The other checks of its batch are decided, and a window later it is a normal counter."""
    now_us = START_US
    poisoned, others = check_of(FIVE, name="poisoned"), [check_of(FIVE, name=str(n)) for n in "ab"]
    bucket = Check((Limit("five", "rate", 5, 60_000_000, 9),), poisoned.counters)
    with redis_server.client() as client:
        client.set(poisoned.counters[0], value)
    async with linked(redis_server, setup=probe()) as link:
        for left in (4, 3):
            batch = [others[0], poisoned, bucket, others[1]]
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            link.send(build_command(batch, now_us), answer.set_result)
            first, *others_of_it, last = read_reply(await answer, batch)[0]
            assert (first.remaining, last.remaining) == (left, left)
            # The bucket of 9 is full in 108 s at the latest.
            assert all(0 <= one.reset_us <= 108_000_000 for one in others_of_it)
            now_us += 1_000_000
        now_us += 62_000_000
        limiter = RedisLimiter(link, clock_us=lambda: now_us)
        (decision,) = await decided(limiter, [poisoned])
        assert decision is not None
        assert (decision.allowed, decision.remaining) == (True, 4)
        assert await link.ask("STRLEN", poisoned.counters[0]) < 300


#: Those of them that no window or period can have: the others count what they say.
EMPTY = {
    *("an endless total", "a total below nothing", "no total", "half a slot"),
    *("a slot without end", "no slot", "many megabytes"),
}
#: Quotas of the right period with a number that no quota has.
POISONED_QUOTAS = {"no count": nan, "endless": inf, "below nothing": -1.0, "inexact": 2.0**60}


async def test_a_poisoned_count_limits(redis_server: RedisServer) -> None:
    """Each poisoned counter admits what is left of its limit, or all of it once, and no more.

    A total that is no number would be below every limit, and stay so with whatever is added.
    """
    bucket = Limit("five", "rate", 5, 60_000_000, 9)
    quota = Limit("daily", "quota", 5, 86_400_000_000)
    # Alone and beside another limit, as these are decided in two places of the script.
    of_rates = [(FIVE,), (bucket,), (FIVE, DAILY), (bucket, DAILY)]
    poisoned: list[tuple[str, Check, bytes, bool]] = []
    for label, value in POISON.items():
        for at, limits in enumerate(of_rates):
            check = check_of(*limits, name=f"{label}-{at}")
            poisoned.append((label, check, value[:300], label in EMPTY))
    for label, number in POISONED_QUOTAS.items():
        value = struct.pack("<2sdd", b"gq", START_US // quota.window_us, number)
        poisoned.append((label, check_of(quota, name=label), value, True))
    with redis_server.client() as client:
        for _, check, value, _ in poisoned:
            client.set(check.counters[0], value)
    checks = [check for _, check, _, _ in poisoned]
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link, clock_us=lambda: START_US)
        rounds = [await decided(limiter, checks) for _ in range(12)]
    for (label, check, _, is_empty), *decisions in zip(poisoned, *rounds, strict=True):
        admitted = [one is not None and one.allowed for one in decisions]
        peak, count = check.limits[0].peak, sum(admitted)
        assert admitted == sorted(admitted, reverse=True), label
        assert (count == peak) if is_empty else (count <= peak - 5), (label, check.limits, count)
        assert decisions[-1] is not None
        assert decisions[-1].standings[0].remaining == 0, (label, check.limits)
    assert limiter.foreign == sum(is_empty for *_, is_empty in poisoned)


async def test_no_more_is_read_than_a_count_has(redis_server: RedisServer) -> None:
    """However long a counter's value is, the script reads a few hundred bytes of it."""
    with redis_server.client() as client:
        client.set(check_of(FIVE).counters[0], bytes(1_000_000))
        client.set(check_of(DAILY).counters[0], bytes(1_000_000))
        client.config_resetstat()
        async with linked(redis_server) as link:
            limiter = RedisLimiter(link)
            await decided(limiter, [check_of(FIVE), check_of(DAILY), check_of(FIVE, DAILY)])
            assert limiter.foreign == 2
        stats = client.info("commandstats")
    assert "cmdstat_get" not in stats
    assert stats["cmdstat_getrange"]["calls"] == 2


@pytest.mark.parametrize(
    ("ahead_s", "written", "left"),
    [pytest.param(-3_600, 1, 4_001, id="lapsed"), pytest.param(3_600, 1_001, 5_001, id="ahead")],
)
async def test_a_set_full_of_leases(
    redis_server: RedisServer, ahead_s: int, written: int, left: int
) -> None:
    """One decision removes or changes a bounded number of leases without an owner."""
    held = check_of(Limit("held", "concurrency", 100_000, LEASE_US))
    with redis_server.client() as client:
        score = (time.time() + ahead_s) * 1e6
        client.zadd(held.counters[0], {f"lease-{number}": score for number in range(5_000)})
        client.config_resetstat()
        async with linked(redis_server) as link:
            limiter = RedisLimiter(link)
            (decision,) = await decided(limiter, [held.leased(1)])
        assert decision is not None
        assert decision.allowed
        stats = client.info("commandstats")
        assert stats["cmdstat_zadd"]["calls"] == written
        assert client.zcard(held.counters[0]) == left


async def test_state_dies(redis_server: RedisServer) -> None:
    """Every counter expires a slot after its reset, a rate's 20 slots later."""
    second = Limit("second", "rate", 5, 1_000_000)
    bucket = Limit("bucket", "rate", 1, 60_000_000, 2)
    check = check_of(FIVE, second, bucket, DAILY)
    async with linked(redis_server) as link:
        (decision,) = await decided(RedisLimiter(link), [check])
        ttls = [await link.ask("PTTL", name) for name in check.counters]
        now = await link.ask("TIME")
    assert decision is not None
    passed_us = int(now[0]) * 1_000_000 + int(now[1]) - decision.now_us
    for limit, standing, ttl_ms in zip(check.limits, decision.standings, ttls, strict=True):
        more_us = 20 * limit.slot_us if limit.kind == "rate" else 0
        whole_us = max(1_000_000, standing.reset_us + more_us + limit.slot_us)
        assert whole_us - passed_us - 2_000 <= ttl_ms * 1_000 <= whole_us + 2_000


async def test_state_lives_until_its_reset(redis_server: RedisServer) -> None:
    """However often and whenever a counter is used, it is kept until its reset."""
    brisk = Limit("brisk", "rate", 1_000, 1_000_000)
    bucket = Limit("bucket", "rate", 100, 1_000_000, 300)
    check = check_of(brisk, bucket)
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link)
        began_s = time.monotonic()
        while time.monotonic() < began_s + 1.5:
            (decision,) = await decided(limiter, [check])
            assert decision is not None
            for name, limit, standing in zip(
                check.counters, check.limits, decision.standings, strict=True
            ):
                ttl_ms = await link.ask("PTTL", name)
                seconds, micros = await link.ask("TIME")
                passed_us = int(seconds) * 1_000_000 + int(micros) - decision.now_us
                assert ttl_ms * 1_000 >= standing.reset_us + limit.slot_us - passed_us - 1_000
            await asyncio.sleep(0.004)  # a slot lasts four times as long


async def test_few_writes_set_an_expiry(redis_server: RedisServer) -> None:
    """A counter that is used in every slot is written in place, and its expiry only sometimes."""
    now_us = 1_800_000_000_000_000
    ample = Limit("ample", "rate", 1_000, 60_000_000)
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link, clock_us=lambda: now_us)
        before = written(redis_server)
        for _ in range(210):
            await decided(limiter, [check_of(ample)])
            now_us += ample.slot_us // 2
        after = written(redis_server)
    assert after["set"] - before["set"] == 5
    assert after["setrange"] - before["setrange"] == 205


def written(server: RedisServer) -> dict[str, int]:
    """How often the server got a command to write a value, whole and in part."""
    with server.client() as client:
        stats = client.info("commandstats")
    names = ("set", "setrange")
    return {name: stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names}


async def test_refusals_write_nothing(redis_server: RedisServer) -> None:
    """A refusal or a check at cost 0 writes nothing."""
    full, other = check_of(FIVE), check_of(FIVE, DAILY)
    async with linked(redis_server) as link:
        limiter = RedisLimiter(link)
        await decided(limiter, [full.at_cost(5)])
        before = await link.ask("GET", full.counters[0])
        decisions = await decided(limiter, [other, full, other.at_cost(0)])
        assert [d and d.allowed for d in decisions] == [False, False, True]
        assert await link.ask("GET", full.counters[0]) == before
        assert await link.ask("EXISTS", other.counters[1]) == 0


#: What makes a server unable to decide, and able again.
UNABLE = {
    "READONLY": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    "OOM": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    "NOREPLICAS": (
        ("CONFIG", "SET", "min-replicas-to-write", "1"),
        ("CONFIG", "SET", "min-replicas-to-write", "0"),
    ),
    "NOPERM": (
        ("ACL", "SETUSER", "default", "-evalsha"),
        ("ACL", "SETUSER", "default", "+evalsha"),
    ),
}


@pytest.mark.parametrize("code", UNABLE)
async def test_a_store_that_cannot_decide(code: str) -> None:
    """Checks are undecided; the link is down with the reason, until the store decides again."""
    server = RedisServer().start()
    harm, heal = UNABLE[code]
    try:
        async with linked(server, setup=probe()) as link:
            limiter = RedisLimiter(link)
            losses: list[str] = []
            link.on_down.append(lambda error: losses.append(str(error)))
            assert None not in await decided(limiter, [check_of(FIVE)])
            with server.client() as client:
                client.execute_command(*harm)
                assert await decided(limiter, [check_of(FIVE)] * 3) == [None] * 3
                assert not link.is_up
                assert code in losses[0]
                await eventually(
                    lambda: "refuses the connection" in str(link.last_error), "tried in vain"
                )
                assert code in str(link.last_error)
                assert await decided(limiter, [check_of(FIVE)] * 3) == [None] * 3
                client.execute_command(*heal)
            await asyncio.wait_for(link.wait_up(), 20)
            (decision,) = await decided(limiter, [check_of(FIVE)])
            assert decision is not None
            assert decision.remaining == 3
            assert len(losses) == 1
    finally:
        server.stop()


async def test_a_trial_leaves_nothing(redis_server: RedisServer) -> None:
    """The counters of a trial expire in a moment, and other values there do not prevent it."""
    name = "gw:limit:{gateway}:probe:rate:1000000"
    with redis_server.client() as client:
        client.hset(name, "a", "b")
        async with linked(redis_server, setup=probe()):
            assert client.keys("*") == [name.encode()]
            assert 0 < client.pttl(name) <= 2_000


@each_row(
    ("error", "is_lost"),
    [
        ("WRONGTYPE Operation against a key holding the wrong kind of value", False),
        ("ERR Error running script: WRONGTYPE Operation against a key", False),
        ("BUSY Redis is busy running a script", True),
        ("MISCONF Redis is configured to save RDB snapshots", True),
        ("WHATEVER is said one day", True),
    ],
)
async def test_errors(error: str, is_lost: bool) -> None:
    """An error reply closes the connection, unless it is about the values of these counters."""
    link = FakeLink()
    limiter = RedisLimiter(link)  # type: ignore[arg-type] # a fake link
    answered: list[Decision | None] = []
    limiter.decide(check_of(FIVE), answered.append)
    await eventually(lambda: len(link.sent) == 1, "it is asked")
    link.sent[0](hiredis.ReplyError(error))
    assert answered == [None]
    assert link.gave_up == ([f"the store cannot decide: {error}"] if is_lost else [])


async def test_killed_server() -> None:
    """If the server is killed, checks end undecided at once; after its restart they are decided."""
    server = RedisServer().start()
    try:
        async with linked(server) as link:
            limiter = RedisLimiter(link)
            assert None not in await decided(limiter, [check_of(FIVE)])
            server.pause()
            waiting = asyncio.ensure_future(decided(limiter, [check_of(FIVE)] * 200))
            await asyncio.sleep(0)
            server.kill()
            assert await waiting == [None] * 200
            await eventually(lambda: not link.is_up, "the link is down")
            assert await decided(limiter, [check_of(FIVE)] * 2) == [None] * 2
            server.start()
            await asyncio.wait_for(link.wait_up(), 20)
            assert None not in await decided(limiter, [check_of(FIVE)])
    finally:
        server.stop()


async def test_a_failing_callback(redis_server: RedisServer) -> None:
    """A callback that raises is logged, and no other check loses its answer."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    answered: list[Decision | None] = []

    def fails(_: Decision | None) -> None:
        raise ZeroDivisionError

    async with linked(redis_server) as link:
        limiter = RedisLimiter(link)
        limiter.decide(check_of(FIVE), fails)
        limiter.decide(check_of(FIVE), answered.append)
        await eventually(lambda: len(answered) == 1, "the second is answered")
    assert [type(report["exception"]) for report in reports] == [ZeroDivisionError]
