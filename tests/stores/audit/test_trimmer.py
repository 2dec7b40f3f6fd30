"""Old entries of the audit log are dropped, and the rest can be verified."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest

from gateway.domain.audit import NOTHING_BEFORE, TRIM, Event, Trim
from gateway.domain.policy import AuditSettings
from gateway.domain.ports import StoreDown
from gateway.manage.audit_log import Audit
from gateway.observe.metrics import Metrics
from gateway.policies.load import load
from gateway.stores.audit import trimmer as module
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.audit.store import RedisAuditStore
from gateway.stores.audit.trimmer import AuditTrimmer
from gateway.stores.names import AUDIT, WARNINGS
from gateway.stores.opening import open_store
from gateway.stores.redis.address import parse_url
from tests.kit.eventually import eventually
from tests.suites.warnings import warning

DAY_US = 86_400_000_000
NOW_US = 1_800_000_000_000_000


@pytest.fixture
def redis_store(store_client):
    return RedisAuditStore(store_client)


@pytest.fixture(params=["memory", "redis"])
def store(request):
    return (
        MemoryAuditStore() if request.param == "memory" else request.getfixturevalue("redis_store")
    )


def trimmer(store, keep_d=10, entries=1_000, now_us=NOW_US) -> AuditTrimmer:
    settings = AuditSettings(keep_d * 86_400.0, entries)
    return AuditTrimmer(store, lambda: settings, lambda: now_us)


async def filled(store, *ages_d):
    """A log with an entry of each age, the oldest first."""
    return [
        await store.append(Event(NOW_US - int(age * DAY_US), "root (cli)", "key.edit", "key:a"))
        for age in ages_d
    ]


async def numbers(store):
    return [entry.number for entry in await store.oldest(count=10_000)]


async def test_old_entries_are_dropped(store):
    """Entries beyond the age are dropped; an entry records that, and the rest has no faults."""
    entries = await filled(store, 30, 12, 10.5, 9.5, 1)
    trim = await trimmer(store).trim()
    assert trim == Trim(3, entries[2].hash, True)
    assert await numbers(store) == [4, 5, 6]
    (told,) = await store.entries(count=1)
    assert (told.event.actor, told.event.action, told.event.subject) == (
        "gateway",
        TRIM,
        "audit:log",
    )
    assert told.event.after == {"last": 3, "hash": entries[2].hash, "whole": True}
    found = await Audit(store).verify()
    assert (found.count, found.dropped, found.faults) == (3, 3, ())


@pytest.mark.parametrize("oldest", [10.9, 9, 0])
async def test_it_is_done_once_a_day(store, oldest):
    """Nothing is dropped before an entry is a day too old, so that few entries record drops."""
    await filled(store, oldest, 0)
    assert await trimmer(store).trim() is None
    assert await numbers(store) == [1, 2]


async def test_too_many_entries(store):
    """If there are too many entries, a tenth is dropped, whatever their age."""
    await filled(store, *[1] * 20)
    assert await trimmer(store, entries=20).trim() is None
    await filled(store, 1)
    assert (await trimmer(store, entries=20).trim()).last == 3
    assert await numbers(store) == [*range(4, 23)]
    assert await trimmer(store, entries=20).trim() is None
    assert (await Audit(store).verify()).faults == ()


async def test_again_and_again(store, monkeypatch):
    """After any number of drops the log begins where one of its entries says; none is lost."""
    monkeypatch.setattr(module, "CHUNK", 3)
    for day in range(40):
        at_us = NOW_US + day * DAY_US
        for part in range(2):
            await store.append(Event(at_us + part, "root (cli)", "key.edit", f"key:{day}"))
        await trimmer(store, keep_d=5, now_us=at_us).trim()
    found = await Audit(store).verify()
    assert found.faults == ()
    assert found.dropped + found.count == (await store.head())[0]
    subjects = [entry.event.subject for entry in await store.oldest(count=1_000)]
    for day in range(35, 40):
        assert subjects.count(f"key:{day}") == 2
    assert subjects.count("audit:log") < 8
    assert "key:32" not in subjects


async def test_much_is_dropped_in_parts(store, monkeypatch):
    """A step drops a bounded number, because it blocks the store; in the end all are dropped."""
    monkeypatch.setattr(module, "CHUNK", 3)
    monkeypatch.setattr(module, "MOST_DROPPED", 5)
    await filled(store, *[30] * 12, 1)
    one = trimmer(store)
    assert [await one.trim() for _ in range(4)] == [
        Trim(5, ANY, True),
        Trim(10, ANY, True),
        Trim(12, ANY, True),
        None,
    ]
    assert await numbers(store) == [13, 14, 15, 16]
    found = await Audit(store).verify()
    assert (found.dropped, found.faults) == (12, ())


async def test_nothing_but_old_entries(store):
    """If all entries are too old, only the entry that records the drop remains."""
    await filled(store, 30, 20)
    await trimmer(store).trim()
    assert await numbers(store) == [3]
    found = await Audit(store).verify()
    assert (found.count, found.dropped, found.faults) == (1, 2, ())


async def test_an_empty_log(store):
    """Nothing is dropped, and no entry is appended."""
    assert await trimmer(store).trim() is None
    assert await store.head() == (0, NOTHING_BEFORE)


async def test_two_at_once(store):
    """Gateways that trim at the same time may each record it; the log has no faults."""
    await filled(store, 30, 20, 1)
    await asyncio.gather(trimmer(store).trim(), trimmer(store).trim())
    found = await Audit(store).verify()
    assert (found.dropped, found.faults) == (2, ())
    assert (await numbers(store))[0] == 3


async def test_tampering_is_reported(redis_server, redis_store, caplog):
    """A break before the dropped part is recorded permanently, and logged."""
    await filled(redis_store, 30, 20, 15, 1)
    with redis_server.client() as client:
        client.xdel(AUDIT, "2-0")
    with caplog.at_level(logging.ERROR):
        trim = await trimmer(redis_store).trim()
    assert (trim.last, trim.is_whole) == (3, False)
    assert "audit log: the chain of dropped entries up to 3 was broken" in caplog.text
    found = await Audit(redis_store).verify()
    assert found.faults == ("entry 5: the entries that were dropped had faults",)


async def test_a_changed_entry_is_reported():
    """A changed entry, whose hash does not match, is reported as well."""
    store = MemoryAuditStore()
    entries = await filled(store, 30, 20, 1)
    store._entries[0] = replace(entries[0], event=replace(entries[0].event, actor="nobody"))
    assert (await trimmer(store).trim()).is_whole is False


async def test_it_trims_regularly(monkeypatch, caplog):
    """Between start and stop it trims regularly, also after an outage."""
    monkeypatch.setattr(module, "FIRST_S", 0.01)
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    store = MemoryAuditStore()
    oldest, asked = store.oldest, []

    async def away_at_first(**wanted):
        asked.append(wanted)
        if len(asked) < 3:
            raise StoreDown("away")
        return await oldest(**wanted)

    store.oldest = away_at_first
    one = trimmer(store)
    await one.stop()  # it was never started
    monkeypatch.setattr(module, "MOST_DROPPED", 1)
    await filled(store, 30, 20, 1)
    one.start()

    async def is_trimmed() -> bool:
        return [entry.number for entry in await store.entries()] == [5, 4, 3]

    await eventually(is_trimmed, "the old entries are dropped")
    await one.stop()
    assert "audit log: trimming failed, and will be retried: away" in caplog.text


@pytest.mark.parametrize(("worker", "trims"), [((0, 2), True), ((1, 2), False)])
async def test_one_worker_of_each_gateway(redis_server, redis_store, monkeypatch, worker, trims):
    """The first worker trims the log by its policy; the others do not."""
    monkeypatch.setattr(module, "FIRST_S", 0)
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    policy = load(Path(__file__).parents[3] / "policies")
    await filled(redis_store, 500, 1)
    async with open_store(
        parse_url(redis_server.url),
        policy=lambda: policy,
        metrics=Metrics("test"),
        clock_us=lambda: NOW_US,
        worker=worker,
    ) as store:

        async def is_trimmed() -> bool:
            return await numbers(redis_store) == [2, 3]

        if trims:
            await eventually(is_trimmed, "the oldest entry is dropped")
        else:
            # The trimmer reads for the first time before the writer reads again.
            store.warned.waiting.append(warning())
            await eventually(lambda: redis_server_has(redis_server, WARNINGS), "time goes on")
            assert await numbers(redis_store) == [1, 2]


def redis_server_has(server, name) -> bool:
    with server.client() as client:
        return client.exists(name) == 1
