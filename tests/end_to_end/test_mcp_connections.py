"""MCP over three gateways of two workers on one Redis: connections are counted exactly, and neither
a killed gateway, a restart nor the loss of the store ends a session.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from gateway.domain.keys import KeyRecord
from gateway.stores.keys.store import RedisKeyStore
from tests.end_to_end.conftest import add_key
from tests.end_to_end.test_outage import has, is_healthy, lose_all_but
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway, keys_command
from tests.kit.mcp_sessions import OpenStream, SessionClient, SessionServer
from tests.kit.policies import write_policies
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.upstream import ScriptedUpstream
from tests.kit.wire import Wire, build_request

pytestmark = pytest.mark.asyncio(loop_scope="session")

MOST = 5
#: How long a lease lasts, in microseconds of the store's clock.
LEASE_US = 6_000_000
ROUTES = f"""
routes:
  mcp:
    match: "* /mcp/**"
    upstream: api
    plan_limits: false
    mcp: {{}}
    limits:
      - {{name: calls, rate: 100000/minute}}
      - {{name: connections, concurrency: {MOST}, of: connections}}
"""
PLANS = "plans: {free: {rate: 100000/minute}}"
GATEWAY = (
    "timeouts: {drain: 100ms}\nstore: {timeout: 5s}\nmcp_sessions: {secrets: secrets.txt}\n"
    "failed_auth: {rate: 6000/minute}\n"
)


@dataclass
class Cluster:
    """Three gateways on one store, in front of one MCP server."""

    folder: Path
    redis: RedisServer
    store: Redis
    server: SessionServer
    upstream: ScriptedUpstream
    gateways: list[ServedGateway]
    stack: AsyncExitStack
    clients: list[SessionClient] = field(default_factory=list)
    started: int = 0

    async def start(self) -> ServedGateway:
        """Start one more gateway, with the same policies."""
        self.started += 1
        served = ServedGateway(
            self.folder / f"gateway-{self.started}",
            self.folder / "policies",
            self.redis.url,
            *("--workers", "2"),
        )
        return await self.stack.enter_async_context(served)

    @property
    def ports(self) -> list[int]:
        return [gateway.port for gateway in self.gateways]

    async def key(self) -> tuple[str, KeyRecord]:
        """A new key: its text and its record."""
        return await add_key(RedisKeyStore(self.store), "free")

    async def sessions(self, key: str, count: int) -> list[SessionClient]:
        """Clients with a session each, begun at the gateways in turn."""
        begun = [
            await SessionClient(key, "/mcp/tools").begin(self.ports[number % len(self.ports)])
            for number in range(count)
        ]
        self.clients += begun
        return begun

    def counter(self, record: KeyRecord) -> str:
        """The name of the key's counter of connections."""
        return f"gw:limit:{{{record.id}}}:key:{record.id}:connections:connections:6000000"

    async def holders(self, record: KeyRecord) -> set[bytes]:
        """The connections that have a lease, each once whatever the workers that hold it."""
        held = await self.store.zrange(self.counter(record), 0, -1)
        return {member.partition(b":")[0] for member in held}

    async def holds(self, record: KeyRecord, count: int) -> None:
        """Wait until the store has leases of this many connections."""

        async def is_so() -> bool:
            return len(await self.holders(record)) == count

        await eventually(is_so, f"{count} connections are counted")

    async def rests(self, record: KeyRecord) -> None:
        """Wait until nothing is open, by the store and by each gateway."""
        await self.holds(record, 0)
        for gateway in self.gateways:

            async def none_open(gateway: ServedGateway = gateway) -> bool:
                return await has(gateway, 'gateway_mcp_connections{route="mcp"}', 0)

            await eventually(none_open, "the gateway has no connection open")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def _cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("mcp")
    async with AsyncExitStack() as stack:
        redis = RedisServer(*DURABLE).start()
        stack.callback(redis.stop)
        client = Redis(port=redis.port)
        stack.push_async_callback(client.aclose)
        server = SessionServer()
        upstream = await stack.enter_async_context(ScriptedUpstream(server))
        files = {"routes": ROUTES, "plans": PLANS, "gateway": GATEWAY}
        policies = write_policies(folder / "policies", upstream.url, **files)
        (policies / "secrets.txt").write_text("s" * 40)
        cluster = Cluster(folder, redis, client, server, upstream, [], stack)
        cluster.gateways = [await cluster.start() for _ in range(3)]
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(_cluster: Cluster) -> AsyncIterator[Cluster]:
    """The shared gateways; what the test holds open is closed at its end."""
    yield _cluster
    clients, _cluster.clients = _cluster.clients, []
    for client in clients:
        await client.close()


