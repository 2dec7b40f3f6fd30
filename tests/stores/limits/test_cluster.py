"""The limiter and the key and usage stores over a Redis Cluster of six real servers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from gateway.cli.main import cli
from gateway.domain import window
from gateway.domain.identity import Absent, Identity
from gateway.domain.keys import KeyRecord
from gateway.domain.limits import Check, Decision, Limit
from gateway.domain.ports import StoreDown
from gateway.stores.keys.records import write_record
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.limits.cluster import ClusterLimiter, merge, part_of
from gateway.stores.limits.leases import member_text
from gateway.stores.limits.limiter import probe
from gateway.stores.limits.script import LOAD
from gateway.stores.names import KEYS_SLOT, key_name
from gateway.stores.opening import Store
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clients import redis_client
from gateway.stores.redis.cluster import ClusterNodes
from gateway.stores.redis.topology import locate, read_owners
from tests.kit.eventually import eventually
from tests.kit.redis_cluster import MASTERS, SLOTS, RedisCluster, names_in
from tests.kit.redis_server import RedisServer
from tests.stores.under_load import (
    Load,
    is_revoked,
    is_valid,
    looked_up,
    opened_store,
    revoke,
    with_keys,
)
from tests.suites import sample
from tests.suites.keys import KeyStoreSuite, nth_id, plain_key
from tests.suites.limiter import START_US, LimiterSuite, Rig, limits
from tests.suites.warnings import warning

FIVE = Limit("five", "rate", 5, 60_000_000)
DAILY = Limit("daily", "quota", 1_000, 86_400_000_000)


@asynccontextmanager
async def connected(cluster: RedisCluster) -> AsyncIterator[ClusterNodes]:
    """Nodes that are up, with a timeout for a busy machine."""
    nodes = ClusterNodes(cluster.address, timeout_s=20.0, load=(LOAD,), probe=probe)
    nodes.start()
    try:
        await asyncio.wait_for(nodes.wait_up(), 30)
        yield nodes
    finally:
        await nodes.stop()


async def decided(limiter: Any, checks: Sequence[Check]) -> list[Decision | None]:
    """The decisions about checks of one turn of the loop, in their order."""
    answers = [asyncio.get_running_loop().create_future() for _ in checks]
    for check, answer in zip(checks, answers, strict=True):
        limiter.decide(check, answer.set_result)
    return await asyncio.wait_for(asyncio.gather(*answers), 60)


def check_of(*of: Limit, name: str = "k") -> Check:
    """A check whose counters share a slot."""
    return Check(of, tuple(f"gw:limit:{{{name}}}:key:{limit.counter}" for limit in of))


def spread(*of: Limit, name: str = "k") -> Check:
    """A check whose counters are on different nodes, as far as there are any."""
    step = SLOTS // MASTERS
    slots = [index * step % SLOTS + key_slot(name.encode()) % step for index in range(len(of))]
    return Check(of, tuple(names_in(slots, "gw:limit:{%d}:" + name)))


# -- deciding -------------------------------------------------------------------------------------


class ClusterRig:
    """Every other check has its counters in one slot; those of the others are in any slots."""

    def __init__(self, cluster: RedisCluster, runner: asyncio.Runner) -> None:
        self.used = 0
        self.runner = runner
        self.now_us = START_US
        self.nodes = ClusterNodes(cluster.address, timeout_s=20.0, load=(LOAD,), probe=probe)
        self.limiter = runner.run(self.open())

    async def open(self) -> ClusterLimiter:
        self.nodes.start()
        await asyncio.wait_for(self.nodes.wait_up(), 30)
        return ClusterLimiter(self.nodes, clock_us=lambda: self.now_us)

    def fresh(self, limits: Sequence[Limit]) -> Check:
        self.used += 1
        subject = f"{{{self.used}}}" if self.used % 2 else f"{self.used}"
        return Check(tuple(limits), tuple(f"{subject}:{limit.counter}" for limit in limits))

    def ask(self, asked: Sequence[tuple[int, Check]]) -> list[Decision]:
        return self.runner.run(self.ask_all(asked))

    async def ask_all(self, asked: Sequence[tuple[int, Check]]) -> list[Decision]:
        decisions = []
        for self.now_us, check in asked:
            (decision,) = await decided(self.limiter, [check])
            assert decision is not None
            decisions.append(decision)
        return decisions

    def release(self, check: Check) -> None:
        for name, member in check.leases:
            with redis_at(self.nodes, name) as client:
                client.zrem(name, member_text(member))


def redis_at(nodes: ClusterNodes, name: str) -> Any:
    """A client of the node that has a name."""
    owner = nodes._owners[key_slot(name.encode())]
    assert owner is not None
    return RedisServer(port=owner[1]).client()


class TestClusterLimiter(sample(LimiterSuite)):
    @pytest.fixture
    def rig(self, cluster: RedisCluster) -> Iterator[Rig]:
        with asyncio.Runner() as runner:
            rig = ClusterRig(cluster, runner)
            yield rig
            runner.run(rig.nodes.stop())


@given(data=st.data())
def test_parts_make_a_whole(data: st.DataObject) -> None:
    """The decisions about the parts of a check, combined, are the decision about the whole."""
    of = data.draw(limits())
    cost = data.draw(st.sampled_from((0, 1, 1, 2, 12)))
    check = Check(of, tuple(limit.name for limit in of), cost)
    places = [data.draw(st.integers(0, 2)) for _ in of]
    states: list[Any] = []
    for limit in of:
        taken = data.draw(st.integers(0, limit.peak))
        _, (state,) = window.decide([None], Check((limit,), ("x",), taken), START_US)
        states.append(state)
    now_us = START_US + data.draw(st.integers(0, 70_000_000))
    whole, _ = window.decide(states, check, now_us)
    parts = []
    for place in dict.fromkeys(places):
        indexes = [index for index, other in enumerate(places) if other == place]
        own = [states[index] for index in indexes]
        part, _ = window.decide(own, part_of(check, indexes, dry=not whole.allowed), now_us)
        parts.append((indexes, part))
    assert merge(check, parts) == whole


async def test_one_call_for_a_slot(cluster: RedisCluster) -> None:
    """Checks of one turn and one slot are one call, in batches of bounded size."""
    batches: list[int] = []
    async with connected(cluster) as nodes:
        limiter = ClusterLimiter(nodes, on_batch=lambda checks, _: batches.append(checks))
        checks = [check_of(DAILY, name=str(index % 2)) for index in range(270)]
        decisions = await decided(limiter, checks)
    left = [decision and decision.remaining for decision in decisions]
    assert left == [999 - index // 2 for index in range(270)]
    assert sorted(batches) == [7, 7, 128, 128]


async def test_a_refusal_anywhere_costs_nothing(cluster: RedisCluster) -> None:
    """If one of several slots refuses, no slot counts."""
    few = Limit("few", "quota", 2, 86_400_000_000)
    check = spread(DAILY, few, FIVE)
    async with connected(cluster) as nodes:
        limiter = ClusterLimiter(nodes)
        answers = [(await decided(limiter, [check]))[0] for _ in range(4)]
        (asked,) = await decided(limiter, [check.at_cost(0)])
    assert [answer and answer.allowed for answer in answers] == [True, True, False, False]
    assert asked is not None
    assert [standing.remaining for standing in asked.standings] == [998, 0, 3]
    assert answers[2] is not None
    assert (answers[2].governing, answers[2].refusing) == (1, 0b010)


async def test_a_race_over_slots_never_admits_more(cluster: RedisCluster) -> None:
    """Concurrent requests over several slots are admitted up to each limit, and no further."""
    few = Limit("few", "quota", 20, 86_400_000_000)
    async with connected(cluster) as first, connected(cluster) as second:
        limiters = ClusterLimiter(first), ClusterLimiter(second)
        check = spread(few, replace(few, name="also"))
        rounds = [decided(limiter, [check] * 40) for limiter in limiters]
        answers = [answer for round_ in await asyncio.gather(*rounds) for answer in round_]
    assert None not in answers
    assert 0 < sum(answer.allowed for answer in answers if answer) <= 20


async def test_no_limits_in_a_turn_with_others(cluster: RedisCluster) -> None:
    """A check without limits passes, also among others."""
    async with connected(cluster) as nodes:
        first, second = await decided(ClusterLimiter(nodes), [Check((), ()), check_of(FIVE)])
    assert first is not None
    assert first.allowed
    assert second is not None


async def test_foreign_values(cluster: RedisCluster) -> None:
    """A foreign value is reported and replaced."""
    check = check_of(FIVE)
    with cluster.owner_of(check.counters[0]).client() as client:
        client.set(check.counters[0], "x")
    async with connected(cluster) as nodes:
        limiter = ClusterLimiter(nodes)
        (decision,) = await decided(limiter, [check])
    assert decision is not None
    assert limiter.foreign == 1


class Replies:
    """Replaces the nodes, and answers everything as the test says."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.gave_up: list[tuple[str, int | None]] = []

    def timeout_s(self) -> float:
        return 60.0

    def send_to(self, slot: int, encoded: bytes, done: Any, until_s: float) -> None:
        self.sent.append((slot, done))

    def reconnect(self, reason: str, slot: int | None = None) -> None:
        self.gave_up.append((reason.partition(": ")[0], slot))


