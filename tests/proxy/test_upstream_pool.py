"""Which server gets a request, how its connection is found, and what follows from failures."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from gateway.domain.upstreams import Balance, Ejection, Server, Upstream
from gateway.errors import UPSTREAM_BUSY, UPSTREAM_UNREACHABLE
from gateway.proxy.server_pool import MOST_AGE_S, ServerPool
from gateway.proxy.upstream_connection import UpstreamConnection
from gateway.proxy.upstream_pool import UpstreamPools
from tests.kit.eventually import eventually
from tests.kit.pools import (
    FakeExchange,
    ask,
    closed_server,
    health_metric,
    policy_of,
    pools_for,
    refused,
    server_of,
    target_of,
)
from tests.kit.upstream import Exchange, ScriptedUpstream, echo, reply
from tests.kit.wire import bearer, build_request
from tests.proxy.conftest import Bench, Start


def prefer_first(bench: Bench) -> None:
    """Choose the first of two servers while neither is busy."""
    servers = bench.gateway._context.pools._upstreams["api"]
    servers._below = lambda below: 0
    servers.health_changed()


# -- choosing --------------------------------------------------------------------------------------
async def test_the_less_busy_of_two_picked_at_random() -> None:
    """Connections that are being opened count as busy, so that a burst is spread as well."""
    async with ScriptedUpstream() as one, ScriptedUpstream() as other:
        policy = policy_of(Upstream("api", (server_of(one), server_of(other))))
        async with pools_for(policy, below=lambda below: 0) as pools:
            exchanges = [FakeExchange() for _ in range(4)]
            for exchange in exchanges:
                pools.serve(exchange.upstream, exchange)  # type: ignore[arg-type]
            found = [await exchange.outcome() for exchange in exchanges]
            ports = [
                found.pool.server.port for found in found if isinstance(found, UpstreamConnection)
            ]
            assert ports == [one.port, other.port, one.port, other.port]


async def test_the_last_used_is_used_next() -> None:
    """A connection that is returned is taken next; old and closed ones are not."""
    async with (
        ScriptedUpstream() as upstream,
        pools_for(policy_of(Upstream("api", (server_of(upstream),)))) as pools,
    ):
        first, second = await ask(pools), await ask(pools)
        for connection in (first, second):
            connection.finish(reusable=True)
        assert await ask(pools) is second
        second.opened -= MOST_AGE_S
        second.finish(reusable=True)
        assert second.transport.is_closing()
        first.transport.close()
        third = await ask(pools)
        assert third not in {first, second}
        third.finish(reusable=True)
        pools.close_idle(inf)
        assert third.transport.is_closing()


@pytest.mark.parametrize("name", ["_try", "connect"])
async def test_an_internal_error_while_connecting(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Any exception while connecting to a server is a 500 at once; no client waits forever."""

    async def broken(*_: object) -> None:
        raise ValueError("broken")

    bench = await start()
    with monkeypatch.context() as patched:
        patched.setattr(UpstreamPools if name == "_try" else ServerPool, name, broken)
        async with await bench.connect() as wire:
            assert (await wire.request("GET", "/api/x", bench.auth)).status == 500
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200


async def test_a_limit_on_what_is_in_flight(start: Start) -> None:
    """Over it the answer is 503, at once; when a request ends, the next is admitted."""
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await go_on.wait()
        await echo(exchange)

    async with ScriptedUpstream(script) as upstream:
        limited = Upstream("api", (server_of(upstream), closed_server()), inflight=2)
        bench = await start(upstreams={"api": limited})
        async with (
            await bench.connect() as one,
            await bench.connect() as two,
            await bench.connect() as three,
        ):
            for wire in (one, two):
                await wire.send(build_request("GET", "/api/x", bench.auth))
            await upstream.received(2)
            response = await three.request("GET", "/api/x", bench.auth)
            assert (response.status, response.json()["code"]) == (503, UPSTREAM_BUSY.code)
            assert response["Retry-After"] == "1"
            go_on.set()
            for wire in (one, two):
                assert (await wire.read_response()).status == 200
            assert (await three.request("GET", "/api/x", bench.auth)).status == 200


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
async def test_a_burst_is_limited(again: bool) -> None:
    """Requests that wait for a connection are in flight as well; failed ones no longer."""
    async with pools_for(policy_of(Upstream("api", (closed_server(),), inflight=2))) as pools:
        for _ in range(2):
            exchanges: list[Any] = [FakeExchange() for _ in range(3)]
            for exchange in exchanges:
                if again:
                    pools.connect_afresh(exchange.upstream, exchange, None)
                else:
                    pools.serve(exchange.upstream, exchange)
            outcomes = [await exchange.outcome() for exchange in exchanges]
            assert outcomes == [UPSTREAM_UNREACHABLE, UPSTREAM_UNREACHABLE, UPSTREAM_BUSY]


