"""Usage stores, and their form in Redis."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain import usage as domain_usage
from gateway.domain.ports import StoreDown, UsageBatch
from gateway.domain.usage import (
    BUSY_KEPT_S,
    GRAIN_S,
    KEPT_S,
    MOST_BUSY,
    busiest_of,
    note_busy,
)
from gateway.stores.names import journal_name, open_journals_name, usage_name
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client
from gateway.stores.redis.connection import StoreConnection
from gateway.stores.usage import journal
from gateway.stores.usage import scripts as scripts_module
from gateway.stores.usage import store as module
from gateway.stores.usage.memory import MemoryUsageStore
from gateway.stores.usage.scripts import UsageScripts
from gateway.stores.usage.store import RedisUsageStore
from gateway.stores.usage.texts import PERIOD_S
from tests.kit.wire import TIMEOUT_S
from tests.suites.usage import LATER_S, NOW_S, UsageStoreSuite, Writer, of_key, read, total


class TestMemory(UsageStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryUsageStore()

    async def test_old_buckets_are_dropped(self):
        """Buckets beyond their age are dropped."""
        store = MemoryUsageStore()
        writer = Writer(store)
        await writer.add({of_key(): 1})
        for grain in GRAIN_S:
            await writer.add({of_key("b"): 1}, NOW_S + KEPT_S[grain])
            assert await total(store, "key:a", grain) == 1
            late_s = NOW_S + KEPT_S[grain] + 2 * GRAIN_S[grain]
            await writer.add({of_key("b"): 1}, late_s)
            assert await total(store, "key:a", grain) == 0


class TestRedis(UsageStoreSuite):
    @pytest.fixture
    def store(self, store_client):
        return RedisUsageStore(store_client)


@pytest.fixture
def store(store_client):
    return RedisUsageStore(store_client)


#: The marks in a text's name, and the grain of its buckets.
MARKS = {b"m": "minute", b"h": "hour", b"d": "day"}


async def test_all_of_it_expires(redis_server, store):
    """Everything expires a little after its age, except the names of plans."""
    now_s = int(time.time())
    minute_s = now_s - now_s % 60
    counts = {of_key(): 1, ("plan:free", "api", "admitted"): 1}
    writer = Writer(store)
    await writer.add(counts, minute_s - 3_600)
    await writer.add(counts, minute_s)
    await writer.add(counts, minute_s)
    await store.merge("worker", minute_s + 600)
    await Writer(store, "other").add({of_key(): 1}, minute_s)
    with redis_server.client() as client:
        names = client.keys()
        assert all(name.startswith(b"gw:{keys}:usage:") for name in names)
        for name in names:
            # When it was written; a loaded machine may have taken some seconds since.
            left_s = client.ttl(name)
            if left_s > 0:
                left_s += int(time.time()) + 1 - now_s
            last = name.split(b":")[-2:]
            if last[-1] == b"plans":
                assert left_s == -1
            elif b":busiest:" in name:
                grain = MARKS[last[0]]
                assert BUSY_KEPT_S[grain] < left_s <= BUSY_KEPT_S[grain] + 86_400 + 3_660
            elif b":key:" in name or b":plan:" in name:
                # The text of the open hour is added to the day's later.
                grain = MARKS.get(last[0], "day")
                assert KEPT_S[grain] < left_s <= KEPT_S[grain] + PERIOD_S[grain] + 3_660
            elif b":open:" in name or b":journal:" in name:
                assert 0 < left_s - 30 * 86_400 <= 86_400 + 60
            else:
                assert 0 < left_s <= 2 * 86_400 + 60


async def test_old_batches_expire(redis_server, store):
    """A batch by a clock far behind leaves nothing without an expiry."""
    await Writer(store).add({of_key(): 1}, 86_400)
    with redis_server.client() as client:
        assert {name for name in client.scan_iter() if client.ttl(name) == -1} == set()


#: Values that other programs might write there: other types, and invalid texts.
FOREIGN = (
    lambda client, name: client.set(name, "foreign"),
    lambda client, name: client.set(name, b"\xff\n\xff:\n"),
    lambda client, name: client.hset(name, "0|api|admitted", 7),
    lambda client, name: client.sadd(name, b"\xff"),
    lambda client, name: client.zadd(name, {b"\xff": float("inf")}),
)


@pytest.mark.parametrize(
    "name", ["key:a", "key:a:m:83333", "key:a:h:2314", "key:a:d:224", "busiest:m:30000000", "plans"]
)
@pytest.mark.parametrize("value", FOREIGN)
async def test_foreign_values_are_replaced(redis_server, store, name, value):
    """A foreign value is replaced, and nothing is lost or counted twice."""
    counts = {of_key(): 3, ("plan:free", "api", "admitted"): 3}
    writer = Writer(store)
    with redis_server.client() as client:
        value(client, f"gw:{{keys}}:usage:{name}")
        assert await total(store, "key:a", "minute") == 0
        assert await store.busiest("minute", NOW_S, NOW_S + 60, 5) == []
        await writer.add(counts)
        await store.merge("worker", LATER_S)
        await writer.add(counts, LATER_S)
        await store.merge("worker", 2 * LATER_S - NOW_S)
        for grain in GRAIN_S:
            assert await total(store, "key:a", grain) == 6
        assert await store.busiest("minute", NOW_S, NOW_S + 60, 5) == [("a", 3)]
        assert "free" in await store.plans()


async def test_missing_rights_are_reported(redis_server):
    """A store without the right to read is unavailable, not a store without usage."""
    rules = ("on", ">secret", "~*", "+@all", "-getrange", "-zrevrange")
    url = f"redis://half:secret@127.0.0.1:{redis_server.port}/0"
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "half", *rules)
        reader = redis_client(parse_url(url))
        try:
            with pytest.raises(StoreDown):
                await RedisUsageStore(reader).read("key:a", "minute", NOW_S, NOW_S + 60)
            with pytest.raises(StoreDown):
                await RedisUsageStore(reader).busiest("minute", NOW_S, NOW_S + 60, 5)
        finally:
            await reader.aclose()
            client.execute_command("ACL", "DELUSER", "half")


async def test_a_full_store_counts_nothing(redis_server, store):
    """If the store refuses a write, nothing of the batch is counted, and it can be sent again."""
    batch = UsageBatch("worker", 1, NOW_S, {of_key(f"k{at}"): 1 for at in range(50)})
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StoreDown):
                await store.add(batch)
        finally:
            client.config_set("maxmemory", 0)
        assert client.dbsize() == 0
    await store.add(batch)
    assert await total(store, "key:k7") == 1


async def test_scripts_may_be_flushed(redis_server, store):
    """After SCRIPT FLUSH or FLUSHALL the next batch is counted."""
    writer = Writer(store)
    await writer.add({of_key(): 1})
    with redis_server.client() as client:
        client.script_flush()
        await writer.add({of_key(): 2})
        assert await total(store, "key:a") == 3
        client.flushall()
    await writer.add({of_key(): 4})
    assert await total(store, "key:a") == 4


async def test_an_unavailable_store_raises(lost_client):
    """Every method raises StoreDown."""
    store = RedisUsageStore(lost_client)
    for asked in (
        store.add(UsageBatch("w", 1, NOW_S, {of_key(): 1})),
        store.read("key:a", "minute", NOW_S, NOW_S + 60),
        store.plans(),
        store.busiest("minute", NOW_S, NOW_S + 60, 5),
    ):
        with pytest.raises(StoreDown):
            await asked


@pytest.mark.parametrize("seed", range(3))
async def test_the_busiest_in_the_store(redis_server, store, monkeypatch, seed):
    """The script keeps and drops the same keys as the memory store."""
    choose = random.Random(seed)
    monkeypatch.setattr(scripts_module, "MOST_BUSY", 20)
    monkeypatch.setattr(domain_usage, "MOST_BUSY", 20)
    kept: dict[str, int] = {}
    writer = Writer(store)
    for _ in range(40):
        keys = {f"k{choose.randrange(90)}": choose.choice((1, 1, 2, 7)) for _ in range(30)}
        counts = {of_key(key): requests for key, requests in keys.items()}
        await writer.add(counts)
        note_busy(kept, busiest_of(counts))
        assert dict(await store.busiest("hour", NOW_S, NOW_S + 1, 1_000)) == kept


@given(st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 50)), max_size=3_000))
def test_the_busiest_keys_are_kept(uses):
    """A bucket is bounded, no number is too large, and the busiest key by far is always in it."""
    bucket: dict[str, int] = {}
    true: Counter[str] = Counter()
    for key, requests in [(-1, 1_000), *uses]:
        note_busy(bucket, {str(key): requests})
        true[str(key)] += requests
        assert len(bucket) <= 2 * MOST_BUSY
    assert all(requests <= true[key] for key, requests in bucket.items())
    assert bucket["-1"] == 1_000


class Merging:
    """Writers and mergers on one store, at random, beside a store that counts at once."""

    def __init__(self, store, seed) -> None:
        self.choose = random.Random(seed)
        self.truth = MemoryUsageStore()
        self.store = store
        self.writers = [Writer(store, f"writer{at}") for at in range(3)]

    async def add(self, writer) -> None:
        counts = {
            of_key(f"k{self.choose.randrange(30)}", self.choose.choice(("api", "search"))): n
            for n in range(1, self.choose.randrange(2, 20))
        }
        batch = await writer.add(counts, NOW_S + 60 * self.choose.randrange(4))
        await self.truth.add(batch)

    async def merge(self) -> None:
        now_s = NOW_S + self.choose.choice((60, 130, 400, 3_600))
        await self.store.merge(f"writer{self.choose.randrange(4)}", now_s)

    async def check(self) -> None:
        for at in range(30):
            for grain in GRAIN_S:
                key = f"key:k{at}"
                assert await read(self.store, key, grain) == await read(self.truth, key, grain)


@pytest.fixture
def small_steps(monkeypatch):
    """Make a journal take several steps."""
    monkeypatch.setattr(journal, "SHARDS", 2)
    monkeypatch.setattr(scripts_module, "_STEP", 3)
    monkeypatch.setattr(scripts_module, "_PAUSE_S", 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("small_steps")
async def test_nothing_is_merged_twice_or_lost(redis_server, store, seed):
    """Any number of processes may merge at once, while others write and some are cancelled."""
    site = Merging(store, seed)
    for _ in range(12):
        merging = [asyncio.create_task(site.merge()) for _ in range(3)]
        await asyncio.gather(*map(site.add, site.writers))
        merging[0].cancel()
        await asyncio.wait(merging)
        assert not any(task.exception() for task in merging[1:])
    await site.check()
    await store.merge("nobody", LATER_S)
    await site.check()
    with redis_server.client() as client:
        assert client.keys("gw:{keys}:usage:journal:*") == []
        assert client.keys("gw:{keys}:usage:open:*") == []


@pytest.mark.usefixtures("small_steps")
async def test_reads_during_a_merge_are_right(store):
    """While a key's journals are merged, its totals are always right."""
    for at in range(20):
        counts = {of_key(f"k{key}"): 1 for key in range(12)}
        await Writer(store, f"writer{at}").add(counts)
    merging = asyncio.create_task(store.merge("writer0", LATER_S))
    while not merging.done():
        totals = await asyncio.gather(*(total(store, f"key:k{key}") for key in range(12)))
        assert totals == [20] * 12
    await merging
    assert [await total(store, f"key:k{key}") for key in range(12)] == [20] * 12


