"""Audit stores, and the log's form in Redis."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import redis.exceptions

from gateway.domain.audit import MOST_NUMBER, MOVED, NOTHING_BEFORE, UNREADABLE, Event, chained
from gateway.domain.ports import StoreDown, WrongType
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.audit.store import AuditAppender, RedisAuditStore
from gateway.stores.names import AUDIT, audit_head_name
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.redis.connection import StoreConnection
from tests.kit.redis_server import full
from tests.kit.rows import each_row
from tests.suites.audit import EVENT, AuditStoreSuite, event


@pytest.fixture
def redis_store(store_client):
    return RedisAuditStore(store_client)


class TestMemory(AuditStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryAuditStore()


class TestRedis(AuditStoreSuite):
    @pytest.fixture
    def store(self, redis_store):
        return redis_store


async def append_from_elsewhere(url, actor, count):
    """As a command does, with a client and a store of its own."""
    client = redis_client(parse_url(url))
    store = RedisAuditStore(client)
    for number in range(count):
        await store.append(Event(number, actor, "a.b", "key:x"))
    await client.aclose()


async def test_several_processes(redis_store, redis_server):
    """Several processes append at the same time: no entry is lost, and the chain has no gap.

    Threads with event loops of their own share no more of a store than processes do.
    """
    appending = [append_from_elsewhere(redis_server.url, actor, 20) for actor in "abc"]
    await asyncio.gather(*(asyncio.to_thread(asyncio.run, each) for each in appending))
    entries = (await redis_store.entries(count=1_000))[::-1]
    assert [entry.number for entry in entries] == list(range(1, 61))
    previous = NOTHING_BEFORE
    for entry in entries:
        assert entry == chained(entry.event, entry.number, previous)
        previous = entry.hash
    for actor in "abc":
        times = [entry.event.at_us for entry in entries if entry.event.actor == actor]
        assert times == list(range(20))


async def test_an_answer_that_was_lost(redis_store, redis_server):
    """A command that is sent again appends nothing again, also if other entries came between."""
    client = redis_client(parse_url(redis_server.url))
    others = RedisAuditStore(client)
    between = 0

    async def twice(*words):
        nonlocal between
        await client.execute_command(*words)
        for _ in range(between):
            await others.append(event(0))
        return await client.execute_command(*words)

    appender = AuditAppender(twice)
    first = await appender.append(EVENT)
    between = 2
    second = await appender.append(EVENT)
    entries = await redis_store.entries()
    assert [entry.number for entry in entries] == [4, 3, 2, 1]
    assert (entries[3], entries[2]) == (first, second)
    assert entries[0].event == entries[1].event == event(0)
    await client.aclose()


async def test_equal_events_of_two_writers(redis_server):
    """A writer does not mistake another writer's equal entry for its own."""
    async with AsyncExitStack() as stack:
        appenders = []
        for _ in range(2):
            client = redis_client(parse_url(redis_server.url))
            stack.push_async_callback(client.aclose)
            appenders.append(AuditAppender(client.execute_command))
        entries = [await appender.append(EVENT) for appender in appenders]
        assert [entry.number for entry in entries] == [1, 2]


async def test_over_a_link(redis_store, redis_server):
    """A worker appends over its link into the same chain."""
    await redis_store.append(event(0))
    link = StoreConnection(parse_url(redis_server.url))
    link.start()
    await link.wait_up()
    entry = await AuditAppender(link.ask).append(EVENT)
    assert entry.number == 2
    assert (await redis_store.entries())[0] == entry
    assert (await redis_store.append(event(1))).number == 3
    await link.stop()
    with pytest.raises(StoreDown):
        await AuditAppender(link.ask).append(EVENT)


async def test_a_writer_that_loses_every_race():
    """A writer that loses every race gives up."""

    async def ask(*_words):
        return b"5 " + b"0" * 64

    with pytest.raises(StoreDown, match="too many concurrent appends"):
        await AuditAppender(ask).append(EVENT)


async def test_in_a_store_that_is_full(redis_store, redis_server):
    """Changes are recorded even if Redis is full."""
    await redis_store.append(event(0))
    with redis_server.client() as client, full(client):
        entry = await redis_store.append(EVENT)
        assert await redis_store.entries(count=1) == [entry]
        dropping = await redis_store.append(event(2), drop_to=1)
        assert await redis_store.oldest() == [entry, dropping]
        assert client.exists("gw:{keys}:none") == 0


async def test_rights_to_drop_that_are_missing(redis_store, redis_server):
    """Without the right to drop entries, no entry that records a drop is appended."""
    url = f"redis://half:secret@127.0.0.1:{redis_server.port}/0"
    await redis_store.append(event(0))
    with redis_server.client() as client:
        rules = ("on", ">secret", "~*", "+@all", "-xtrim")
        client.execute_command("ACL", "SETUSER", "half", *rules)
        half = redis_client(parse_url(url))
        try:
            with pytest.raises(StoreDown):
                await RedisAuditStore(half).append(EVENT, drop_to=1)
            assert len(await redis_store.entries()) == 1
        finally:
            await half.aclose()
            client.execute_command("ACL", "DELUSER", "half")


