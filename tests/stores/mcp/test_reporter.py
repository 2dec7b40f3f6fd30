"""Which keys have connections at a worker, from the worker to the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from gateway.domain.ports import StoreDown
from gateway.stores.mcp import reporter as module
from gateway.stores.mcp.memory import MemoryConnectionStore
from gateway.stores.mcp.reporter import MOST_KEYS, ConnectionReporter
from tests.kit.eventually import eventually


class Store(MemoryConnectionStore):
    """A store that may fail, and notes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.written: list[Mapping[str, int]] = []

    async def report(self, worker: str, connected: Mapping[str, int]) -> None:
        if self.is_down:
            raise StoreDown("away")
        self.written.append(connected)
        await super().report(worker, connected)


@pytest.fixture
def store() -> Store:
    return Store()


async def test_what_is_reported(store: Store) -> None:
    """The connections now; their end once, and then nothing: an idle worker writes nothing."""
    connected = Counter[str]()
    reporter = ConnectionReporter(connected, store, "a")
    for now in ({}, {"x": 2}, {"x": 2, "y": 1}, {}, {}):
        connected.clear()
        connected.update(now)
        await reporter.report()
    assert store.written == [{"x": 2}, {"x": 2, "y": 1}, {}]


async def test_a_report_is_bounded(store: Store) -> None:
    """The keys with the most connections are in it."""
    connected = Counter({f"key{number}": number for number in range(1, 1_001)})
    await ConnectionReporter(connected, store, "a").report()
    assert len(store.written[0]) == MOST_KEYS
    assert min(store.written[0].values()) == 1_001 - MOST_KEYS


async def test_an_outage(store: Store) -> None:
    """Nothing is kept for later: the next report has what is open then."""
    connected = Counter({"x": 2})
    reporter = ConnectionReporter(connected, store, "a")
    store.is_down = True
    await reporter.report()
    store.is_down = False
    connected["x"] = 1
    await reporter.report()
    assert store.written == [{"x": 1}]
    store.is_down = True
    connected.clear()
    await reporter.report()
    store.is_down = False
    await reporter.report()
    assert store.written == [{"x": 1}, {}]


async def test_in_the_background(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeatedly until it stops, which withdraws the last report, also in an outage."""
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    connected = Counter({"x": 2})
    reporter = ConnectionReporter(connected, store, "a")
    reporter.start()
    await eventually(lambda: len(store.written) > 2, "it is reported again")
    await reporter.stop()
    assert await store.connected() == {}
    count = len(store.written)
    reporter = ConnectionReporter(connected, store, "b")
    reporter.start()
    await eventually(lambda: len(store.written) > count, "another one reports")
    store.is_down = True
    await reporter.stop()