@pytest.mark.usefixtures("small_steps")
async def test_a_journal_that_grows_while_it_is_merged(store, store_client):
    """What a late worker appends after the journal was read is counted as well."""
    late = [{of_key("k0"): 5}]
    writer = Writer(store)

    async def ask(*command):
        reply = await store_client.execute_command(*command)
        if command[1] == scripts_module._TEXT and b"\nk0|" in reply and late:
            await writer.add(late.pop())
        return reply

    await writer.add({of_key(f"k{key}"): 1 for key in range(12)})
    scripts = scripts_module.UsageScripts(ask)
    await scripts.merge("worker", LATER_S)
    await scripts.merge("worker", LATER_S)
    assert late == []
    assert [await total(store, f"key:k{key}") for key in range(12)] == [6, *[1] * 11]


@pytest.mark.usefixtures("small_steps")
async def test_foreign_journals(redis_server, store):
    """Foreign values under the journals' names, and foreign lines in them, count nothing."""
    opened = [open_journals_name(shard) for shard in range(2)]
    names = [journal_name(shard, f"{NOW_S}:worker") for shard in range(2)]
    shard = journal.shard_of("key:a")
    with redis_server.client() as client:
        client.set(opened[shard], "foreign")
        client.hset(names[shard], "a", "foreign")
        assert await total(store, "key:a") == 0
        await store.merge("worker", LATER_S)
        writer = Writer(store)
        await writer.add({of_key(): 3})
        assert await total(store, "key:a") == 3
        client.append(names[shard], "\na|x|api|admitted\na|1\nforeign\na|-1|api|admitted")
        client.sadd(opened[shard], "foreign", "x:worker", f"{NOW_S}:gone")
        client.sadd(opened[1 - shard], f"{NOW_S}:foreign")
        client.lpush(journal_name(1 - shard, f"{NOW_S}:foreign"), "x")
        assert await total(store, "key:a") == 3
        await store.merge("worker", LATER_S)
        assert await total(store, "key:a") == 3
        assert client.keys("gw:{keys}:usage:open:*") == []
        assert client.keys("gw:{keys}:usage:journal:*") == []