@pytest.mark.parametrize("reply", [None, 5, True, [b"x"], b"", b"x" * 16, b"\0" * 10_000])
async def test_what_is_no_answer(reply: Any) -> None:
    """Each check is answered once as undecided, and the connection of the slot's node is closed."""
    nodes, answered = Replies(), list[Decision | None]()
    limiter = ClusterLimiter(nodes)  # type: ignore[arg-type] # a stand-in
    for check in (check_of(FIVE), spread(FIVE, DAILY)):
        limiter.decide(check, answered.append)
    await asyncio.sleep(0)
    assert len(nodes.sent) in (2, 3)
    for _, done in nodes.sent:
        done(reply)
    assert answered == [None, None]
    reason = "the store's decisions cannot be read"
    assert nodes.gave_up == [(reason, slot) for slot, _ in nodes.sent]


async def test_a_check_that_cannot_be_sent(cluster: RedisCluster) -> None:
    """It fails alone, with counters in one slot or several; the others are decided."""
    huge = Limit("huge", "rate", 10**400, 60_000_000)
    async with connected(cluster) as nodes:
        limiter = ClusterLimiter(nodes)
        bad, good = spread(DAILY, huge, name="bad"), spread(FIVE, DAILY)
        decisions = await decided(limiter, [check_of(FIVE), check_of(huge), bad, good])
    assert [decision and decision.allowed for decision in decisions] == [True, None, None, True]


