"""The store's status, combined from several links."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from gateway.domain.ports import StoreDown
from gateway.observe.metrics import Metrics
from gateway.stores.redis.status import StoreStatus


class FakePart:
    """Up and down as the test says."""

    def __init__(self) -> None:
        self.is_up = False
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[StoreDown], None]] = []

    def rise(self) -> None:
        self.is_up = True
        for listener in self.on_up:
            listener()

    def fall(self, reason: str) -> None:
        self.is_up = False
        for listener in self.on_down:
            listener(StoreDown(reason))


def test_several_links_have_one_status(caplog: pytest.LogCaptureFixture) -> None:
    """The store is up once all links are, and down once one is not; each change is one line."""
    parts, metrics, now_s = (FakePart(), FakePart()), Metrics("test"), 100.0
    status = StoreStatus("redis://cache:6379/0", parts, metrics, lambda: now_s)
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
        parts[0].fall("READONLY")
        parts[1].fall("that as well")
        note()
        assert (status.down_s, str(status.reason)) == (200.0, "READONLY")
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
        "store unavailable: redis://cache:6379/0: READONLY",
        "store connected again: redis://cache:6379/0, after 3.2 s",
    ]