async def test_weights_and_rules(start: Start) -> None:
    """Over sockets: three servers get exactly their turns; a hash keeps a key at one server."""
    async with ScriptedUpstream() as one, ScriptedUpstream() as two, ScriptedUpstream() as three:
        each = (one, two, three)
        weighted = tuple(
            replace(server_of(at), weight=n) for at, n in zip(each, (5, 3, 2), strict=True)
        )
        turns = Upstream("api", weighted, balance=Balance("round_robin"))
        bench = await start(upstreams={"api": turns})
        async with await bench.connect() as wire:
            for _ in range(40):
                assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
            assert [len(at.requests) for at in each] == [20, 12, 8]
        bench = await start(upstreams={"api": replace(turns, balance=Balance("hash", "key"))})
        keys = [bench.auth, bearer(await bench.mint()), bearer(await bench.mint())]
        for at in each:
            at.requests.clear()
        for key in keys:
            async with await bench.connect() as wire, await bench.connect() as other:
                before = [len(at.requests) for at in each]
                for connection in (wire, other) * 3:
                    assert (await connection.request("GET", "/api/x", key)).status == 200
                grown = [len(at.requests) - n for at, n in zip(each, before, strict=True)]
                assert sorted(grown) == [0, 0, 6]


async def test_a_changed_weight_keeps_connections() -> None:
    """A rollout changes weights again and again: connections and health stay."""
    async with ScriptedUpstream() as upstream:
        server = server_of(upstream)
        async with pools_for(policy_of(Upstream("api", (server,)))) as pools:
            connection = await ask(pools)
            connection.finish(reusable=True)
            pools.use(policy_of(Upstream("api", (replace(server, weight=7),))))
            assert await ask(pools) is connection
            assert connection.pool.weight == 7  # type: ignore[attr-defined]


# -- failures and recovery -------------------------------------------------------------------------
async def test_a_refusing_server_is_ejected_and_used_again(start: Start) -> None:
    """No request fails because of it, not even a POST: nothing was sent."""
    async with ScriptedUpstream() as good, ScriptedUpstream() as bad:
        await bad.stop()
        bench = await start(
            upstreams={
                "api": Upstream(
                    "api", (server_of(bad), server_of(good)), ejection=Ejection(2, for_s=0.2)
                )
            }
        )
        prefer_first(bench)
        async with await bench.connect() as wire:
            for _ in range(5):
                assert (await wire.request("POST", "/api/x", bench.auth, b"body")).status == 200
            assert health_metric(bench.gateway.metrics, server_of(bad)) == 0
            assert health_metric(bench.gateway.metrics, server_of(good)) == 1
            await bad.start()

            async def is_back() -> bool:
                assert (await wire.request("POST", "/api/x", bench.auth, b"body")).status == 200
                return health_metric(bench.gateway.metrics, server_of(bad)) == 1

            await eventually(is_back, "a probe returns it")
        assert len(bad.requests) == 1


async def garbage(exchange: Exchange) -> None:
    await exchange.write(b"hello\r\n\r\n")
    await exchange.ended()


async def half_a_head(exchange: Exchange) -> None:
    await exchange.write(b"HTTP/1.1 200 OK\r\n")
    exchange.close()


async def nothing(exchange: Exchange) -> None:
    exchange.close()


async def silence(exchange: Exchange) -> None:
    await exchange.ended()


async def half_a_body(exchange: Exchange) -> None:
    await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
    await exchange.ended()