@pytest.mark.usefixtures("small_steps")
async def test_a_journal_above_the_bound(redis_server):
    """It is deleted unread: the reply would close the connection that keys are looked up on."""
    link = StoreConnection(parse_url(redis_server.url), timeout_s=TIMEOUT_S)
    link.start()
    await link.wait_up()
    scripts = UsageScripts(link.ask)
    shard = journal.shard_of("key:a")
    name = journal_name(shard, f"{NOW_S}:foreign")
    with redis_server.client() as client:
        client.set(name, b"\na|1|api|admitted" * 1_200_000)
        client.sadd(open_journals_name(shard), f"{NOW_S}:foreign", b"x" * 20_000_000)
        await Writer(scripts).add({of_key(): 3})
        await scripts.merge("worker", LATER_S)
        assert not client.exists(name)
        assert client.get(usage_name("key:a")).endswith(b":3")
    assert link.last_error is None
    await link.stop()


async def test_missing_rights_to_merge_are_reported(redis_server, store):
    """A store without the right to read its journals is unavailable."""
    rules = ("on", ">secret", "~*", "+@all", "-sscan")
    url = f"redis://half:secret@127.0.0.1:{redis_server.port}/0"
    await Writer(store).add({of_key(): 1})
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "half", *rules)
        half = redis_client(parse_url(url))
        try:
            for more in ((), ("+sscan", "-get")):
                client.execute_command("ACL", "SETUSER", "half", *more)
                with pytest.raises(StoreDown):
                    await RedisUsageStore(half).merge("worker", LATER_S)
                with pytest.raises(StoreDown):
                    await RedisUsageStore(half).read("key:a", "minute", NOW_S, NOW_S + 60)
        finally:
            await half.aclose()
            client.execute_command("ACL", "DELUSER", "half")


