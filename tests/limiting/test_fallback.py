"""Decisions during an outage of the store, and its recovery."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.domain.limits import Check, Decision, Limit
from gateway.domain.ports import Review
from gateway.limiting.fallback import PROBE_S, STABILIZE_S, FallbackLimiter
from gateway.limiting.memory import MemoryLimiter
from gateway.limiting.owed import Owed
from gateway.limiting.shares import RETRY_US, share
from gateway.stores.limits.limiter import RedisLimiter
from tests.kit.eventually import eventually
from tests.kit.redis_server import RedisServer
from tests.kit.tiers import examples
from tests.stores.limits.test_limiter import DAILY, FIVE, FREE, check_of, decided, linked
from tests.suites.limiter import START_US

Done = Callable[[Decision | None], None]


class FakeLoop:
    """A loop whose time the test sets. `run_to` runs all timers that are due until then, and `turn`
    what waits for the end of this turn.
    """

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self._soon: list[Callable[[], object]] = []
        self._due: list[tuple[float, int, Callable[[], object], list[bool]]] = []
        self._order = count()

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], object], /) -> None:
        self._soon.append(callback)

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Cancel:
        is_cancelled = [False]
        entry = (self.now_s + delay, next(self._order), callback, is_cancelled)
        heapq.heappush(self._due, entry)
        return Cancel(is_cancelled)

    def run_to(self, now_s: float) -> None:
        while self._due and self._due[0][0] <= now_s:
            due_s, _, callback, is_cancelled = heapq.heappop(self._due)
            self.now_s = max(self.now_s, due_s)
            if not is_cancelled[0]:
                callback()
        self.now_s = now_s

    def run(self, seconds: float) -> None:
        self.run_to(self.now_s + seconds)

    @property
    def is_idle(self) -> bool:
        return all(is_cancelled[0] for *_, is_cancelled in self._due)

    def now_us(self) -> int:
        return START_US + round((self.now_s - 1_000.0) * 1_000_000)


@dataclass
class Cancel:
    is_cancelled: list[bool]

    def cancel(self) -> None:
        self.is_cancelled[0] = True


class Link:
    """One worker's connection to a store in memory, which can be cut."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.is_up = True
        self.asked: list[Check] = []

    def decide(self, check: Check, done: Done, review: Review | None = None) -> None:
        self.asked.append(check)
        if self.is_up and self.store.is_up:
            self.store.limiter.decide(check, done, review)
        else:
            done(None if review is None else review(check, None))

    def written_back(self) -> list[tuple[str, int]]:
        """The checks in shadow mode since the last call."""
        asked, self.asked = self.asked, []
        return [(check.counters[0], check.cost) for check in asked if check.limits[0].shadow]


@dataclass
class Store:
    loop: FakeLoop
    is_up: bool = True
    limiter: MemoryLimiter = field(init=False)

    def __post_init__(self) -> None:
        self.lose_all()

    def lose_all(self) -> None:
        self.limiter = MemoryLimiter(self.loop.now_us)

    def count_of(self, limit: Limit, name: str = "k") -> int:
        """How much the store has counted, read through a limit that is never full."""
        gauge = replace(limit, amount=1_000_000, burst=None)
        check = Check((gauge,), check_of(limit, name=name).counters, 0)
        return 1_000_000 - self.limiter.decide_now(check).remaining


class Worker:
    """A worker with its own counters, on one store."""

    def __init__(
        self,
        store: Store,
        position: tuple[int, int] = (0, 1),
        mode: str = "local",
        owed: Owed | None = None,
    ) -> None:
        self.link = Link(store)
        self.mode = mode
        self.position = position
        self.active: list[bool] = []
        self.beyond: list[tuple[str, int]] = []
        self.limiter = FallbackLimiter(
            self.link,
            MemoryLimiter(store.loop.now_us),
            lambda: self.mode,  # type: ignore[arg-type, return-value] # any text
            position=lambda: self.position,
            loop=store.loop,
            owed=owed,
            on_active=self.active.append,
            on_overadmitted=lambda limit, units: self.beyond.append((limit, units)),
        )

    def ask(self, check: Check) -> Decision | None:
        (decision,) = self.ask_all([check])
        return decision

    def ask_all(self, checks: list[Check]) -> list[Decision | None]:
        decisions: list[Decision | None] = []
        for check in checks:
            self.limiter.decide(check, decisions.append)
        self.link.store.loop.turn()
        assert len(decisions) == len(checks)
        return decisions

    def admitted(self, check: Check, times: int) -> int:
        return sum(d is not None and d.allowed for d in self.ask_all([check] * times))


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def store(loop: FakeLoop) -> Store:
    return Store(loop)