@pytest.mark.parametrize(
    ("script", "status", "failures"),
    [(garbage, 502, 2), (half_a_head, 502, 2), (nothing, 502, 2), (silence, 504, 1)],
)
async def test_failures(start: Start, script: Any, status: int, failures: int) -> None:
    """Invalid answers, half a head, a close before it, silence: enough of them eject it."""
    async with ScriptedUpstream(script) as bad, ScriptedUpstream() as good:
        servers = (server_of(bad), server_of(good))
        upstream = Upstream("api", servers, response_s=1.0, ejection=Ejection(failures))
        bench = await start(upstreams={"api": upstream})
        prefer_first(bench)
        async with await bench.connect() as wire:
            for _ in range(failures):
                assert health_metric(bench.gateway.metrics, servers[0]) == 1
                assert (await wire.request("GET", "/api/x", bench.auth)).status == status
            assert health_metric(bench.gateway.metrics, servers[0]) == 0
            for _ in range(3):
                assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
        assert len(bad.requests) == failures


async def test_outcomes_that_are_not_failures(start: Start) -> None:
    """A 500, a closed idle connection, a client that closes: the server stays healthy."""
    async with ScriptedUpstream(reply(500)) as upstream, ScriptedUpstream() as other:
        servers = (server_of(upstream), server_of(other))
        bench = await start(upstreams={"api": Upstream("api", servers, ejection=Ejection(1))})
        prefer_first(bench)
        pools = bench.gateway._context.pools
        async with await bench.connect() as wire:
            assert (await wire.request("GET", "/api/x", bench.auth)).status == 500

            async def close_on_second(exchange: Exchange) -> None:
                if len(upstream.requests) == 2:
                    exchange.abort()
                else:
                    await echo(exchange)

            upstream.script = close_on_second
            assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
        upstream.script = silence
        leaving = await bench.connect()
        await leaving.send(build_request("GET", "/api/x", bench.auth))
        await upstream.received(4)
        await leaving.close()
        await eventually(lambda: bench.gateway.metrics.inflight == 0, "it is over")
        assert health_metric(bench.gateway.metrics, servers[0]) == 1
        assert not any(pool.busy for pool in pools._by_server.values())


async def test_the_last_server_is_always_tried(start: Start) -> None:
    """However often it fails, and also if the others are ejected."""
    async with ScriptedUpstream(nothing) as upstream, ScriptedUpstream(nothing) as other:
        servers = (server_of(upstream), server_of(other))
        bench = await start(upstreams={"api": Upstream("api", servers, ejection=Ejection(1))})
        prefer_first(bench)
        async with await bench.connect() as wire:
            for _ in range(5):
                assert (await wire.request("GET", "/api/x", bench.auth)).status == 502
            assert (len(upstream.requests), len(other.requests)) == (1, 4)
            other.script = echo
            assert (await wire.request("GET", "/api/x", bench.auth)).status == 200


async def test_local_errors_are_no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without free descriptors, no server counts as failed."""

    async def lacking(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(ServerPool, "dial", lacking)
    other = Server("http", "127.0.0.2", 1)
    upstream = Upstream("api", (closed_server(), other), ejection=Ejection(1))
    async with pools_for(policy_of(upstream)) as pools:
        assert await refused(pools) is UPSTREAM_UNREACHABLE
        assert all(pool.health.is_healthy for pool in pools._by_server.values())


async def test_a_connection_that_closes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is closed at once counts as none; the next server is tried."""
    async with ScriptedUpstream() as greeter, ScriptedUpstream() as good:
        upstream = Upstream("api", (server_of(greeter), server_of(good)), ejection=Ejection(1))
        async with pools_for(policy_of(upstream), below=lambda below: 0) as pools:
            pool = pools._by_server["api", target_of(server_of(greeter))]
            dial = pool.dial

            async def greeted(*arguments: Any) -> Any:
                transport, connection = await dial(*arguments)
                connection.data_received(b"220 hello\r\n")
                return transport, connection

            monkeypatch.setattr(pool, "dial", greeted)
            assert (await ask(pools)).pool.server == server_of(good)
            assert not pool.health.is_healthy
            assert pool.busy == 0