def calls(client, name):
    """How often the server has run a command."""
    return client.info("commandstats").get(f"cmdstat_{name}", {}).get("calls", 0)


def fill(client, name, members):
    """Put many members into a set."""
    for start in range(0, len(members), 5_000):
        client.sadd(name, *members[start : start + 5_000])


@pytest.mark.parametrize("form", ["x{}-abcdefgh", "{}:abcdefgh"], ids=["junk", "as ours"])
async def test_many_members_among_the_open_journals(redis_server, store, form):
    """A reader reads a bounded number of them, in small steps."""
    await Writer(store).add({of_key(): 3})
    name = open_journals_name(journal.shard_of("key:a"))
    with redis_server.client() as client:
        fill(client, name, [form.format(number) for number in range(30_000)])
        client.config_resetstat()
        await store.read("key:a", "minute", NOW_S, NOW_S + 60)
        assert calls(client, "smembers") == 0
        most, step = journal.MOST_LABELS_READ, 500
        assert 1 < calls(client, "sscan") <= most / step
        # A step may return a few more. Each journal is read once or twice.
        assert calls(client, "strlen") <= 2 * 1.1 * most
        assert calls(client, "eval") <= 4 * most / step


@pytest.mark.usefixtures("small_steps")
async def test_foreign_members_are_removed(redis_server, store, monkeypatch):
    """Merging removes any number of foreign members, and counts the journals that they hid."""
    monkeypatch.setattr(journal, "MOST_LABELS", 1_000)
    monkeypatch.setattr(journal, "MOST_LABELS_READ", 100)
    await Writer(store).add({of_key(): 3})
    name = open_journals_name(journal.shard_of("key:a"))
    with redis_server.client() as client:
        fill(client, name, [f"x{number}" for number in range(5_000)])
        for _ in range(10):
            await store.merge("worker", LATER_S)
        assert client.keys("gw:{keys}:usage:open:*") == []
    assert await total(store, "key:a", "minute") == 3


