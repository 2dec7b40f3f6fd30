"""The audit log in pages, and how tampering is detected."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from gateway.domain.audit import (
    MOST_NUMBER,
    NOTHING_BEFORE,
    Event,
    Trim,
    chained,
    unreadable,
    write_move,
    write_trim,
)
from gateway.domain.ports import StoreDown
from gateway.manage import audit_log as managed
from gateway.manage.audit_log import Audit, AuditPage, entry_as_json
from gateway.stores.audit.memory import MemoryAuditStore

NOW = 1_800_000_000_000_000


class HandledStore(MemoryAuditStore):
    """A log that a test can tamper with. asked: the number of entries of each read"""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.known_head = None
        self.during = None

    async def filled(self, count):
        for number in range(count):
            await self.append(Event(NOW + number, "root (cli)", "key.edit", f"key:{number}"))
        return self

    async def entries(self, *, before=None, count=100):
        self.asked.append(count)
        below = [entry for entry in self._entries if before is None or entry.number < before]
        if self.during is not None:
            self.during, during = None, self.during
            await during()
        return below[::-1][:count]

    async def head(self):
        return self.known_head or await super().head()


@pytest.fixture
def small_chunks(monkeypatch):
    """Entries are read three at a time."""
    monkeypatch.setattr(managed, "CHUNK", 3)


def numbers(page: AuditPage):
    return [entry.number for entry in page.entries]


async def test_pages():
    """Pages go from the newest to the oldest entry; each says where the next begins."""
    log = Audit(await HandledStore().filled(7))
    first = await log.page(count=3)
    second = await log.page(first.next, 3)
    third = await log.page(second.next, 3)
    assert [numbers(page) for page in (first, second, third)] == [[7, 6, 5], [4, 3, 2], [1]]
    assert (first.next, second.next, third.next) == (5, 2, None)
    assert await log.page(3, 2) == AuditPage(second.entries[2:] + third.entries, None)


async def test_an_empty_page():
    """The page of an empty log is empty, and so is the one before the first entry."""
    assert await Audit(HandledStore()).page() == AuditPage((), None)
    assert await Audit(await HandledStore().filled(2)).page(1) == AuditPage((), None)


EVENTS = (
    Event(NOW, "anna (console, 10.0.0.1)", "key.create", "key:a"),
    Event(NOW, "Bob (cli)", "key.edit", "key:a"),
    Event(NOW, "gateway", "limit.near", "key:b"),
    Event(NOW, "anna (api)", "account.set", "account:a"),
    Event(NOW, "anna (api)", "keys", "a"),
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [5, 4, 3, 2, 1]),
        ({"action": "", "actor": "", "subject": ""}, [5, 4, 3, 2, 1]),
        ({"action": "key.create"}, [1]),
        ({"action": "key"}, [2, 1]),
        ({"action": "key."}, []),
        ({"actor": "anna"}, [5, 4, 1]),
        ({"actor": "BOB"}, [2]),
        ({"actor": "10.0.0.1"}, [1]),
        ({"subject": "key:a"}, [2, 1]),
        ({"subject": "a"}, [5, 4, 2, 1]),
        ({"subject": "key"}, []),
        ({"actor": "anna", "action": "key", "subject": "a"}, [1]),
    ],
)
async def test_filters(small_chunks, wanted, found):
    """Entries are filtered by action or its group, part of the actor, subject or its name alone."""
    store = HandledStore()
    for event in EVENTS:
        await store.append(event)
    page = await Audit(store).page(**wanted)
    assert (numbers(page), page.next) == (found, None)


async def test_filters_in_pages(small_chunks):
    """A full page says where the next begins; entries that do not match are skipped."""
    log = Audit(await HandledStore().filled(8))
    assert numbers(await log.page(subject="key:1")) == [2]
    page = await log.page(count=2, action="key")
    assert (numbers(page), page.next) == ([8, 7], 7)
    page = await log.page(page.next, count=6, action="key")
    assert (numbers(page), page.next) == ([6, 5, 4, 3, 2, 1], None)


async def test_a_page_reads_a_bounded_number(small_chunks, monkeypatch):
    """A page reads a bounded number of entries; the next one continues there."""
    monkeypatch.setattr(managed, "MOST_LOOKED_AT", 5)
    log = Audit(await HandledStore().filled(8))
    page = await log.page(subject="key:0")
    assert (numbers(page), page.next) == ([], 3)
    page = await log.page(page.next, subject="key:0")
    assert (numbers(page), page.next) == ([1], None)


async def test_an_entry_is_shown_whole():
    """All fields of an entry, its time in RFC 3339."""
    store = MemoryAuditStore()
    entry = await store.append(replace(EVENTS[0], before={"a": 1}))
    assert entry_as_json(entry) == {
        "number": 1,
        "time": "2027-01-15T08:00:00Z",
        "actor": "anna (console, 10.0.0.1)",
        "action": "key.create",
        "subject": "key:a",
        "before": {"a": 1},
        "after": None,
        "previous": NOTHING_BEFORE,
        "hash": entry.hash,
    }


# -- verification ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3, 7])
async def test_an_unchanged_log(small_chunks, count):
    """An unchanged log has no faults, however many pages it has."""
    store = await HandledStore().filled(count)
    found = await Audit(store).verify()
    assert (found.count, found.faults) == (count, ())
    assert found.head_hash == (await store.head())[1]
    assert set(store.asked) == {3}


def change(store):
    entry = store._entries[4]
    store._entries[4] = replace(entry, event=replace(entry.event, actor="somebody else"))


def change_well(store):
    """With the hash recomputed for the change."""
    entry = store._entries[4]
    store._entries[4] = chained(replace(entry.event, actor="x"), entry.number, entry.previous)


def change_last_well(store):
    store.known_head = 8, store._entries[7].hash
    entry = store._entries[7]
    store._entries[7] = chained(replace(entry.event, actor="x"), entry.number, entry.previous)


def take_out(store):
    del store._entries[3:5]


def take_out_first(store):
    del store._entries[0]


def cut_off(store):
    store.known_head = 8, store._entries[7].hash
    del store._entries[6:]


def cut_off_all(store):
    store.known_head = 8, store._entries[7].hash
    store._entries.clear()


def put_in(store):
    """At the end, correctly chained."""
    store.known_head = 8, store._entries[7].hash
    store._entries.append(chained(EVENTS[0], 9, store._entries[7].hash))


def put_in_between(store):
    store._entries.insert(4, chained(EVENTS[0], 4, store._entries[2].hash))


def put_in_before(store):
    store._entries[0] = chained(EVENTS[0], 1, "1" * 64)


@pytest.mark.parametrize(
    ("tamper", "faults"),
    [
        (change, ["entry 5: was changed, its content has another hash"]),
        (change_well, ["entry 5: is not the one that entry 6 names"]),
        (change_last_well, ["entry 8: is not the one that the log's head names"]),
        (take_out, ["entries 4 to 5: missing"]),
        (take_out_first, ["entry 1: missing"]),
        (cut_off, ["the end is cut off: entries 7 to 8"]),
        (cut_off_all, ["the end is cut off: entries 1 to 8"]),
        (put_in, ["entry 9: put in beside the log's head"]),
        (
            put_in_between,
            ["entry 4: is not the one that entry 5 names", "entry 4: there twice"],
        ),
        (
            put_in_before,
            [
                "entry 1: is not the one that entry 2 names",
                "entry 1: names an entry before it",
            ],
        ),
    ],
)
async def test_tampering(tamper, faults):
    """Every kind of tampering is detected, with its place."""
    store = await HandledStore().filled(8)
    tamper(store)
    found = await Audit(store).verify()
    assert list(found.faults) == faults
    assert found.count == len(store._entries)


async def dropped(count, drop_to):
    """A log of this many entries; the first ones were dropped, and an entry says so."""
    store = await HandledStore().filled(count)
    last = store._entries[drop_to - 1]
    await store.append(write_trim(Trim(last.number, last.hash, True), NOW), drop_to=drop_to)
    return store


async def test_a_beginning_that_was_dropped(small_chunks):
    """A log that begins where one of its entries says has no faults, also after a second drop."""
    store = await dropped(8, 5)
    found = await Audit(store).verify()
    assert (found.count, found.dropped, found.faults) == (4, 5, ())
    last = store._entries[1]
    await store.append(write_trim(Trim(last.number, last.hash, True), NOW), drop_to=last.number)
    found = await Audit(store).verify()
    assert (found.count, found.dropped, found.faults) == (3, 7, ())


def take_out_more(store):
    del store._entries[0]


def forge_the_beginning(store):
    store._entries[0] = chained(EVENTS[0], 6, "1" * 64)


def take_out_what_says_so(store):
    store.known_head = 8, store._entries[2].hash
    del store._entries[3]


@pytest.mark.parametrize(
    ("tamper", "faults"),
    [
        (take_out_more, ["entries 1 to 6: missing"]),
        (
            forge_the_beginning,
            ["entry 6: is not the one that entry 7 names", "entries 1 to 5: missing"],
        ),
        (take_out_what_says_so, ["entries 1 to 5: missing"]),
    ],
)
async def test_a_beginning_that_was_removed(tamper, faults):
    """A beginning that was removed without a valid entry about it is reported as missing."""
    store = await dropped(8, 5)
    tamper(store)
    found = await Audit(store).verify()
    assert list(found.faults) == faults
    assert found.dropped == 0


async def test_many_faults():
    """The first 20 faults are described, and the others counted."""
    store = await HandledStore().filled(60)
    del store._entries[::2]
    found = await Audit(store).verify()
    assert len(found.faults) == 21
    assert found.faults[-1] == "and 10 more"


async def test_entries_are_appended_meanwhile():
    """Entries that are appended during the verification are no fault."""
    store = await HandledStore().filled(4)

    async def more():
        await store.filled(2)

    store.during = more
    assert (await Audit(store).verify()).faults == ()


async def test_entries_are_dropped_meanwhile(small_chunks):
    """Entries that are dropped during the verification are no fault either."""
    store = await HandledStore().filled(8)
    last = store._entries[3]

    async def trimmed():
        await store.append(write_trim(Trim(last.number, last.hash, True), NOW), drop_to=last.number)

    store.during = trimmed
    found = await Audit(store).verify()
    assert (found.count, found.dropped, found.faults) == (4, 4, ())


def foreign(number):
    """An entry that another program added."""
    return replace(chained(unreadable(number), number, ""), hash="")


@pytest.mark.parametrize("number", [3, 5, 2**53 + 1, 2**64 - 1])
async def test_foreign_entries_are_reported_and_hide_nothing(small_chunks, number):
    """A foreign entry is reported, whatever its number, and so are faults of the gateway's own."""
    store = await HandledStore().filled(4)
    store.known_head = await store.head()
    store._entries.append(foreign(number))
    store._entries.sort(key=lambda entry: entry.number)
    found = await Audit(store).verify()
    assert found.faults == (f"entry {number}: not written by the gateway",)
    assert (found.count, found.head_hash) == (4, store.known_head[1])
    del store._entries[0]
    assert (await Audit(store).verify()).faults[-1] == "entry 1: missing"