# -- deadlines -------------------------------------------------------------------------------------
async def test_an_upstreams_own_timeouts() -> None:
    """They replace the policy's, if set."""
    own = Upstream("own", (closed_server(),), connect_s=0.5, response_s=60.0)
    policy = policy_of(own, Upstream("api", (closed_server(),)), connect_s=2.0, response_s=30.0)
    async with pools_for(policy) as pools:
        timeouts = {
            pool.name: (pool.connect_s, pool.response_s) for pool in pools._by_server.values()
        }
        assert timeouts == {"own": (0.5, 60.0), "api": (2.0, 30.0)}


async def test_an_upstream_that_takes_nothing(start: Start) -> None:
    """If the upstream takes nothing of a body for the write timeout, the answer is 504."""
    async with ScriptedUpstream(half_a_body) as upstream:

        async def stalled(exchange: Exchange) -> None:
            await never.wait()

        never = asyncio.Event()
        upstream.script = stalled
        bench = await start(
            timeouts={"write_s": 0.2},
            bounds={"body_bytes": 2**30},
            upstreams={"api": Upstream("api", (server_of(upstream),))},
        )
        size = 32 * 2**20
        async with await bench.connect() as wire:
            head = build_request("POST", "/api/x", [*bench.auth, ("Content-Length", str(size))])
            await wire.send(head)

            async def send_body() -> None:
                for _ in range(size // 2**16):
                    await wire.send(b"x" * 2**16)

            sending = asyncio.create_task(send_body())
            response = await wire.read_response()
            assert (response.status, response.json()["code"]) == (504, "UPSTREAM_TIMEOUT")
            assert upstream.requests[0].body == b""
        sending.cancel()
        await asyncio.wait([sending])


# -- reload and end --------------------------------------------------------------------------------
async def test_servers_come_and_go() -> None:
    """A server that stays keeps its connections; of a removed one nothing is kept."""
    async with ScriptedUpstream() as stays, ScriptedUpstream() as goes:
        both = policy_of(Upstream("api", (server_of(stays), server_of(goes))))
        one = policy_of(Upstream("api", (server_of(stays),)))
        async with pools_for(both, below=lambda below: 0) as pools:
            kept, idle, busy = await ask(pools), await ask(pools), await ask(pools)
            busy.finish(reusable=True)
            assert busy.pool.server == kept.pool.server
            busy = idle
            kept.finish(reusable=True)
            pools.use(one)
            assert list(pools.metrics._health) == [("api", server_of(stays).authority)]
            busy.finish(reusable=True)
            assert busy.transport.is_closing()
            assert not kept.transport.is_closing()
            assert await ask(pools) is kept
            pools.use(policy_of())
            assert await refused(pools) is UPSTREAM_UNREACHABLE
            exchange = FakeExchange()
            pools.connect_afresh("api", exchange, None)  # type: ignore[arg-type]
            assert await exchange.outcome() is UPSTREAM_UNREACHABLE


async def test_a_client_that_left_while_it_was_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is kept for the next; if it fails, no other server is tried."""
    asked = asyncio.Event()
    go_on = asyncio.Event()
    dial = ServerPool.dial

    async def slow(pool: ServerPool, *arguments: Any) -> Any:
        asked.set()
        await go_on.wait()
        return await dial(pool, *arguments)

    monkeypatch.setattr(ServerPool, "dial", slow)
    async with ScriptedUpstream() as upstream:
        good = Upstream("api", (server_of(upstream),))
        bad = Upstream("bad", (closed_server(), server_of(upstream)))
        async with pools_for(policy_of(good, bad), below=lambda below: 0) as pools:
            exchanges = [FakeExchange("api"), FakeExchange("bad")]
            for exchange in exchanges:
                pools.serve(exchange.upstream, exchange)  # type: ignore[arg-type]
                exchange.is_over = True
            await asyncio.wait_for(asked.wait(), 20)
            go_on.set()
            found = pools._by_server.values()
            await eventually(lambda: not any(pool.busy for pool in found), "all have ended")
            assert [len(pool.idle) for pool in found] == [1, 0, 0]
            assert not any(exchange.answered.done() for exchange in exchanges)
