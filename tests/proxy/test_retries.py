"""A route's own timeouts, retries and bound of bodies, over real sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.proxy import server_pool
from gateway.proxy.dial import dial
from tests.kit.eventually import eventually
from tests.kit.upstream import Exchange, ScriptedUpstream, reply
from tests.kit.wire import build_request
from tests.proxy.conftest import Bench, Start

Script = Callable[[Exchange], Awaitable[None]]


def routes(settings: str, match: str = "* /api/**") -> dict[str, str]:
    return {"routes": f'routes:\n  api: {{match: "{match}", upstream: api, {settings}}}\n'}


def failing(times: int, fail: Script) -> Script:
    """Fail this often; then answer with 200."""
    left = times

    async def script(exchange: Exchange) -> None:
        nonlocal left
        left -= 1
        await (fail if left >= 0 else reply(200))(exchange)

    return script


async def _close(exchange: Exchange) -> None:
    exchange.close()


async def _close_in_head(exchange: Exchange) -> None:
    await exchange.write(b"HTTP/1.1 200 OK\r\nContent-")
    exchange.close()


async def _fail_with_stream(exchange: Exchange) -> None:
    """An answer whose body never ends."""
    await exchange.write(b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwords\r\n")
    await exchange.ended()


async def _silence(exchange: Exchange) -> None:
    await exchange.ended()


def retried(bench: Bench) -> dict[tuple[str, str], int]:
    return dict(bench.gateway.metrics._retries)


@pytest.mark.parametrize(
    ("fail", "cause"),
    [
        (reply(502), "502"),
        (reply(503), "503"),
        (reply(504), "504"),
        (_fail_with_stream, "503"),
        (_close, "reset"),
        (_close_in_head, "reset"),
    ],
    ids=["502", "503", "504", "503 with a stream", "reset", "reset in the head"],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_a_failed_attempt_is_repeated(
    start: Start, fail: Script, cause: str, method: str
) -> None:
    """The client sees only the last answer; the limits count one request."""
    bench = await start(files=routes("retries: 2"))
    bench.upstream.script = failing(2, fail)
    async with await bench.connect() as wire:
        first = await wire.request(method, "/api/x", bench.auth)
        second = await wire.request(method, "/api/x", bench.auth)
    assert [first.status, second.status] == [200, 200]
    remaining = [int(each["X-RateLimit-Remaining"]) for each in (first, second)]
    assert remaining[0] - remaining[1] == 1
    assert len(bench.upstream.requests) == 4
    assert retried(bench) == {("api", cause): 2}


async def test_the_last_answer_is_the_upstreams(start: Start) -> None:
    """After all retries its failure is passed on; without retries at once."""
    bench = await start(files=routes("retries: 2"))
    bench.upstream.script = reply(503, b"busy")
    async with await bench.connect() as wire:
        response = await wire.request("GET", "/api/x", bench.auth)
        assert (response.status, response.body) == (503, b"busy")
        assert len(bench.upstream.requests) == 3


@pytest.mark.parametrize(
    ("method", "body", "status"),
    [
        *(("POST", b"", 503), ("PUT", b"x", 503), ("DELETE", b"", 503), ("PATCH", b"x", 503)),
        *(("GET", b"x", 503), ("GET", b"", 500), ("GET", b"", 501), ("GET", b"", 429)),
    ],
)
async def test_what_is_never_repeated(start: Start, method: str, body: bytes, status: int) -> None:
    """Methods that are not safe, requests with a body, and other answers."""
    bench = await start(files=routes("retries: 2"))
    bench.upstream.script = reply(status)
    async with await bench.connect() as wire:
        assert (await wire.request(method, "/api/x", bench.auth, body)).status == status
    assert len(bench.upstream.requests) == 1


async def test_only_the_causes_of_the_route(start: Start) -> None:
    """`causes` replaces the causes."""
    bench = await start(files=routes("retries: {count: 2, causes: [503]}"))
    async with await bench.connect() as wire:
        bench.upstream.script = failing(1, reply(503))
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
        bench.upstream.script = failing(1, reply(502))
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 502


async def test_the_budget_bounds_retries(start: Start) -> None:
    """While everything fails, the upstream gets the reserve and a share in addition."""
    bench = await start(files=routes("retries: {count: 10, budget: 10%}"))
    bench.upstream.script = reply(503)
    async with await bench.connect() as wire:
        for _ in range(100):
            assert (await wire.request("GET", "/api/x", bench.auth)).status == 503
    # Each request but the first ten of the reserve is repeated for a tenth; sums of 0.1 are not
    # exact.
    assert 118 <= len(bench.upstream.requests) <= 120


async def test_a_late_answer_is_asked_for_again(start: Start) -> None:
    """With the cause `timeout`; the route's own timeout of the first byte."""
    settings = "timeouts: {response: 100ms}, retries: {count: 1, causes: [timeout]}"
    bench = await start(files=routes(settings))
    bench.upstream.script = failing(1, _silence)
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
        bench.upstream.script = _silence
        response = await wire.request("GET", "/api/x", bench.auth)
        assert (response.status, response.json()["code"]) == (504, "UPSTREAM_TIMEOUT")
    assert retried(bench) == {("api", "timeout"): 2}


