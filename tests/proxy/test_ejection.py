"""Servers that answer with errors or late are ejected, probed, and return; over real sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.domain.upstreams import Balance, Ejection, Upstream
from tests.kit.eventually import eventually
from tests.kit.pools import health_metric, server_of
from tests.kit.upstream import Exchange, ScriptedUpstream, echo, reply
from tests.kit.wire import build_request
from tests.proxy.conftest import Bench, Start

#: Above what a loaded machine takes for an answer, and below what the slow server takes.
LATENCY_S = 0.5
ERRORS = Ejection(for_s=300.0, errors_percent=50, least=4, window_s=300.0)
LATE = Ejection(for_s=300.0, latency_s=LATENCY_S, least=4, window_s=300.0)


async def late(exchange: Exchange) -> None:
    """Answer after more than the latency that the policy allows."""
    await exchange.read_body()
    loop = asyncio.get_running_loop()
    passed = asyncio.Event()
    loop.call_later(LATENCY_S + 0.05, passed.set)
    await passed.wait()
    await echo(exchange)


async def started(start: Start, ejection: Ejection, *upstreams: ScriptedUpstream) -> Bench:
    servers = tuple(map(server_of, upstreams))
    rule = Balance("round_robin")
    return await start(upstreams={"api": Upstream("api", servers, ejection=ejection, balance=rule)})


async def statuses(bench: Bench, requests: int, body: bytes = b"") -> list[int]:
    """The statuses of requests, one after the other, in order of size."""
    async with await bench.connect() as wire:
        method = "POST" if body else "GET"
        found = [await wire.request(method, "/api/x", bench.auth, body) for _ in range(requests)]
    return sorted(response.status for response in found)


def is_healthy(bench: Bench, upstream: ScriptedUpstream) -> bool:
    return health_metric(bench.gateway.metrics, server_of(upstream)) == 1


async def test_errors(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Clients get each 500 as it is; after enough of them the server gets no more requests."""
    async with ScriptedUpstream(reply(500)) as bad, ScriptedUpstream() as good:
        bench = await started(start, ERRORS, bad, good)
        assert await statuses(bench, 8) == [200] * 4 + [500] * 4
        assert not is_healthy(bench, bad)
        assert "is ejected: 4 of 4 answers are errors" in caplog.text
        assert await statuses(bench, 8) == [200] * 8
        assert len(bad.requests) == 4


async def test_fewer_errors(start: Start) -> None:
    """Below the share no server is ejected, and without the setting none is at all."""
    for ejection in (Ejection(1, 300.0), Ejection(1, 300.0, errors_percent=51, least=4)):
        scripts = [echo, reply(500)] * 10

        async def alternate(exchange: Exchange, scripts: list[object] = scripts) -> None:
            await scripts.pop(0)(exchange)  # type: ignore[operator]

        async with ScriptedUpstream(alternate) as one, ScriptedUpstream() as other:
            bench = await started(start, ejection, one, other)
            await statuses(bench, 32)
            assert is_healthy(bench, one)


async def test_slow_answers(start: Start) -> None:
    """A server of which more than half of the answers are slow; the requests themselves succeed."""
    async with ScriptedUpstream(late) as slow, ScriptedUpstream() as good:
        bench = await started(start, LATE, slow, good)
        found = await asyncio.gather(*(statuses(bench, 2) for _ in range(4)))
        assert found == [[200, 200]] * 4
        assert not is_healthy(bench, slow)
        assert is_healthy(bench, good)
        count = len(slow.requests)
        assert await statuses(bench, 8) == [200] * 8
        assert len(slow.requests) == count


async def test_a_slow_client_is_no_slow_server(start: Start) -> None:
    """The time counts from the end of the request: an upload may take as long as it likes."""
    async with ScriptedUpstream() as one, ScriptedUpstream() as other:
        bench = await started(start, LATE, one, other)
        wires = [await bench.connect() for _ in range(8)]
        for wire in wires:
            head = build_request("POST", "/api/x", [*bench.auth, ("Content-Length", "2")])
            await wire.send(head + b"a")
        passed = asyncio.Event()
        asyncio.get_running_loop().call_later(LATENCY_S + 0.05, passed.set)
        await passed.wait()
        for wire in wires:
            await wire.send(b"b")
            assert (await wire.read_response()).status == 200
            await wire.close()
        assert is_healthy(bench, one)
        assert is_healthy(bench, other)
        pools = bench.gateway._context.pools._by_server.values()
        assert all(pool._window is not None for pool in pools)


@pytest.mark.parametrize("ejection", [ERRORS, LATE], ids=["errors", "latency"])
async def test_half_open(start: Start, ejection: Ejection) -> None:
    """One request at a time probes it: as bad as before it stays out, a good answer returns it."""
    script = reply(500) if ejection is ERRORS else late
    async with ScriptedUpstream(script) as bad, ScriptedUpstream() as good:
        bench = await started(start, ejection, bad, good)
        await asyncio.gather(*(statuses(bench, 2) for _ in range(4)))
        assert not is_healthy(bench, bad)
        count = len(bad.requests)
        (pool,) = (
            pool
            for pool in bench.gateway._context.pools._by_server.values()
            if pool.server.port == bad.port
        )
        for probes in (1, 2):
            pool.health.out_until = 0.001  # its time is over
            await statuses(bench, 6)
            assert len(bad.requests) == count + probes
            assert not is_healthy(bench, bad)
        bad.script = echo
        pool.health.out_until = 0.001
        assert await statuses(bench, 6) == [200] * 6
        assert is_healthy(bench, bad)


async def test_it_returns_by_itself(start: Start) -> None:
    """After `for`, without anyone's help."""
    quick = Ejection(for_s=0.05, errors_percent=50, least=2)
    async with ScriptedUpstream(reply(500)) as bad, ScriptedUpstream() as good:
        bench = await started(start, quick, bad, good)
        await statuses(bench, 4)
        assert not is_healthy(bench, bad)
        bad.script = echo

        async def returned() -> bool:
            await statuses(bench, 1)
            return is_healthy(bench, bad)

        await eventually(returned, "a probe returns it")


async def test_the_last_server_stays(start: Start) -> None:
    """However many errors it answers: a 500 says more than our 503."""
    async with ScriptedUpstream(reply(503)) as one, ScriptedUpstream(reply(500)) as other:
        bench = await started(start, ERRORS, one, other)
        assert set(await statuses(bench, 40)) <= {500, 503}
        assert is_healthy(bench, one) is not is_healthy(bench, other)
        assert len(one.requests) + len(other.requests) == 40


async def test_a_reload_changes_the_rule(start: Start) -> None:
    """Without it, 500s are answers again; unchanged, what was counted is kept."""
    async with ScriptedUpstream(reply(500)) as bad, ScriptedUpstream() as good:
        bench = await started(start, ERRORS, bad, good)
        pools = bench.gateway._context.pools
        policy = bench.gateway._policy
        await statuses(bench, 6)
        pools.use(policy)
        assert is_healthy(bench, bad)
        await statuses(bench, 2)
        assert not is_healthy(bench, bad)
        for pool in pools._by_server.values():
            assert pool.health.counted
        upstream = Upstream("api", policy.upstreams["api"].servers)
        pools.use(replace(policy, upstreams={"api": upstream}))
        for pool in pools._by_server.values():
            assert not pool.health.counted
