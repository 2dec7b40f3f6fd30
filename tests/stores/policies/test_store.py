"""Stores of the history of policies, and its form in Redis."""

from __future__ import annotations

import pytest

from gateway.domain.policy_history import MOST_KEPT, ROLLBACK_S
from gateway.domain.ports import CorruptRecord, StoreDown, WrongType
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.names import POLICIES, ROLLBACK, policy_name
from gateway.stores.policies import store as module
from gateway.stores.policies.memory import MemoryPolicyStore
from gateway.stores.policies.records import MOST_ENTRY_BYTES, MOST_STORED_BYTES, write_texts
from gateway.stores.policies.store import RedisPolicyStore
from tests.kit.redis_server import full
from tests.suites.policies import NOW_US, PolicyStoreSuite, add, load, texts


class TestMemory(PolicyStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryPolicyStore()

    async def test_a_rollback_is_forgotten(self):
        """A rollback that no gateway loads is not the cause of a load much later."""
        now_s = 0.0
        store = MemoryPolicyStore(lambda: now_s)
        await store.note_rollback(load().hash, "anna (cli)")
        now_s = ROLLBACK_S
        assert await store.add(load(), None) == load()


@pytest.fixture
def redis_store(store_client):
    return RedisPolicyStore(store_client)


class TestRedis(PolicyStoreSuite):
    @pytest.fixture
    def store(self, redis_store):
        return redis_store


async def test_nothing_grows(redis_server, redis_store):
    """The history has a bounded number of entries and texts; a noted rollback expires."""
    for number in range(MOST_KEPT + 5):
        await redis_store.add(load(number), texts(number))
    await redis_store.note_rollback(load().hash, "anna (cli)")
    with redis_server.client() as client:
        assert client.xlen(POLICIES) == MOST_KEPT
        assert len(client.keys(policy_name("*").replace("%2A", "*"))) == MOST_KEPT
        assert 0 < client.ttl(ROLLBACK) <= ROLLBACK_S


async def test_an_answer_that_was_lost(redis_server, redis_store):
    """A command that is sent again gets the same answer as the first time, and adds nothing."""
    send = redis_store._redis.execute_command

    async def twice(*words, **options):
        await send(*words, **options)
        return await send(*words, **options)

    redis_store._redis.execute_command = twice
    await redis_store.note_rollback(load().hash, "anna (cli)")
    added = await redis_store.add(load(), texts())
    assert (added.cause, added.actor) == ("rollback", "anna (cli)")
    assert await redis_store.loads() == [added]


GOOD = {
    **{"at": str(NOW_US), "hash": load().hash, "previous": "", "cause": "start"},
    **{"gateway": "x", "summary": "x", "actor": ""},
}


@pytest.mark.parametrize(
    "bad",
    [
        {"x": "y"},
        {**GOOD, "at": "-1"},
        {**GOOD, "at": "\u0666"},
        {**GOOD, "at": "9" * 18},
        {**GOOD, "hash": "../../etc/passwd"},
        {**GOOD, "previous": "x"},
        {**GOOD, "cause": "magic"},
        {**GOOD, "gateway": "\x1b[2J"},
        {**GOOD, "summary": "x" * 501},
        {**GOOD, "summary": "x\n2027 forged line"},
        {**GOOD, "actor": b"\xff"},
        {**GOOD, "more": "x" * MOST_ENTRY_BYTES},
    ],
    ids=str,
)
async def test_an_unreadable_entry(redis_server, redis_store, caplog, monkeypatch, bad):
    """It is left out and hides no other; the log names it, and later loads are added."""
    monkeypatch.setattr(module, "_throttle", LogThrottle())
    await redis_store.add(load(1), texts(1))
    with redis_server.client() as client:
        entry_id = client.xadd(POLICIES, bad)
    assert await redis_store.loads() == [load(1)]
    assert f"the entry {entry_id.decode()} of {POLICIES} cannot be read" in caplog.text
    assert await add(redis_store, load(2)) == [True]
    assert [each.hash for each in await redis_store.loads()] == [load(2).hash, load(1).hash]


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"x" * (MOST_STORED_BYTES + 5),
        write_texts({"../a.yaml": "{}"}),
        write_texts(texts(1)),
    ],
    ids=["no texts", "too long", "a path", "another policy"],
)
async def test_unreadable_texts(redis_server, redis_store, content):
    """Texts that are not those of the hash are an error, which names the policy."""
    await redis_store.add(load(), texts())
    with redis_server.client() as client:
        client.set(policy_name(load().hash), content)
    with pytest.raises(CorruptRecord, match=load().hash):
        await redis_store.texts(load().hash)


async def test_foreign_values(redis_server, redis_store):
    """Values of another type are errors to read, and make way for the next load."""
    with redis_server.client() as client:
        for name in (POLICIES, policy_name(load().hash)):
            client.hset(name, "a", "foreign")
        client.hset(ROLLBACK, "a", "foreign")
    with pytest.raises(WrongType, match=POLICIES):
        await redis_store.loads()
    with pytest.raises(CorruptRecord):
        await redis_store.texts(load().hash)
    assert await redis_store.add(load(), texts()) == load()
    assert await redis_store.loads() == [load()]
    assert await redis_store.texts(load().hash) == texts()


async def test_an_entry_that_no_other_can_follow(redis_server, redis_store):
    """A stream whose last id is the highest possible starts again."""
    await redis_store.add(load(1), texts(1))
    with redis_server.client() as client:
        client.xadd(POLICIES, GOOD, id=f"{2**64 - 1}-{2**64 - 1}")
    assert await redis_store.add(load(2), texts(2)) == load(2)
    assert await redis_store.loads() == [load(2)]
    assert await redis_store.texts(load(1).hash) is None


async def test_a_noted_rollback_of_others(redis_server, redis_store):
    """A note without end, or with control characters, does not damage the entry."""
    with redis_server.client() as client:
        client.set(ROLLBACK, f"{load(1).hash} \x1b[2J{'x' * 100_000}")
    added = await redis_store.add(load(1), None)
    assert added.actor.isprintable()
    assert len(added.actor) <= 200
    assert await redis_store.loads() == [added]


async def test_an_unavailable_or_full_store(redis_server, redis_store, lost_client):
    """Nothing is stored partly, and each call raises."""
    with redis_server.client() as admin, full(admin), pytest.raises(StoreDown):
        await redis_store.add(load(), texts())
    assert await redis_store.loads() == []
    assert await redis_store.texts(load().hash) is None
    store = RedisPolicyStore(lost_client)
    for asked in (
        store.add(load(), texts()),
        store.loads(),
        store.texts(load().hash),
        store.note_rollback(load().hash, "anna"),
    ):
        with pytest.raises(StoreDown):
            await asked
