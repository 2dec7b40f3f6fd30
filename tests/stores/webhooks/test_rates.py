"""The rates of watches, by the scripts on a real server: when attempts begin, over all couriers.

Its clock is the scripts': time passes by moving what a watch waits for to an earlier time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.domain.webhooks.schedule import EXPIRY_S
from gateway.domain.webhooks.watches import RATE_PERIODS, Rate, Watch
from gateway.policies.fields import read_delivery_rate
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.webhooks.queue import LEASE_S, Claimed
from tests.kit.redis_server import RedisServer
from tests.stores.webhooks.test_queue import LATER_US, SECOND, TAG, Shard

SLACK_US = 20_000
#: A rate of which no test has to be quick, and the time between its attempts.
SLOW, SLOW_US = "60/hour", 60_000_334
MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND


class Paced(Shard):
    """A shard with a clock that can be put forward, for the watches of `names`."""

    def __init__(self, client: Any, **more: Any) -> None:
        super().__init__(client, **more)
        self.passed_us = 0
        self.names: set[str] = set()
        #: When attempts of each watch began.
        self.began: dict[str, list[int]] = {}

    async def add(self, name: str, rate: str | None, *events: str) -> Watch:
        read = None if rate is None else Rate(*read_delivery_rate(rate))
        watch = Watch(name, "int", "https://x/", events or ("a.*",), 1, rate=read)
        assert await self.resources.add_watch(watch)
        self.names.add(name)
        return watch

    async def change(self, watch: Watch, rate: str | None) -> Watch:
        read = None if rate is None else Rate(*read_delivery_rate(rate))
        changed = replace(watch, rate=read)
        assert await self.resources.replace_watch(watch, changed)
        return changed

    async def now_us(self) -> int:
        seconds, microseconds = await self.client.time()
        return int(seconds) * SECOND + int(microseconds)

    async def wait(self, us: int) -> None:
        """So much time passes."""
        self.passed_us += us
        for name in self.names:
            for field in ("allowed", "open"):
                if await self.client.hexists(f"{TAG}health:{name}", field):
                    await self.client.hincrby(f"{TAG}health:{name}", field, -us)
            for queue in (f"{TAG}queue:{name}", f"{TAG}replays:{name}"):
                for delivery in await self.client.zrange(queue, 0, -1):
                    await self.client.zincrby(queue, -us, delivery)
            for turns in ("turns:good", "turns:other", "heads"):
                if await self.client.zscore(f"{TAG}{turns}", name) is not None:
                    await self.client.zincrby(f"{TAG}{turns}", -us, name)

    async def take(self, most: int = 100, others: int = 100) -> list[Claimed]:
        """Claim, and note when the attempts began: a lease of a claim begins with them."""
        claimed = await super().take(most, others)
        for each in claimed:
            ends = await self.client.zscore(f"{TAG}leases", each.id)
            began_us = int(ends) - int(LEASE_S * SECOND) + self.passed_us
            self.began.setdefault(each.id.split(":")[1], []).append(began_us)
        return claimed


@pytest.fixture
def shard(store_client: Any) -> Paced:
    return Paced(store_client, cap=100)


async def accept(shard: Shard, number: int, event_type: str = "a.b", name: str = "e") -> None:
    for each in range(number):
        await shard.accept(f"{name}{each}", event_type)


def keeps(began: Sequence[int], rate: Rate) -> bool:
    """Do no more than the rate allows begin in any of its periods?"""
    pairs = zip(began, began[rate.amount :], strict=False)
    return all(later - first >= rate.period_us for first, later in pairs)


@pytest.mark.parametrize(
    ("rate", "step_us", "at_once"),
    [
        ("10/second", 102_000, 1),
        ("600/minute", 100_034, 1),
        (SLOW, SLOW_US, 1),
        ("1/hour", 3_600_020_000, 1),
        ("1/second", 1_020_000, 1),
        ("50/second", 20_400, 1),
        ("51/second", 20_000, 2),
        ("1000/second", 1_020, 12),
        ("60000/minute", 1_001, 12),
        ("4294967295/second", 1, 100),
    ],
)
async def test_attempts_are_spread(shard: Paced, rate: str, step_us: int, at_once: int) -> None:
    """One each period/amount, a little later; at high rates, some at once."""
    await shard.add("w", rate)
    await accept(shard, 150)
    assert len(await shard.take()) == at_once
    health = await shard.health("w")
    assert int(health["step"]) == step_us
    read = Rate(*read_delivery_rate(rate))
    # So that even after a pause no more begin in a period.
    assert read.amount >= 1e6 or read.period_us + SLACK_US <= read.amount * step_us


async def test_the_next_attempt(shard: Paced) -> None:
    """It begins when the rate allows it: claims say when that is, and so does the watch."""
    watch = await shard.add("w", SLOW)
    await accept(shard, 3)
    before = await shard.now_us()
    (first,) = await shard.take()
    claim = await shard.claim()
    after = await shard.now_us()
    assert claim.deliveries == ()
    assert claim.wait_s is not None
    waits_us = claim.wait_s * SECOND
    assert SLOW_US - SLACK_US - (after - before) <= waits_us + 1 <= SLOW_US - SLACK_US + 1
    found = await shard.resources.health(watch)
    assert before <= found.allowed_us - SLOW_US + SLACK_US <= after
    assert (found.next_us, found.waiting) == (found.allowed_us, 2)
    # What ends does not bring the next one forward.
    await shard.deliver(first)
    assert await shard.take() == []
    await shard.wait(SLOW_US)
    assert len(await shard.take()) == 1
    await shard.wait(SLOW_US)
    assert len(await shard.take()) == 1
    assert (await shard.resources.health(watch)).next_us == 0
    assert (await shard.claim()).wait_s is None


async def test_nothing_is_saved_up(shard: Paced) -> None:
    """After a quiet hour there are no more at once than before it."""
    await shard.add("w", "10/second")
    await accept(shard, 1)
    await shard.take()
    await shard.wait(HOUR)
    await accept(shard, 5, name="later")
    assert len(await shard.take()) == 1


@pytest.mark.parametrize("rate", ["10/second", "45/second", "200/second"])
async def test_a_courier_that_comes_late(shard: Paced, rate: str) -> None:
    """By less than the slack: the next attempts begin as if it had come in time."""
    await shard.add("w", rate)
    seen, waiting = 0, 0
    # Also on a machine that is busy, some of its claims are less late.
    for number in range(500):
        await accept(shard, 6 - waiting, name=f"e{number}-")
        before = await shard.health("w")
        step, allowed = int(before["step"]), int(before.get("allowed", 0))
        await shard.wait(max(0, allowed + 10_000 // step * step - await shard.now_us()) + 2_000)
        allowed = int((await shard.health("w")).get("allowed", 0))
        taken = await shard.take()
        waiting = 6 - len(taken)
        for each in taken:
            await shard.deliver(each)
        late_us = shard.began["w"][-1] - shard.passed_us - allowed
        if taken and 2_000 <= late_us <= SLACK_US:
            seen += 1
            assert int((await shard.health("w"))["allowed"]) == allowed + len(taken) * step
        if seen == 9:
            break
    assert seen == 9


async def test_couriers_share_a_rate(shard: Paced) -> None:
    """However many there are."""
    await shard.add("w", "5/minute")
    await accept(shard, 12)
    for _ in range(10):
        for _ in range(3):
            await shard.take()
        await shard.wait(2 * SECOND)
    assert len(shard.began["w"]) == 2
    assert keeps(shard.began["w"], Rate(5, MINUTE))


async def test_what_counts(shard: Paced) -> None:
    """Every attempt: of what is sent again, replayed, retried, claimed anew, and of probes."""
    watch = await shard.add("w", SLOW)
    await accept(shard, 1)

    async def next_of(what: str) -> Claimed:
        assert await shard.take() == [], what
        await shard.wait(SLOW_US)
        (claimed,) = await shard.take()
        return claimed

    (first,) = await shard.take()
    await shard.fail(first)
    again = await next_of("an attempt after a failure")
    assert (again.id, again.attempts) == (first.id, 1)
    await shard.end_leases()
    lost = await next_of("one whose lease was lost")
    assert lost.id == first.id
    await shard.deliver(lost)
    await shard.queue.resend("e0", "w")
    resent = await next_of("one that is sent again")
    await shard.deliver(resent)
    await shard.queue.replay("int", "w", 0, LATER_US, 9)
    replayed = await next_of("one that is replayed")
    await shard.client.hset(f"{TAG}health:w", mapping={"failures": 5, "ramp": 1})
    await shard.fail(replayed, probe_s=0.0)
    assert "open" in await shard.health("w")
    probe = await next_of("a probe")
    await shard.deliver(probe)
    await shard.accept("later")
    assert (await shard.resources.health(watch)).state == "active"
    await next_of("one after a probe")
    assert len(shard.began["w"]) == 7
    assert keeps(shard.began["w"], Rate(1, MINUTE))


async def test_a_probe_waits_for_both(shard: Paced) -> None:
    """Its breaker and its rate."""
    watch = await shard.add("w", "1/hour")
    await accept(shard, 2)
    (first,) = await shard.take()
    await shard.client.hset(f"{TAG}health:w", mapping={"failures": 5})
    await shard.fail(first, probe_s=7.0)
    health = await shard.resources.health(watch)
    assert health.next_us == health.allowed_us
    await shard.change(watch, "1000/second")
    assert (await shard.resources.health(watch)).next_us == int((await shard.health("w"))["open"])


async def test_to_pause_and_to_resume(shard: Paced) -> None:
    """Neither is a way around the rate; both work at once."""
    watch = await shard.add("w", "1/minute")
    await accept(shard, 3)
    await shard.take()
    await shard.resources.pause(watch)
    assert (await shard.resources.health(watch)).next_us == 0
    assert await shard.take() == []
    await shard.resources.resume(watch)
    assert await shard.take() == []
    await shard.resources.forget_failures(watch)
    assert await shard.take() == []
    found = await shard.resources.health(watch)
    assert found.next_us == found.allowed_us > await shard.now_us()
    await shard.resources.pause(watch)
    await shard.wait(MINUTE + SECOND)
    assert await shard.take() == []
    await shard.resources.resume(watch)
    assert len(await shard.take()) == 1


@pytest.mark.parametrize("rate", [None, "1000/second"])
async def test_a_faster_rate_holds_at_once(shard: Paced, rate: str | None) -> None:
    """Also of a watch whose next attempt was an hour away; couriers hear of it."""
    watch = await shard.add("w", "1/hour")
    await accept(shard, 3)
    await shard.take()
    async with shard.client.pubsub() as heard:
        await heard.subscribe(f"{TAG}due")
        await heard.get_message(timeout=10)
        await shard.change(watch, rate)
        assert await heard.get_message(ignore_subscribe_messages=True, timeout=10) is not None
    await shard.wait(20_000)
    assert len(await shard.take()) == 2
    health = await shard.health("w")
    assert ("step" in health, "allowed" in health) == (rate is not None, rate is not None)


async def test_a_slower_rate_holds_at_once(shard: Paced) -> None:
    watch = await shard.add("w", None)
    await accept(shard, 5)
    assert len(await shard.take(2)) == 2
    watch = await shard.change(watch, "10/second")
    assert len(await shard.take()) == 1
    await shard.change(watch, "1/hour")
    await shard.wait(102_000)
    assert len(await shard.take()) == 1
    await shard.wait(HOUR // 2)
    assert await shard.take() == []


async def test_other_changes_do_not_touch_it(shard: Paced) -> None:
    """A rate that is written again, with other events, changes nothing of when attempts begin."""
    watch = await shard.add("w", "1/minute")
    await accept(shard, 3)
    await shard.take()
    allowed = (await shard.health("w"))["allowed"]
    assert await shard.resources.replace_watch(watch, replace(watch, events=("a.b",), version=2))
    assert (await shard.health("w"))["allowed"] == allowed
    assert await shard.take() == []


async def test_a_watch_that_is_removed(shard: Paced) -> None:
    """What waits for its rate is cancelled by the next claim, and nothing of it is left."""
    watch = await shard.add("w", "1/hour")
    await accept(shard, 3)
    await shard.take()
    await shard.resources.remove_watch(watch)
    assert await shard.take() == []
    assert await shard.state("e2:w:0") == "cancelled"
    assert not await shard.client.exists(f"{TAG}health:w")


async def test_others_are_not_held_up(shard: Paced) -> None:
    """Nor is a claim longer: it visits none of those that wait for their rates."""
    for number in range(40):
        await shard.add(f"slow{number}", "1/hour")
    await accept(shard, 30)
    assert len(await shard.take()) == 40
    await shard.add("free", None, "b.*")
    await accept(shard, 3, "b.x", "other")
    await shard.client.config_resetstat()
    assert {each.id.split(":")[1] for each in await shard.take(3)} == {"free"}
    claim = await shard.claim()
    commands = await shard.client.info("commandstats")
    assert sum(each["calls"] for each in commands.values()) < 80
    assert claim.deliveries == ()
    assert claim.wait_s is not None
    assert claim.wait_s > 3_000


async def test_a_visit_costs_the_same_whatever_waits(shard: Paced) -> None:
    await shard.add("w", "1/second")
    costs = []
    for number in (1, 10, 500):  # the first one may load the script
        await accept(shard, number, name=f"e{number}-")
        await shard.wait(1_020_000)
        await shard.client.config_resetstat()
        assert len((await shard.claim()).deliveries) == 1
        commands = await shard.client.info("commandstats")
        costs.append(sum(each["calls"] for each in commands.values()))
    assert costs[1] == costs[2]


async def test_what_is_due(shard: Paced) -> None:
    """What waits for the rate alone is neither late nor work for more couriers."""
    await shard.add("w", SLOW)
    await accept(shard, 9)
    assert (await shard.queue.stats()).due == 1
    await shard.take()
    await shard.wait(40 * SECOND)
    stats = await shard.queue.stats()
    assert (stats.waiting, stats.due, stats.oldest_due_s) == (8, 0, 0.0)
    await shard.wait(40 * SECOND)
    stats = await shard.queue.stats()
    assert stats.due == 1
    assert 19 < stats.oldest_due_s < 40


async def test_what_waits_too_long_is_given_up(shard: Paced) -> None:
    """As what a paused watch holds: more events than the rate lets through do not pile up."""
    await shard.add("w", "1/hour")
    await accept(shard, 4)
    await shard.take()
    await shard.wait(EXPIRY_S * SECOND + SECOND)
    await shard.accept("new")
    assert [each.id for each in await shard.take()] == ["new:w:0"]
    assert {each.id for each in await shard.queue.dead("int")} == {f"e{n}:w:0" for n in (1, 2, 3)}
    found = await shard.queue.delivery("e1:w:0")
    assert found is not None
    assert (found.state, found.reason) == ("dead", "expired")


async def test_what_a_paused_watch_holds_does_not_wait_for_its_rate(shard: Paced) -> None:
    """It is given up when it has waited for too long, whenever the rate would allow it."""
    watch = await shard.add("w", "1/hour")
    await accept(shard, 2)
    await shard.take()
    old_us = await shard.now_us() - EXPIRY_S * SECOND
    await shard.client.zadd(f"{TAG}queue:w", {"e1:w:0": old_us})
    await shard.resources.pause(watch)
    assert await shard.take() == []
    assert [each.id for each in await shard.queue.dead("int")] == ["e1:w:0"]


@pytest.mark.parametrize("step", ["", "x", "0", "-5", "nan"])
async def test_a_step_of_others(shard: Paced, step: str) -> None:
    """It is no rate; no claim fails for it."""
    await shard.add("w", "1/hour")
    await shard.client.hset(f"{TAG}health:w", "step", step)
    await accept(shard, 3)
    assert len(await shard.take()) == 3


STEPS = st.one_of(
    st.tuples(st.sampled_from(["accept", "claim", "claim", "end", "fail"]), st.integers(1, 9)),
    st.tuples(st.sampled_from(["lose", "resend", "pause", "resume"]), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([700, 9_000, 19_999, 51_000, 340_000, SECOND])),
    st.tuples(st.just("wait share"), st.integers(1, 8)),
)
RATES = st.builds(Rate, st.integers(1, 300), st.sampled_from(list(RATE_PERIODS)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RATES, st.lists(STEPS, min_size=10, max_size=60))
async def test_no_more_than_the_rate_in_any_period(
    redis_server: RedisServer, rate: Rate, steps: list[tuple[str, int]]
) -> None:
    """Whatever happens in whatever order; and at the time that it tells there is a next attempt."""
    with redis_server.client() as wiped:
        wiped.flushall()
    async with redis_client(parse_url(redis_server.url)) as client:
        shard = Paced(client, cap=50)
        watch = await shard.add("w", str(rate))
        held: list[Claimed] = []
        for number, (step, which) in enumerate(steps):
            await _take_step(shard, watch, rate, step, which, held, f"s{number}-")
        assert keeps(shard.began.get("w", []), rate)
        await shard.end_leases()
        await shard.take()
        await shard.resources.resume(watch)
        await shard.accept("last")
        health = await shard.resources.health(watch)
        await shard.wait(max(0, health.next_us - await shard.now_us()) + 10_000)
        assert await shard.take(), "an attempt begins when it may"
        assert keeps(shard.began["w"], rate)


async def _take_step(
    shard: Paced,
    watch: Watch,
    rate: Rate,
    step: str,
    which: int,
    held: list[Claimed],
    name: str,
) -> None:
    if step == "accept":
        await accept(shard, which, name=name)
    elif step == "claim":
        held += await shard.take(3 * which)
    elif step in ("end", "fail"):
        for delivery in held[:which]:
            await (shard.deliver(delivery) if step == "end" else shard.fail(delivery, probe_s=0.01))
        del held[:which]
    elif step == "lose":
        await shard.end_leases()
    elif step == "resend" and held:
        await shard.queue.resend(held[0].id.split(":")[0], "w")
    elif step == "pause":
        await shard.resources.pause(watch)
    elif step == "resume":
        await shard.resources.resume(watch)
    elif step == "wait":
        await shard.wait(which)
    elif step == "wait share":
        await shard.wait(rate.period_us * which // 8)


def test_the_rule_itself() -> None:
    """What `keeps` says of times: the period has no end of its own."""
    rate = Rate(2, 10)
    assert keeps([0, 1, 10, 11], rate)
    assert not keeps([0, 1, 9], rate)
    assert keeps([5], rate)
