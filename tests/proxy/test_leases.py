"""An exchange releases its lease when it ends, however it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.domain.limits import Check
from gateway.stores.limits.leases import LeaseKeeper
from tests.kit.eventually import eventually
from tests.kit.upstream import Exchange, reply
from tests.kit.wire import build_request
from tests.proxy.conftest import Bench, Start

ROUTES = """
routes:
  held: {match: "* /held", upstream: api, limits: [{name: held, concurrency: 2}]}
  ip:   {match: "* /ip", upstream: api, auth: none, limits: [{name: ip, concurrency: 2, per: ip}]}
  scoped: {match: "* /scoped", upstream: api, scopes: [x], limits: [{name: held, concurrency: 2}]}
"""


def keeper_of(bench: Bench) -> LeaseKeeper:
    keeper = bench.gateway._gate.limiter
    assert isinstance(keeper, LeaseKeeper)
    return keeper


async def cut_short(exchange: Exchange) -> None:
    await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
    exchange.abort()


async def closes(exchange: Exchange) -> None:
    exchange.abort()


@pytest.mark.parametrize("script", [reply(200, b"hello"), reply(500), closes, cut_short])
@pytest.mark.parametrize("path", ["/held", "/ip"])
async def test_held_until_the_end(start: Start, script: Any, path: str) -> None:
    """A request holds a lease while the upstream works on it, and none after any end."""
    bench = await start(files={"routes": ROUTES})
    held: list[int] = []

    async def watched(exchange: Exchange) -> None:
        held.append(keeper_of(bench).held)
        await script(exchange)

    bench.upstream.script = watched
    async with await bench.connect() as wire:
        await wire.send(build_request("POST", path, [*bench.auth, ("Content-Length", "0")]))
        await wire.read_some()
    await eventually(lambda: keeper_of(bench).held == 0, "no lease is held")
    assert held == [1]


async def test_a_refused_request_holds_no_lease(start: Start) -> None:
    """A request without the scope gets the limit's values, and takes no lease."""
    bench = await start(files={"routes": ROUTES}, ietf_headers=True)
    async with await bench.connect() as wire:
        answer = await wire.request("GET", "/scoped", bench.auth)
    assert answer.status == 403
    assert ";r=2;" in answer["RateLimit"]
    assert keeper_of(bench).held == 0


async def test_a_grant_that_comes_too_late(start: Start) -> None:
    """A client that closed before the decision holds no lease, even if it is admitted."""
    bench = await start(files={"routes": ROUTES})
    keeper = keeper_of(bench)
    asked: list[Callable[[], None]] = []

    class Slow:
        def decide(self, check: Check, done: Any) -> None:
            asked.append(lambda: keeper.decide(check, done))

        def release(self, check: Check) -> None:
            keeper.release(check)

    bench.gateway._gate.limiter = Slow()
    wire = await bench.connect()
    await wire.send(build_request("GET", "/held", bench.auth))
    await eventually(lambda: len(asked) == 1, "the limiter is asked")
    await wire.close()
    await eventually(lambda: bench.gateway.metrics.inflight == 0, "the exchange is over")
    asked[0]()
    assert keeper.held == 0
    assert bench.upstream.requests == []
