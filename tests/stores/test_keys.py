"""Key stores, and the form that records have in Redis."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from ipaddress import ip_network

import pytest
import redis.exceptions

from gateway.domain.keys import Account
from gateway.domain.limits import Limit
from gateway.domain.ports import (
    ONCE_S,
    CorruptRecord,
    KeyChanged,
    KeyFilter,
    MadeBefore,
    StoreDown,
)
from gateway.stores import records
from gateway.stores.connect import parse_url, redis_client
from gateway.stores.keys import RedisKeyStore
from gateway.stores.memory_keys import MemoryDirectory, MemoryKeyStore
from tests.kit.redis_server import RedisServer, full, server_binaries
from tests.suites.keys import FULL, NOW, KeyStoreSuite, plain_key


@pytest.fixture
async def redis_store(redis_server):
    client = redis_client(parse_url(redis_server.url))
    yield RedisKeyStore(client)
    await client.aclose()


class TestMemory(KeyStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryKeyStore()


class TestRedis(KeyStoreSuite):
    @pytest.fixture
    def store(self, redis_store):
        return redis_store


def broken(field, value):
    """FULL's JSON with one field set to something else; `...` removes it."""
    found = json.loads(records.write_record(FULL))
    if value is ...:
        del found[field]
    else:
        found[field] = value
    return json.dumps(found).encode()


LIMIT = json.loads(records.write_record(FULL))["limits"]["plan"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b"{" * 100,
        broken("id", "another"),
        broken("digest", "abcd"),
        broken("digest", "secret"),
        broken("digest", None),
        broken("status", "fine"),
        broken("status", ["valid"]),
        broken("plan", None),
        broken("created_us", "1"),
        broken("created_us", True),
        broken("expires_us", 1.5),
        broken("successor", 5),
        broken("scopes", "connectors:read"),
        broken("scopes", [1]),
        broken("networks", ["10.0.0.1/8"]),
        broken("networks", ...),
        broken("permissions", []),
        broken("permissions", {"edr": "read"}),
        broken("limits", {"plan": {**LIMIT, "amount": 0}}),
        broken("limits", {"plan": {**LIMIT, "kind": "other"}}),
        broken("limits", {"plan": {**LIMIT, "shadow": 1}}),
        broken("limits", {"plan": {**LIMIT, "burst": "9"}}),
        broken("limits", {"plan": None}),
    ],
)
async def test_a_corrupt_record_is_named(redis_store, redis_server, content):
    """A record that is not what was written is an error naming the id and quoting nothing."""
    await redis_store.add(FULL)
    with redis_server.client() as client:
        client.set(f"gw:{{keys}}:key:{FULL.id}", content)
    for read in (redis_store.get(FULL.id), redis_store.records()):
        with pytest.raises(CorruptRecord) as caught:
            await read
        assert FULL.id in str(caught.value)
        assert "secret" not in str(caught.value)
        assert FULL.digest.hex() not in str(caught.value)


async def test_a_corrupt_record_hides_no_other(redis_store, redis_server, caplog):
    """A page is without a record that cannot be read, and the log names it."""
    await redis_store.add(FULL)
    await redis_store.add(plain_key("b" * 12))
    with redis_server.client() as client:
        client.set(f"gw:{{keys}}:key:{FULL.id}", b"{}")
    assert [record.id for record in await redis_store.page(KeyFilter())] == ["b" * 12]
    assert FULL.id in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"[]",
        b'{"name":"acme"}',
        b'{"name":"b","services":[]}',
        b'{"name":"acme","services":"a"}',
        b'{"name":"acme","plan":5,"services":[]}',
        b'{"limits":[],"name":"acme","services":[]}',
        b'{"limits":{"plan":{"amount":0}},"name":"acme","services":[]}',
    ],
)
async def test_a_corrupt_account_is_named(redis_store, redis_server, content):
    """So is an account."""
    await redis_store.put_account(Account("acme"))
    with redis_server.client() as client:
        client.set("gw:{keys}:account:acme", content)
    for read in (redis_store.account("acme"), redis_store.accounts()):
        with pytest.raises(CorruptRecord, match="account acme"):
            await read


