"""Limit warnings, from a worker to the store."""

from __future__ import annotations

import logging

import pytest

from gateway.domain.ports import StoreDown
from gateway.domain.warnings import MOST_A_MINUTE
from gateway.observe.limit_warnings import LimitWarnings
from gateway.observe.metrics import Metrics
from gateway.stores.warnings import writer as module
from gateway.stores.warnings.memory import MemoryWarningStore
from gateway.stores.warnings.writer import WarningWriter
from tests.kit.eventually import eventually
from tests.suites.warnings import NOW_US, warning


class Site:
    """A worker's warnings, and a store that may fail."""

    def __init__(self) -> None:
        self.warned, self.metrics = LimitWarnings(), Metrics("test")
        self.store = MemoryWarningStore(lambda: NOW_US)
        self.is_down = False
        self.writer = self.another()

    def another(self) -> WarningWriter:
        return WarningWriter(self.warned, self.warn, self.metrics)

    async def warn(self, told):
        if self.is_down:
            raise StoreDown("away")
        return await self.store.warn(told)

    def warn_of(self, count="a", level=80) -> None:
        self.warned.waiting.append(warning(count, level))

    async def kept(self):
        return (await self.store.newest(count=1_000))[::-1]

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


async def test_a_warning_is_kept_and_counted(site):
    """Both levels are in the store and in the metric."""
    site.warn_of()
    site.warn_of(level=100)
    await site.writer.warn()
    assert [kept.level for kept in await site.kept()] == [80, 100]
    assert site.counted() == {("search", "free", 80): 1, ("search", "free", 100): 1}


async def test_a_warning_of_another_worker_is_not_repeated(site):
    """A counter with a warning in its window by any worker gets no other."""
    for _ in range(3):
        site.warn_of()
        await site.another().warn()
    assert len(await site.kept()) == 1
    assert site.counted() == {("search", "free", 80): 1}


async def test_too_many_are_only_counted(site):
    """Warnings beyond the store's bound are counted in the metric only."""
    for at in range(MOST_A_MINUTE + 10):
        site.warn_of(str(at))
    await site.writer.warn()
    assert len(await site.kept()) == MOST_A_MINUTE
    assert site.counted() == {("search", "free", 80): MOST_A_MINUTE + 10}


async def test_warnings_wait_during_an_outage(site, caplog):
    """They are stored after its recovery; the outage is logged once."""
    site.is_down = True
    site.warn_of("a")
    site.warn_of("b")
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            await site.writer.warn()
    assert len(caplog.records) == 1
    assert len(site.warned.waiting) == 2
    site.is_down = False
    await site.writer.warn()
    assert len(await site.kept()) == 2


async def test_one_that_is_not_taken_holds_up_no_other(site):
    """A warning that the store refuses goes to the end, and the others are kept."""
    refused = []

    async def refuse(told):
        if told.counter == "a" and len(refused) < 2:
            refused.append(told)
            raise StoreDown("not this one")
        return await site.store.warn(told)

    site.warn_of("a")
    site.warn_of("b")
    writer = WarningWriter(site.warned, refuse, site.metrics)
    for _ in range(3):
        await writer.warn()
    assert len(await site.kept()) == 2
    assert site.counted() == {("search", "free", 80): 2}


async def test_it_warns_by_itself(site, monkeypatch):
    """Between start and stop it writes new warnings."""
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    await site.writer.stop()  # it was never started
    site.writer.start()
    site.warn_of()
    await eventually(lambda: site.counted() != {}, "it is told")
    await site.writer.stop()
    site.warn_of("b")
    assert len(site.warned.waiting) == 1