async def test_a_failing_review(cluster: RedisCluster) -> None:
    """A check is answered even if the review of a refusal raises."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    answered: list[Decision | None] = []

    def fails(_check: Check, _decision: Decision | None) -> Decision | None:
        raise ZeroDivisionError

    async with connected(cluster) as nodes:
        limiter = ClusterLimiter(nodes)
        limiter.decide(check_of(FIVE).at_cost(6), answered.append, fails)
        await eventually(lambda: len(answered) == 1, "it is answered")
    assert answered == [None]
    assert len(reports) == 1


async def test_a_failing_callback(cluster: RedisCluster) -> None:
    """A callback that raises is logged, and no other check loses its answer."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))

    def fails(_: Decision | None) -> None:
        raise ZeroDivisionError

    async with connected(cluster) as nodes:
        limiter = ClusterLimiter(nodes)
        limiter.decide(check_of(FIVE), fails)
        limiter.decide(spread(FIVE, DAILY), fails)
        assert None not in await decided(limiter, [check_of(FIVE), spread(FIVE, DAILY)])
        await eventually(lambda: len(reports) == 2, "both are reported")


async def test_a_node_that_cannot_write(cluster: RedisCluster) -> None:
    """A node that answers only errors is disconnected; its slots are undecided, the others not."""
    names = names_in((0, SLOTS - 1))
    with cluster.owner(0).client() as client:
        async with connected(cluster) as nodes:
            limiter = ClusterLimiter(nodes)
            client.config_set("min-replicas-to-write", 5)
            try:
                checks = [Check((FIVE,), (name,)) for name in names]
                lost, kept = await decided(limiter, checks)
                both = (await decided(limiter, [spread(FIVE, DAILY)]))[0]
                assert (lost, both) == (None, None)
                assert kept is not None
                assert not nodes.is_up
                assert "NOREPLICAS" in str(nodes.last_error)
            finally:
                client.config_set("min-replicas-to-write", 0)
            await asyncio.wait_for(nodes.wait_up(), 30)
            assert None not in await decided(limiter, checks)


# -- where things are -----------------------------------------------------------------------------