async def test_exactly_five_of_twenty(cluster: Cluster) -> None:
    """Of twenty sessions that open something at once over three gateways, five are admitted; these
    may open more, everywhere, and count once.
    """
    key, record = await cluster.key()
    sessions = await cluster.sessions(key, 20)
    opened = await asyncio.gather(
        *(
            session.open(cluster.ports[number % 3], ("GET", "POST")[number % 2])
            for number, session in enumerate(sessions)
        )
    )
    assert sorted(stream.head.status for stream in opened) == [200] * MOST + [429] * 15
    assert len(await cluster.holders(record)) == MOST
    inside = [one for one, stream in zip(sessions, opened, strict=True) if stream.is_open]
    outside = [one for one in sessions if one not in inside]
    for port in cluster.ports:
        more = [
            await session.open(port, method) for session in inside for method in ("GET", "POST")
        ]
        assert {stream.head.status for stream in more} == {200}
        refused = [await session.open(port) for session in outside]
        assert {stream.head.status for stream in refused} == {429}
        assert {(await session.call(port)).status for session in outside} == {429}
    assert len(await cluster.holders(record)) == MOST
    # A session counts until the last of what it has open ends.
    *most, last = inside[0].streams
    for stream in most:
        await stream.close()
    assert (await inside[0].call(cluster.ports[0])).status == 200
    assert (await outside[0].call(cluster.ports[0])).status == 429
    await last.close()
    await cluster.holds(record, MOST - 1)
    assert (await outside[0].open(cluster.ports[1])).head.status == 200
    for session in sessions:
        await session.close()
    await cluster.rests(record)


@dataclass
class Churn:
    """Clients that open and close at random. held: by session, what clients know to be open"""

    cluster: Cluster
    dice: random.Random
    held: Counter[str] = field(default_factory=Counter)
    most: int = 0
    statuses: Counter[int] = field(default_factory=Counter)

    async def run(self, session: SessionClient, rounds: int) -> None:
        for _ in range(rounds):
            streams = [
                await self._open(session, self.held[session.id] > 0)
                for _ in range(self.dice.randint(1, 3))
            ]
            assert len(+self.held) <= MOST
            await self.cluster.server.beat()
            for stream in streams:
                if stream is not None:
                    self.held[session.id] -= 1
                    await stream.close()
            session.streams.clear()

    async def _open(self, session: SessionClient, is_counted: bool) -> OpenStream | None:
        stream = await session.open(
            self.dice.choice(self.cluster.ports), self.dice.choice(("GET", "POST"))
        )
        self.statuses[stream.head.status] += 1
        assert stream.is_open or not is_counted, "a session that is counted already was refused"
        if not stream.is_open:
            return None
        self.held[session.id] += 1
        self.most = max(self.most, len(+self.held))
        assert len(+self.held) <= MOST
        return stream


async def test_never_one_too_many(cluster: Cluster) -> None:
    """Whatever opens and closes at once, over all gateways: never more than the limit is open, what
    is counted already is never refused, and nothing is left at the end.
    """
    key, record = await cluster.key()
    sessions = await cluster.sessions(key, 12)
    churn = Churn(cluster, random.Random(7))
    async with asyncio.TaskGroup() as group:
        for session in sessions:
            group.create_task(churn.run(session, 25))
    assert churn.most == MOST
    assert churn.statuses[200] > 100 < churn.statuses[429]
    assert set(churn.statuses) == {200, 429}
    await cluster.rests(record)
    assert +cluster.server.streams == Counter()


async def store_us(cluster: Cluster) -> int:
    seconds, microseconds = await cluster.store.time()
    return int(seconds) * 1_000_000 + int(microseconds)


async def test_a_killed_gateway(cluster: Cluster) -> None:
    """What a killed gateway held expires within six seconds, by the store's clock; its sessions go
    on at the other gateways, and what those hold stays counted.
    """
    key, record = await cluster.key()
    doomed = await cluster.start()
    *lost, kept, waiting = await cluster.sessions(key, 6)
    for session in lost:
        assert (await session.open(doomed.port)).is_open
    # This one has a stream at a gateway that stays as well.
    assert (await kept.open(doomed.port)).is_open
    assert (await kept.open(cluster.ports[0])).is_open
    assert not (await waiting.open(cluster.ports[1])).is_open
    for pid in (doomed.process.pid, *doomed.worker_pids()):
        os.kill(pid, signal.SIGKILL)
    await doomed.ended()
    held = await cluster.store.zrange(cluster.counter(record), 0, -1, withscores=True)
    assert len(held) >= MOST
    assert max(until for _, until in held) - await store_us(cluster) <= LEASE_US
    await cluster.holds(record, 1)

    async def enters() -> bool:
        return (await waiting.open(cluster.ports[1])).is_open

    await eventually(enters, "a lease of the killed gateway has expired")
    for session in lost[: MOST - 2]:
        assert (await session.open(cluster.ports[2], "POST")).is_open
    assert not (await lost[-1].open(cluster.ports[2])).is_open
    for session in cluster.clients:
        await session.close()
    await cluster.rests(record)


async def goes_on(cluster: Cluster, session: SessionClient, streams: list[OpenStream]) -> None:
    """The session is served at every gateway, and its open streams get events."""
    for port in cluster.ports:
        answer = await session.call(port)
        assert answer.status == 200, answer.body
    await cluster.server.beat()
    for stream in streams:
        await stream.event()


