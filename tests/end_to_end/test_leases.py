"""Concurrency limits over real gateways: the leases, their owners, and their release."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.crc import key_slot
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websocket
from websockets.exceptions import InvalidStatus

from gateway.domain import key_format
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.redis.clients import redis_client
from tests.end_to_end.conftest import Serve, Site, add_key
from tests.end_to_end.test_outage import all_know_of, is_down, is_healthy
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.held_streams import HeldStreams, events
from tests.kit.policies import write_policies
from tests.kit.redis_cluster import RedisCluster
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.upstream import ScriptedUpstream
from tests.kit.wire import TIMEOUT_S, Wire, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROUTES = """
routes:
  mcp:     {match: "* /mcp/**", upstream: api, plan_limits: false,
            limits: [{name: mcp, rate: 1000/minute}, {name: connections, concurrency: 5}]}
  talk:    {match: GET /talk, upstream: talk, limits: [{name: sockets, concurrency: 2}]}
  watched: {match: GET /watched/*, upstream: api,
            limits: [{name: watched, concurrency: 1, mode: shadow}]}
  api:     {match: "* /**", upstream: api}
"""
PLANS = """
plans:
  free: {rate: 1000/minute}
  roomy: {rate: 1000/minute, routes: {connections: {concurrency: 7}}}
"""
#: A gateway that stops waits for no client.
GATEWAY = "timeouts: {drain: 100ms}\nstore: {timeout: 5s}\n"


async def talk(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def _streams(
    _site: Site, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HeldStreams]:
    folder: Path = tmp_path_factory.mktemp("leases")
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(ScriptedUpstream(events))
        server = await stack.enter_async_context(serve_websocket(talk, "127.0.0.1", 0))
        port = next(iter(server.sockets)).getsockname()[1]
        upstreams = (
            f'upstreams:\n  api: {{servers: ["{upstream.url}"]}}\n'
            f'  talk: {{servers: ["http://127.0.0.1:{port}"]}}\n'
        )
        files = {"gateway": GATEWAY, "plans": PLANS, "routes": ROUTES, "upstreams": upstreams}
        policies = write_policies(folder / "policies", upstream.url, **files)
        client = Redis.from_url(_site.store)
        stack.push_async_callback(client.aclose)
        gateways = [
            await stack.enter_async_context(ServedGateway(folder / name, policies, _site.store))
            for name in ("one", "two")
        ]
        yield HeldStreams(_site, files, upstream.url, client, gateways)


@pytest_asyncio.fixture(loop_scope="session")
async def streams(_streams: HeldStreams) -> AsyncIterator[HeldStreams]:
    """The shared gateways; streams that the test holds are closed at its end."""
    yield _streams
    await _streams.leave()


async def test_five_streams_and_no_sixth(streams: HeldStreams) -> None:
    """Five streams are held over two gateways; both refuse the sixth as a JSON-RPC error;
    the end of one makes room.
    """
    key = await streams.site.key()
    entered = [await streams.enter(key, n % 2) for n in range(5)]
    assert [head.status for _, head in entered] == [200] * 5
    # They report a rate: the concurrency limit is reported where it refuses.
    assert "5" not in {head["X-RateLimit-Limit"] for _, head in entered}
    for gateway in (0, 1):
        _, refused = await streams.enter(key, gateway)
        assert (refused.status, refused["Retry-After"]) == (429, "1")
        assert (refused["X-RateLimit-Limit"], refused["X-RateLimit-Remaining"]) == ("5", "0")
        assert 1 <= int(refused["X-RateLimit-Reset-After"]) <= 6
        assert refused.json()["error"]["data"]["retry_after"] == 1
    assert await streams.held(key) == 5
    await entered[0][0].close()
    await streams.holds(key, 4)
    _, again = await streams.enter(key, 1)
    assert again.status == 200


async def test_exactly_five_of_twenty(streams: HeldStreams) -> None:
    """Of twenty concurrent requests to two gateways, exactly five are admitted."""
    key = await streams.site.key()
    entered = await asyncio.gather(*(streams.enter(key, n % 2) for n in range(20)))
    assert sorted(head.status for _, head in entered) == [200] * 5 + [429] * 15
    assert await streams.held(key) == 5


async def test_short_requests_hold_nothing(streams: HeldStreams) -> None:
    """A request releases its lease before the client's next request."""
    key = await streams.site.key()
    async with await Wire.connect(streams.gateways[0].port) as wire:
        answers = [await wire.request("GET", "/mcp/short", bearer(key)) for _ in range(20)]
    assert [answer.status for answer in answers] == [200] * 20
    await streams.holds(key, 0)


async def test_each_key_has_its_own(streams: HeldStreams) -> None:
    """Keys have separate leases, and a plan can have a different limit."""
    key = await streams.site.key()
    await streams.fill(key)
    assert not await streams.admits(key)
    roomy = await streams.site.key("roomy")
    entered = [await streams.enter(roomy) for _ in range(8)]
    assert [head.status for _, head in entered] == [200] * 7 + [429]


async def test_a_shadow_limit_admits(streams: HeldStreams) -> None:
    """A limit in shadow mode counts leases and refuses no request."""
    key = await streams.site.key()
    entered = [await streams.enter(key, target="/watched/events") for _ in range(3)]
    assert [head.status for _, head in entered] == [200] * 3
    assert await streams.held(key, "watched") == 3
    assert 'limit="watched",plan="free"' in (metrics := await streams.gateways[0].metrics())
    assert 'decision="shadow"' in metrics


async def test_seen_from_outside(streams: HeldStreams) -> None:
    """Metrics, the access log and /v1/auth/verify show the limit like any other."""
    key = await streams.site.key()
    await streams.fill(key)
    _, refused = await streams.enter(key)
    assert refused.status == 429
    verified = (await streams.gateways[1].fetch("/v1/auth/verify", key=key)).json()
    (row,) = [limit for limit in verified["limits"] if limit["name"] == "connections"]
    assert (row["kind"], row["limit"], row["remaining"]) == ("concurrency", 5, 0)
    assert (row["route"], row["window_seconds"]) == ("mcp", None)
    parsed = key_format.parse(key.encode())
    assert parsed is not None

    def lines() -> list[str]:
        entries = streams.gateways[0].log_lines()
        return [entry["limit"] for entry in entries if entry["key_id"] == parsed.id]

    await eventually(lambda: lines() == ["connections"], "the refusal is in the access log")
    metrics = await streams.gateways[0].metrics()
    line = next(
        text
        for text in metrics.splitlines()
        if 'limit="connections"' in text and 'decision="limited"' in text
    )
    assert float(line.split()[-1]) >= 1


async def test_a_client_that_vanishes(streams: HeldStreams) -> None:
    """Aborted connections release their leases."""
    key = await streams.site.key()
    for wire in await streams.fill(key):
        wire._writer.transport.abort()
    await streams.holds(key, 0)
    await streams.fill(key, 1)


async def test_a_revoked_key_frees(streams: HeldStreams) -> None:
    """The streams of a revoked key end, and their leases are released."""
    key = await streams.site.key()
    wires = await streams.fill(key)
    parsed = key_format.parse(key.encode())
    assert parsed is not None
    record = await streams.site.keys.get(parsed.id)
    assert record is not None
    await streams.site.keys.replace(record, replace(record, status="revoked"))
    for wire in wires:
        await wire.read_end()
    await streams.holds(key, 0)


async def test_websockets(streams: HeldStreams) -> None:
    """A WebSocket holds a lease while it is open."""
    key = await streams.site.key()
    url = f"ws://127.0.0.1:{streams.gateways[0].port}/talk"

    def dial() -> connect:
        return connect(
            url, proxy=None, open_timeout=TIMEOUT_S, additional_headers=dict(bearer(key))
        )

    async with dial() as first:
        async with dial() as second:
            for client in (first, second):
                await client.send("hello")
                assert await client.recv() == "hello"
            with pytest.raises(InvalidStatus) as refused:
                await dial()
            assert refused.value.response.status_code == 429
            assert await streams.held(key, "sockets") == 2

        async def is_one() -> bool:
            return await streams.held(key, "sockets") == 1

        await eventually(is_one, "its lease is released")
        async with dial() as third:
            await third.send("hello")
            assert await third.recv() == "hello"


async def test_what_the_store_lost(streams: HeldStreams) -> None:
    """Leases that the store lost are written again by their gateways, within seconds."""
    key = await streams.site.key()
    for gateway in (0, 1, 0, 1):
        await streams.enter(key, gateway)
    parsed = key_format.parse(key.encode())
    assert parsed is not None
    assert await streams.store.delete(streams.count_of(parsed.id)) == 1
    await streams.holds(key, 4)


async def test_a_graceful_stop_releases_leases(streams: HeldStreams, serve: Serve) -> None:
    """A stopped gateway releases its leases at once."""
    leaving = await serve(**streams.files)
    key = await streams.site.key()
    await streams.fill(key, leaving)
    assert not await streams.admits(key)
    assert await leaving.stop() == 0
    assert await streams.held(key) == 0


async def test_a_killed_gateway(streams: HeldStreams, serve: Serve) -> None:
    """The leases of a killed gateway expire within seconds; those of a running one do not."""
    doomed = await serve(**streams.files)
    dead, living = await streams.site.key(), await streams.site.key()
    await streams.fill(living, 0)
    await streams.fill(dead, doomed)
    assert not await streams.admits(dead)
    for pid in (doomed.process.pid, *doomed.worker_pids()):
        os.kill(pid, signal.SIGKILL)
    await doomed.ended()

    async def enters() -> bool:
        return (await streams.enter(dead, 1))[1].status == 200

    for _ in range(5):
        await eventually(enters, "a lease of the killed gateway has expired")
    assert not await streams.admits(dead)
    # These leases are now older than a lease's duration.
    assert not await streams.admits(living)
    assert await streams.held(living) == 5


async def meet(streams: HeldStreams) -> tuple[str, str]:
    """A new key in the streams' store, and the name of its counter."""
    key, record = await add_key(RedisKeyStore(streams.store), "free")
    return key, streams.count_of(record.id)


async def is_renewed(streams: HeldStreams, count: str) -> None:
    """Wait until all leases of a counter are renewed."""

    async def ends() -> list[float]:
        held = await streams.store.zrange(count, 0, -1, withscores=True)
        return [until for _, until in held]

    before = max(await ends())

    async def all_later() -> bool:
        return min(await ends()) > before

    await eventually(all_later, "all leases are renewed")


async def enter_until_refused(streams: HeldStreams, key: str, gateway: int) -> int:
    """Open streams until one is refused; return how many were admitted."""
    entered = 0
    while (await streams.enter(key, gateway))[1].status == 200:
        entered += 1
    return entered


async def test_in_a_cluster(streams: HeldStreams, serve: Serve) -> None:
    """In a cluster leases are counted, renewed and released at their slot, also while and after it
    moves to another node.
    """
    async with AsyncExitStack() as stack:
        cluster = RedisCluster()
        stack.callback(cluster.stop)
        await asyncio.to_thread(cluster.start)
        client = redis_client(cluster.address)
        stack.push_async_callback(client.aclose)
        gateways = [await serve(store=cluster.url, **streams.files) for _ in range(2)]
        on_cluster = replace(streams, store=client, gateways=gateways, wires=[])
        stack.push_async_callback(on_cluster.leave)
        key, count = await meet(on_cluster)
        entered = [await on_cluster.enter(key, number % 2) for number in range(5)]
        assert [head.status for _, head in entered] == [200] * 5

        async def is_full() -> None:
            assert await on_cluster.held(key) == 5
            assert not await on_cluster.admits(key, 0)
            assert not await on_cluster.admits(key, 1)

        await is_full()
        await is_renewed(on_cluster, count)

        slot = key_slot(count.encode())
        target = await asyncio.to_thread(lambda: cluster.other(cluster.owner(slot)))
        source = await asyncio.to_thread(cluster.begin_to_move, slot, target)
        await is_full()
        await asyncio.to_thread(cluster.move_names, slot, source, target)
        await asyncio.to_thread(cluster.end_move, slot, source, target)
        await is_full()
        await is_renewed(on_cluster, count)
        await is_full()

        for wire, _ in entered[:2]:
            await wire.close()
        await on_cluster.holds(key, 3)
        assert [await enter_until_refused(on_cluster, key, number) for number in (0, 1)] == [2, 0]
        await on_cluster.leave()
        await on_cluster.holds(key, 0)


async def test_through_an_outage(streams: HeldStreams, serve: Serve) -> None:
    """In an outage two gateways together admit the limit, including leases from before;
    after the recovery the store has all of them, and the limit still applies.
    """
    server = RedisServer(*DURABLE).start()
    try:
        async with Redis(port=server.port) as client:
            gateways = [await serve(store=server.url, **streams.files) for _ in range(2)]
            own = replace(streams, store=client, gateways=gateways, wires=[])
            await all_know_of(client, 2)
            key, count = await meet(own)
            first, head = await own.enter(key, 0)
            assert head.status == 200
            assert await own.admits(key, 1)
            await is_renewed(own, count)

            server.kill()
            for gateway in gateways:
                await eventually(lambda one=gateway: is_down(one), "the loss is noticed")  # type: ignore[misc]
            more = [await enter_until_refused(own, key, number) for number in (0, 1)]
            assert 1 + sum(more) == 5
            assert min(more) >= 1

            server.start()
            for gateway in gateways:
                await eventually(
                    lambda one=gateway: is_healthy(one), "the store is available again"
                )  # type: ignore[misc]
            await own.holds(key, 5)
            for number in (0, 1):
                assert not await own.admits(key, number)
            await first.close()
            await own.holds(key, 4)
            assert [await enter_until_refused(own, key, number) for number in (1, 0)] == [1, 0]
            await own.leave()
            await own.holds(key, 0)
    finally:
        server.stop()