async def test_what_was_deleted_is_not_listed(redis_store, redis_server):
    """A record or account that somebody deleted by hand is gone, and disturbs nothing."""
    for key_id in ("a" * 12, "b" * 12):
        await redis_store.add(plain_key(key_id))
        await redis_store.put_account(Account(key_id))
    with redis_server.client() as client:
        client.delete(f"gw:{{keys}}:key:{'a' * 12}", f"gw:{{keys}}:account:{'a' * 12}")
    assert [record.id for record in await redis_store.records()] == ["b" * 12]
    assert [account.name for account in await redis_store.accounts()] == ["b" * 12]


def test_accounts_as_they_were_before_they_had_plans():
    """An account without plan and limits is written, and read, as in releases without them."""
    written = b'{"name":"acme","services":["edr"]}'
    assert records.write_account(Account("acme", ("edr",))) == written
    assert records.read_account("acme", written) == Account("acme", ("edr",))


async def test_a_page_leaves_out_what_was_deleted(redis_store, redis_server):
    """A page is full where there are keys enough, whatever somebody deleted by hand."""
    for letter in "abc":
        await redis_store.add(plain_key(letter * 12))
    with redis_server.client() as client:
        client.delete(f"gw:{{keys}}:key:{'b' * 12}")
    page = await redis_store.page(KeyFilter(), count=2)
    assert [record.id[0] for record in page] == ["c", "a"]


async def test_a_word_is_known_for_a_day(redis_store, redis_server):
    """The word under which a key was made is forgotten after a day, and says no more than an id."""
    await redis_store.add(FULL, "word")
    with redis_server.client() as client:
        assert client.get("gw:{keys}:once:word") == FULL.id.encode()
        assert ONCE_S - 60 < client.ttl("gw:{keys}:once:word") <= ONCE_S


async def test_a_word_is_known_for_a_day_in_memory():
    """So it is in the store of one process, by the times at which keys are made."""
    store = MemoryKeyStore()
    day_us = ONCE_S * 1_000_000
    await store.add(plain_key("a" * 12), "word")
    await store.add(plain_key("b" * 12), "other")
    with pytest.raises(MadeBefore):
        await store.add(plain_key("c" * 12, created_us=NOW + day_us - 1), "word")
    await store.add(plain_key("c" * 12, created_us=NOW + day_us), "word")


async def test_the_directory_in_memory_settles_what_an_account_says():
    """A key without a plan has its account's, and the figures of both, its own first."""
    store = MemoryKeyStore()
    directory = MemoryDirectory(store)
    own, theirs = Limit("a", "rate", 1, 1_000_000), Limit("a", "rate", 2, 1_000_000)
    other = Limit("b", "rate", 3, 1_000_000)
    await store.put_account(Account("acme", (), "pro", {"a": theirs, "b": other}))
    await store.add(plain_key(plan="", limits={"a": own}))
    answers = []
    directory.look_up(FULL.id, answers.append)
    record = answers[0].record
    assert (record.plan, dict(record.limits)) == ("pro", {"a": own, "b": other})


async def test_no_secret_is_stored(redis_store, redis_server):
    """The store holds the digest of a key; whoever reads the store cannot present it."""
    await redis_store.add(FULL)
    with redis_server.client() as client:
        found = json.loads(client.get(f"gw:{{keys}}:key:{FULL.id}"))
    assert found["digest"] == FULL.digest.hex()
    assert not {"key", "secret", "text"} & found.keys()


async def test_a_restart_is_a_delay():
    """Each method works with a store that was restarted since the last."""
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    client = redis_client(parse_url(server.url))
    store = RedisKeyStore(client)
    try:
        server.start()
        await store.add(FULL)
        changed = replace(FULL, name="x")
        for use in (
            lambda: store.add(plain_key("b" * 12)),
            lambda: store.get(FULL.id),
            lambda: store.replace(FULL, changed),
            store.records,
            lambda: store.put_account(Account("acme")),
            lambda: store.account("acme"),
            store.accounts,
            lambda: store.replace_account(Account("acme"), Account("acme", plan="pro")),
            lambda: store.page(KeyFilter(status="valid")),
            lambda: store.touch([FULL.id], NOW),
            lambda: store.last_used([FULL.id]),
        ):
            server.kill()
            server.start()
            await use()
    finally:
        await client.aclose()
        server.stop()