async def appends_and_drops_when_full(store, server):
    """The script appends to a store that is full if it drops an entry."""
    await store.append(EVENT)
    with server.client() as admin, full(admin):
        entry = await store.append(EVENT, drop_to=1)
    assert await store.entries() == [entry]


async def test_a_full_store_appends_and_drops(redis_store, redis_server):
    await appends_and_drops_when_full(redis_store, redis_server)


def wind_back(client):
    client.set(audit_head_name(AUDIT), f"1 {'0' * 64}")


def put_in(client):
    client.xadd(AUDIT, {"event": b"\xff", "previous": "?", "hash": "not a hash \xff"}, "4-0")


def put_in_with_other_fields(client):
    client.xadd(AUDIT, {"x": "y"}, "4-0")


@pytest.mark.parametrize(
    ("tamper", "after"),
    [
        (lambda client: client.delete(audit_head_name(AUDIT)), 3),
        (lambda client: client.set(audit_head_name(AUDIT), "rubbish"), 3),
        (wind_back, 3),
        (put_in, 4),
        (put_in_with_other_fields, 4),
        (lambda client: client.xdel(AUDIT, "2-0", "3-0"), 3),
        (lambda client: client.delete(AUDIT), 3),
    ],
)
async def test_the_log_continues_after_tampering(redis_store, redis_server, tamper, after):
    """After any tampering with the log, the next event is appended at its end."""
    for number in range(3):
        await redis_store.append(event(number))
    with redis_server.client() as client:
        tamper(client)
    entry = await redis_store.append(EVENT)
    assert entry.number == after + 1
    assert (await redis_store.entries(count=1)) == [entry]
    assert await redis_store.head() == (entry.number, entry.hash)


def spent(client):
    """The highest number of an entry is used."""
    client.xadd(AUDIT, {"event": "x"}, f"{MOST_NUMBER}-0")


def of_a_high_id(client):
    client.xadd(AUDIT, {"event": "x"}, "9007199254740993-0")


def of_the_highest_id(client):
    client.xadd(AUDIT, {"event": "x"}, "18446744073709551615-18446744073709551615")


def of_a_high_id_that_is_gone(client):
    client.xadd(AUDIT, {"event": "x"}, "18446744073709551615-5")
    client.xdel(AUDIT, "18446744073709551615-5")


def of_another_type(client):
    client.delete(AUDIT)
    client.hset(AUDIT, "a", "b")


@pytest.mark.parametrize(
    ("tamper", "number"),
    [
        (spent, 1),
        (of_a_high_id, 4),
        (of_the_highest_id, 4),
        (of_a_high_id_that_is_gone, 4),
        (of_another_type, 4),
    ],
)
async def test_a_log_that_no_entry_can_follow(redis_store, redis_server, caplog, tamper, number):
    """The log is renamed unchanged; an entry says so, and the next events are appended after it."""
    for at_us in range(3):
        await redis_store.append(event(at_us))
    with redis_server.client() as client:
        tamper(client)
        before = client.dump(AUDIT)
        with full(client):
            entry = await redis_store.append(EVENT)
        (name,) = client.keys(f"{AUDIT}:foreign:*")
        assert client.dump(name) == before
    moved = (await redis_store.oldest())[0]
    assert await redis_store.entries() == [entry, moved]
    assert (moved.number, moved.event.action) == (number, MOVED)
    assert moved.event.after == {"to": name.decode()}
    assert entry == chained(EVENT, number + 1, moved.hash)
    assert await redis_store.head() == (entry.number, entry.hash)
    assert name.decode() in caplog.text


async def test_only_one_gateway_moves_the_log(redis_server):
    """Of several gateways that find such a log one renames it; the events of all are recorded."""
    clients = [redis_client(parse_url(redis_server.url)) for _ in range(5)]
    stores = [RedisAuditStore(client) for client in clients]
    await stores[0].append(event(0))
    with redis_server.client() as client:
        of_the_highest_id(client)
        await asyncio.gather(*(store.append(event(number)) for number, store in enumerate(stores)))
        assert len(client.keys(f"{AUDIT}:foreign:*")) == 1
    entries = (await stores[0].entries())[::-1]
    assert [entry.event.action for entry in entries] == [MOVED, *["key.edit"] * 5]
    assert [entry.number for entry in entries] == list(range(2, 8))
    assert sorted(entry.event.at_us for entry in entries[1:]) == list(range(5))
    for client in clients:
        await client.aclose()


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("9" * 5_000 + " " + "a" * 64, id="5000 digits"),
        pytest.param("9" * 120_000, id="120000 digits"),
        f"18446744073709551615 {'a' * 64}",
        f"{MOST_NUMBER} {'a' * 64}",
        f"007 {'0' * 64}",
        "-5 abc",
        "\u0665 abc",
    ],
)
async def test_a_forged_head(redis_store, redis_server, head):
    """A forged head costs no entry, and can be read without an error."""
    await redis_store.append(event(0))
    with redis_server.client() as client:
        client.set(audit_head_name(AUDIT), head)
        await redis_store.head()
        entry = await redis_store.append(EVENT)
        assert await redis_store.entries(count=1) == [entry]
        assert await redis_store.head() == (entry.number, entry.hash)
        client.delete(audit_head_name(AUDIT))
        client.zadd(audit_head_name(AUDIT), {"a": 1})
        assert await redis_store.head() == (0, NOTHING_BEFORE)
        assert (await redis_store.append(EVENT)).number == entry.number + 1


