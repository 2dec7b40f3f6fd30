"""Health checks: what they request, what counts as unhealthy, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.upstreams import HealthCheck, Upstream
from gateway.errors import UPSTREAM_UNHEALTHY
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
from tests.proxy.conftest import Start

RULE = HealthCheck("/up?deep=1", interval_s=0.01, timeout_s=5.0, rise=2, fall=2)


async def test_a_health_check(start: Start) -> None:
    """It ejects a server and brings it back; while all are unhealthy, the answer is 503."""
    status = 200

    async def script(exchange: Exchange) -> None:
        if exchange.request.target.startswith("/up"):
            await reply(status)(exchange)
        else:
            await echo(exchange)

    async with ScriptedUpstream(script) as upstream:
        server = server_of(upstream)
        bench = await start(upstreams={"api": Upstream("api", (server,), health=RULE)})
        async with await bench.connect() as wire:
            assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
            status = 503
            await eventually(
                lambda: health_metric(bench.gateway.metrics, server) == 0, "it is unhealthy"
            )
            response = await wire.request("GET", "/api/x", bench.auth)
            assert (response.status, response.json()["code"]) == (503, UPSTREAM_UNHEALTHY.code)
            status = 302
            await eventually(
                lambda: health_metric(bench.gateway.metrics, server) == 1, "it is healthy"
            )
            assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
        (seen, *_) = [one for one in upstream.requests if one.target.startswith("/up")]
        assert (seen.method, seen.target) == ("GET", "/up?deep=1")
        assert seen.maybe("Host") == server.authority
        named = replace(server, asked="api.internal")
        bench.gateway._context.pools.use(policy_of(Upstream("api", (named,), health=RULE)))
        await eventually(
            lambda: upstream.requests[-1].maybe("Host") == "api.internal", "it gets its Host"
        )
        await bench.gateway.stop()
        assert not bench.gateway._context.pools._by_server


async def _raw(exchange: Exchange, data: bytes) -> None:
    await exchange.write(data)
    await exchange.ended()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 500 E\r\n\r\n", "it answered 500"),
        (b"HTTP/1.1 404 E\r\n\r\n", "it answered 404"),
        (b"hello\r\n\r\n", "the status line is malformed"),
        (b"HTTP/1.1 103 E\r\n\r\n" * 100, "too many interim responses"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 200_000, "its head is longer than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", "its head is longer than"),
        (b"HTTP/1.1 200 OK\r\n", "no answer within 0.2 s"),
        (b"", "it closed before it answered"),
    ],
)
async def test_what_is_unhealthy(
    answer: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Anything but a final answer below 400 in time; the log says what."""

    async def script(exchange: Exchange) -> None:
        if answer:
            await _raw(exchange, answer)
        else:
            exchange.close()

    is_silent = words.startswith("no answer")
    rule = replace(RULE, fall=1, timeout_s=0.2 if is_silent else 20.0)
    async with ScriptedUpstream(script) as upstream:
        policy = policy_of(Upstream("api", (server_of(upstream),), health=rule))
        async with pools_for(policy) as pools:
            (pool,) = pools._by_server.values()
            await eventually(lambda: not pool.health.passes, "it is unhealthy")
            assert await refused(pools) is UPSTREAM_UNHEALTHY
            exchange = FakeExchange()
            pools.connect_afresh("api", exchange, None)  # type: ignore[arg-type]
            assert await exchange.outcome() is UPSTREAM_UNHEALTHY
            assert words in caplog.text
            # Without the check, the server is healthy.
            pools.use(policy_of(Upstream("api", (server_of(upstream),))))
            (await ask(pools)).finish(reusable=True)


async def test_an_unreachable_server_is_unhealthy() -> None:
    """A refused connection fails the check as well; the other server gets all requests."""
    async with ScriptedUpstream(reply(204)) as upstream:
        both = Upstream("api", (closed_server(), server_of(upstream)), health=RULE)
        async with pools_for(policy_of(both), below=lambda below: 0) as pools:
            refusing = pools._by_server["api", target_of(closed_server())]
            await eventually(lambda: not refusing.health.passes, "it is unhealthy")
            for _ in range(3):
                assert (await ask(pools)).pool.server == server_of(upstream)
            # A reload that does not change the check keeps it running.
            watch = refusing._watch
            pools.use(policy_of(both, response_s=1.0))
            assert refusing._watch is watch
