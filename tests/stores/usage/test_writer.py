"""The task that writes a worker's usage to the store."""

from __future__ import annotations

import asyncio
import logging
from unittest.mock import AsyncMock

import pytest

from gateway.domain.ports import StoreDown
from gateway.errors import IP_NOT_ALLOWED
from gateway.observe.metrics import Metrics
from gateway.observe.usage_table import CHUNK, UsageTable
from gateway.stores.keys.directory import Directory
from gateway.stores.opening import open_store
from gateway.stores.redis.address import StoreAddress
from gateway.stores.usage import writer as usage_writer
from gateway.stores.usage.memory import MemoryUsageStore
from gateway.stores.usage.scripts import UsageScripts
from gateway.stores.usage.writer import LONGEST_S, MOST_WAITING, UsageWriter, is_due
from tests.kit.eventually import eventually
from tests.kit.store_proxy import StoreProxy
from tests.suites.usage import LATER_S, NOW_S, total
from tests.suites.warnings import warning


class Site:
    """A table, a store that may fail, and a writer between them."""

    def __init__(self) -> None:
        self.now_s = NOW_S
        self.table = UsageTable(Metrics("test"), NOW_S)
        self.store = MemoryUsageStore()
        self.batches = []
        self.merged = []
        self.is_down = self.loses_answers = False
        self.writer = UsageWriter(self.table, self, lambda: self.now_s * 1_000_000)

    async def merge(self, writer, now_s) -> None:
        self.merged.append((writer, now_s))
        if self.is_down:
            raise StoreDown("away")

    async def add(self, batch) -> None:
        self.batches.append(batch)
        if self.is_down:
            raise StoreDown("away")
        await self.store.add(batch)
        if self.loses_answers:
            raise StoreDown("the answer was lost")

    def count(self, requests=1, key_id="a") -> None:
        for _ in range(requests):
            self.table.tally(key_id, "free", "api").ended.append((200, 0.01, 0, 1))


@pytest.fixture
def site():
    return Site()


async def test_what_was_counted_is_written(site):
    """All counts are written; without counts, nothing is."""
    assert await site.writer.write()
    assert site.batches == []
    site.count(3)
    assert await site.writer.write()
    assert await total(site.store, "key:a") == 3
    assert len(site.table) == 0


async def test_a_batch_is_sent_again_until_it_is_answered(site):
    """A batch without an answer is sent again unchanged, before anything newer."""
    site.is_down = True
    site.count(3)
    assert not await site.writer.write()
    site.count(2)
    assert not await site.writer.write()
    site.is_down, site.loses_answers = False, True
    assert not await site.writer.write()
    site.loses_answers = False
    assert await site.writer.write()
    assert [batch.number for batch in site.batches] == [1, 1, 1, 1, 2]
    assert all(batch == site.batches[0] for batch in site.batches[:4])
    assert await total(site.store, "key:a") == 5


async def test_an_outage_over_minutes(site):
    """After recovery each minute's counts are added to their own minute."""
    site.is_down = True
    for minute in range(5):
        site.now_s = NOW_S + minute * 60
        await site.writer.write()
        for _ in range(3):
            site.count(minute + 1)
            await site.writer.write()
    site.is_down = False
    for _ in range(2):
        assert await site.writer.write()
    buckets = await site.store.read("key:a", "minute", NOW_S, NOW_S + 600)
    assert [(b.start_s, sum(b.counts.values())) for b in buckets] == [
        (NOW_S + minute * 60, 3 * (minute + 1)) for minute in range(5)
    ]


async def test_large_tables_go_in_chunks(site):
    """Each batch has a bounded size, and its own number."""
    for at in range(2 * CHUNK + 1):
        site.count(1, f"k{at}")
    assert await site.writer.write()
    assert [batch.number for batch in site.batches] == [1, 2, 3]
    assert max(len(batch.counts) for batch in site.batches) <= 2 * CHUNK
    assert await total(site.store, "plan:free") == 2 * CHUNK + 1


async def test_a_minute_that_begins_meanwhile(site):
    """Counts while batches are being sent are of the minute of that time."""

    class Slow(MemoryUsageStore):
        async def add(self, batch):
            site.now_s = NOW_S + 60
            await super().add(batch)

    site.store = Slow()
    site.count(1)
    assert await site.writer.write()
    site.count(2)
    assert await site.writer.write()
    buckets = await site.store.read("key:a", "minute", NOW_S, NOW_S + 600)
    assert [sum(bucket.counts.values()) for bucket in buckets] == [1, 2]


async def test_it_writes_by_itself(site, monkeypatch):
    """Between start and stop it writes repeatedly, and at the end the rest."""
    monkeypatch.setattr(usage_writer, "EVERY_S", 0.01)
    site.writer.start()
    site.count(2)
    await eventually(lambda: len(site.batches) == 1, "the first is written")
    site.count(2)
    await eventually(lambda: len(site.batches) == 2, "the next is written")
    site.count(1)
    await site.writer.stop()
    assert await total(site.store, "key:a") == 5


async def test_many_entries_are_written_less_often(site, monkeypatch):
    """Beyond some entries for each second they wait, for a bounded time and within their minute."""
    site.count(2, "a")
    assert site.writer._is_due(1)
    monkeypatch.setattr(usage_writer, "ENTRIES_A_SECOND", 2)
    for key_id in "bcde":
        site.count(1, key_id)
    due = [waited_s for waited_s in range(1, LONGEST_S + 1) if site.writer._is_due(waited_s)]
    assert due == [3, 4, 5], "5 entries are 2 a second after three"
    assert is_due(MOST_WAITING + 1, 1), "the table would be full"
    for key_id in "fghijklmno":
        site.count(1, key_id)
    assert [site.writer._is_due(waited_s) for waited_s in (LONGEST_S - 1, LONGEST_S)] == [
        False,
        True,
    ]
    site.now_s += 60
    assert site.writer._is_due(1), "the minute is over"
    site.now_s -= 60
    site.is_down = True
    assert not await site.writer.write()
    assert site.writer._is_due(1), "a batch has no answer"


