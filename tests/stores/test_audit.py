"""Audit stores, and how the log lies in Redis."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import redis.exceptions

from gateway.domain.audit import NOTHING_BEFORE, chained
from gateway.domain.ports import StoreDown
from gateway.stores.audit import (
    AUDIT,
    AUDIT_HEAD,
    UNREADABLE,
    AuditAppender,
    RedisAuditStore,
)
from gateway.stores.connect import parse_url, redis_client
from gateway.stores.memory_audit import MemoryAuditStore
from gateway.stores.wire import StoreLink
from tests.kit.redis_server import RedisServer, full, server_binaries
from tests.suites.audit import EVENT, AuditStoreSuite, event

#: Appends so many events, as a process of its own.
APPEND = """
import asyncio, sys
from gateway.domain.audit import Event
from gateway.stores.audit import RedisAuditStore
from gateway.stores.connect import parse_url, redis_client

async def main(url, actor, count):
    client = redis_client(parse_url(url))
    store = RedisAuditStore(client)
    for number in range(int(count)):
        await store.append(Event(number, actor, "a.b", "key:x"))
    await client.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def redis_store(redis_server):
    client = redis_client(parse_url(redis_server.url))
    yield RedisAuditStore(client)
    await client.aclose()


class TestMemory(AuditStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryAuditStore()


class TestRedis(AuditStoreSuite):
    @pytest.fixture
    def store(self, redis_store):
        return redis_store


async def test_several_processes(redis_store, redis_server):
    """Of several processes that append at once every entry gets in, and the chain has no gap."""
    words = [sys.executable, "-c", APPEND, redis_server.url]
    processes = [await asyncio.create_subprocess_exec(*words, actor, "20") for actor in "abc"]
    statuses = [await process.wait() for process in processes]
    assert statuses == [0, 0, 0]
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
    """A command that is sent again appends nothing again, also where another came in between."""
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
    """Who meets an equal entry in the place of its own does not take it for its own."""
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
    link = StoreLink(parse_url(redis_server.url))
    link.start()
    await link.wait_up()
    entry = await AuditAppender(link.ask).append(EVENT)
    assert entry.number == 2
    assert (await redis_store.entries())[0] == entry
    assert (await redis_store.append(event(1))).number == 3
    await link.stop()
    with pytest.raises(StoreDown):
        await AuditAppender(link.ask).append(EVENT)


async def test_always_second():
    """Who is told each time that another came first gives up at some time."""

    async def ask(*_words):
        return b"5 " + b"0" * 64

    with pytest.raises(StoreDown, match="others always come first"):
        await AuditAppender(ask).append(EVENT)


async def test_in_a_store_that_is_full(redis_store, redis_server):
    """What people do is noted also where Redis takes nothing more."""
    await redis_store.append(event(0))
    with redis_server.client() as client, full(client):
        entry = await redis_store.append(EVENT)
        assert await redis_store.entries(count=1) == [entry]
        dropping = await redis_store.append(event(2), drop_to=1)
        assert await redis_store.oldest() == [entry, dropping]
        assert client.exists("gw:{keys}:none") == 0


async def test_rights_to_drop_that_are_missing(redis_store, redis_server):
    """Where entries may not be dropped none is appended either that says so."""
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


@pytest.mark.parametrize("binary", server_binaries(), ids=lambda path: path.name)
async def test_every_release_appends_and_drops(binary):
    """The script is understood by every server that an embedded store could be, also a full one."""
    server = RedisServer(binary=binary).start()
    client = redis_client(parse_url(server.url))
    try:
        store = RedisAuditStore(client)
        await store.append(EVENT)
        with server.client() as admin, full(admin):
            entry = await store.append(EVENT, drop_to=1)
        assert await store.entries() == [entry]
    finally:
        await client.aclose()
        server.stop()


def wind_back(client):
    client.set(AUDIT_HEAD, f"1 {'0' * 64}")


def put_in(client):
    client.xadd(AUDIT, {"event": b"\xff", "previous": "?", "hash": "not a hash \xff"}, "4-0")


def put_in_with_other_fields(client):
    client.xadd(AUDIT, {"x": "y"}, "4-0")


@pytest.mark.parametrize(
    ("tamper", "after"),
    [
        (lambda client: client.delete(AUDIT_HEAD), 3),
        (lambda client: client.set(AUDIT_HEAD, "rubbish"), 3),
        (wind_back, 3),
        (put_in, 4),
        (put_in_with_other_fields, 4),
        (lambda client: client.xdel(AUDIT, "2-0", "3-0"), 3),
        (lambda client: client.delete(AUDIT), 3),
    ],
)
async def test_the_log_goes_on(redis_store, redis_server, tamper, after):
    """Whatever was done to the log by hand, the next event is put at its end."""
    for number in range(3):
        await redis_store.append(event(number))
    with redis_server.client() as client:
        tamper(client)
    entry = await redis_store.append(EVENT)
    assert entry.number == after + 1
    assert (await redis_store.entries(count=1)) == [entry]
    assert await redis_store.head() == (entry.number, entry.hash)


@pytest.mark.parametrize(
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
        pytest.param(b'{"before":{"a":' + b"[" * 100_000, id="nested without end"),
        pytest.param(
            b'{"at_us":1,"actor":"a","action":"b","subject":"c","after":%b{}%b}'
            % (b'{"a":' * 300, b"}" * 300),
            id="nested deeply",
        ),
    ],
)
async def test_what_cannot_be_read(redis_store, redis_server, content):
    """An entry that nobody can have written so is there as such, and hides no other."""
    first = await redis_store.append(EVENT)
    with redis_server.client() as client:
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
    """A head that is none is as if there were none."""
    with redis_server.client() as client:
        client.set(AUDIT_HEAD, b"\xff")
    assert await redis_store.head() == (0, NOTHING_BEFORE)
    assert (await redis_store.append(EVENT)).number == 1


async def test_a_store_that_is_away_is_down():
    """A store that cannot be reached is StoreDown from every method, with the cause."""
    client = redis_client(parse_url(RedisServer().url))
    store = RedisAuditStore(client)
    answers = await asyncio.gather(
        store.append(EVENT),
        store.entries(),
        store.oldest(),
        store.head(),
        return_exceptions=True,
    )
    for answer in answers:
        assert isinstance(answer, StoreDown)
        assert isinstance(answer.__cause__, redis.exceptions.RedisError)
    await client.aclose()
