"""Key stores, and the form of records in Redis."""

from __future__ import annotations

import asyncio
import json
import re
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
    WrongType,
)
from gateway.stores.keys import records
from gateway.stores.keys import store as keys_module
from gateway.stores.keys.memory import MemoryDirectory, MemoryKeyStore
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from tests.kit.redis_server import DURABLE, RedisServer, full
from tests.kit.rows import each_row
from tests.suites.keys import FULL, NOW, KeyStoreSuite, nth_id, plain_key


@pytest.fixture
def redis_store(store_client):
    return RedisKeyStore(store_client)


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
WRITTEN = records.write_record(FULL)
#: Texts that no field of a key or account may hold: they would end a header line, a log line or a
#: label, or are no text at all.
HOSTILE_TEXTS = [
    "a\r\nX-Admin: 1",
    "a\n",
    "a\0",
    "a b",
    " a",
    "\ud800",
    "\u2028",
    "é",
    "",
    "a" * 1_000,
]
#: Contents that are no record at all, of whatever kind.
NO_RECORD = [
    b"\xff",
    b"null",
    b"[]",
    b"{}",
    b"NaN",
    b"{" * 100,
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b"9" * 100_000,
    json.dumps("x" * records.MOST_BYTES).encode(),
    WRITTEN + b" " * records.MOST_BYTES,
    WRITTEN.decode().encode("utf-16"),
]


@each_row(
    "content",
    [
        *NO_RECORD,
        WRITTEN[:-1] + b',"status":"valid"}',  # a field twice
        broken("id", "another"),
        broken("digest", "abcd"),
        broken("digest", "secret"),
        broken("digest", None),
        broken("status", "fine"),
        broken("status", ["valid"]),
        broken("plan", None),
        broken("created_us", "1"),
        broken("created_us", True),
        broken("created_us", -1),
        broken("created_us", 10**30),
        broken("expires_us", 10**400),
        broken("expires_us", float("nan")),
        broken("expires_us", 253_402_300_800_000_000),  # the year 10000
        *(broken(field, text) for field in ("account", "environment") for text in HOSTILE_TEXTS),
        *(broken(field, text) for field in ("lineage", "successor") for text in HOSTILE_TEXTS),
        *(broken("plan", text) for text in HOSTILE_TEXTS if text),
        *(broken("name", text) for text in HOSTILE_TEXTS if text not in ("a b", "é")),
        *(broken("scopes", [text]) for text in HOSTILE_TEXTS),
        *(broken("permissions", {text: ["read"]}) for text in HOSTILE_TEXTS),
        *(broken("permissions", {"edr": [text]}) for text in HOSTILE_TEXTS),
        *(broken("limits", {text: LIMIT}) for text in HOSTILE_TEXTS),
        *(broken("limits", {"plan": {**LIMIT, "per": text}}) for text in HOSTILE_TEXTS),
        broken("scopes", ["a:b"] * 257),
        broken("permissions", {f"area-{n}": ["read"] * 2 for n in range(129)}),
        broken("networks", ["fe80::1%eth0\r\n"]),
        broken("networks", ["10.0.0.0/8"] * 257),
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
        broken("limits", {"plan": {**LIMIT, "burst": 1}}),
        broken("limits", {"plan": {**LIMIT, "amount": 10**400}}),
        broken("limits", {"plan": {**LIMIT, "amount": 2**32, "burst": None}}),
        broken("limits", {"plan": {**LIMIT, "window_us": 59_000_000}}),
        broken("limits", {"plan": {**LIMIT, "window_us": 6e7}}),
        broken("limits", {"plan": {**LIMIT, "window_us": 86_400_000_000, "burst": 2**32 - 1}}),
        broken("limits", {"plan": {**LIMIT, "kind": "quota"}}),
        broken("limits", {f"limit-{n}": LIMIT for n in range(257)}),
        broken("limits", {"plan": None}),
    ],
)
async def test_a_corrupt_record_is_named(redis_store, redis_server, content):
    """A corrupt record is an error that names the id and quotes nothing."""
    with redis_server.client() as client:
        client.set(f"gw:{{keys}}:key:{FULL.id}", content)
    with pytest.raises(CorruptRecord) as caught:
        await redis_store.get(FULL.id)
    assert str(caught.value) == (
        f"the store's record of key {FULL.id} cannot be read: something else wrote to it"
    )