async def test_only_foreign_entries():
    """Foreign entries alone are no log: if the head names an entry, the end is cut off."""
    store = HandledStore()
    store._entries.append(foreign(2**53 + 1))
    store.known_head = 0, NOTHING_BEFORE
    words = f"entry {2**53 + 1}: not written by the gateway"
    assert (await Audit(store).verify()).faults == (words,)
    store.known_head = 5, "a" * 64
    assert (await Audit(store).verify()).faults == (words, "the end is cut off: entries 1 to 5")


async def test_a_log_that_was_moved_aside():
    """Its new name is reported as a fault until that entry is dropped; the gap is not a fault."""
    store = HandledStore()
    store._entries.append(chained(write_move("gw:aside", NOW), 8, "a" * 64))
    await store.filled(2)
    (fault,) = (await Audit(store).verify()).faults
    assert fault.startswith("entry 8: the log before it was moved to gw:aside, as no entry could")
    moved = store._entries[0]
    await store.append(write_trim(Trim(8, moved.hash, False), NOW), drop_to=8)
    found = await Audit(store).verify()
    assert (found.dropped, found.faults) == (
        8,
        ("entry 11: the entries that were dropped had faults",),
    )


async def test_a_page_that_ends_beyond_valid_numbers():
    """The next page begins at the highest number that the gateway can write."""
    store = await HandledStore().filled(3)
    store._entries += [foreign(2**53 + 1), foreign(2**64 - 1)]
    log = Audit(store)
    page = await log.page(count=1)
    assert (numbers(page), page.next) == ([2**64 - 1], MOST_NUMBER)
    assert numbers(await log.page(page.next)) == [3, 2, 1]


# -- recording changes -----------------------------------------------------------------------------
EVENT = Event(1, "anna (api)", "key.revoke", "key:7h3k9m2p4q6r", {"name": "hidden"}, None)


async def test_an_event_is_appended(caplog):
    """An event becomes the newest entry, and nothing is logged."""
    audit = MemoryAuditStore()
    await managed.note(audit, EVENT)
    (entry,) = await audit.entries()
    assert entry.event == EVENT
    assert caplog.records == []


async def test_an_entry_that_cannot_be_written_is_logged(caplog):
    """An event that cannot be appended is written to the process's log, without an exception."""

    class Away(MemoryAuditStore):
        async def append(self, event):
            raise StoreDown("nobody there")

    with caplog.at_level(logging.ERROR):
        await managed.note(Away(), EVENT)
    (record,) = caplog.records
    for word in ("key.revoke", "key:7h3k9m2p4q6r", "anna (api)", "nobody there"):
        assert word in record.getMessage()
    assert "hidden" not in record.getMessage()
