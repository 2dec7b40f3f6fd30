"""Pacing against the gateway's own arithmetic of limits, in a time that the test sets.

A simulation: senders that ask, wait, send, and hear the answer after some milliseconds. The limiter
is that of the gateway; what it says is told as headers tell it, in whole seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from random import Random

import pytest
from gateway_client.limits import Limits
from gateway_client.pacing import (
    ASK_S,
    BELIEVED_S,
    MOST_KINDS,
    MOST_LIMITS,
    Pacer,
    Pause,
    Ticket,
    kind_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.limits import Check, Limit
from gateway.limiting.memory import MemoryLimiter

SECOND = 1_000_000
MINUTE = Limit("plan", "rate", 60, 60 * SECOND)
FREE = Limit("plan", "rate", 60, 60 * SECOND, 100)
SEARCH = Limit("search", "rate", 30, 60 * SECOND)
HOURLY = Limit("hourly", "quota", 300, 3600 * SECOND)
KIND = kind_of("GET", "/v1/connectors")


@dataclass
class Simulation:
    """Senders of one pacer, and others that send without asking.

    limits:    that a request meets, by its path
    latency_s: at most, for each way
    costs:     of a request, by its path
    """

    limits: dict[str, tuple[Limit, ...]]
    random: Random
    latency_s: float = 0.05
    pacer: Pacer = field(default_factory=Pacer)
    begins_s: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.now_s = self.begins_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._server = MemoryLimiter(lambda: int(self.now_s * SECOND))
        self._asleep: list[Callable[[], None]] = []
        self.admitted: list[float] = []
        self.refused: list[float] = []

    def at(self, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._events, (seconds, next(self._order), then))

    def run(self, for_s: float) -> None:
        while self._events and self._events[0][0] <= self.begins_s + for_s:
            self.now_s, _, then = heapq.heappop(self._events)
            then()

    def sender(self, paths: Iterator[str]) -> None:
        """Sends one request after the other, as the pacer lets it."""
        self._ask(next(paths), paths)

    def _ask(self, path: str, paths: Iterator[str]) -> None:
        found = self.pacer.ask(kind_of("GET", path), self.now_s)
        if isinstance(found, Pause):
            is_done = False

            def wake() -> None:
                nonlocal is_done
                if not is_done:
                    is_done = True
                    self._ask(path, paths)

            self._asleep.append(wake)
            if found.seconds is not None:
                assert found.seconds > 0
                self.at(self.now_s + found.seconds, wake)
            return
        there_s = self.now_s + self.random.random() * self.latency_s
        self.at(there_s, lambda: self._serve(path, found, paths))

    def _serve(self, path: str, ticket: Ticket, paths: Iterator[str]) -> None:
        limits, retry_s = self._decide(path)
        back_s = self.now_s + self.random.random() * self.latency_s

        def hear() -> None:
            self.pacer.answered(ticket, limits, self.now_s, retry_after_s=retry_s)
            asleep, self._asleep = self._asleep, []
            for wake in asleep:
                wake()
            self._ask(next(paths), paths)

        self.at(back_s, hear)

    def _decide(self, path: str) -> tuple[Limits, float | None]:
        limits = self.limits[path]
        found = self._server.decide_now(Check(limits, tuple(each.name for each in limits)))
        (self.admitted if found.allowed else self.refused).append(self.now_s - self.begins_s)
        after_s = math.ceil(found.reset_us / SECOND)
        told = Limits(
            limits[found.governing].amount, found.remaining, int(self.now_s) + after_s, after_s
        )
        return told, None if found.allowed else max(1, math.ceil((found.retry_us or 0) / SECOND))

    def other(self, path: str, every_s: float) -> None:
        """Another client of the same key, which does not pace."""

        def send() -> None:
            limits = self.limits[path]
            self._server.decide_now(Check(limits, tuple(each.name for each in limits)))
            self.at(self.now_s + every_s, send)

        send()


def always(path: str) -> Iterator[str]:
    while True:
        yield path


@pytest.mark.parametrize("limit", [MINUTE, FREE])
@settings(max_examples=20)
@given(st.randoms(use_true_random=True), st.integers(1, 8), st.sampled_from([0.001, 0.05, 0.4]))
def test_nearly_all_of_a_limit_and_no_429(
    limit: Limit, random: Random, senders: int, latency_s: float
) -> None:
    """Up to eight senders on one key get 95 % of its rate through in ten minutes, and no 429."""
    simulation = Simulation({"/v1/a": (limit,)}, random, latency_s)
    for _ in range(senders):
        simulation.sender(always("/v1/a"))
    simulation.run(600.0)
    assert simulation.refused == []
    assert len(simulation.admitted) >= 0.95 * 600


def test_a_long_pause_does_not_follow_a_burst() -> None:
    """After the first two windows the requests are a second apart, and never more than two."""
    simulation = Simulation({"/v1/a": (MINUTE,)}, Random(1))
    for _ in range(8):
        simulation.sender(always("/v1/a"))
    simulation.run(600.0)
    later = [each for each in simulation.admitted if each > 125]
    assert max(b - a for a, b in pairwise(later)) < 2
    assert len([each for each in simulation.admitted if each < 0.5]) < 31


def test_the_first_request_goes_ahead() -> None:
    """Nothing is known before the first answer: the others wait, and one a second goes on."""
    pacer = Pacer()
    first = pacer.ask(KIND, 0.0)
    assert isinstance(first, Ticket)
    assert pacer.ask(KIND, 0.25) == Pause(ASK_S - 0.25)
    assert isinstance(pacer.ask(KIND, 1.0), Ticket)
    assert pacer.ask(KIND, 1.5) == Pause(ASK_S - 0.5)
    pacer.answered(first, Limits(60, 59, 0, 61), 1.5)
    assert isinstance(pacer.ask(KIND, 1.5), Ticket)


def test_the_first_request_is_lost() -> None:
    """Then the next one goes ahead."""
    pacer = Pacer()
    first = pacer.ask(KIND, 0.0)
    assert isinstance(first, Ticket)
    pacer.lost(first, 1.0)
    assert isinstance(pacer.ask(KIND, 1.0), Ticket)
    assert pacer.ask(KIND, 1.0) == Pause(ASK_S)


def test_answers_without_limits() -> None:
    """An API that tells no limits is not paced."""
    pacer = Pacer()
    first = pacer.ask(KIND, 0.0)
    assert isinstance(first, Ticket)
    pacer.answered(first, None, 0.1)
    assert all(isinstance(pacer.ask(KIND, 0.2), Ticket) for _ in range(1000))


def test_others_use_the_key() -> None:
    """What others use is not sent, and others that stop are forgotten when the answer says so."""
    pacer = Pacer()
    first = pacer.ask(KIND, 0.0)
    assert isinstance(first, Ticket)
    pacer.answered(first, Limits(60, 0, 0, 61), 0.5)
    assert pacer.ask(KIND, 0.5) == Pause(61.0)
    assert isinstance(pacer.ask(KIND, 61.5), Ticket)


def test_another_client_takes_a_third() -> None:
    """Beside a client that does not pace, the rest is used, and hardly a request is refused."""
    simulation = Simulation({"/v1/a": (MINUTE,)}, Random(2))
    simulation.other("/v1/a", 3.0)
    for _ in range(4):
        simulation.sender(always("/v1/a"))
    simulation.run(600.0)
    assert len(simulation.admitted) >= 0.9 * 400
    assert len(simulation.refused) <= 0.02 * 400


def test_a_429_is_waited_for() -> None:
    """Whatever else is known, nothing is sent before its Retry-After."""
    pacer = Pacer()
    first = pacer.ask(KIND, 0.0)
    assert isinstance(first, Ticket)
    pacer.answered(first, Limits(60, 0, 0, 40), 1.0, retry_after_s=30.0)
    assert pacer.ask(KIND, 1.0) == Pause(30.0)
    assert pacer.ask(KIND, 30.9) != Pause(0.0)
    assert isinstance(pacer.ask(KIND, 41.0), Ticket)


def test_a_quota() -> None:
    """A used-up quota pauses until its period ends, and nothing is refused."""
    simulation = Simulation({"/v1/a": (HOURLY,)}, Random(3), begins_s=3600.0 * 10 + 1800)
    simulation.sender(always("/v1/a"))
    simulation.run(3600.0)
    assert simulation.refused == []
    assert len(simulation.admitted) > 300
    assert len([each for each in simulation.admitted if each <= 1800]) == 300


def test_each_kind_of_request_has_its_limit() -> None:
    """A route with a smaller limit is paced by it, and does not hold up others."""
    simulation = Simulation(
        {"/api/search/a": (SEARCH, MINUTE), "/v1/a": (MINUTE,)}, Random(4), latency_s=0.01
    )
    simulation.sender(always("/api/search/a"))
    simulation.sender(always("/v1/a"))
    simulation.run(600.0)
    assert len(simulation.admitted) >= 0.9 * 600
    assert len(simulation.refused) <= 0.03 * 600


def test_a_lost_request_counts() -> None:
    """The gateway may have counted it, so its unit is taken for used until it is back."""
    pacer = Pacer()
    first = pacer.ask(KIND, 0.0)
    assert isinstance(first, Ticket)
    pacer.answered(first, Limits(2, 1, 0, 10), 0.0)
    second = pacer.ask(KIND, 5.0)
    assert isinstance(second, Ticket)
    pacer.lost(second, 6.0)
    assert pacer.ask(KIND, 6.0) == Pause(4.0)


def test_what_is_known_is_bounded() -> None:
    """However many limits and paths there are."""
    pacer = Pacer()
    for number in range(MOST_KINDS + MOST_LIMITS + 10):
        ticket = pacer.ask(kind_of("GET", f"/v1/{number}"), 0.0)
        if isinstance(ticket, Ticket):
            pacer.answered(ticket, Limits(number + 1000, number + 999, 0, 1), 0.0)
    assert len(pacer._kinds) == MOST_KINDS
    assert len(pacer._paces) == MOST_LIMITS


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/connectors", "/v1/connectors"),
        ("/api/search/tides?page=2", "/api/search"),
        ("/health?verbose", "/health"),
        ("/", "/"),
    ],
)
def test_kinds(path: str, kind: str) -> None:
    """The method, and two segments of the path."""
    assert kind_of("GET", path) == ("GET", kind)


def answer(pacer: Pacer, kind: tuple[str, str], now_s: float, limits: Limits) -> None:
    """One request of this kind, and its answer."""
    ticket = pacer.ask(kind, now_s)
    assert isinstance(ticket, Ticket)
    pacer.answered(ticket, limits, now_s)


def test_a_limit_of_nothing() -> None:
    """It is not paced: whatever is waited for, nothing would be sent."""
    pacer = Pacer()
    answer(pacer, KIND, 0.0, Limits(0, 0, 0, 0))
    assert all(isinstance(pacer.ask(KIND, 0.0), Ticket) for _ in range(100))


def test_two_limits_of_the_same_number() -> None:
    """20 a day and 20 a second: what was used of the one does not lock out of the other."""
    pacer = Pacer()
    daily, quick = kind_of("GET", "/api/d"), kind_of("GET", "/api/m")
    for number in range(15):
        answer(pacer, daily, number * 10_000.0, Limits(20, 19 - number, 0, 86_400))
    now_s = 150_000.0
    for _ in range(200):
        found = pacer.ask(quick, now_s)
        if isinstance(found, Pause):
            assert found.seconds is not None
            assert found.seconds <= BELIEVED_S
            now_s += found.seconds
            continue
        pacer.answered(found, Limits(20, 19, 0, 1), now_s)
        now_s += 0.01


@pytest.mark.parametrize("odd", [Limits(60, 0, 0, 999_999_999_999), Limits(60, 59, 0, 10**12)])
def test_one_odd_answer(odd: Limits) -> None:
    """It is not believed for long, and normal answers mend it."""
    pacer = Pacer()
    answer(pacer, KIND, 0.0, odd)
    now_s, sent = 0.0, 0
    while now_s < 1_000.0:
        found = pacer.ask(KIND, now_s)
        if isinstance(found, Pause):
            assert found.seconds is not None
            now_s += found.seconds
            continue
        sent += 1
        pacer.answered(found, Limits(60, 40, 0, 61), now_s)
        now_s += 0.5
    assert sent > 400


def test_a_429_that_asks_for_very_long() -> None:
    """One request asks again after some minutes: it may have been a mistake."""
    pacer = Pacer()
    first = pacer.ask(KIND, 0.0)
    assert isinstance(first, Ticket)
    pacer.answered(first, Limits(60, 0, 0, 61), 0.0, retry_after_s=999_999_999.0)
    assert pacer.ask(KIND, 0.0) == Pause(BELIEVED_S)
    assert isinstance(pacer.ask(KIND, BELIEVED_S), Ticket)
