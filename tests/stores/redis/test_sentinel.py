"""A store behind three real Sentinels, with a master and a replica."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner
from redis.asyncio.connection import Connection
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.cli.main import cli
from gateway.domain.ports import StoreDown
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.names import key_name
from gateway.stores.redis import topology
from gateway.stores.redis.address import StoreAddress
from gateway.stores.redis.clients import Sentinels, redis_client
from gateway.stores.redis.reasons import with_cure
from gateway.stores.redis.sentinel import MasterWatch
from gateway.stores.redis.topology import locate, read_master
from tests.kit.eventually import eventually
from tests.kit.redis_sentinel import RedisSentinel
from tests.kit.redis_server import RedisServer
from tests.stores.under_load import Load, is_revoked, is_valid, opened_store, revoke, with_keys
from tests.suites import sample
from tests.suites.keys import FULL, KeyStoreSuite

# -- finding the master ---------------------------------------------------------------------------


class OneSentinel:
    """A Sentinel with a scripted answer."""

    def __init__(self, port: int, epoch: int, *, down: bool = False) -> None:
        self.state = {
            **{"ip": "10.0.0.1", "port": port, "config-epoch": epoch, "num-other-sentinels": 2},
            **{"is_master": True, "is_sdown": down, "is_odown": False},
        }

    async def sentinel_masters(self) -> dict[str, object]:
        return {"counts": self.state}


class DeadSentinel:
    async def sentinel_masters(self) -> dict[str, object]:
        raise ConnectionError("refused")


@pytest.mark.parametrize(
    ("sentinels", "master"),
    [
        ([OneSentinel(1, 0)], 1),
        ([OneSentinel(1, 0), OneSentinel(2, 1), OneSentinel(1, 0)], 2),
        ([DeadSentinel(), OneSentinel(1, 3)], 1),
        # One Sentinel that cannot reach the master is not enough.
        ([OneSentinel(1, 0, down=True), OneSentinel(1, 0)], 1),
        # A healthy former master is not the master.
        ([OneSentinel(1, 0), OneSentinel(2, 1, down=True)], None),
        ([DeadSentinel(), DeadSentinel()], None),
    ],
)
async def test_the_latest_failover_counts(sentinels: list[object], master: int | None) -> None:
    """The master is the one named by the Sentinel with the latest failover."""
    client = Sentinels([])
    client.sentinels = sentinels
    if master is not None:
        assert await client.discover_master("counts") == ("10.0.0.1", master)
    else:
        with pytest.raises(MasterNotFoundError, match=r"refused|the master is down"):
            await client.discover_master("counts")


async def test_the_master_is_located(sentinel: RedisSentinel) -> None:
    """An address of Sentinels is resolved to the master, even if the first one fails."""
    away = ("127.0.0.1", RedisServer().port)
    address = replace(sentinel.address, hosts=(away, *sentinel.hosts))
    assert await locate(address) == StoreAddress("tcp", "127.0.0.1", sentinel.master.port)


async def test_a_replica_is_not_taken_for_a_master(
    sentinel: RedisSentinel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The named server must confirm that it is a master, if the user may ask it."""
    (replica,) = (server for server in sentinel.servers if server is not sentinel.master)

    async def named(_: StoreAddress) -> tuple[str, int]:
        return "127.0.0.1", replica.port

    monkeypatch.setattr(topology, "read_master", named)
    with pytest.raises(StoreDown, match="no longer the master"):
        await locate(sentinel.address)
    with replica.client() as client:
        client.execute_command("ACL", "SETUSER", "reader", "on", ">x", "+@all", "-role")
    located = await locate(replace(sentinel.address, username="reader", password="x"))
    assert located.port == replica.port
    with pytest.raises(StoreDown, match="cannot be reached") as caught:
        await locate(replace(sentinel.address, username="reader", password="hunter2"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"service": "other"}, "do not know the service"),
        ({"sentinel_password": None}, "Authentication required"),
        ({"sentinel_password": "hunter2"}, "WRONGPASS|invalid username-password"),
        ({"hosts": (("127.0.0.1", RedisServer().port),)}, "connect"),
    ],
)
async def test_errors_of_sentinels(
    sentinel: RedisSentinel, fields: dict[str, object], words: str
) -> None:
    """The error is one line with the cause, without a secret."""
    with pytest.raises(StoreDown, match=words) as caught:
        await locate(replace(sentinel.address, **fields))
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_server_that_is_no_sentinel(redis_server: RedisServer) -> None:
    """A plain server under a Sentinel's URL is reported as such."""
    address = StoreAddress("sentinel", hosts=(("127.0.0.1", redis_server.port),), service="x")
    with pytest.raises(StoreDown, match=r"(?i)unknown command.*sentinel"):
        await read_master(address)


