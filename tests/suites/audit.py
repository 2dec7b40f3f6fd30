"""Tests of every audit store; run with memory and with a real Redis."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from gateway.domain.audit import NOTHING_BEFORE, Event, chained
from tests.suites import every_rig

EVENT = Event(
    at_us=1_800_000_000_123_456,
    actor='Änna "the\\admin" (console, 127.0.0.1)',
    action="key.edit",
    subject="key:7h3k9m2p4q6r",
    before={"name": "ci", "scopes": ["a:read"], "expires": None, "limits": {}},
    after={"name": "\ud800\r\n\x00", "scopes": [], "expired": False, "amount": 2**53 - 1},
)


def event(number: int) -> Event:
    """One of many different events."""
    return replace(EVENT, at_us=number)


class AuditStoreSuite:
    """Subclasses give a fixture `store`, empty at the start."""

    async def test_nothing(self, store):
        """An empty log has no entries, and its head is the beginning of the chain."""
        assert await store.entries() == []
        assert await store.entries(before=1) == []
        assert await store.head() == (0, NOTHING_BEFORE)

    @every_rig
    async def test_what_is_appended_is_there(self, store):
        """An entry is read as it was appended, with every field, and is the head."""
        entry = await store.append(EVENT)
        assert entry == chained(EVENT, 1, NOTHING_BEFORE)
        assert await store.entries() == [entry]
        assert await store.head() == (1, entry.hash)

    @pytest.mark.parametrize("value", [None, {}, {"a": {"b": [1, "x", None, True, 0.1]}}])
    async def test_before_and_after(self, store, value):
        """Nothing, an empty object and a nested one are distinct."""
        entry = await store.append(replace(EVENT, before=value, after=value))
        assert await store.entries() == [entry]

    async def test_entries_are_chained(self, store):
        """Each entry has the next number and names the hash of the one before."""
        entries = [await store.append(event(number)) for number in range(3)]
        assert [entry.number for entry in entries] == [1, 2, 3]
        for earlier, later in pairwise(entries):
            assert later == chained(later.event, later.number, earlier.hash)

    async def test_the_same_event_may_happen_twice(self, store):
        """Two events that are equal are two entries."""
        first, second = await store.append(EVENT), await store.append(EVENT)
        assert await store.entries() == [second, first]

    @every_rig
    async def test_pages(self, store):
        """Entries are read from the newest, in pages, below a number."""
        entries = [await store.append(event(number)) for number in range(7)][::-1]
        assert await store.entries(count=3) == entries[:3]
        assert await store.entries(before=5, count=3) == entries[3:6]
        assert await store.entries(before=2, count=3) == entries[6:]
        assert await store.entries(before=1, count=3) == []
        assert await store.entries(before=100, count=2) == entries[:2]
        assert await store.entries(before=2**80, count=2) == entries[:2]
        assert await store.entries(before=-(2**80)) == []

    @every_rig
    async def test_from_the_oldest_on(self, store):
        """Entries are read from the oldest, too, in pages, above a number."""
        assert await store.oldest() == []
        entries = [await store.append(event(number)) for number in range(5)]
        assert await store.oldest() == entries
        assert await store.oldest(count=2) == entries[:2]
        assert await store.oldest(after=2, count=2) == entries[2:4]
        assert await store.oldest(after=5) == []

    @every_rig
    async def test_the_oldest_are_dropped(self, store):
        """An append may drop the oldest entries; the chain continues, and no number is reused."""
        entries = [await store.append(event(number)) for number in range(5)]
        last = await store.append(event(5), drop_to=3)
        assert last == chained(event(5), 6, entries[4].hash)
        assert await store.oldest() == [*entries[3:], last]
        assert await store.entries() == [last, *entries[3:][::-1]]
        assert await store.entries(before=5) == [entries[3]]
        again = await store.append(event(6), drop_to=6)
        assert await store.entries() == [again]
        assert await store.head() == (7, again.hash)

    @every_rig
    async def test_many_at_once(self, store):
        """All concurrent appends succeed, and no number is skipped."""
        appended = await asyncio.gather(*(store.append(event(number)) for number in range(30)))
        entries = (await store.entries())[::-1]
        assert sorted(appended, key=lambda entry: entry.number) == entries
        assert [entry.number for entry in entries] == list(range(1, 31))
        assert sorted(entry.event.at_us for entry in entries) == list(range(30))
