"""Bodies are streamed both ways, and connections are kept alive and pipelined."""

from __future__ import annotations

import asyncio

import pytest

from tests.end_to_end.conftest import Site
from tests.kit.upstream import Exchange, build_response
from tests.kit.wire import Wire, WireError, bearer, build_request

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_body_arrives_whole(site: Site) -> None:
    """A megabyte with a Content-Length reaches the upstream unchanged."""
    body = bytes(range(256)) * 4096
    answer = await site.gateway.fetch("/api/things", key=await site.key(), method="POST", body=body)
    assert answer.json()["body_bytes"] == len(body)
    assert site.upstream.requests[0].body == body


async def test_a_request_streams(site: Site) -> None:
    """The upstream reads the first chunk before the client sends the second."""
    first_read = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        assert await exchange.read_some() == b"first"
        first_read.set()
        await exchange.read_body()
        await exchange.write(build_response(200, exchange.request.body))

    site.upstream.script = script
    headers = [*bearer(await site.key()), ("Transfer-Encoding", "chunked")]
    async with await Wire.connect(site.gateway.port) as wire:
        await wire.send(build_request("POST", "/api/things", headers) + b"5\r\nfirst\r\n")
        async with asyncio.timeout(20):
            await first_read.wait()
        await wire.send(b"6\r\nsecond\r\n0\r\n\r\n")
        assert (await wire.read_response()).body == b"firstsecond"


async def test_a_response_streams(site: Site) -> None:
    """The client reads the first event before the upstream writes the second."""
    first_read = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
        )
        await first_read.wait()
        await exchange.write(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")

    site.upstream.script = script
    async with await Wire.connect(site.gateway.port) as wire:
        await wire.send(build_request("GET", "/api/stream", bearer(await site.key())))
        head = await wire.read_head()
        assert head["X-RateLimit-Remaining"] == "59"
        assert await wire.read_chunk() == b"data: 1\n\n"
        first_read.set()
        assert await wire.read_body(head) == b"data: 2\n\n"


async def test_a_body_cut_short_is_seen_to_be(site: Site) -> None:
    """If an upstream closes within its answer, the client can detect that it is incomplete."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
        exchange.abort()

    site.upstream.script = script
    async with await Wire.connect(site.gateway.port) as wire:
        with pytest.raises((WireError, ConnectionError)):
            await wire.request("GET", "/api/things", bearer(await site.key()))


async def test_a_client_that_leaves_ends_its_exchange(site: Site) -> None:
    """When the client closes, so does the connection to the upstream."""
    ended = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.ended()
        ended.set()
        raise ConnectionError

    site.upstream.script = script
    wire = await Wire.connect(site.gateway.port)
    await wire.send(build_request("GET", "/api/slow", bearer(await site.key())))
    await site.upstream.received()
    await wire.close()
    async with asyncio.timeout(20):
        await ended.wait()


async def test_connections_are_kept(site: Site) -> None:
    """Twenty requests of one client use one connection on either side."""
    key = await site.key()
    async with await Wire.connect(site.gateway.port) as wire:
        for _ in range(20):
            assert (await wire.request("GET", "/api/things", bearer(key))).status == 200
    assert len({received.connection for received in site.upstream.requests}) == 1


async def test_a_client_may_close(site: Site) -> None:
    """`Connection: close` closes the connection after its answer."""
    headers = [*bearer(await site.key()), ("Connection", "close")]
    async with await Wire.connect(site.gateway.port) as wire:
        answer = await wire.request("GET", "/api/things", headers)
        assert answer.closes
        await wire.read_end()


async def test_pipelined_requests_are_answered_in_order(site: Site) -> None:
    """Ten requests in one packet get ten answers in order, each decided and counted."""
    key = await site.key()
    targets = [f"/api/things/{number}" for number in range(10)]
    targets[4] = "/v1/connectors"
    async with await Wire.connect(site.gateway.port) as wire:
        await wire.send(b"".join(build_request("GET", path, bearer(key)) for path in targets))
        answers = [await wire.read_response() for _ in targets]
    assert [answer.status for answer in answers] == [200] * 4 + [403] + [200] * 5
    passed = [answer.json()["target"] for answer in answers if answer.status == 200]
    assert passed == targets[:4] + targets[5:]
    remaining = [int(answer["X-RateLimit-Remaining"]) for answer in answers]
    assert remaining == [59, 58, 57, 56, 56, 55, 54, 53, 52, 51]


async def test_a_refused_body_is_no_request(site: Site) -> None:
    """What follows a refused head is its body, discarded or cut off, never a request."""
    good = await site.key()
    smuggled = build_request("GET", "/api/smuggled", bearer(good))
    async with await Wire.connect(site.gateway.port) as wire:
        answer = await wire.request("POST", "/api/things", [("apiKey", "nonsense")], smuggled)
        assert answer.status == 401
        if not answer.closes:
            assert (await wire.request("GET", "/api/next", bearer(good))).status == 200
    assert all(received.target != "/api/smuggled" for received in site.upstream.requests)


async def test_head_has_no_body(site: Site) -> None:
    """It has the length of GET's body, and is directly followed by the next answer."""
    key = await site.key()
    async with await Wire.connect(site.gateway.port) as wire:
        answer = await wire.request("HEAD", "/api/things", bearer(key))
        assert int(answer["Content-Length"]) > 0
        assert (await wire.request("GET", "/api/things", bearer(key))).status == 200


async def test_a_message_framed_twice_is_refused(site: Site) -> None:
    """A length and chunks: 400, the connection ends, and nothing is forwarded."""
    headers = [*bearer(await site.key()), ("Content-Length", "5"), ("Transfer-Encoding", "chunked")]
    async with await Wire.connect(site.gateway.port) as wire:
        await wire.send(build_request("POST", "/api/things", headers) + b"0\r\n\r\n")
        answer = await wire.read_response()
        assert (answer.status, answer.closes) == (400, True)
        assert answer["X-RateLimit-Limit"]
        await wire.read_end()
    assert site.upstream.requests == []