async def test_a_cancellation_takes_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a master can be stopped, even if a library ignores the cancellation."""
    asked = asyncio.Event()

    async def forgets(*_: object) -> tuple[str, int]:
        asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "127.0.0.1", 1

    monkeypatch.setattr(Sentinels, "discover_master", forgets)
    address = StoreAddress("sentinel", hosts=(("127.0.0.1", 1),), service="x")
    looking = asyncio.ensure_future(read_master(address))
    await asked.wait()
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking


async def test_a_watch_reports_only_changes(
    sentinel: RedisSentinel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new master is reported once; the same one, or an error, is not."""
    told: list[str] = []
    watch = MasterWatch(sentinel.address, [told.append], every_s=0.01)
    names: list[object] = [("h", 1), ("h", 1), StoreDown("away"), ("h", 1), ("h", 2)]
    seen = []

    async def named(_: StoreAddress) -> object:
        seen.append(names[min(len(seen), len(names) - 1)])
        if isinstance(seen[-1], StoreDown):
            raise seen[-1]
        return seen[-1]

    monkeypatch.setattr("gateway.stores.redis.sentinel.read_master", named)
    await watch.start()
    await watch.start()
    try:
        await eventually(lambda: len(seen) > len(names) + 2, "it goes on looking")
    finally:
        await watch.stop()
        await watch.stop()
    assert told == ["the Sentinels name another master"]