@pytest.mark.parametrize("binary", server_binaries(), ids=lambda path: path.name)
async def test_a_store_that_is_full_takes_changes(binary):
    """Where Redis takes nothing more, keys and accounts are still changed; new ones are refused."""
    server = RedisServer(binary=binary).start()
    client = redis_client(parse_url(server.url))
    try:
        store = RedisKeyStore(client)
        await store.add(FULL)
        await store.put_account(Account("acme", ("edr",)))
        with server.client() as admin, full(admin):
            narrowed = replace(FULL, scopes=(), networks=(ip_network("192.0.2.0/24"),))
            for old, new in (
                (FULL, narrowed),
                (narrowed, replace(narrowed, status="suspended")),
                (replace(narrowed, status="suspended"), replace(narrowed, status="revoked")),
            ):
                await store.replace(old, new)
                assert await store.get(FULL.id) == new
            await store.replace_account(Account("acme", ("edr",)), Account("acme"))
            assert await store.account("acme") == Account("acme")
            with pytest.raises(KeyChanged):
                await store.replace(FULL, narrowed)
            for refused in (
                store.add(plain_key("b" * 12)),
                store.replace_account(None, Account("other")),
            ):
                with pytest.raises(StoreDown):
                    await refused
            assert admin.exists("gw:{keys}:none") == 0
        assert [record.id for record in await store.records()] == [FULL.id]
        assert [account.name for account in await store.accounts()] == ["acme"]
    finally:
        await client.aclose()
        server.stop()


async def test_a_store_that_is_away_is_down():
    """A store that cannot be reached is StoreDown from every method, with the cause."""
    client = redis_client(parse_url(RedisServer().url))
    store = RedisKeyStore(client)
    try:
        answers = await asyncio.gather(
            store.add(FULL),
            store.get("a"),
            store.replace(FULL, FULL),
            store.records(),
            store.put_account(Account("a")),
            store.account("a"),
            store.accounts(),
            store.replace_account(None, Account("a")),
            store.page(KeyFilter()),
            store.touch(["a"], NOW),
            store.last_used(["a"]),
            return_exceptions=True,
        )
        for answer in answers:
            assert isinstance(answer, StoreDown)
            assert isinstance(answer.__cause__, redis.exceptions.RedisError)
    finally:
        await client.aclose()


async def test_a_name_of_another_type_is_down(redis_store, redis_server):
    """What Redis refuses to do is told as Redis words it."""
    with redis_server.client() as client:
        client.lpush("gw:{keys}:key:a", "x")
    with pytest.raises(StoreDown, match="WRONGTYPE"):
        await redis_store.get("a")


async def test_the_directory_in_memory_sees_changes_at_once():
    """In one process a change is seen by the very next look."""
    store = MemoryKeyStore()
    directory = MemoryDirectory(store)
    answers = []
    directory.look_up(FULL.id, answers.append)
    await store.add(FULL)
    directory.look_up(FULL.id, answers.append)
    identity = answers[-1]
    assert answers[0].name == "UNKNOWN"
    assert (identity.record, identity.account) == (FULL, Account("acme"))
    assert directory.known(FULL.id) is identity

    await store.put_account(Account("acme", ("edr",)))
    assert not identity.current
    assert directory.known(FULL.id) is None
    directory.look_up(FULL.id, answers.append)
    assert answers[-1].account.services == ("edr",)

    await store.replace(FULL, replace(FULL, status="revoked"))
    assert not answers[-1].current
    directory.look_up(FULL.id, answers.append)
    assert answers[-1].record.status == "revoked"
    directory.touch(answers[-1])
    assert FULL.id in await store.last_used([FULL.id])
    assert directory.is_up