async def test_corrupt_records_hide_no_other(redis_store, redis_server, caplog):
    """A list leaves out what cannot be read, and the log names one of them."""
    await redis_store.add(plain_key("b" * 12))
    with redis_server.client() as client:
        for number, content in enumerate([*NO_RECORD, broken("expires_us", 10**400)]):
            client.set(f"gw:{{keys}}:key:{nth_id(number)}", content)
            client.zadd("gw:{keys}:index", {nth_id(number): NOW + number})
        client.hset("gw:{keys}:key:cccccccccccc", "a", "b")
        foreign = [b"cccccccccccc", b"\xff\xfe", b"x\r\ny", b"", b"a" * 100_000]
        client.zadd("gw:{keys}:index", dict.fromkeys(foreign, NOW + 2**40))
    for wanted in (KeyFilter(), KeyFilter(status="valid"), KeyFilter(text="ci")):
        assert [record.id for record in await redis_store.page(wanted)] == ["b" * 12]
    assert [record.id for record in await redis_store.records()] == ["b" * 12]
    assert len(caplog.records) == 1
    assert re.search(r"record of key [2-9a-z]{12} cannot be read", caplog.text)


async def test_a_corrupt_account_hides_no_key(redis_store, redis_server):
    """Keys of an unreadable account are listed, without a plan if they have no own one."""
    for letter, plan in zip("abc", ("pro", "", ""), strict=True):
        await redis_store.add(plain_key(letter * 12, plan=plan, account=f"{letter}-account"))
        await redis_store.put_account(Account(f"{letter}-account", plan="pro"))
    with redis_server.client() as client:
        client.set("gw:{keys}:account:a-account", b"{}")
        client.set("gw:{keys}:account:b-account", b"{}")
    assert [record.id[0] for record in await redis_store.page(KeyFilter())] == ["c", "b", "a"]
    assert [
        record.id[0] for record in await redis_store.page(KeyFilter(plans=frozenset({"pro"})))
    ] == ["c", "a"]


async def test_a_corrupt_account_hides_no_other(redis_store, redis_server, caplog):
    """The list of accounts leaves out what cannot be read, and the log names one of them."""
    await redis_store.put_account(Account("acme"))
    with redis_server.client() as client:
        for number, content in enumerate(NO_RECORD):
            client.set(f"gw:{{keys}}:account:a{number}", content)
            client.sadd("gw:{keys}:accounts", f"a{number}")
        client.rpush("gw:{keys}:account:list", "x")
        client.sadd("gw:{keys}:accounts", b"list", b"\xff", b"a\nb", b"", b"gone", b"a" * 100_000)
    assert await redis_store.accounts() == [Account("acme")]
    assert len(caplog.records) == 1


async def test_large_records_are_read_some_at_a_time(redis_store, redis_server):
    """A list reads a bounded number of bytes at a time, however large the values are."""
    with redis_server.client() as client:
        for number in range(100):
            client.set(f"gw:{{keys}}:key:{nth_id(number)}", b"x" * 1_000_000)
            client.zadd("gw:{keys}:index", {nth_id(number): number})
        await redis_store.add(plain_key("b" * 12, created_us=0))
        client.config_resetstat()
        assert [record.id for record in await redis_store.page(KeyFilter())] == ["b" * 12]
        sent = client.info("stats")["total_net_output_bytes"]
        calls = client.info("commandstats")["cmdstat_eval"]["calls"]
    assert sent < 100 * 1.1 * records.MOST_BYTES
    assert calls >= 100 * records.MOST_BYTES / 5_000_000


async def test_foreign_members_do_not_slow_a_list(redis_store, redis_server):
    """An index full of foreign members is read in large steps, without values for them."""
    await redis_store.add(plain_key("b" * 12, created_us=0))
    with redis_server.client() as client:
        client.zadd("gw:{keys}:index", {f"member-{n}": n + 1 for n in range(20_000)})
        client.config_resetstat()
        assert [record.id for record in await redis_store.page(KeyFilter(), count=2)] == ["b" * 12]
        stats = client.info("commandstats")
    assert stats["cmdstat_zrevrange"]["calls"] < 50
    assert stats["cmdstat_getrange"]["calls"] == 1


@each_row("moment", [b"", b"-1", b"1.5", b"9" * 5_000, b"9" * 19, b"\xb2", b"x"])
async def test_a_last_use_that_cannot_be_shown_is_none(redis_store, redis_server, moment):
    """An invalid last use counts as none, and does not hide those of other keys."""
    with redis_server.client() as client:
        client.hset("gw:{keys}:used", mapping={"a" * 12: moment, "b" * 12: NOW})
    assert await redis_store.last_used(["a" * 12, "b" * 12]) == {"b" * 12: NOW}