async def test_sentinels_that_do_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After some failures in a row they are told once, with the reason, until they answer again."""
    failure: StoreDown | None = None
    looks = 0

    async def named(_: StoreAddress) -> object:
        nonlocal looks
        looks += 1
        if failure is not None:
            raise failure
        return "h", 1

    async def looked(times: int) -> None:
        until = looks + times
        await eventually(lambda: looks >= until, "it has looked")

    monkeypatch.setattr("gateway.stores.redis.sentinel.read_master", named)
    address = StoreAddress("sentinel", hosts=(("s", 26379),), service="x")
    caplog.set_level(logging.INFO)
    watch = MasterWatch(address, (), every_s=0.001)
    await watch.start()
    try:
        failure = StoreDown("no master: WRONGPASS invalid username-password pair")
        await eventually(lambda: watch.detail != "", "it is told")
        await looked(8)
        assert watch.detail == f"a failover is not noticed: {with_cure(failure)}"
        failure = None
        await eventually(lambda: watch.detail == "", "they answer again")
    finally:
        await watch.stop()
    assert caplog.messages == [
        "store: a failover is not noticed: no master: WRONGPASS invalid username-password pair; "
        + with_cure("WRONGPASS").removeprefix("WRONGPASS; "),
        "store: failovers are noticed again: redis+sentinel://s:26379/x/0",
    ]


# -- under load -----------------------------------------------------------------------------------


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Callable[[RedisServer], Awaitable[None]]:
    """Waits until the watch has named this master to every connection.

    Until then a connection may still use the old one, and is opened again in the middle of a test.
    """
    seen: list[object] = []
    look = MasterWatch._look

    async def seeing(watch: MasterWatch) -> None:
        await look(watch)
        seen.append(watch._master)

    async def wait(master: RedisServer) -> None:
        # Between two looks the listeners are told.
        node = ("127.0.0.1", master.port)
        await eventually(lambda: seen[-2:] == [node, node], "the watch has told of the master", 60)

    monkeypatch.setattr(MasterWatch, "_look", seeing)
    return wait


async def test_a_planned_failover(
    sentinel: RedisSentinel, followed: Callable[[RedisServer], Awaitable[None]]
) -> None:
    """The master changes on request: nothing fails, and the old one is left at once."""
    async with opened_store(sentinel.address) as store, Load(store) as load:
        first, second = await with_keys(store, 2)
        await load.for_rounds(3)
        new = await asyncio.to_thread(sentinel.fail_over)
        await revoke(sentinel.address, first)
        await eventually(lambda: is_revoked(store, first), "a key that is revoked is refused")
        assert await is_valid(store, second.id)
        # A pooled client writes to the new master, too.
        await store.keys.add(FULL)
        with new.client() as client:
            assert client.exists(key_name(FULL.id))
        await followed(new)
        await load.until_settled()
        await load.is_exact()


async def test_a_master_is_killed(
    sentinel: RedisSentinel, followed: Callable[[RedisServer], Awaitable[None]]
) -> None:
    """The master is killed: decisions are local until its replica is the master."""
    async with opened_store(sentinel.address) as store, Load(store) as load:
        first, second = await with_keys(store, 2)
        await load.for_rounds(3)
        victim = await asyncio.to_thread(lambda: sentinel.master)
        # Writes that were not replicated are lost.
        with victim.client() as client:
            await asyncio.to_thread(client.wait, 1, 5_000)
        victim.kill()
        await eventually(lambda: load.local > 0, "it is decided without the store", 60)
        assert await is_valid(store, first.id)
        (new,) = (server for server in sentinel.servers if server is not victim)
        await followed(new)
        await load.until_settled()
        await revoke(sentinel.address, first)
        await eventually(lambda: is_revoked(store, first), "a key that is revoked is refused")
        assert await is_valid(store, second.id)
        await load.is_exact()


# -- keys -----------------------------------------------------------------------------------------


class TestKeysBehindSentinels(sample(KeyStoreSuite)):
    @pytest.fixture
    async def store(self, sentinel: RedisSentinel) -> RedisKeyStore:
        client = redis_client(sentinel.address)
        yield RedisKeyStore(client)
        await client.aclose()


async def test_a_close_that_takes_long(
    sentinel: RedisSentinel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py gives up waiting for it, on a busy machine: that is no error, and all are closed."""
    client = redis_client(sentinel.address)
    await client.ping()
    closed = []
    disconnect = Connection.disconnect

    async def late(self: Connection, *arguments: Any, **options: Any) -> None:
        await disconnect(self, *arguments, **options)
        closed.append(self)
        raise RedisTimeoutError("Timed out closing connection")

    monkeypatch.setattr(Connection, "disconnect", late)
    await client.aclose()
    assert len(closed) >= 1 + len(sentinel.address.hosts)
    assert not any(connection.is_connected for connection in closed)


def test_commands(sentinel: RedisSentinel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are managed and explained with the Sentinels' URL, and a separate password for them."""
    run = partial(CliRunner().invoke, cli, catch_exceptions=False)
    store = ("--store", sentinel.url)
    refused = run(["keys", "list", *store])
    assert refused.exit_code == 1
    assert len(refused.output.strip().splitlines()) == 1
    monkeypatch.setenv("GATEWAY_SENTINEL_PASSWORD", sentinel.sentinel_password)
    made = run(["keys", "create", "--name", "ci", "--plan", "free", "--json", *store])
    assert made.exit_code == 0, made.output
    key_id = json.loads(made.output)["id"]
    told = run(["explain", "--policies", "policies", "--key", key_id, "GET", "/api/x", *store])
    assert "60 of 60" in told.output
