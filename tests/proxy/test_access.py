"""Lists of addresses: who is refused, at once and with nothing else decided."""

from __future__ import annotations

import asyncio

import pytest

from gateway.domain.networks import parse_network
from gateway.policies.load import load
from tests.kit.eventually import eventually
from tests.kit.policies import ROUTES, write_policies
from tests.kit.upstream import Exchange
from tests.kit.wire import WireError, build_request
from tests.proxy.conftest import Bench, Start

DENIED = "access: {deny: [127.0.0.0/8]}\n"
TRUSTED = "trusted_proxies: [127.0.0.1]\n"


def of_route(settings: str) -> dict[str, str]:
    return {
        "routes": ROUTES.replace(
            "match: GET /api/search/*,", f"match: GET /api/search/*, {settings},"
        )
    }


async def status_of(bench: Bench, path: str, *, address: str = "", auth: bool = True) -> int:
    """The answer to a request, from another address where a proxy names one."""
    headers = [*(bench.auth if auth else ()), *([("X-Forwarded-For", address)] if address else ())]
    async with await bench.connect() as wire:
        return (await wire.request("GET", path, headers)).status


@pytest.mark.parametrize("path", ["/api/x", "/public/x", "/nothing", "/health", "/v1/auth/verify"])
@pytest.mark.parametrize("auth", [True, False])
async def test_a_denied_address(start: Start, path: str, auth: bool) -> None:
    """403 for any request, known or not; the connection ends, and the store is not asked."""
    bench = await start(files={"access": DENIED})
    asked = 0

    def decide(check: object, done: object) -> None:
        nonlocal asked
        asked += 1

    bench.gateway._gate.limiter.decide = decide  # type: ignore[method-assign]
    async with await bench.connect() as wire:
        response = await wire.request("GET", path, bench.auth if auth else ())
        assert (response.status, response.json()["code"]) == (403, "ADDRESS_DENIED")
        assert response.maybe("X-RateLimit-Limit") is None
        await wire.read_end()
    assert not asked
    assert bench.gateway.metrics._auth_failures == {}
    assert bench.upstream.requests == []


async def test_the_address_is_the_clients(start: Start) -> None:
    """Behind a trusted proxy, the one that it names: for each request of a connection."""
    lists = "access: {allow: [192.0.2.0/24, 2001:db8::/32], deny: [192.0.2.7]}\n"
    bench = await start(files={"access": lists}, trusted_proxies=(parse_network("127.0.0.1"),))
    for address, status in {
        "192.0.2.1": 200,
        "192.0.2.7": 403,
        "::ffff:192.0.2.7": 403,
        "2001:db8::7": 200,
        "198.51.100.1": 403,
        "": 403,  # the proxy itself
    }.items():
        assert await status_of(bench, "/api/x", address=address) == status, address


async def test_a_list_of_a_route(start: Start) -> None:
    """It holds for the route alone, beside the policy's."""
    files = {
        **of_route("access: {allow: [192.0.2.0/24]}"),
        "access": "access: {deny: [192.0.2.7]}\n",
    }
    bench = await start(files=files, trusted_proxies=(parse_network("127.0.0.1"),))
    for path, address, status in (
        ("/api/search/x", "192.0.2.1", 200),
        ("/api/search/x", "198.51.100.1", 403),
        ("/api/search/x", "192.0.2.7", 403),
        ("/api/x", "198.51.100.1", 200),
        ("/api/x", "192.0.2.7", 403),
    ):
        assert await status_of(bench, path, address=address) == status, (path, address)


async def test_a_preflight_is_decided_by_the_list_of_its_route(start: Start) -> None:
    """An address that may not send the request may not ask for it either."""
    rules = 'access: {deny: [192.0.2.7]}, cors: {origins: ["https://a.test"]}'
    bench = await start(files=of_route(rules), trusted_proxies=(parse_network("127.0.0.1"),))
    asking = [("Origin", "https://a.test"), ("Access-Control-Request-Method", "GET")]
    for address, status in (("192.0.2.7", 403), ("192.0.2.8", 204)):
        headers = [*asking, ("X-Forwarded-For", address)]
        async with await bench.connect() as wire:
            response = await wire.request("OPTIONS", "/api/search/x", headers)
        assert response.status == status, address


async def test_streams_end_when_their_address_is_denied(start: Start) -> None:
    """An answer that is being relayed is cut off after the lists were changed."""
    begun = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        begun.set()
        await exchange.ended()

    bench = await start()
    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", bench.auth))
        assert (await wire.read_head()).status == 200
        await begun.wait()
        folder = write_policies(bench.gateway.settings.policies, bench.upstream.url, access=DENIED)
        bench.gateway._use(load(folder))
        assert await wire.read_chunk() == b"x"
        with pytest.raises((WireError, EOFError)):
            await wire.read_chunk()
    await eventually(lambda: not bench.gateway.metrics.inflight, "it has ended")
