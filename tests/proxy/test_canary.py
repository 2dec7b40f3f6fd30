"""Canaries over sockets: who gets which upstream, and what is counted."""

from __future__ import annotations

import pytest

from gateway.domain.upstreams import Upstream
from tests.kit.pools import closed_server, server_of
from tests.kit.upstream import ScriptedUpstream
from tests.kit.wire import bearer
from tests.proxy.conftest import Bench, Start

ROUTES = """
routes:
  api: {match: "* /api/**", upstream: api, canary: {upstream: beta, %s}}
"""


async def started(start: Start, settings: str, stable: ScriptedUpstream, beta: Upstream) -> Bench:
    upstreams = 'upstreams:\n  api: {servers: ["http://h"]}\n  beta: {servers: ["http://h"]}\n'
    return await start(
        files={"routes": ROUTES % settings, "upstreams": upstreams},
        upstreams={"api": Upstream("api", (server_of(stable),)), "beta": beta},
    )


def counted(bench: Bench) -> dict[tuple[str | int, ...], int]:
    return dict(bench.gateway.metrics._canaries)


@pytest.mark.parametrize("again", ["the same connection", "a new connection"])
async def test_a_share_is_sticky(start: Start, again: str) -> None:
    """Each of 40 clients gets one upstream, every time; both get some clients; all are counted."""
    async with ScriptedUpstream() as stable, ScriptedUpstream() as beta:
        settings = "share: 50%, by: 'header:X-Client'"
        bench = await started(start, settings, stable, Upstream("beta", (server_of(beta),)))
        for client in range(40):
            auth = [*bench.auth, ("X-Client", f"client-{client}")]
            before = len(stable.requests), len(beta.requests)
            wire = await bench.connect()
            for _ in range(3):
                assert (await wire.request("GET", "/api/x", auth)).status == 200
                if again == "a new connection":
                    await wire.close()
                    wire = await bench.connect()
            await wire.close()
            grown = len(stable.requests) - before[0], len(beta.requests) - before[1]
            assert sorted(grown) == [0, 3]
        assert counted(bench) == {
            ("api", "api", 200): len(stable.requests),
            ("api", "beta", 200): len(beta.requests),
        }
        assert len(counted(bench)) == 2


async def test_a_key_and_an_account(start: Start) -> None:
    """A client is its key, unless told otherwise: all of it goes to one side."""
    for by in ("key", "account", "ip"):
        async with ScriptedUpstream() as stable, ScriptedUpstream() as beta:
            servers = Upstream("beta", (server_of(beta),))
            bench = await started(start, f"share: 50%, by: {by}", stable, servers)
            for _ in range(3):
                async with await bench.connect() as wire:
                    assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
            assert sorted((len(stable.requests), len(beta.requests))) == [0, 3]


async def test_a_header(start: Start) -> None:
    """A request with it goes to the canary, also one whose servers cannot be reached: 502."""
    async with ScriptedUpstream() as stable:
        beta = Upstream("beta", (closed_server(),))
        bench = await started(start, "header: X-Canary, value: always", stable, beta)
        async with await bench.connect() as wire:
            for value, status in (("always", 502), ("never", 200), ("always", 502)):
                headers = [*bench.auth, ("X-Canary", value)]
                assert (await wire.request("GET", "/api/x", headers)).status == status
            assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
            assert (await wire.request("GET", "/api/x", bearer("no key"))).status == 401
        assert [request.maybe("X-Canary") for request in stable.requests] == ["never", None]
        assert counted(bench) == {("api", "api", 200): 2, ("api", "beta", 502): 2}
