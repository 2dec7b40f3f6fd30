"""The store's status, combined from several links."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from gateway.domain.ports import StoreDown
from gateway.observe.metrics import Metrics
from gateway.stores.redis.reasons import with_cure
from gateway.stores.redis.status import StoreStatus


class FakePart:
    """Up and down as the test says."""

    def __init__(self) -> None:
        self.is_up = False
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[StoreDown], None]] = []
        self.on_failed: list[Callable[[StoreDown], None]] = []

    def rise(self) -> None:
        self.is_up = True
        for listener in self.on_up:
            listener()

    def fall(self, reason: str) -> None:
        self.is_up = False
        for listener in list(self.on_down):
            listener(StoreDown(reason))

    def fail(self, reason: str) -> None:
        for listener in list(self.on_failed):
            listener(StoreDown(reason))


def test_several_links_have_one_status(caplog: pytest.LogCaptureFixture) -> None:
    """The store is up once all links are, and down once one is not; each change is one line."""
    parts, metrics, now_s = (FakePart(), FakePart()), Metrics("test"), 100.0
    named = {"limits": parts[0], "keys": parts[1]}
    status = StoreStatus("redis://cache:6379/0", named, metrics, lambda: now_s)
    seen = []

    def note() -> None:
        seen.append((status.is_up, metrics.store_up, status.was_up))

    with caplog.at_level(logging.INFO):
        parts[1].fall("it never was up")
        parts[0].rise()
        note()
        parts[1].rise()
        note()
        now_s = 200.0
        parts[0].fall("it is over")
        parts[1].fall("that as well")
        note()
        assert (status.down_s, status.reason) == (200.0, "limits: it is over; keys: that as well")
        now_s = 203.21
        parts[0].rise()
        note()
        parts[1].rise()
        note()
        status.close()
        parts[0].fall("we hang up")
    assert seen == [
        (False, False, False),
        (True, True, True),
        (False, False, True),
        (False, False, True),
        (True, True, True),
    ]
    assert [record.message for record in caplog.records] == [
        "store connected: redis://cache:6379/0",
        "store unavailable: redis://cache:6379/0: it is over",
        "store connected again: redis://cache:6379/0, after 3.2 s",
    ]


def test_each_new_reason_of_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    """The reason is that of the last attempt of each link; each one is logged once an outage."""
    limits, keys = FakePart(), FakePart()
    status = StoreStatus("cache", {"limits": limits, "keys": keys}, Metrics("test"), lambda: 0.0)
    refused = "refuses the connection at AUTH: WRONGPASS invalid username-password pair"
    limits.rise()
    keys.rise()
    limits.fall("closed")
    keys.fall("closed")
    assert status.reason == "closed"
    for _ in range(2):
        limits.fail(refused)
        keys.fail("closed")
        limits.fail("closed")
        limits.fail(refused)
    assert status.reason == f"limits: {with_cure(refused)}; keys: closed"
    limits.rise()
    assert status.reason == "keys: closed"
    status.close()
    keys.fail("we hang up")
    assert [record.message for record in caplog.records] == [
        "store unavailable: cache: closed",
        f"store still unavailable: cache: limits: {with_cure(refused)}",
    ]


def test_reasons_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """Before the start has waited long enough nothing is logged, and then each new reason."""
    limits, keys = FakePart(), FakePart()
    status = StoreStatus("cache", {"limits": limits, "keys": keys}, Metrics("test"), lambda: 0.0)
    limits.fail("nobody is there")
    assert not caplog.records
    status.tell()
    limits.fail("nobody is there")
    keys.fail("it has a password")
    assert [record.message for record in caplog.records] == [
        "store unavailable: cache: limits: nobody is there; keys: not connected yet",
        "store still unavailable: cache: keys: it has a password",
    ]


def test_reasons_without_end(caplog: pytest.LogCaptureFixture) -> None:
    """A reason that differs each time fills no log."""
    part = FakePart()
    StoreStatus("cache", {"keys": part}, Metrics("test"), lambda: 0.0).tell()
    for number in range(100):
        part.fail(f"port {number}")
    assert len(caplog.records) < 20
