"""The addresses of names: kept up to date, each balanced, kept in use while DNS fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import dns.rcode
import pytest

from gateway.domain.targets import Answer, targets_of
from gateway.domain.upstreams import Balance, Ejection, HealthCheck, Server, Upstream
from gateway.errors import UPSTREAM_UNREACHABLE
from gateway.observe.metrics import Metrics
from gateway.proxy import lookups as module
from gateway.proxy.lookups import LookUp, Lookups
from gateway.proxy.upstream_pool import UpstreamPools
from tests.kit.dns_server import ScriptedDns
from tests.kit.eventually import eventually
from tests.kit.pools import (
    FakeExchange,
    ask,
    names,
    policy_of,
    pools_for,
    refused,
    server_of,
)
from tests.kit.upstream import ScriptedUpstream
from tests.kit.wire import Wire
from tests.proxy.conftest import Start

API = Server("http", "api.test", 9000)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are looked up anew all the time, and failures are retried at once."""
    monkeypatch.setattr(module, "LEAST_S", 0.01)
    monkeypatch.setattr(module, "RETRY_S", 0.01)


@asynccontextmanager
async def lookups_of(look_up: LookUp, *servers: Server) -> AsyncIterator[Lookups]:
    lookups = Lookups(Metrics("test"), look_up, lambda server: None)
    lookups.use(servers)
    try:
        yield lookups
    finally:
        await asyncio.wait(lookups.use(()))


def addresses(lookups: Lookups, server: Server = API) -> list[str]:
    return [target.addresses[0] for target in lookups.targets(server)]


@pytest.mark.parametrize(
    ("ttl_s", "waits_s"), [(0.0, 1.0), (0.5, 1.0), (30.0, 30.0), (86_400.0, 300.0)]
)
async def test_the_time_to_live_is_bounded(
    monkeypatch: pytest.MonkeyPatch, ttl_s: float, waits_s: float
) -> None:
    """A name is looked up again after its time to live, at most once a second, and in time."""
    waits: list[float] = []
    slept = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        slept.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    async with lookups_of(names({"api.test": ["127.0.0.1"]}, ttl_s), API):
        await asyncio.wait_for(slept.wait(), 20)
    assert waits == [waits_s]


@pytest.mark.usefixtures("often")
async def test_the_last_answer_stays_in_use(caplog: pytest.LogCaptureFixture) -> None:
    """While look-ups fail, or find nothing; the log says so once, the metric counts."""
    known: dict[str, list[str]] = {"api.test": ["127.0.0.1"]}
    caplog.set_level(logging.INFO)
    async with lookups_of(names(known, 0.0), API) as lookups:
        counts = lookups._metrics._lookups
        await eventually(lambda: addresses(lookups) == ["127.0.0.1"], "it is known")
        del known["api.test"]
        await eventually(lambda: counts["api.test:9000", "failure"] > 3, "it fails")
        assert addresses(lookups) == ["127.0.0.1"]
        assert caplog.text.count("its last addresses stay in use: api.test is not known") == 1
        known["api.test"] = []
        failures = counts["api.test:9000", "failure"]
        await eventually(lambda: counts["api.test:9000", "failure"] > failures + 1, "it fails")
        assert addresses(lookups) == ["127.0.0.1"]
        known["api.test"] = ["127.0.0.2"]
        await eventually(lambda: addresses(lookups) == ["127.0.0.2"], "it is known again")
        assert "look-up of api.test:9000 succeeds again" in caplog.text
        assert "api.test:9000 is now api.test:9000 (127.0.0.2)" in caplog.text
    assert dict(counts) == {}