@contextmanager
def outage(store: Store) -> Iterator[None]:
    store.is_up = False
    yield
    store.is_up = True


# -- during an outage -----------------------------------------------------------------------------


def test_the_store_decides(store: Store) -> None:
    """While the store answers, its decision is returned, and nothing else is done."""
    worker = Worker(store)
    decisions = worker.ask_all([check_of(FIVE)] * 6)
    assert [d and (d.allowed, d.local) for d in decisions] == [(True, False)] * 5 + [(False, False)]
    assert not worker.limiter.is_active
    assert store.loop.is_idle


def test_decisions_of_a_turn_are_delivered_together(store: Store) -> None:
    """All are taken before the first is delivered."""
    worker = Worker(store)
    with outage(store):
        worker.ask(check_of(FIVE))
        seen: list[int] = []

        def done(decision: Decision | None) -> None:
            assert decision is not None
            seen.append(decision.remaining)
            left = worker.limiter._local.decide(check_of(FIVE).at_cost(0)).remaining
            assert left == 1, "the others have been counted"

        for _ in range(3):
            worker.limiter.decide(check_of(FIVE), done)
        assert seen == []
        store.loop.turn()
        assert seen == [3, 2, 1]


async def test_a_callback_that_fails(store: Store) -> None:
    """It is reported to the event loop, and the others of its turn get their decisions."""
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    worker = Worker(store)
    with outage(store):
        worker.ask(check_of(FIVE))
        seen: list[Decision | None] = []
        worker.limiter.decide(check_of(FIVE), lambda _: 1 / 0)
        worker.limiter.decide(check_of(FIVE), seen.append)
        store.loop.turn()
    assert (len(reports), len(seen)) == (1, 1)


def test_local(store: Store) -> None:
    """During an outage the worker decides locally, and the decision says so."""
    worker = Worker(store)
    with outage(store):
        decisions = worker.ask_all([check_of(FIVE)] * 6)
    assert [d and (d.allowed, d.local) for d in decisions] == [(True, True)] * 5 + [(False, True)]
    assert worker.limiter.is_active
    assert worker.active == [True]


def test_share(store: Store) -> None:
    """Each of four workers admits a quarter; Remaining is that of the share."""
    with outage(store):
        for rank in range(4):
            worker = Worker(store, (rank, 4))
            first = worker.ask(check_of(FREE))
            assert first is not None
            assert (first.remaining, first.standings[0].remaining) == (14, 14)
            assert worker.admitted(check_of(FREE), 30) == 24


def rank_without_share(limit: Limit) -> tuple[int, int]:
    """The rank, among eight workers, of one that has no share of the limit."""
    (name,) = check_of(limit).counters
    return next((rank, 8) for rank in range(8) if share(limit, name, rank, 8) is None)


def test_no_share(store: Store) -> None:
    """Where a limit is smaller than the number of workers, those without a share refuse."""
    with outage(store):
        workers = [Worker(store, (rank, 8)) for rank in range(8)]
        assert sum(worker.admitted(check_of(FIVE), 3) for worker in workers) == 5
        fresh = Worker(store, rank_without_share(FIVE))
        decision = fresh.ask(check_of(DAILY, FIVE))
        assert decision is not None
        assert (decision.allowed, decision.local, decision.governing) == (False, True, 1)
        assert (decision.retry_us, decision.remaining, decision.refusing) == (RETRY_US, 0, 2)
        # The other limit counted nothing either.
        question = fresh.ask(check_of(DAILY, FIVE).at_cost(0))
        assert question is not None
        assert (question.allowed, question.governing, question.retry_us) == (True, 1, None)
        assert question.standings[0].remaining == 125