async def test_a_store_that_lost_everything(cluster: Cluster) -> None:
    """FLUSHALL ends no session and no stream, if the keys are restored; the connections that are
    open are soon counted again.
    """
    key, record = await cluster.key()
    session, other = await cluster.sessions(key, 2)
    streams = [await session.open(port) for port in cluster.ports]
    streams.append(await other.open(cluster.ports[0], "POST"))
    await lose_all_but(cluster.store, record)
    await goes_on(cluster, session, streams)
    await cluster.holds(record, 2)
    await session.close()
    await cluster.holds(record, 1)
    await other.close()
    await cluster.rests(record)


async def test_a_restart_of_the_store(cluster: Cluster) -> None:
    """So does a restart of Redis: streams stay open meanwhile, and sessions go on after it."""
    key, record = await cluster.key()
    (session,) = await cluster.sessions(key, 1)
    streams = [await session.open(port) for port in cluster.ports]
    cluster.redis.kill()
    await cluster.server.beat()
    for stream in streams:
        await stream.event()
    cluster.redis.start()
    for gateway in cluster.gateways:
        await eventually(
            lambda one=gateway: is_healthy(one),  # type: ignore[misc]
            "the store is available again",
        )
    await goes_on(cluster, session, streams)
    await cluster.holds(record, 1)
    await session.close()
    await cluster.rests(record)


async def test_a_restart_of_a_gateway(cluster: Cluster) -> None:
    """A gateway with the same secrets knows the sessions of others, and of the one before it."""
    key, record = await cluster.key()
    (session,) = await cluster.sessions(key, 1)
    kept = await session.open(cluster.ports[0])
    lost = await session.open(cluster.ports[2])
    assert await cluster.gateways[2].stop() == 0
    await lost.end()
    cluster.gateways[2] = await cluster.start()
    await goes_on(cluster, session, [kept])
    assert (await session.open(cluster.ports[2])).is_open
    assert len(await cluster.holders(record)) == 1


async def test_a_rotated_key(cluster: Cluster) -> None:
    """A key and its successor have the same sessions, which count together."""
    key, record = await cluster.key()
    sessions = await cluster.sessions(key, MOST + 1)
    streams = [await one.open(port) for one, port in zip(sessions[:3], cluster.ports, strict=True)]
    made = await keys_command(cluster.redis.url, "rotate", record.id, "--overlap", "10m")
    await goes_on(cluster, sessions[0], streams)
    for session in sessions:
        session.key = made["key"]
    await goes_on(cluster, sessions[0], streams)
    for number, session in enumerate(sessions[3:MOST]):
        assert (await session.open(cluster.ports[number], "POST")).is_open
    assert len(await cluster.holders(record)) == MOST
    assert not (await sessions[MOST].open(cluster.ports[0])).is_open
    # Another key has not.
    stranger, _ = await cluster.key()
    sessions[0].key = stranger
    assert (await sessions[0].call(cluster.ports[0])).status == 404


@pytest.mark.parametrize("verb", ["revoke", "suspend"])
async def test_an_end_of_a_key(cluster: Cluster, verb: str) -> None:
    """All open streams of the key end, at every gateway, and nothing of it stays counted."""
    key, record = await cluster.key()
    sessions = await cluster.sessions(key, MOST)
    streams = [
        await session.open(port, method)
        for session in sessions
        for port in cluster.ports
        for method in ("GET", "POST")
    ]
    assert all(stream.is_open for stream in streams)
    bystander, _ = await cluster.key()
    (other,) = await cluster.sessions(bystander, 1)
    stays = await other.open(cluster.ports[0])
    await keys_command(cluster.redis.url, verb, record.id)
    for stream in streams:
        await stream.end()
    assert (await sessions[0].call(cluster.ports[0])).status == 401
    await cluster.holds(record, 0)
    await cluster.server.beat()
    await stays.event()


async def test_streams_that_end_and_are_opened_again(cluster: Cluster) -> None:
    """A client whose stream ends normally opens it again for ever: nothing adds up, for it or
    others of its key.
    """
    key, record = await cluster.key()
    (session,) = await cluster.sessions(key, 1)
    session.path = "/mcp/brief"
    wires = [await Wire.connect(port) for port in cluster.ports]
    request = build_request("GET", session.path, session.headers)

    async def reconnect(wire: Wire) -> None:
        for _ in range(334):
            await wire.send(request)
            assert (await wire.read_response()).status == 200

    async with asyncio.TaskGroup() as group:
        for wire in wires:
            group.create_task(reconnect(wire))
    for wire in wires:
        await wire.close()
    await cluster.rests(record)
    for other in await cluster.sessions(key, MOST):
        assert (await other.open(cluster.ports[0])).is_open


async def test_a_session_for_each_call(cluster: Cluster) -> None:
    """Sessions that are never ended lock nobody out: what has nothing open is not counted."""
    key, record = await cluster.key()

    async def use(number: int) -> None:
        port = cluster.ports[number % 3]
        session = await SessionClient(key, "/mcp/tools").begin(port)
        answer = await session.call(cluster.ports[(number + 1) % 3])
        while answer.status == 429:  # eight at a time are more than the limit
            answer = await session.call(port)
        assert answer.status == 200

    numbers = iter(range(300))

    async def work() -> None:
        for number in numbers:
            await use(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(work())
    await cluster.rests(record)