@pytest.mark.usefixtures("often")
async def test_an_unexpected_exception(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the name is looked up again."""
    outcomes = iter((ValueError("broken"), None))

    async def look_up(server: Server) -> Answer:
        if (error := next(outcomes, None)) is not None:
            raise error
        return Answer(targets_of(server, ["127.0.0.1"]), 300.0)

    async with lookups_of(look_up, API) as lookups:
        await eventually(lambda: addresses(lookups) == ["127.0.0.1"], "it is known")
    assert "ValueError: broken" in caplog.text


# -- requests --------------------------------------------------------------------------------------
async def test_the_first_look_up_is_waited_for() -> None:
    """Requests wait for it together; it delays none that has another server's address."""
    go_on = asyncio.Event()

    async def slow(server: Server) -> Answer:
        await go_on.wait()
        return Answer(targets_of(server, ["127.0.0.1"]), 300.0)

    upstream = ScriptedUpstream()
    named, plain = Server("http", "api.test", upstream.port), server_of(upstream)
    policy = policy_of(Upstream("api", (named,)), Upstream("both", (named, plain)))
    async with upstream, pools_for(policy, look_up=slow) as pools:
        exchanges = [FakeExchange(), FakeExchange()]
        for exchange in exchanges:
            pools.serve("api", exchange)  # type: ignore[arg-type]
        (await ask(pools, "both")).close()
        assert not any(exchange.answered.done() for exchange in exchanges)
        go_on.set()
        for exchange in exchanges:
            connection = await exchange.outcome()
            assert not isinstance(connection, type(UPSTREAM_UNREACHABLE))
            connection.close()


async def test_a_name_that_does_not_exist() -> None:
    """502, after the first look-up at once; the server is reported as unhealthy."""
    upstream = Upstream("api", (API,))
    async with pools_for(policy_of(upstream), look_up=names({})) as pools:
        for _ in range(3):
            assert await refused(pools) is UPSTREAM_UNREACHABLE
        assert pools.metrics._health == {("api", "api.test:9000"): 0}
        pools.use(policy_of())
        assert pools.metrics._health == {}


async def test_a_look_up_that_never_ends() -> None:
    """A request waits for it as long as for a connection; a reload does not lose the request."""

    async def endless(server: Server) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    upstream = Upstream("api", (API,), connect_s=0.05)
    async with pools_for(policy_of(upstream), look_up=endless) as pools:
        assert await refused(pools) is UPSTREAM_UNREACHABLE
        exchange = FakeExchange()
        pools.serve("api", exchange)  # type: ignore[arg-type]
        pools.use(policy_of())
        assert await exchange.outcome() is UPSTREAM_UNREACHABLE


@pytest.mark.usefixtures("often")
async def test_servers_of_an_upstream_change() -> None:
    """New addresses are used, of vanished ones nothing is kept: connections, checks, metrics.

    What is unchanged keeps its connections and its health.
    """
    first = ScriptedUpstream()
    second = ScriptedUpstream(beside=(first, "127.0.0.2"))
    port = first.port
    known = {"api.test": ["127.0.0.1"]}
    server = Server("http", "api.test", port)
    rule = HealthCheck("/", interval_s=300.0)
    policy = policy_of(Upstream("api", (server,), health=rule))
    async with first, second, pools_for(policy, look_up=names(known, 0.0)) as pools:
        busy, idle = await ask(pools), await ask(pools)
        idle.finish(reusable=True)
        (stays,) = pools._by_server.values()
        assert pools._upstreams["api"].only is stays
        known["api.test"] = ["127.0.0.1", "127.0.0.2"]
        await eventually(lambda: len(pools._by_server.values()) == 2, "it is found")
        assert next(iter(pools._by_server.values())) is stays
        assert not idle.transport.is_closing()
        assert pools._upstreams["api"].only is None
        assert sorted(label for _, label in pools.metrics._health) == [
            f"api.test:{port} (127.0.0.1)",
            f"api.test:{port} (127.0.0.2)",
        ]
        known["api.test"] = ["127.0.0.2"]
        await eventually(lambda: len(pools._by_server.values()) == 1, "it is retired")
        assert idle.transport.is_closing()
        assert not busy.transport.is_closing()
        assert stays._watch is None
        assert [label for _, label in pools.metrics._health] == [f"api.test:{port} (127.0.0.2)"]
        busy.finish(reusable=True)
        assert busy.transport.is_closing()


@pytest.mark.usefixtures("often")
async def test_thousands_of_addresses_leave_nothing_behind() -> None:
    """Where a name's address changes with every look-up, nothing grows."""
    turns = 0

    async def look_up(server: Server) -> Answer:
        nonlocal turns
        turns += 1
        return Answer(targets_of(server, [f"10.0.0.{turns % 200}"]), 0.0)

    async with pools_for(policy_of(Upstream("api", (API,))), look_up=look_up) as pools:
        await eventually(lambda: turns > 50, "it has changed often")
        assert len(pools._by_server.values()) == len(pools.metrics._health) == 1
        assert len(pools.metrics._lookups) == 1
        assert len(pools._ending) <= 1


# -- under load ------------------------------------------------------------------------------------
@pytest.mark.usefixtures("often")
async def test_records_change_under_load(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With real sockets: servers join, leave and are replaced, DNS fails; no request fails."""
    one = ScriptedUpstream()
    two, three = (ScriptedUpstream(beside=(one, f"127.0.0.{n}")) for n in (2, 3))
    port, all_three = one.port, (one, two, three)
    async with one, two, three, ScriptedDns() as dns_server:
        a, failures = ("api.test", "A"), 0
        dns_server.records[a] = ["127.0.0.1", "127.0.0.2"]
        resolver = dns_server.resolver(tmp_path)
        monkeypatch.setattr("gateway.proxy.upstream_pool.Resolver", lambda: resolver, raising=True)
        bench = await start(upstreams={"api": Upstream("api", (Server("http", "api.test", port),))})
        ended = asyncio.Event()

        async def load() -> int:
            nonlocal failures
            sent = 0
            async with await bench.connect() as wire:
                while not ended.is_set():
                    failures += (await wire.request("GET", "/api/x", bench.auth)).status != 200
                    sent += 1
            return sent

        async def serve_only(*expected: ScriptedUpstream) -> None:
            """Wait until 200 requests in a row are served by all of these, and no others."""

            async def holds() -> bool:
                for each in all_three:
                    each.requests.clear()
                await eventually(lambda: sum(len(x.requests) for x in all_three) >= 200, "load")
                return all(bool(each.requests) is (each in expected) for each in all_three)

            await eventually(holds, "only these serve")

        loads = [asyncio.create_task(load()) for _ in range(4)]
        await serve_only(one, two)
        dns_server.records[a] = ["127.0.0.2", "127.0.0.3"]
        await serve_only(two, three)
        dns_server.failure = int(dns.rcode.SERVFAIL)
        lookups = bench.gateway.metrics._lookups
        key = (f"api.test:{port}", "failure")
        await eventually(lambda: lookups[key] > 2, "DNS fails")
        await serve_only(two, three)
        dns_server.records[a], dns_server.failure = ["127.0.0.1"], None
        await serve_only(one)
        ended.set()
        sent = sum(await asyncio.gather(*loads))
        assert sent > 0
        assert failures == 0


@pytest.mark.usefixtures("often")
async def test_services_by_priority_and_weight(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SRV records: exact shares by weight; another priority if no server of the first is healthy.

    A changed weight is used without a new connection.
    """
    async with ScriptedUpstream() as one, ScriptedUpstream() as two, ScriptedUpstream() as spare:
        name, each = "_api._tcp.test", (one, two, spare)

        def services(*weights: int) -> list[str]:
            rows = zip((0, 0, 1), weights, each, strict=True)
            return [f"{priority} {weight} {at.port} a.test." for priority, weight, at in rows]

        async def shares(wire: Wire) -> list[int]:
            before = [len(at.requests) for at in each]
            for _ in range(12):
                assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
            return [len(at.requests) - n for at, n in zip(each, before, strict=True)]

        async with ScriptedDns({("a.test", "A"): ["127.0.0.1"]}) as dns_server:
            dns_server.records[name, "SRV"] = services(3, 1, 1)
            resolver = dns_server.resolver(tmp_path)
            monkeypatch.setattr("gateway.proxy.upstream_pool.Resolver", lambda: resolver)
            srv = Upstream(
                "api",
                (Server("http", name, 80, srv=True),),
                balance=Balance("round_robin"),
                ejection=Ejection(failures=1, for_s=300.0),
            )
            bench = await start(upstreams={"api": srv})
            servers = bench.gateway._context.pools._upstreams["api"]
            async with await bench.connect() as wire:
                assert await shares(wire) == [9, 3, 0]
                dns_server.records[name, "SRV"] = services(1, 1, 1)
                await eventually(lambda: {at.weight for at in servers.pools} == {1}, "equal")
                assert await shares(wire) == [6, 6, 0]
                assert {at.connection for at in one.requests} == {0}
                await one.stop()
                await two.stop()
                assert (await shares(wire))[2] > 0
                assert await shares(wire) == [0, 0, 12]


def test_the_default_asks_the_system() -> None:
    """Without another function, pools look names up by this machine's files and DNS."""

    async def inspect() -> None:
        pools = UpstreamPools(Metrics("test"))
        pools.use(policy_of(Upstream("api", (Server("http", "localhost", 1),))))
        await eventually(lambda: len(pools._by_server.values()) == 1, "localhost is known")
        await pools.stop()

    asyncio.run(inspect())