def test_no_share_of_a_shadow(store: Store) -> None:
    """A limit in shadow mode without a share refuses nothing, and reports that it would."""
    shadow = replace(FIVE, amount=1, shadow=True)
    check = check_of(FREE, shadow)
    with outage(store):
        workers = [Worker(store, (rank, 8)) for rank in range(8)]
        decisions = [worker.ask(check) for worker in workers]
    assert all(d is not None and d.allowed and d.governing == 0 for d in decisions)
    assert sorted(d.refusing for d in decisions if d is not None) == [0] + [2] * 7


def test_a_longer_wait_governs(store: Store) -> None:
    """A limit without a share does not hide one with a longer retry time."""
    worker = Worker(store, rank_without_share(FIVE))
    daily = replace(DAILY, amount=8)
    with outage(store):
        assert worker.admitted(check_of(daily), 1) == 1
        decision = worker.ask(check_of(FIVE, daily))
    assert decision is not None
    assert (decision.allowed, decision.governing, decision.refusing) == (False, 1, 3)
    assert decision.retry_us is not None
    assert decision.retry_us > RETRY_US


@pytest.mark.parametrize(("cost", "retry_us"), [(30, RETRY_US), (100, RETRY_US), (101, None)])
def test_a_cost_beyond_the_share(store: Store, cost: int, retry_us: int | None) -> None:
    """A cost beyond every share, but within the limit, gets a short Retry-After."""
    with outage(store):
        decision = Worker(store, (0, 4)).ask(check_of(FREE).at_cost(cost))
    assert decision is not None
    assert (decision.allowed, decision.retry_us) == (False, retry_us)


def test_each_limit_is_owed_its_own_cost(store: Store) -> None:
    """What is written back to a counter is what the requests cost in its limit; nothing, if 0."""
    worker = Worker(store)
    check = replace(check_of(FREE, FIVE, DAILY), cost=3, costs=(3, 0, 1))
    with outage(store):
        assert worker.admitted(check, 2) == 2
    store.loop.run(PROBE_S)
    plan, _, daily = check.counters
    assert [one for one in worker.link.written_back() if one[1]] == [(plan, 6), (daily, 2)]
    assert (store.count_of(FREE), store.count_of(FIVE), store.count_of(DAILY)) == (6, 0, 2)


def test_leases(store: Store) -> None:
    """Leases are divided into shares, too, but not written back: their holders renew them."""
    held = Limit("held", "concurrency", 4, 6_000_000)
    worker = Worker(store, (0, 2))
    check = check_of(held)
    with outage(store):
        decisions = [worker.ask(check.leased(number)) for number in (1, 2, 3)]
        assert [d and d.allowed for d in decisions] == [True, True, False]
    store.loop.run(PROBE_S)
    assert worker.link.written_back() == []


def test_a_lease_that_the_store_refuses(store: Store) -> None:
    """While stabilizing, a lease that the store refuses is released locally."""
    held = Limit("held", "concurrency", 1, 6_000_000)
    check, other = check_of(held), Worker(store)
    worker = Worker(store)
    assert other.admitted(check.leased(7), 1) == 1
    worker.limiter.connected()
    refused = worker.ask(check.leased(8))
    assert refused is not None
    assert (refused.allowed, refused.local) == (False, False)
    store.limiter.release(check.counters[0], 7)
    assert worker.admitted(check.leased(9), 1) == 1


def test_open(store: Store) -> None:
    """Open admits everything, reports full limits and counts nothing."""
    shadow = Limit("shadow", "rate", 1, 60_000_000, shadow=True)
    worker = Worker(store, mode="open")
    with outage(store):
        decisions = worker.ask_all([check_of(shadow, FREE, FIVE)] * 300)
    assert {
        d and (d.allowed, d.governing, d.remaining, d.reset_us, d.local) for d in decisions
    } == {(True, 2, 5, 0, True)}
    assert worker.limiter.is_active
    store.loop.run(1)
    assert not worker.limiter.is_active
    assert store.count_of(FIVE) == 0


def test_open_asks_no_share(store: Store) -> None:
    """While the store recovers, its decision is returned, however small the worker's share is."""
    worker = Worker(store, (0, 4), mode="open")
    with outage(store):
        worker.ask(check_of(FIVE))
    worker.limiter.connected()
    assert worker.admitted(check_of(FIVE), 6) == 5