async def test_another_server_gets_the_repeated_request(start: Start) -> None:
    """One of two servers fails every request: no client sees it."""
    async with ScriptedUpstream(reply(503)) as faulty, ScriptedUpstream(reply(200)) as sound:
        files = routes("retries: {count: 1, budget: 100%}")
        files["upstreams"] = f'upstreams: {{api: {{servers: ["{faulty.url}", "{sound.url}"]}}}}\n'
        bench = await start(files=files)
        async with await bench.connect() as wire:
            answers = [await wire.request("GET", "/api/x", bench.auth) for _ in range(40)]
    assert {answer.status for answer in answers} == {200}
    assert len(sound.requests) == 40
    assert faulty.requests


async def test_a_slow_connection_for_a_retry(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the timeout of connections: the deadline of the attempt before has no meaning."""
    settings = "timeouts: {response: 100ms}, retries: {count: 1, causes: [timeout]}"
    bench = await start(files=routes(settings))
    bench.upstream.script = failing(1, _silence)
    gate = bench.gateway._context.gate
    opened = 0

    async def dial_slowly(*arguments: Any) -> Any:
        nonlocal opened
        opened += 1
        if opened > 1:
            begun = gate.epoch
            await eventually(lambda: gate.epoch > begun + 1, "all deadlines were checked")
        return await dial(*arguments)

    monkeypatch.setattr(server_pool, "dial", dial_slowly)
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
    assert opened == 2


async def test_the_whole_request_has_a_timeout(start: Start) -> None:
    """504 if no answer began, and the server is not blamed; a begun answer is cut off."""
    bench = await start(files=routes("timeouts: {total: 200ms}"))
    bench.upstream.script = _silence
    async with await bench.connect() as wire:
        response = await wire.request("GET", "/api/x", bench.auth)
        assert (response.status, response.json()["code"]) == (504, "UPSTREAM_TIMEOUT")
    (pool,) = bench.gateway._context.pools._by_server.values()
    assert not pool.health.streak

    async def drip(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx")
        await exchange.ended()

    bench.upstream.script = drip
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", bench.auth))
        assert (await wire.read_head()).status == 200
        assert await wire.read_some() == b"x"
        await wire.read_end()
    await eventually(lambda: not bench.gateway.metrics.inflight, "it has ended")


async def test_a_client_that_uses_up_the_time(start: Start) -> None:
    """It gets 408, also while its body is collected for the limits."""
    for more in ("", ", cost: {json: ids, max: 2}"):
        bench = await start(files=routes(f"timeouts: {{total: 200ms}}{more}"))
        async with await bench.connect() as wire:
            headers = [*bench.auth, ("Content-Length", "9"), ("Content-Type", "application/json")]
            await wire.send(build_request("POST", "/api/x", headers) + b"[")
            response = await wire.read_response()
            assert (response.status, response.json()["code"]) == (408, "REQUEST_TIMEOUT")


async def test_no_retry_after_the_whole_time(start: Start) -> None:
    """The attempts share one timeout."""
    settings = "timeouts: {total: 300ms, response: 200ms}, retries: {count: 9, causes: [timeout]}"
    bench = await start(files=routes(settings))
    bench.upstream.script = _silence
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 504
    assert len(bench.upstream.requests) <= 3


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("size", "status"), [(100, 200), (101, 413)])
async def test_the_largest_body_of_a_route(
    start: Start, size: int, status: int, chunked: bool
) -> None:
    """It may be below or above the policy's, and the message names it."""
    for bound in (10, 1000):
        bench = await start(files=routes("body: 100"), bounds={"body_bytes": bound})
        async with await bench.connect() as wire:
            body = b"x" * size
            if chunked:
                framing = ("Transfer-Encoding", "chunked")
                sent = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body)
            else:
                framing, sent = ("Content-Length", str(size)), body
            await wire.send(build_request("POST", "/api/x", [*bench.auth, framing]) + sent)
            response = await wire.read_response()
            assert response.status == status
            if status == 413:
                assert "100 bytes" in response.json()["message"]