async def test_last_use_under_a_name_of_another_type(redis_store, redis_server):
    """If the name of last uses has a value of another type, no key has a last use."""
    with redis_server.client() as client:
        client.set("gw:{keys}:used", "x")
    assert await redis_store.last_used(["a" * 12]) == {}


@pytest.mark.parametrize("made", [b"", b"x\r\ny", b"\xff" * 12, b"a" * 10_000])
async def test_a_foreign_id_under_a_word_is_not_repeated(redis_store, redis_server, made):
    """An invalid id under an idempotency key is a separate error, which does not repeat it."""
    with redis_server.client() as client:
        client.set("gw:{keys}:once:word", made)
    with pytest.raises(CorruptRecord, match="idempotency key word"):
        await redis_store.add(FULL, "word")


@pytest.mark.parametrize("form", [{"indent": 1}, {"sort_keys": True}], ids=["blanks", "order"])
async def test_what_was_written_in_another_form_is_replaced(redis_store, redis_server, form):
    """A record or account that another tool wrote, as equivalent JSON, can be replaced."""
    valid, account = replace(FULL, status="valid"), Account("acme", ("edr",))
    await redis_store.add(valid)
    await redis_store.put_account(account)
    with redis_server.client() as client:
        for name in (f"gw:{{keys}}:key:{FULL.id}", "gw:{keys}:account:acme"):
            client.set(name, json.dumps(json.loads(client.get(name)), **form))
    revoked = replace(valid, status="revoked")
    await redis_store.replace(await redis_store.get(FULL.id), revoked)
    assert await redis_store.get(FULL.id) == revoked
    await redis_store.replace_account(account, Account("acme", ("scm",)))
    assert await redis_store.account("acme") == Account("acme", ("scm",))
    with pytest.raises(KeyChanged):
        await redis_store.replace(valid, FULL)
    with pytest.raises(KeyChanged):
        await redis_store.replace_account(account, Account("acme"))


@each_row(
    "content",
    [
        *NO_RECORD,
        b"x",
        b"[]",
        b'{"name":"acme"}',
        b'{"name":"b","services":[]}',
        b'{"name":"acme","services":"a"}',
        b'{"name":"acme","plan":5,"services":[]}',
        b'{"limits":[],"name":"acme","services":[]}',
        b'{"limits":{"plan":{"amount":0}},"name":"acme","services":[]}',
        b'{"name":"acme","name":"acme","services":[]}',
        *(
            json.dumps({"name": "acme", **fields}).encode()
            for text in HOSTILE_TEXTS
            for fields in ({"services": [text]}, {"services": [], "plan": text or 5})
        ),
        json.dumps({"name": "acme", "services": ["a"] * 257}).encode(),
    ],
)
async def test_a_corrupt_account_is_named(redis_store, redis_server, content):
    """A corrupt account is an error that names it."""
    with redis_server.client() as client:
        client.set("gw:{keys}:account:acme", content)
    with pytest.raises(CorruptRecord, match="account acme"):
        await redis_store.account("acme")


async def test_deleted_records_are_not_listed(redis_store, redis_server):
    """A record or account that was deleted by hand is not listed; the others are."""
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


async def test_a_page_leaves_out_deleted_keys(redis_store, redis_server):
    """A page is full if there are enough keys, whatever was deleted by hand."""
    for letter in "abc":
        await redis_store.add(plain_key(letter * 12))
    with redis_server.client() as client:
        client.delete(f"gw:{{keys}}:key:{'b' * 12}")
    page = await redis_store.page(KeyFilter(), count=2)
    assert [record.id[0] for record in page] == ["c", "a"]


async def test_an_idempotency_key_expires_after_a_day(redis_store, redis_server):
    """The idempotency key of a creation expires after a day, and stores only an id."""
    await redis_store.add(FULL, "word")
    with redis_server.client() as client:
        assert client.get("gw:{keys}:once:word") == FULL.id.encode()
        assert ONCE_S - 60 < client.ttl("gw:{keys}:once:word") <= ONCE_S


async def test_an_idempotency_key_expires_after_a_day_in_memory():
    """The same in memory, by the creation times of keys."""
    store = MemoryKeyStore()
    day_us = ONCE_S * 1_000_000
    await store.add(plain_key("a" * 12), "word")
    await store.add(plain_key("b" * 12), "other")
    with pytest.raises(MadeBefore):
        await store.add(plain_key("c" * 12, created_us=NOW + day_us - 1), "word")
    await store.add(plain_key("c" * 12, created_us=NOW + day_us), "word")


