"""What a client gets of an upstream's answer."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest

from gateway.domain.limits import SECOND_US
from gateway.http1.websocket import accept_of
from tests.kit.upstream import Exchange, reply
from tests.kit.wire import build_request
from tests.proxy.conftest import Start


async def test_an_answer_without_a_date_gets_one(start: Start) -> None:
    """RFC 9110, 6.6.1: the time it was received, each time anew, though the head is the same."""
    bench = await start()
    context = bench.gateway._context
    now_us = 1_800_000_000 * SECOND_US
    context.clock_us = lambda: now_us
    async with await bench.connect() as wire:
        for _ in range(2):
            response = await wire.request("GET", "/api/x", bench.auth)
            received = parsedate_to_datetime(response["Date"])
            assert received == datetime.fromtimestamp(now_us / SECOND_US, UTC)
            now_us += 90 * SECOND_US


async def test_an_upstreams_date_stays(start: Start) -> None:
    """It says when the answer was made, which the upstream knows best."""
    bench = await start()
    date = "Sat, 21 Nov 2026 12:25:03 GMT"
    bench.upstream.script = reply(200, b"", [("date", date)])
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", bench.auth))["Date"] == date


@pytest.mark.parametrize("status", [600, 799, 999])
async def test_a_status_that_means_nothing_is_passed_on(start: Start, status: int) -> None:
    """A client takes it for a 5xx (RFC 9110, 15); it is counted as the number that it is."""
    bench = await start()
    bench.upstream.script = reply(status, b"odd")
    async with await bench.connect() as wire:
        for _ in range(6):  # more than make a server be left out
            response = await wire.request("GET", "/api/x", bench.auth)
            assert (response.status, response.body) == (status, b"odd")
    assert bench.gateway.metrics._requests["api", "GET", status, "upstream"] == 6
    assert all(tally.requests == 6 for tally in bench.gateway._store.table.open.tallies)


async def test_no_upstream_sets_the_consoles_session(start: Start) -> None:
    """A browser would send it to the console on the same host."""
    bench = await start()
    cookies = [("Set-Cookie", "gateway_session=x; Path=/"), ("Set-Cookie", "a=b")]
    bench.upstream.script = reply(200, b"", [*cookies, ("Set-Cookie", "=gateway_session=x")])
    async with await bench.connect() as wire:
        response = await wire.request("GET", "/api/x", bench.auth)
    assert response.all("Set-Cookie") == ["a=b"]


async def test_a_websocket_has_a_date(start: Start) -> None:
    """A 101 is the final answer to its request, and has a Date as all have."""
    bench = await start()

    async def switch(exchange: Exchange) -> None:
        key = exchange.request.maybe("Sec-WebSocket-Key")
        assert key is not None
        await exchange.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept_of(key.encode())
        )
        await exchange.ended()

    bench.upstream.script = switch
    headers = [
        *[*bench.auth, ("Connection", "Upgrade"), ("Upgrade", "websocket")],
        *[("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")],
    ]
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", headers))
        head = await wire.read_head()
        assert head.status == 101
        assert head["Date"]