async def test_pages_with_foreign_ids(redis_store, redis_server):
    """For any ids in the stream, each page goes back, and foreign entries hide none of ours."""
    ours = await redis_store.append(EVENT)
    with redis_server.client() as client:
        for sequence in range(1, 8):
            client.xadd(AUDIT, {"event": "x"}, f"1-{sequence}")
        for high in ("5-3", "9007199254740993-0", "18446744073709551615-5"):
            client.xadd(AUDIT, {"event": "x"}, high)
    found, before = [], None
    while chunk := await redis_store.entries(before=before, count=2):
        found += chunk
        assert before is None or chunk[-1].number < before
        before = chunk[-1].number
    assert found[-1] == ours
    assert {entry.event.action for entry in found[:-1]} == {UNREADABLE}
    numbers = [18446744073709551615, 9007199254740993, 5, 1, 1]
    assert [entry.number for entry in found[:5]] == numbers
    assert [entry.number for entry in await redis_store.oldest()] == [1] * 8 + [5]


@each_row(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"at_us":1,"actor":"a","action":"b","subject":"c","more":1}',
        b'{"at_us":"1","actor":"a","action":"b","subject":"c"}',
        b'{"at_us":1,"actor":5,"action":"b","subject":"c"}',
        b'{"at_us":1,"actor":"a","action":"b","subject":"c","before":[]}',
        b'{"at_us":-1,"actor":"a","action":"b","subject":"c"}',
        b'{"at_us":1e99,"actor":"a","action":"b","subject":"c"}',
        b'{"at_us":999999999999999999999,"actor":"a","action":"b","subject":"c"}',
        b'{"at_us":1,"actor":"a","action":"b","subject":"c","after":{"n":1e999}}',
        b'{"at_us":1,"actor":"a","action":"b","subject":"c","after":{"n":NaN}}',
        b'{"at_us":1,"actor":"a","action":"b","subject":"c","after":{"n":9223372036854775809}}',
        b'{"at_us":' + b"9" * 5_000 + b"}",
        b"[" * 200_000,
        b'{"before":{"a":' + b"[" * 100_000,
        b'{"at_us":1,"actor":"a","action":"b","subject":"c","after":%b{}%b}'
        % (b'{"a":' * 300, b"}" * 300),
    ],
)
async def test_unreadable_entries(redis_store, redis_server, content):
    """An invalid entry is marked as unreadable, and hides no other."""
    with redis_server.client() as client:
        client.flushall()
        first = await redis_store.append(EVENT)
        client.xadd(AUDIT, {"event": content, "previous": "p", "hash": "h"}, "2-0")
    bad, good = await redis_store.entries()
    assert good == first
    assert (bad.number, bad.previous, bad.hash) == (2, "p", "h")
    assert (bad.event.action, bad.event.subject) == (UNREADABLE, "entry:2")


async def test_the_deepest_event_can_be_read(redis_store):
    """A key's limits, with a character that JSON writes as a pair of surrogates."""
    shown = {"name": "\U0001f511", "limits": {"plan": {"amount": 1, "burst": None}}}
    entry = await redis_store.append(replace(EVENT, before=shown, after=shown))
    assert await redis_store.entries() == [entry]


async def test_an_unfit_head(redis_store, redis_server):
    """An invalid head is treated as a missing one."""
    with redis_server.client() as client:
        client.set(audit_head_name(AUDIT), b"\xff")
    assert await redis_store.head() == (0, NOTHING_BEFORE)
    assert (await redis_store.append(EVENT)).number == 1


async def test_an_unavailable_store_raises(lost_client):
    """A store that cannot be reached is StoreDown from every method, with the cause."""
    store = RedisAuditStore(lost_client)
    answers = await asyncio.gather(
        store.append(EVENT),
        store.entries(),
        store.oldest(),
        store.head(),
        return_exceptions=True,
    )
    assert {type(answer) for answer in answers} == {StoreDown}
    causes = [answer.__cause__ for answer in answers]
    assert all(isinstance(cause, redis.exceptions.RedisError) for cause in causes)


async def test_a_log_of_another_type(redis_store, redis_server):
    """Until the next change renames the value, reading fails with the type that was found."""
    with redis_server.client() as client:
        client.set(AUDIT, "x")
    for read in (redis_store.entries(), redis_store.oldest()):
        with pytest.raises(WrongType, match=r"of type string under .*:audit, expected stream"):
            await read
    await redis_store.append(EVENT)
    assert len(await redis_store.entries()) == 2