def test_closed(store: Store) -> None:
    """Closed returns no decision; the next check is sent to the store again."""
    worker = Worker(store, mode="closed")
    with outage(store):
        assert worker.ask(check_of(FIVE)) is None
    decision = worker.ask(check_of(FIVE))
    assert decision is not None
    assert not decision.local
    assert store.count_of(FIVE) == 1


# -- recovery -------------------------------------------------------------------------------------


def test_written_back(store: Store) -> None:
    """Admissions of an outage are in the store's counter soon after its recovery, once."""
    worker = Worker(store)
    with outage(store):
        assert worker.admitted(check_of(FREE, DAILY), 10) == 10
        store.loop.run(1)
    worker.link.asked.clear()
    store.loop.run(PROBE_S)
    assert (store.count_of(FREE), store.count_of(DAILY)) == (10, 10)
    store.loop.run(3)
    assert [back for back in worker.link.written_back() if back[1]] == [
        (name, 10) for name in check_of(FREE, DAILY).counters
    ]
    assert worker.beyond == []
    assert not worker.limiter.is_active
    assert worker.active == [True, False]
    assert store.loop.is_idle


def test_written_back_at_once(store: Store) -> None:
    """A call on recovery starts the write-back without waiting for the next check."""
    worker = Worker(store)
    with outage(store):
        worker.admitted(check_of(FREE), 10)
    worker.limiter.connected()
    store.loop.run(0)
    assert store.count_of(FREE) == 10


def test_owed_counts_are_decided_here(store: Store) -> None:
    """Until the write-back, the store decides about other counters only."""
    worker = Worker(store)
    other = check_of(FIVE, name="other")
    with outage(store):
        assert worker.admitted(check_of(FIVE), 3) == 3
    decisions = [worker.ask(check) for check in (check_of(FIVE), other, check_of(FIVE))]
    assert [d and (d.local, d.remaining) for d in decisions] == [(True, 1), (False, 4), (True, 0)]


def test_what_left_its_window_is_not_owed(store: Store) -> None:
    """After a long outage only what would still count is written back."""
    worker = Worker(store)
    with outage(store):
        worker.admitted(check_of(FREE), 10)
        store.loop.run(70)
        worker.admitted(check_of(FREE), 3)
    store.loop.run(PROBE_S)
    assert store.count_of(FREE) == 3


def test_checks_without_a_cost_are_not_owed(store: Store) -> None:
    """Checks at cost 0 and dry ones leave no debt; the recovery is detected anyway."""
    worker = Worker(store)
    with outage(store):
        assert worker.ask(check_of(FIVE).at_cost(0)) is not None
        assert worker.ask(replace(check_of(FIVE), dry=True)) is not None
        store.loop.run(1)
        assert worker.limiter.is_active
    worker.link.asked.clear()
    store.loop.run(2)
    assert worker.link.written_back() == []
    assert not worker.limiter.is_active


def test_stabilizing(store: Store) -> None:
    """For a while after the recovery a check must pass both the store and the local share."""
    worker = Worker(store, (0, 2))
    with outage(store):
        worker.admitted(check_of(DAILY), 1)
        store.lose_all()
    worker.limiter.connected()
    store.loop.run(0)
    assert worker.admitted(check_of(DAILY), 1_000) == 499
    assert store.count_of(DAILY) == 500
    assert worker.admitted(check_of(FIVE, name="new"), 5) in (2, 3)
    store.loop.run(STABILIZE_S + PROBE_S)
    assert worker.admitted(check_of(DAILY), 1_000) == 500


def test_stabilizing_with_a_full_store(store: Store) -> None:
    """While stabilizing, what the store refuses is refused."""
    worker = Worker(store)
    assert worker.admitted(check_of(FIVE), 5) == 5
    worker.limiter.connected()
    refused = worker.ask(check_of(FIVE))
    assert refused is not None
    assert (refused.allowed, refused.local) == (False, False)


def test_an_outage_while_stabilizing(store: Store) -> None:
    """Local admissions of an outage that begins while stabilizing are owed, too."""
    worker = Worker(store)
    worker.limiter.connected()
    with outage(store):
        decision = worker.ask(check_of(FIVE))
        assert decision is not None
        assert (decision.allowed, decision.local) == (True, True)
    store.loop.run(PROBE_S)
    assert store.count_of(FIVE) == 1