async def test_many_plans(redis_server, store):
    """A bounded number of plans is read, and no name above the bound."""
    with redis_server.client() as client:
        name = "gw:{keys}:usage:plans"
        fill(client, name, [f"p{number}" for number in range(20_000)])
        client.sadd(name, "x" * 100_000)
        client.config_resetstat()
        assert 999 <= len(plans := await store.plans()) < 2_000
        assert max(map(len, plans)) <= 64
        assert calls(client, "sscan") <= 2


async def test_many_among_the_busiest(redis_server, store):
    """Of the busiest keys a bounded number is read, and no invalid value."""
    with redis_server.client() as client:
        name = f"gw:{{keys}}:usage:busiest:m:{NOW_S // 60}"
        pipeline = client.pipeline()
        for start in range(0, 20_000, 1_000):
            members = {f"k{number:011}": number + 1 for number in range(start, start + 1_000)}
            pipeline.zadd(name, members)
        pipeline.zadd(name, {"x" * 100_000: 10**6, "y": float("inf"), "z": 1e300})
        pipeline.zadd(name, dict.fromkeys(["", "a b", "\x1b[31m", b"\xff", "<b>", "\n"], 10**6))
        pipeline.execute()
    found = await store.busiest("minute", NOW_S, NOW_S + 60, 5_000)
    assert len(found) == 2 * MOST_BUSY - 9
    assert found[0] == ("k00000019999", 20_000)


async def test_a_step_finds_few_lines(redis_server, store):
    """Finding a line takes the store some µs: of a key with many, whole journals are returned."""
    many = 2 * module._LINES_STEP
    shard = journal.shard_of("key:a")
    with redis_server.client() as client:
        for writer in ("w0", "w1", "w2"):
            label = f"{NOW_S}:{writer}"
            lines = "\na|1|api|admitted" * many + "\nb|5|api|admitted\nab|5|api|admitted"
            client.set(journal_name(shard, label), lines + "\na|1|api|admitted")
            client.sadd(open_journals_name(shard), label)
        client.config_resetstat()
        assert await total(store, "key:a", "minute") == 3 * (many + 1)
        # Each journal is a step, and is read before and after the texts.
        assert client.info("commandstats")["cmdstat_eval"]["calls"] >= 6


async def test_a_journal_that_is_too_long_to_read(redis_server, store):
    """It counts nothing, and the others count; each step reads a bounded part of them."""
    for writer in range(12):
        await Writer(store, f"w{writer}").add({of_key(): 3})
    shard = journal.shard_of("key:a")
    with redis_server.client() as client:
        client.append(journal_name(shard, f"{NOW_S}:w0"), b"\na|1|api|admitted" * 600_000)
        for writer in range(1, 12):
            text = b"\nbbbb|1|api|admitted" * 50_000
            client.append(journal_name(shard, f"{NOW_S}:w{writer}"), text)
        assert await total(store, "key:a", "minute") == 11 * 3
