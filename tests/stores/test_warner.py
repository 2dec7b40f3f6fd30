"""Warnings of limits, from a worker to the audit log."""

from __future__ import annotations

import logging

import pytest

from gateway.domain.ports import StoreDown
from gateway.observe.metrics import Metrics
from gateway.observe.warned import LimitWarning, Warned
from gateway.stores import warner as module
from gateway.stores.memory_audit import MemoryAuditStore
from gateway.stores.memory_usage import MemoryUsageStore
from gateway.stores.warner import Warner
from tests.kit.eventually import eventually
from tests.suites.usage import NOW_S

NOW_US = NOW_S * 1_000_000


class Site:
    """A worker's warnings, and a store that may be away."""

    def __init__(self) -> None:
        self.warned, self.metrics = Warned(), Metrics("test")
        self.usage, self.audit = MemoryUsageStore(lambda: NOW_US), MemoryAuditStore()
        self.is_down = self.refuses_log = False
        self.warner = self.another()

    def another(self) -> Warner:
        return Warner(self.warned, self.first_to_warn, self.append, self.metrics)

    async def first_to_warn(self, *words):
        if self.is_down:
            raise StoreDown("away")
        return await self.usage.first_to_warn(*words)

    async def append(self, event):
        if self.is_down or self.refuses_log:
            raise StoreDown("away")
        return await self.audit.append(event)

    def warn_of(self, count="a", level=80) -> None:
        self.warned.waiting.append(
            LimitWarning(count, level, "search", "free", "7h3k9m2p4q6r", NOW_US, 60_000_000)
        )

    async def told(self):
        return [entry.event for entry in await self.audit.entries(count=1_000)][::-1]

    def counted(self):
        (values,) = (
            each.values
            for each in self.metrics.snapshot().series
            if each.family.name == "limit_warnings"
        )
        return {labels: count for labels, (count,) in values.items()}


@pytest.fixture
def site():
    return Site()


async def test_a_warning_is_logged_and_counted(site):
    """Both levels are in the audit log, by the gateway, about the key, and in the metric."""
    site.warn_of()
    site.warn_of(level=100)
    await site.warner.warn()
    near, reached = await site.told()
    assert (near.at_us, near.actor, near.action, near.subject) == (
        NOW_US,
        "gateway",
        "limit.near",
        "key:7h3k9m2p4q6r",
    )
    assert near.after == {"limit": "search", "plan": "free", "level": 80}
    assert near.before is None
    assert (reached.action, reached.after["level"]) == ("limit.reached", 100)
    assert site.counted() == {("search", "free", 80): 1, ("search", "free", 100): 1}


async def test_what_another_worker_has_told_is_left(site):
    """A count that was warned of in its window by anybody is not warned of again."""
    for _ in range(3):
        site.warn_of()
        await site.another().warn()
    assert len(await site.told()) == 1
    assert site.counted() == {("search", "free", 80): 1}


async def test_too_many_are_only_counted(site):
    """What the log has no room for is in the metric."""
    for at in range(70):
        site.warn_of(str(at))
    await site.warner.warn()
    assert len(await site.told()) == 60
    assert site.counted() == {("search", "free", 80): 70}


async def test_while_the_store_is_away_warnings_wait(site, caplog):
    """They are told when it is back; that they cannot be is said once."""
    site.is_down = True
    site.warn_of("a")
    site.warn_of("b")
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            await site.warner.warn()
    assert len(caplog.records) == 1
    assert len(site.warned.waiting) == 2
    site.is_down = False
    await site.warner.warn()
    assert len(await site.told()) == 2


async def test_a_log_that_takes_nothing(site):
    """A warning that is ours to give is kept until the log takes it, and counted once."""
    site.refuses_log = True
    site.warn_of()
    await site.warner.warn()
    await site.warner.warn()
    assert site.counted() == {("search", "free", 80): 1}
    site.refuses_log = False
    await site.warner.warn()
    assert len(await site.told()) == 1
    assert site.counted() == {("search", "free", 80): 1}


async def test_it_warns_by_itself(site, monkeypatch):
    """Between start and stop it takes what comes."""
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    await site.warner.stop()  # it was never started
    site.warner.start()
    site.warn_of()
    await eventually(lambda: site.counted() != {}, "it is told")
    await site.warner.stop()
    site.warn_of("b")
    assert len(site.warned.waiting) == 1