def test_no_second_share(store: Store) -> None:
    """A second outage in the same window does not renew the share."""
    worker = Worker(store)
    with outage(store):
        assert worker.admitted(check_of(FIVE), 9) == 5
    store.loop.run(2)
    with outage(store):
        assert worker.admitted(check_of(FIVE), 9) == 0


def test_beyond(store: Store) -> None:
    """The report has exactly the units that exceeded the limit when they were written back."""
    worker, shadow = Worker(store), replace(FIVE, name="watched", shadow=True)
    assert worker.admitted(check_of(FIVE, shadow), 3) == 3
    with outage(store):
        assert worker.admitted(check_of(FIVE, shadow), 4) == 4
    store.loop.run(1)
    assert store.count_of(FIVE) == 7
    assert worker.beyond == [("five", 2)]


def test_a_reload_during_an_outage(store: Store) -> None:
    """What exceeds a limit is reckoned by its values after the reload, and has its name then."""
    worker = Worker(store)
    ten = replace(FIVE, name="ten", amount=10, was=(FIVE.name,))
    after = Check((ten,), check_of(FIVE).counters)
    assert worker.admitted(check_of(FIVE), 3) == 3
    with outage(store):
        assert worker.admitted(check_of(FIVE), 4) == 4
        assert worker.admitted(after, 9) == 6
    store.loop.run(1)
    assert store.count_of(FIVE) == 13
    assert worker.beyond == [("ten", 3)]


def test_beyond_of_several_workers(store: Store) -> None:
    """The reports of all workers add up to what the counter has beyond its limit."""
    workers = [Worker(store, (rank, 2)) for rank in range(2)]
    assert workers[0].admitted(check_of(FREE), 80) == 80
    with outage(store):
        assert [worker.admitted(check_of(FREE), 90) for worker in workers] == [50, 50]
    store.loop.run(1)
    assert store.count_of(FREE) == 180
    assert sum(units for worker in workers for _, units in worker.beyond) == 80


def test_many_debts(store: Store) -> None:
    """Many debts are written back in batches, without a pause between them."""
    worker = Worker(store)
    with outage(store):
        for name in range(300):
            worker.admitted(check_of(FIVE, name=str(name)), 1)
        worker.link.asked.clear()
        store.loop.run(10 * PROBE_S)
        # During an outage, each attempt sends one batch.
        assert len(worker.link.asked) <= 11 * 128
    worker.limiter.connected()
    store.loop.run(0)
    assert all(store.count_of(FIVE, str(name)) == 1 for name in range(300))


def test_one_counter_of_many_stays_unavailable(store: Store) -> None:
    """A part of the store that stays unavailable does not delay the recovery of others."""
    worker = Worker(store)
    decide = worker.link.decide
    lost = check_of(FIVE, name="lost").counters

    def partly(check: Check, done: Done, review: Review | None = None) -> None:
        if check.counters == lost:
            done(None if review is None else review(check, None))
        else:
            decide(check, done, review)

    worker.link.decide = partly  # type: ignore[method-assign] # a store that is half away
    with outage(store):
        for name in range(100):
            worker.admitted(check_of(FIVE, name=str(name)), 1)
            worker.admitted(check_of(FIVE, name="lost"), 1)
    store.loop.run(5)
    assert all(store.count_of(FIVE, str(name)) == 1 for name in range(100))
    settled, away = worker.ask_all([check_of(FIVE, name="7"), check_of(FIVE, name="lost")])
    assert settled is not None
    assert away is not None
    assert (settled.local, settled.remaining) == (False, 3)
    assert away.local