async def test_the_directory_in_memory_applies_account_values():
    """A key without a plan has its account's, and both their limits; its own take precedence."""
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
    """The store holds the digest of a key, from which the key cannot be computed."""
    await redis_store.add(FULL)
    with redis_server.client() as client:
        found = json.loads(client.get(f"gw:{{keys}}:key:{FULL.id}"))
    assert found["digest"] == FULL.digest.hex()
    assert not {"key", "secret", "text"} & found.keys()


async def test_each_method_works_after_a_restart():
    """Each method works after a restart of the store."""
    server = RedisServer(*DURABLE)
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
        assert await store.get(FULL.id) == changed
    finally:
        await client.aclose()
        server.stop()


async def takes_changes_when_full(store, server):
    """If Redis is full, keys and accounts can be changed; new ones are refused."""
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


async def test_a_full_store_takes_changes(redis_store, redis_server):
    await takes_changes_when_full(redis_store, redis_server)


async def test_an_unavailable_store_raises(lost_client):
    """A store that cannot be reached is StoreDown from every method, with the cause."""
    store = RedisKeyStore(lost_client)
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
    assert {type(answer) for answer in answers} == {StoreDown}
    causes = [answer.__cause__ for answer in answers]
    assert all(isinstance(cause, redis.exceptions.RedisError) for cause in causes)


async def test_a_value_of_another_type_is_a_corrupt_record(redis_store, redis_server):
    """A value of another type under a record's name is a corrupt record."""
    with redis_server.client() as client:
        client.lpush("gw:{keys}:key:a", "x")
        client.zadd("gw:{keys}:account:a", {"x": 1})
    for read in (redis_store.get("a"), redis_store.account("a")):
        with pytest.raises(CorruptRecord, match="a cannot be read"):
            await read


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("index", lambda store: store.page(KeyFilter())),
        ("index", lambda store: store.records()),
        ("index", lambda store: store.add(FULL, "word")),
        ("accounts", lambda store: store.accounts()),
        ("accounts", lambda store: store.account_names()),
        ("accounts", lambda store: store.put_account(Account("a"))),
        ("accounts", lambda store: store.replace_account(None, Account("a"))),
    ],
)
async def test_an_index_of_another_type(redis_store, redis_server, name, ask):
    """The error has both types and a remedy, and nothing is written."""
    with redis_server.client() as client:
        client.set(f"gw:{{keys}}:{name}", "x")
        with pytest.raises(WrongType) as raised:
            await ask(redis_store)
        assert client.keys() == [f"gw:{{keys}}:{name}".encode()]
    words = (
        f"a value of type string under gw:{{keys}}:{name}, expected {'z' * (name == 'index')}set:"
    )
    assert words in str(raised.value)
    assert f"RENAME gw:{{keys}}:{name} " in str(raised.value)


async def test_many_names_of_accounts(redis_store, redis_server, monkeypatch, caplog):
    """Of too many names a bounded number is read, in steps, and the log says so."""
    monkeypatch.setattr(keys_module, "_MOST_ACCOUNTS", 2_000)
    with redis_server.client() as client:
        client.sadd("gw:{keys}:accounts", *(f"g{number}" for number in range(20_000)))
        client.config_resetstat()
        assert 2_000 <= len(await redis_store.account_names()) < 3_000
        assert client.info("commandstats")["cmdstat_sscan"]["calls"] <= 4
    assert "more than 2000 names of accounts" in caplog.text


async def test_errors_of_redis_are_reported(redis_store, redis_server):
    """An error reply that is not about a record is StoreDown, with its text."""
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StoreDown, match=r"OOM|maxmemory"):
                await redis_store.add(FULL)
        finally:
            client.config_set("maxmemory", 0)


async def test_the_directory_in_memory_sees_changes_at_once():
    """In memory a change is seen by the next look-up."""
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


async def test_a_store_that_answers_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a reply has no values, the store is unavailable: the request is not repeated forever."""
    client = redis_client(parse_url("redis://127.0.0.1:1"))
    store = RedisKeyStore(client)

    async def nothing(*_: object) -> list[bytes]:
        return []

    monkeypatch.setattr(store, "_read", nothing)
    with pytest.raises(StoreDown):
        async for _ in store._values(["gw:{keys}:key:222222222222"]):
            pass
    await client.aclose()