async def test_owners(cluster: RedisCluster) -> None:
    """The owners are the cluster's, also if the first host is unavailable."""
    away = ("127.0.0.1", RedisServer().port)
    address = replace(cluster.address, hosts=(away, *cluster.hosts[:1]))
    owners = await read_owners(address)
    for slot in (0, SLOTS // 2, SLOTS - 1):
        assert owners[slot] == ("127.0.0.1", cluster.owner(slot).port)
    located = await locate(cluster.address)
    assert located == StoreAddress("tcp", "127.0.0.1", cluster.owner(KEYS_SLOT).port)


async def test_a_server_that_is_no_cluster(redis_server: RedisServer) -> None:
    """A plain server under a cluster's URL is reported, as is an unreachable one."""
    for port, words in ((redis_server.port, "not enabled"), (RedisServer().port, "reachable")):
        address = StoreAddress("cluster", hosts=(("127.0.0.1", port),), password="hunter2")
        with pytest.raises(StoreDown, match=words) as caught:
            await locate(replace(address, password=None))
        assert str(port) in str(caught.value)


# -- under load -----------------------------------------------------------------------------------


async def test_a_planned_failover(cluster: RedisCluster) -> None:
    """A replica takes over on request: nothing fails, and counters are kept."""
    async with opened_store(cluster.address) as store, Load(store) as load:
        await load.for_rounds(3)
        for slot in (0, SLOTS // 2):
            await asyncio.to_thread(cluster.fail_over, slot)
            await load.until_settled()
        await load.is_exact()


async def test_a_master_is_killed(cluster: RedisCluster) -> None:
    """A master is killed: its slots are decided locally until the replica has taken over."""
    async with opened_store(cluster.address) as store, Load(store) as load:
        await load.for_rounds(3)
        victim = await asyncio.to_thread(cluster.owner, 0)
        victim.kill()
        await eventually(lambda: load.local > 0, "it is decided without the store", 60)
        await load.until_settled()
        await load.is_exact()


async def test_slots_on_the_move(cluster: RedisCluster) -> None:
    """Slots move from node to node, name by name: no subject gets less or more than the limit."""
    for node in cluster.nodes:
        cluster.ask(node, "CONFIG", "RESETSTAT")
    async with opened_store(cluster.address) as store, Load(store) as load:
        await load.for_rounds(3)
        for subject in range(4):
            slot = key_slot(load.check(subject).counters[0].encode())
            source = await asyncio.to_thread(cluster.owner, slot)
            to = await asyncio.to_thread(cluster.other, source)
            await asyncio.to_thread(cluster.begin_to_move, slot, to)
            while await asyncio.to_thread(cluster.move_names, slot, source, to, 1):
                await load.for_rounds(1)
            await asyncio.to_thread(cluster.end_move, slot, source, to)
            await load.for_rounds(2)
        await load.until_settled()
        await load.is_exact()
        seen = [
            await asyncio.to_thread(cluster.info, node, "INFO", "errorstats")
            for node in cluster.nodes
        ]
        assert {"errorstat_MOVED", "errorstat_ASK", "errorstat_TRYAGAIN"} <= {
            name for stats in seen for name in stats
        }


# -- keys -----------------------------------------------------------------------------------------


class TestKeysInACluster(sample(KeyStoreSuite)):
    @pytest.fixture
    async def store(self, cluster: RedisCluster) -> AsyncIterator[RedisKeyStore]:
        client = redis_client(cluster.address)
        yield RedisKeyStore(client)
        await client.aclose()


async def test_revoked_after_a_failover(cluster: RedisCluster) -> None:
    """A key revoked at the new master is soon refused, by a directory connected to the last one."""
    async with opened_store(cluster.address) as store:
        first, second = await with_keys(store, 2)
        await asyncio.to_thread(cluster.fail_over, KEYS_SLOT)
        await revoke(cluster.address, first)
        await eventually(lambda: is_revoked(store, first), "it is refused")
        assert await is_valid(store, second.id)


async def test_revoked_after_a_death(cluster: RedisCluster) -> None:
    """Keys stay cached while their master is down; one revoked at the next is soon refused."""
    async with opened_store(cluster.address) as store:
        first, second = await with_keys(store, 2)
        victim = await asyncio.to_thread(cluster.owner, KEYS_SLOT)
        # What a replica has not heard of when its master dies is lost.
        await asyncio.to_thread(cluster.ask, victim, "WAIT", 1, 5_000)
        victim.kill()
        await eventually(lambda: not store.is_up(), "the loss is noticed")
        assert await is_valid(store, first.id)
        await revoke(cluster.address, first)
        await eventually(lambda: is_revoked(store, first), "it is refused")
        assert await is_valid(store, second.id)


async def test_keys_on_the_move(cluster: RedisCluster) -> None:
    """While the slot of the keys moves, all are found, and changes on both nodes are reported."""
    async with opened_store(cluster.address) as store:
        records = await with_keys(store, 6)
        source = await asyncio.to_thread(cluster.owner, KEYS_SLOT)
        to = await asyncio.to_thread(cluster.other, source)
        await asyncio.to_thread(cluster.begin_to_move, KEYS_SLOT, to)
        for record in records[:4]:
            moved = [key_name(record.id)]
            await asyncio.to_thread(cluster.migrate, source, to, moved)
        for record in records:
            await eventually(lambda record=record: is_valid(store, record.id), "it is found")
        for record in (records[0], records[5]):
            # As redis-py does for a single name: the change is made where the name is.
            node = to if record is records[0] else source
            await asyncio.to_thread(write_revoked, node, record)
            await eventually(lambda record=record: is_revoked(store, record), "it is refused")
        while await asyncio.to_thread(cluster.move_names, KEYS_SLOT, source, to):
            pass
        await asyncio.to_thread(cluster.end_move, KEYS_SLOT, source, to)
        await revoke(cluster.address, records[1])
        await eventually(lambda: is_revoked(store, records[1]), "it is refused at the new owner")
        await eventually(lambda: is_valid(store, records[4].id), "the others are good")
        assert await is_revoked(store, records[0])


@pytest.fixture
def partial_coverage(cluster: RedisCluster) -> Iterator[RedisCluster]:
    """A cluster whose nodes serve their slots even if others fail, as documented."""
    for words in ("no", "yes"):
        for node in cluster.nodes:
            cluster.ask(node, "CONFIG", "SET", "cluster-require-full-coverage", words)
        if words == "no":
            yield cluster
            cluster.heal()


async def test_another_master_is_killed(partial_coverage: RedisCluster) -> None:
    """Keys that are not cached are still found, because they are on other nodes."""
    cluster = partial_coverage
    keys_at = await asyncio.to_thread(cluster.owner, KEYS_SLOT)
    victim = await asyncio.to_thread(cluster.other, keys_at)
    lost = min(first for first, port in cluster.owners_by(victim).items() if port == victim.port)
    records = [plain_key(nth_id(index)) for index in range(2_000)]
    async with opened_store(cluster.address) as store:
        for record in records:
            await store.keys.add(record)
        victim.kill()
        for record in records:
            assert await is_valid(store, record.id)
            # As the node sees it that is asked for the keys: to ask the dead one takes seconds.
            if (await asyncio.to_thread(cluster.owners_by, keys_at)).get(lost) != victim.port:
                break
            await asyncio.sleep(0.01)  # for the keys to last until then
        else:
            pytest.fail("its replica has not taken over")


@pytest.mark.parametrize("at_once", [1_000, 3])
async def test_known_keys_while_their_slot_moves(cluster: RedisCluster, at_once: int) -> None:
    """Cached keys are accepted while their slot moves there and back, in any way."""
    answered, wrong = 0, []
    done = asyncio.Event()

    async def ask(store: Store, record: KeyRecord) -> None:
        nonlocal answered
        while not done.is_set():
            found = await looked_up(store, record.id)
            answered += 1
            if not isinstance(found, Identity):
                wrong.append(found)
            await asyncio.sleep(0.002)

    async def more() -> None:
        enough = answered + 400
        await eventually(lambda: answered >= enough, "keys are looked up")

    async with opened_store(cluster.address) as store, asyncio.TaskGroup() as tasks:
        for record in await with_keys(store, 20):
            tasks.create_task(ask(store, record))
        try:
            for _ in range(4):
                source = await asyncio.to_thread(cluster.owner, KEYS_SLOT)
                to = await asyncio.to_thread(cluster.other, source)
                await asyncio.to_thread(cluster.begin_to_move, KEYS_SLOT, to)
                while await asyncio.to_thread(cluster.move_names, KEYS_SLOT, source, to, at_once):
                    pass
                await asyncio.to_thread(cluster.end_move, KEYS_SLOT, source, to)
                await more()
                await eventually(store.is_up, "it is connected to the owner")
                await more()
        finally:
            done.set()
    assert wrong == []


async def test_the_node_that_names_went_to_is_lost(cluster: RedisCluster) -> None:
    """If half of the keys are lost, nothing that was read there is used any more."""
    async with opened_store(cluster.address) as store:
        (record,) = await with_keys(store, 1)
        source = await asyncio.to_thread(cluster.owner, KEYS_SLOT)
        to = await asyncio.to_thread(cluster.other, source)
        await asyncio.to_thread(cluster.begin_to_move, KEYS_SLOT, to)
        await asyncio.to_thread(cluster.migrate, source, to, [key_name(record.id)])
        await eventually(lambda: is_valid(store, record.id), "it is found")
        with to.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        with to.client() as client:
            client.execute_command("ASKING")
            client.delete(key_name(record.id))
        await eventually(lambda: is_unknown(store, record), "it is not known any more")


async def test_usage_while_the_slot_moves(cluster: RedisCluster) -> None:
    """Usage is counted while the slot moves: nothing is lost or counted twice."""
    minute_s = int(time.time()) // 60 * 60

    async def counted(store: Store) -> int:
        buckets = await store.usage.read("key:a", "hour", minute_s - 3_600, minute_s + 3_600)
        return sum(sum(bucket.counts.values()) for bucket in buckets)

    async with opened_store(cluster.address) as store:
        store.table.tally("a", "free", "api").ended.append((200, 0.01, 0, 1))
        await eventually(lambda: is_number(counted(store), 1), "it is counted")
        source = await asyncio.to_thread(cluster.owner, KEYS_SLOT)
        to = await asyncio.to_thread(cluster.other, source)
        await asyncio.to_thread(cluster.begin_to_move, KEYS_SLOT, to)
        await asyncio.to_thread(cluster.move_names, KEYS_SLOT, source, to, 3)
        for _ in range(5):
            store.table.tally("a", "free", "api").ended.append((200, 0.01, 0, 1))
            await asyncio.to_thread(cluster.move_names, KEYS_SLOT, source, to, 1)
        while await asyncio.to_thread(cluster.move_names, KEYS_SLOT, source, to):
            pass
        await asyncio.to_thread(cluster.end_move, KEYS_SLOT, source, to)
        store.table.tally("a", "free", "api").ended.append((200, 0.01, 0, 1))
        await eventually(lambda: is_number(counted(store), 7), "all of it is counted")
        await asyncio.to_thread(cluster.fail_over, KEYS_SLOT)
        store.table.tally("a", "free", "api").ended.append((200, 0.01, 0, 1))
        await eventually(lambda: is_number(counted(store), 8), "and at the new master")
        assert await store.warnings.warn(warning())
        assert [kept.key_id for kept in await store.warnings.newest()] == [warning().key_id]


async def is_number(found: Awaitable[int], wanted: int) -> bool:
    """Is this the number? Errors during a failover count as no."""
    try:
        return await found == wanted
    except StoreDown:
        return False


async def is_unknown(store: Store, record: KeyRecord) -> bool:
    return await looked_up(store, record.id) is Absent.UNKNOWN


def write_revoked(node: RedisServer, record: KeyRecord) -> None:
    revoked = write_record(replace(record, status="revoked"))
    with node.client() as client, client.pipeline(transaction=False) as pipeline:
        pipeline.execute_command("ASKING")
        pipeline.set(key_name(record.id), revoked)
        pipeline.execute()


def test_commands(cluster: RedisCluster, tmp_path: Path) -> None:
    """Keys are managed and explained with the cluster's URL; a replay refuses it."""
    run = partial(CliRunner().invoke, cli, catch_exceptions=False)
    store = ("--store", cluster.url)
    made = run(["keys", "create", "--name", "ci", "--plan", "free", "--json", *store])
    assert made.exit_code == 0, made.output
    key_id = json.loads(made.output)["id"]
    told = run(["explain", "--policies", "policies", "--key", key_id, "GET", "/api/x", *store])
    assert "60 of 60" in told.output
    (tmp_path / "log").touch()
    refused = run(["simulate", "--policies", "policies", *store, str(tmp_path / "log")])
    assert refused.exit_code == 2
    assert "found a cluster" in refused.output