def test_dropped_debts(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Debts are bounded; dropped ones are reported at the end, with the rest."""
    worker = Worker(store, owed=Owed(capacity=2))
    with caplog.at_level(logging.INFO), outage(store):
        for name in range(5):
            worker.admitted(check_of(FIVE, name=str(name)), 2)
    with caplog.at_level(logging.INFO):
        store.loop.run(2)
    first, last = caplog.messages
    assert first == "store unavailable: deciding by on_store_failure: local, share 1 of 1"
    assert last == (
        "store recovered after 1 s; 10 checks were decided without it, 4 units were written back, "
        "0 of them beyond a limit, and 3 counters were dropped"
    )


def test_a_closed_limiter(store: Store) -> None:
    """A closed limiter still decides, but starts no timer and reports nothing."""
    worker = Worker(store)
    with outage(store):
        worker.admitted(check_of(FIVE), 1)
        worker.limiter.close()
        worker.ask(check_of(FIVE))
    assert store.loop.is_idle
    fresh = Worker(store)
    fresh.limiter.close()
    with outage(store):
        assert fresh.ask(check_of(FIVE)) is not None
    assert store.loop.is_idle
    assert fresh.active == []


# -- the bound of an outage -----------------------------------------------------------------------

RATE = Limit("rate", "rate", 12, 60_000_000)
LIMITS = (
    RATE,
    Limit("small", "rate", 2, 60_000_000),
    Limit("bucket", "rate", 6, 60_000_000, 10),
    Limit("quota", "quota", 12, 60_000_000),
)


def most_in_a_window(limit: Limit, admitted: list[tuple[int, int]]) -> int:
    """The most that was admitted in any one window or period. admitted: when, and how much."""
    if limit.kind == "quota":
        periods = {at // limit.window_us for at, _ in admitted}
        return max(
            sum(cost for at, cost in admitted if at // limit.window_us == period)
            for period in periods or {0}
        )
    most, within, last = 0, 0, deque[tuple[int, int]]()
    for at, cost in admitted:
        last.append((at, cost))
        within += cost
        while last[0][0] <= at - limit.window_us:
            within -= last.popleft()[1]
        most = max(most, within)
    return most


@dataclass
class Fleet:
    """Several workers, and what they admitted of one limit."""

    limit: Limit
    size: int
    loop: FakeLoop = field(default_factory=FakeLoop)
    admitted: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(self.loop)
        self.workers = [Worker(self.store, (rank, self.size)) for rank in range(self.size)]

    def ask(self, worker: Worker, times: int, cost: int = 1) -> None:
        check = check_of(self.limit).at_cost(cost)
        admitted = worker.admitted(check, times)
        self.admitted.extend([(self.loop.now_us(), cost)] * admitted)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 5), st.integers(1, 8), st.integers(1, 3)),
        st.tuples(st.just("cut"), st.integers(0, 5)),
        st.tuples(st.just("mend"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("stop")),
        st.tuples(st.just("start")),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.05, 0.3, 0.7, 2.0, 9.0, 31.0, 62.0])),
    ),
    min_size=1,
    max_size=60,
)
many = settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@given(st.sampled_from(LIMITS), st.integers(1, 6), EVENTS)
@many
def test_never_more_than_twice(limit: Limit, size: int, events: list[tuple[object, ...]]) -> None:
    """However the store and links fail, a window never has more than twice the limit."""
    fleet = Fleet(limit, size)
    for event in events:
        match event:
            case ("ask", int(index), int(times), int(cost)):
                fleet.ask(fleet.workers[index % size], times, cost)
            case ("cut", int(index)):
                fleet.workers[index % size].link.is_up = False
            case ("mend", int(index), bool(told)):
                worker = fleet.workers[index % size]
                worker.link.is_up = True
                if told and fleet.store.is_up:
                    worker.limiter.connected()
            case ("stop",):
                fleet.store.is_up = False
            case ("start",):
                fleet.store.is_up = True
            case ("wait", float(seconds)):
                fleet.loop.run(seconds)
    assert most_in_a_window(limit, fleet.admitted) <= 2 * limit.peak


@given(
    st.sampled_from(LIMITS),
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=12),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=12),
    st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.25]), min_size=6, max_size=6),
    st.floats(0.1, 20.0),
)
@many
def test_data_lost(
    limit: Limit,
    size: int,
    before: list[tuple[int, int]],
    away: list[tuple[int, int]],
    delays: list[float],
    length_s: float,
) -> None:
    """The same for a store that restarts empty, found by one worker after another."""
    fleet = Fleet(limit, size)
    for index, times in before:
        fleet.ask(fleet.workers[index % size], times)
    fleet.store.is_up = False
    for index, times in away:
        fleet.loop.run(length_s / (len(away) + 1))
        fleet.ask(fleet.workers[index % size], times)
    fleet.store.lose_all()
    for worker in fleet.workers:
        worker.link.is_up = False
    fleet.store.is_up = True
    back_s = fleet.loop.now_s
    for delay_s, worker in sorted(zip(delays, fleet.workers, strict=False), key=lambda w: w[0]):
        fleet.loop.run_to(back_s + delay_s)
        for other in fleet.workers:
            fleet.ask(other, 2)
        worker.link.is_up = True
        worker.limiter.connected()
    for _ in range(30):
        fleet.loop.run(0.1)
        for worker in fleet.workers:
            fleet.ask(worker, 2)
    assert most_in_a_window(limit, fleet.admitted) <= 2 * limit.peak
    assert not any(worker.limiter.is_active for worker in fleet.workers)


@given(
    st.sampled_from(LIMITS),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=10),
)
@many
def test_the_store_has_all_admissions(
    limit: Limit, size: int, asked: list[tuple[int, int]]
) -> None:
    """After recovery the store's counter has all that was admitted, before and in the outage."""
    fleet = Fleet(limit, size)
    fleet.ask(fleet.workers[0], limit.peak // 2)
    fleet.store.is_up = False
    for index, times in asked:
        fleet.ask(fleet.workers[index % size], times)
    fleet.store.is_up = True
    fleet.loop.run(2)
    total = sum(cost for _, cost in fleet.admitted)
    assert fleet.store.count_of(limit) == total
    beyond = sum(units for worker in fleet.workers for _, units in worker.beyond)
    assert beyond == max(0, total - limit.peak)


# -- with a real store ----------------------------------------------------------------------------


async def test_over_redis() -> None:
    """A server is killed, restarts empty, and gets what was admitted meanwhile."""
    server = RedisServer().start()
    try:
        async with linked(server) as link:
            beyond: list[tuple[str, int]] = []
            limiter = FallbackLimiter(
                RedisLimiter(link),
                MemoryLimiter(lambda: START_US),
                lambda: "local",
                on_overadmitted=lambda limit, units: beyond.append((limit, units)),
            )
            link.on_up.append(limiter.connected)
            (first,) = await decided(limiter, [check_of(FREE)])
            server.kill()
            await eventually(lambda: not link.is_up, "the link is down")
            away = await decided(limiter, [check_of(FREE, DAILY)] * 150)
            assert sum(d is not None and d.allowed and d.local for d in away) == 100
            server.start()
            await eventually(lambda: not limiter.is_active, "the store decides again")
            last, daily = await decided(limiter, [check_of(FREE), check_of(DAILY)])
            limiter.close()
    finally:
        server.stop()
    assert (first is not None, last is not None, daily is not None) == (True, True, True)
    assert first is not None
    assert last is not None
    assert daily is not None
    assert (first.local, last.local, last.allowed) == (False, False, False)
    assert (daily.allowed, daily.remaining) == (True, 899)
    assert beyond == []


async def test_beyond_over_redis(redis_server: RedisServer) -> None:
    """The script counts a debt beyond the limit, and the gauge reads the excess."""
    async with linked(redis_server) as link:
        primary, away = RedisLimiter(link), [False]

        class Cut:
            def decide(self, check: Check, done: Done, review: Review | None = None) -> None:
                if away[0]:
                    done(None if review is None else review(check, None))
                else:
                    primary.decide(check, done, review)

        beyond: list[tuple[str, int]] = []
        limiter = FallbackLimiter(
            Cut(),
            MemoryLimiter(lambda: START_US),
            lambda: "local",
            on_overadmitted=lambda limit, units: beyond.append((limit, units)),
        )
        quota = Limit("few", "quota", 50, 86_400_000_000)
        check = check_of(FREE, FIVE, quota)
        assert [d and d.allowed for d in await decided(limiter, [check] * 4)] == [True] * 4
        away[0] = True
        assert [d and d.allowed for d in await decided(limiter, [check] * 4)] == [True] * 4
        costly = check_of(FREE, quota).at_cost(45)
        assert [d and d.allowed for d in await decided(limiter, [costly])] == [True]
        away[0] = False
        await eventually(lambda: not limiter.is_active, "the store decides again")
        limiter.close()
        assert sorted(beyond) == [("few", 3), ("five", 3)]