async def test_it_waits_by_itself(site, monkeypatch):
    """Between start and stop many entries are written once in the longest time."""
    ticks = 0

    async def tick(_: float) -> None:
        nonlocal ticks
        ticks += 1
        if ticks > 2 * LONGEST_S:
            await asyncio.Event().wait()

    monkeypatch.setattr(usage_writer, "ENTRIES_A_SECOND", 0)
    monkeypatch.setattr(usage_writer.asyncio, "sleep", tick)
    written_at = []
    monkeypatch.setattr(
        site.writer, "write", AsyncMock(side_effect=lambda: written_at.append(ticks))
    )
    site.count(1)
    writing = asyncio.ensure_future(site.writer._keep_writing())
    while ticks <= 2 * LONGEST_S:
        await asyncio.wait((writing,), timeout=0)
    writing.cancel()
    assert written_at == [LONGEST_S, 2 * LONGEST_S]


async def test_it_merges_by_itself(site, monkeypatch):
    """It merges repeatedly, also after an outage, while it writes."""
    monkeypatch.setattr(usage_writer, "MERGE_EVERY_S", 0.005)
    site.writer.start()
    site.is_down = True
    await eventually(lambda: len(site.merged) > 2, "it tries")
    site.is_down = False
    tried = len(site.merged)
    await eventually(lambda: len(site.merged) > tried + 1, "it goes on")
    await site.writer.stop()
    (merged,) = set(site.merged)
    site.count(1)
    await site.writer.write()
    assert merged == (site.batches[0].writer, NOW_S)


async def test_the_end_waits_for_the_store_a_while(site, monkeypatch, caplog):
    """A store that recovers in time gets the rest; otherwise it is dropped, and logged."""
    monkeypatch.setattr(usage_writer, "_AGAIN_S", 0.001)
    await site.writer.stop()  # it was never started
    site.writer.start()
    site.count(1)
    site.is_down = True
    ending = asyncio.create_task(site.writer.stop())
    await eventually(lambda: len(site.batches) > 1, "the end tries again")
    site.is_down = False
    await ending
    assert await total(site.store, "key:a") == 1
    assert "is lost" not in caplog.text

    monkeypatch.setattr(usage_writer, "LAST_S", 0.01)
    site.writer.start()
    site.count(1)
    site.is_down = True
    await site.writer.stop()
    assert "could not be written, and are lost" in caplog.text


async def test_an_outage_is_reported_once(site, caplog):
    """Failed writes are logged once a minute, with the reason."""
    site.is_down = True
    site.count(1)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            await site.writer.write()
            await site.writer.merge()
    assert [record.getMessage() for record in caplog.records] == [
        "usage could not be written, and will be retried: away",
        "usage could not be merged, and will be retried: away",
    ]


async def test_in_one_process():
    """The counts of a gateway on memory:// are in its own store."""
    metrics = Metrics("test")
    async with open_store(
        StoreAddress("memory"),
        policy=lambda: pytest.fail("nothing depends on the policy here"),
        metrics=metrics,
        clock_us=lambda: NOW_S * 1_000_000,
    ) as store:
        store.table.tally("a", "free", "api").ended.append((200, 0.01, 0, 1))
        store.warned.waiting.append(warning())

        async def is_there() -> bool:
            return await total(store.usage, "key:a") == 1 and await store.warnings.newest() != []

        await eventually(is_there, "use and warning are in the store")


async def test_over_a_real_link(redis_server):
    """If connections break at any byte of an answer, nothing is lost or counted twice."""
    async with StoreProxy(redis_server.port) as proxy:
        address = StoreAddress("tcp", "127.0.0.1", proxy.port)
        directory = Directory(address, dead_s=5.0)
        directory.start()
        await directory.wait_up()
        table = UsageTable(Metrics("test"), NOW_S)
        writer = UsageWriter(table, UsageScripts(directory.ask), lambda: NOW_S * 1_000_000)
        entry = "a", "free", "api", IP_NOT_ALLOWED, "ip_not_allowed"
        try:
            for at in range(12):
                table.tally("a", "free", "api").ended.append((200, 0.01, 0, 1))
                table.begin(entry)
                if at % 3 == 0:
                    proxy.reset_after(at % 4)
                elif at % 3 == 1:
                    proxy.cut()
                await writer.write()
                proxy.pass_on()
                await eventually(writer.write, "the store takes it")
            await eventually(lambda: len(table) == 0, "all is written")
            merging = UsageWriter(table, UsageScripts(directory.ask), lambda: LATER_S * 1_000_000)

            async def is_merged() -> bool:
                await merging.merge()
                with redis_server.client() as client:
                    return client.exists("gw:{keys}:usage:key:a") == 1

            for skip in range(4):
                proxy.reset_after(skip)
                await merging.merge()
                proxy.pass_on()
            await eventually(is_merged, "the journal is merged")
        finally:
            await directory.stop()
    with redis_server.client() as client:
        assert client.get("gw:{keys}:usage:key:a").split(b"\n")[-1] == b"hv05c:c,c"
