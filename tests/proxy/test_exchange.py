"""Exchanges over real sockets: bodies, keep-alive, pipelining, and upstreams that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.domain import key_format
from gateway.domain.networks import parse_network
from gateway.domain.policy import Timeouts
from gateway.proxy.client_connection import MOST_UNSENT_BYTES
from gateway.proxy.client_states import PauseReason
from tests.kit.eventually import eventually
from tests.kit.proxy import Client, ProxyBench, policy_of, proxy_bench, request
from tests.kit.transport import MemoryTransport
from tests.kit.upstream import Exchange, build_response, echo, reply
from tests.kit.websocket import AGREED, HANDSHAKE
from tests.kit.wire import Wire, WireError, bearer, build_request
from tests.proxy.conftest import Bench, Start

RATE_FIELDS = [
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-RateLimit-Reset-After",
    "X-Request-Id",
]


async def test_an_admitted_request(start: Start) -> None:
    """The upstream gets the request rebuilt, with the client's identity and without the key."""
    bench = await start()
    async with await bench.connect() as wire:
        response = await wire.request(
            "GET", "//v1/./connectors?a=1", [*bench.auth, ("Accept", "x"), ("X-Gateway-Plan", "y")]
        )
    assert response.status == 200
    for name in RATE_FIELDS:
        assert response[name]
    received = await bench.upstream.received()
    assert (received.method, received.target) == ("GET", "/v1/connectors?a=1")
    assert received.maybe("X-Gateway-Plan") == "enterprise"
    assert received.maybe("X-Gateway-Scopes") == "connectors:read"
    assert received.maybe("X-Forwarded-For") == "127.0.0.1"
    assert received.maybe("X-Request-Id") == response["X-Request-Id"]
    assert received.maybe("Host") == "gateway.test"
    assert bench.key.encode() not in received.raw_head


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_request_body_streams(start: Start, chunked: bool) -> None:
    """A body is passed on as it arrives, in its framing, before it is complete."""
    bench = await start()
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        assert await exchange.read_some() == b"first"
        arrived.set()
        await go_on.wait()
        await reply(200, b"done")(exchange)

    bench.upstream.script = script
    framing = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", "11")
    head = build_request("POST", "/api/x", [*bench.auth, framing])
    async with await bench.connect() as wire:
        await wire.send(head + (b"5\r\nfirst\r\n" if chunked else b"first"))
        await asyncio.wait_for(arrived.wait(), 20)
        go_on.set()
        await wire.send(b"6\r\nsecond\r\n0\r\n\r\n" if chunked else b"second")
        assert (await wire.read_response()).body == b"done"
        assert bench.upstream.requests[0].body == b"firstsecond"
        bench.upstream.script = echo
        assert (await wire.request("GET", "/api/y", bench.auth)).status == 200


async def test_expect_is_met_here(start: Start) -> None:
    """A client that waits for 100 Continue gets it once admitted; it is not forwarded."""
    bench = await start()
    async with await bench.connect() as wire:
        await wire.send(
            build_request(
                "POST",
                "/api/x",
                [*bench.auth, ("Content-Length", "2"), ("Expect", "100-continue")],
            )
        )
        received = await bench.upstream.received()
        assert (await wire.read_some()).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        await wire.send(b"ok")
        assert (await wire.read_response()).status == 200
        assert received.maybe("Expect") is None


async def test_responses_stream(start: Start) -> None:
    """Each piece of a response is sent when it arrives; a body without a length becomes chunks."""
    bench = await start()
    step = asyncio.Queue[bytes]()

    async def close_after(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while data := await step.get():
            await exchange.write(data)
        raise ConnectionError

    bench.upstream.script = close_after
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", bench.auth))
        head = await wire.read_head()
        assert head["Transfer-Encoding"] == "chunked"
        for event in (b"data: 1\n\n", b"data: 2\n\n"):
            step.put_nowait(event)
            assert await wire.read_chunk() == event
        step.put_nowait(b"")
        assert await wire.read_chunk() == b""
        bench.upstream.script = echo
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200


async def test_http10_gets_no_chunks(start: Start) -> None:
    """An HTTP/1.0 client gets a body that ends with its connection, and no interim responses."""
    bench = await start()

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        )

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(
            b"GET /api/x HTTP/1.0\r\nauthorization: Bearer %b\r\n\r\n" % bench.key.encode()
        )
        response = await wire.read_response()
    assert (response.body, response.closes, response.interim) == (b"abc", True, [])
    assert bench.upstream.requests[0].maybe("Host") == f"127.0.0.1:{bench.upstream.port}"


async def test_http10_keep_alive(start: Start) -> None:
    """An HTTP/1.0 client that requests it keeps its connection, and the answer says so."""
    bench = await start()
    request = (
        b"GET /api/x HTTP/1.0\r\nConnection: keep-alive\r\napiKey: %b\r\n\r\n" % bench.key.encode()
    )
    async with await bench.connect() as wire:
        for _ in range(2):
            await wire.send(request)
            assert (await wire.read_response())["Connection"] == "keep-alive"


async def test_interim_responses_pass(start: Start) -> None:
    """103 is passed on to the client; 100 is not, as the client did not ask for it."""
    bench = await start()

    async def script(exchange: Exchange) -> None:
        await exchange.write(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        )
        await exchange.write(build_response(200, b"x"))

    bench.upstream.script = script
    async with await bench.connect() as wire:
        response = await wire.request("GET", "/api/x", bench.auth)
    assert [(one.status, one["Link"]) for one in response.interim] == [(103, "</a>")]


@pytest.mark.parametrize(
    ("method", "answer", "length"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "5"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", None),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "5"),
    ],
)
async def test_answers_without_body(
    start: Start, method: str, answer: bytes, length: str | None
) -> None:
    """HEAD, 204 and 304 have no body, whatever their fields say; the connection can be reused."""
    bench = await start()

    async def script(exchange: Exchange) -> None:
        await exchange.write(answer)

    bench.upstream.script = script
    async with await bench.connect() as wire:
        for _ in range(2):
            response = await wire.request(method, "/api/x", bench.auth)
            assert response.maybe("Content-Length") == length
            assert response.maybe("Transfer-Encoding") is None
    assert {one.connection for one in bench.upstream.requests} == {0}


async def test_pipelining(start: Start) -> None:
    """Pipelined requests are answered in order, refusals included; none after a bad one."""
    bench = await start()
    good = [build_request("GET", f"/api/{number}", bench.auth) for number in range(20)]
    refused = build_request("GET", "/api/x")
    unknown = build_request("GET", "/nowhere", bench.auth)
    async with await bench.connect() as wire:
        await wire.send(b"".join([*good, refused, unknown, good[0], b"BAD\r\n\r\n", good[1]]))
        for number in range(20):
            assert (await wire.read_response()).json()["target"] == f"/api/{number}"
        assert (await wire.read_response()).status == 401
        assert (await wire.read_response()).status == 404
        assert (await wire.read_response()).status == 200
        assert (await wire.read_response()).status == 400
        await wire.read_end()
    assert len(bench.upstream.requests) == 21


async def test_byte_by_byte(start: Start) -> None:
    """A request that arrives in single bytes is the same request."""
    bench = await start()
    request = build_request("POST", "/api/x", [*bench.auth, ("Transfer-Encoding", "chunked")])
    async with await bench.connect() as wire:
        for byte in request + b"3\r\nabc\r\n0\r\n\r\n":
            await wire.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await wire.read_response()).json()["body_bytes"] == 3


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /api/x HTTP/1.1\nHost: a\n\n", 400),
        (b"GET /api/x HTTP/1.1\r\nHost: a\r\nX: a\nb", 400),
        (b"GET /api/x\r\n", 400),
        (b"GET /api/x HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        (b"GET /" + b"a" * 41_000, 414),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET /x HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40000, 431),
        (b"GET /x HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40000 + b"\r\n\r\n", 431),
        (b"GET /x HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 101 + b"\r\n", 431),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 405),
        (b"GET http://b/api/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET ftp://a/api/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", 400),
        (b"POST /api/x HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", 413),
    ],
)
async def test_refused_heads(start: Start, request_bytes: bytes, status: int) -> None:
    """A head that cannot be served is refused, with our fields; the upstream gets nothing."""
    bench = await start()
    async with await bench.connect() as wire:
        await wire.send(request_bytes)
        response = await wire.read_response()
        assert response.status == status
        for name in (*RATE_FIELDS, "Date"):
            assert response[name]
        assert set(response.json()) == {"error", "message", "code", "request_id"}
        assert response.json()["request_id"] == response["X-Request-Id"]
        if response.closes:
            await wire.read_end()
    assert bench.upstream.requests == []


async def test_absolute_form(start: Start) -> None:
    """An absolute-form target is served by its path, if it names the Host."""
    bench = await start()
    async with await bench.connect() as wire:
        for target in ("http://GATEWAY.test/api/x", "http://gateway.test/api/x?u=http://b/"):
            assert (await wire.request("GET", target, bench.auth)).status == 200
        for target in ("http://gateway.test:80/api/x", "HTTP://gateway.test:81/api/x"):
            status = 400 if "81" in target else 200
            assert (await wire.request("GET", target, bench.auth)).status == status
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "http://gateway.test", bench.auth)).status == 404
        assert (await wire.request("GET", "http://gateway.test?x", bench.auth)).status == 404
    targets = [one.target for one in bench.upstream.requests]
    assert targets == ["/api/x", "/api/x?u=http://b/", "/api/x"]


async def test_options_of_the_server(start: Start) -> None:
    """The gateway answers `OPTIONS *` like /health: with our fields, without a key, at no cost."""
    bench = await start()
    async with await bench.connect() as wire:
        for headers in ([], bench.auth):
            response = await wire.request("OPTIONS", "*", headers)
            assert (response.status, response.body) == (200, b"")
            for name in (*RATE_FIELDS, "Date"):
                assert response[name]
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
    assert len(bench.upstream.requests) == 1


async def test_unwanted_bodies_are_never_requests(start: Start) -> None:
    """An unread body of a refused request is discarded if short; else the connection closes."""
    bench = await start()
    hidden = build_request("GET", "/api/hidden", bench.auth)
    async with await bench.connect() as wire:
        await wire.send(build_request("POST", "/api/x", body=hidden))
        assert (await wire.read_response()).status == 401
        await wire.send(build_request("POST", "/api/x", [("Content-Length", str(len(hidden)))]))
        assert (await wire.read_response()).status == 401
        await wire.send(hidden[:10])
        await wire.send(hidden[10:] + build_request("GET", "/api/seen", bench.auth))
        assert (await wire.read_response()).json()["target"] == "/api/seen"
        await wire.send(build_request("POST", "/api/x", [("Content-Length", "100000")]) + hidden)
        response = await wire.read_response()
        assert (response.status, response.closes) == (401, True)
        await wire.read_end()
    async with await bench.connect() as wire:
        await wire.send(build_request("POST", "/api/x", [("Transfer-Encoding", "chunked")]))
        response = await wire.read_response()
        assert (response.status, response.closes) == (401, True)
    assert [one.target for one in bench.upstream.requests] == ["/api/seen"]


@pytest.mark.parametrize("rest", [b"zz\r\n", b"5\r\nhelloXX", b"4000\r\n" + b"a" * 0x4000])
async def test_a_faulty_body(start: Start, rest: bytes) -> None:
    """A malformed or oversized body is refused, and the upstream's partial request is dropped."""
    bench = await start(bounds={"body_bytes": 1000})
    dropped = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.ended()
        dropped.set()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(
            build_request("POST", "/api/x", [*bench.auth, ("Transfer-Encoding", "chunked")])
            + b"2\r\nok\r\n"
        )
        await bench.upstream.received()
        await wire.send(rest)
        response = await wire.read_response()
        assert response.status == (413 if rest.startswith(b"4000") else 400)
        assert response.closes
        await asyncio.wait_for(dropped.wait(), 20)


@pytest.mark.parametrize("identity", ["known", "unknown", "refused"])
@pytest.mark.parametrize("rest", [b"zz\r\n", b"4000\r\n" + b"a" * 0x4000])
async def test_a_faulty_body_before_its_key_is_known(
    start: Start, identity: str, rest: bytes
) -> None:
    """The refusal waits for the key, and has its limits' values, at cost 0."""
    bench = await start(bounds={"body_bytes": 1000})
    key = {
        "known": bench.key,
        "refused": await bench.mint(scopes=()),
        "unknown": key_format.mint("production", lambda below: below - 1)[0],
    }[identity]
    directory = bench.gateway._gate.directory
    asked: list[Callable[[], None]] = []

    class Slow:
        def known(self, _key_id: str) -> None:
            return None

        def look_up(self, key_id: str, done: Any) -> None:
            asked.append(lambda: directory.look_up(key_id, done))

        def touch(self, _identity: Any) -> None: ...

    bench.gateway._gate.directory = cast("Any", Slow())
    headers = [*bearer(key), ("Transfer-Encoding", "chunked")]
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/v1/connectors", headers) + rest)
        await eventually(lambda: len(asked) == 1, "the key is looked up")
        asked[0]()
        response = await wire.read_response()
    bad = 413 if rest.startswith(b"4000") else 400
    assert response.status == {"known": bad, "unknown": 401, "refused": 403}[identity]
    assert response.closes
    assert bench.upstream.requests == []
    if identity == "known":
        assert response["X-RateLimit-Remaining"] == response["X-RateLimit-Limit"]


@pytest.mark.parametrize(
    "answer",
    [
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 40,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    ],
)
async def test_invalid_answers(start: Start, answer: bytes) -> None:
    """An upstream that does not speak HTTP gives 502 with our fields, and is not used again."""
    bench = await start()

    async def script(exchange: Exchange) -> None:
        await exchange.write(answer)
        await exchange.ended()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        response = await wire.request("GET", "/api/x", bench.auth)
        assert (response.status, response.json()["code"]) == (502, "UPSTREAM_INVALID_RESPONSE")
        assert response["X-RateLimit-Limit"] == "6000"
        bench.upstream.script = echo
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
    assert [one.connection for one in bench.upstream.requests] == [0, 1]


async def test_bytes_past_an_answer(start: Start) -> None:
    """Bytes that an upstream sends after its answer, or while idle, reach no client."""
    bench = await start()
    send_more = asyncio.Event()

    async def past(exchange: Exchange) -> None:
        await exchange.write(build_response(200, b"one") + build_response(200, b"poison"))

    async def later(exchange: Exchange) -> None:
        await exchange.write(build_response(200, b"two"))
        await send_more.wait()
        await exchange.write(build_response(200, b"poison"))
        await exchange.ended()

    async with await bench.connect() as wire:
        bench.upstream.script = past
        assert (await wire.request("GET", "/api/x", bench.auth)).body == b"one"
        bench.upstream.script = later
        assert (await wire.request("GET", "/api/x", bench.auth)).body == b"two"
        send_more.set()
        pools = bench.gateway._context.pools
        await eventually(
            lambda: not any(pool.idle for pool in pools._by_server.values()), "it is dropped"
        )
        bench.upstream.script = echo
        assert (await wire.request("GET", "/api/x", bench.auth)).json()["method"] == "GET"


@pytest.mark.parametrize(
    "start_of_answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
async def test_truncated_answers(start: Start, start_of_answer: bytes) -> None:
    """A truncated answer never looks complete."""
    bench = await start()

    async def script(exchange: Exchange) -> None:
        await exchange.write(start_of_answer)
        exchange.abort()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        with pytest.raises((WireError, ConnectionError)):
            await wire.request("GET", "/api/x", bench.auth)


@pytest.mark.usefixtures("no_ticks")
async def test_an_upstream_that_goes_silent_in_its_answer(start: Start, tmp_path: Path) -> None:
    """Its client does not wait forever; a slow upstream is not cut off."""
    log = tmp_path / "access.log"
    bench = await start(access_log=str(log))
    go_on, limit_s = asyncio.Event(), Timeouts().stream_s

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1")
        await go_on.wait()
        await exchange.write(b"2")
        await exchange.ended()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", bench.auth))
        answer = b""
        while not answer.endswith(b"\r\n\r\n1"):
            answer += await wire.read_some()
        conn = next(iter(bench.gateway._context.connections))
        now = asyncio.get_running_loop().time()
        conn.check_deadline(now)
        conn.check_deadline(now + limit_s - 1)
        go_on.set()
        assert await wire.read_some() == b"2"
        conn.check_deadline(now + limit_s)
        conn.check_deadline(now + 2 * limit_s - 1)
        assert conn.exchange is not None
        conn.check_deadline(now + 2 * limit_s)
        assert conn.exchange is None
        await wire.read_end()

    def is_logged() -> bool:
        return '"reason": "upstream_silent"' in log.read_text()

    await eventually(is_logged, "the log says why")


async def test_truncation_shows_without_framing(start: Start) -> None:
    """For an HTTP/1.0 client, whose body ends with its connection, truncation is a reset."""
    bench = await start()

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        await go_on.wait()
        exchange.abort()

    go_on = asyncio.Event()
    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(b"GET /api/x HTTP/1.0\r\napiKey: %b\r\n\r\n" % bench.key.encode())
        head = await wire.read_head()
        assert head.status == 200
        assert await wire.read_some() == b"half"
        go_on.set()
        with pytest.raises(ConnectionResetError):
            await wire.read_some()


async def test_a_fault_in_a_relayed_body(start: Start) -> None:
    """Invalid chunks after the head was sent abort the answer."""
    bench = await start()
    head_seen = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await head_seen.wait()
        await exchange.write(b"zz\r\n")
        await exchange.ended()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", bench.auth))
        head = await wire.read_head()
        assert await wire.read_chunk() == b"a"
        head_seen.set()
        with pytest.raises((WireError, ConnectionError)):
            await wire.read_body(head)


async def _close_on_second(bench: Bench) -> None:
    """Have the upstream close its connection when a second request comes on it."""

    async def script(exchange: Exchange) -> None:
        if len(bench.upstream.requests) == 2:
            exchange.abort()
        else:
            await echo(exchange)

    bench.upstream.script = script


async def test_a_closed_idle_connection_is_no_failure(start: Start) -> None:
    """If an upstream closes an idle connection, a safe request is sent again."""
    bench = await start()
    await _close_on_second(bench)
    async with await bench.connect() as wire:
        for number in range(2):
            response = await wire.request("GET", f"/api/{number}", bench.auth)
            assert response.json()["target"] == f"/api/{number}"
    assert [one.target for one in bench.upstream.requests] == ["/api/0", "/api/1", "/api/1"]


async def test_post_is_never_sent_twice(start: Start) -> None:
    """If an upstream closes an idle connection, a POST is answered with 502."""
    bench = await start()
    await _close_on_second(bench)
    async with await bench.connect() as wire:
        assert (await wire.request("POST", "/api/0", bench.auth)).status == 200
        response = await wire.request("POST", "/api/1", bench.auth)
    assert (response.status, response.json()["code"]) == (502, "UPSTREAM_CLOSED")
    assert len(bench.upstream.requests) == 2


async def test_an_unreachable_upstream(start: Start) -> None:
    """502 with our fields; 200 once the upstream is reachable."""
    bench = await start()
    await bench.upstream.stop()
    async with await bench.connect() as wire:
        response = await wire.request("POST", "/api/x", bench.auth, b"body")
        assert (response.status, response.json()["code"]) == (502, "UPSTREAM_UNREACHABLE")
        assert response["X-RateLimit-Limit"] == "6000"
        await bench.upstream.start()
        assert (await wire.request("POST", "/api/x", bench.auth, b"body")).status == 200


async def test_a_client_that_leaves_ends_its_exchange(start: Start) -> None:
    """If the client closes, during a body or the answer, the upstream's side is ended."""
    bench = await start()
    dropped = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.ended()
        dropped.set()

    bench.upstream.script = script
    for body in (b"", b"Content-Length: 10\r\n"):
        dropped.clear()
        wire = await bench.connect()
        await wire.send(
            b"POST /api/x HTTP/1.1\r\nHost: a\r\napiKey: %b\r\n%b\r\n" % (bench.key.encode(), body)
        )
        await bench.upstream.received(len(bench.upstream.requests) + 1)
        await wire.close()
        await asyncio.wait_for(dropped.wait(), 20)
    await eventually(lambda: bench.gateway.metrics.inflight == 0, "all is accounted for")


async def test_slow_readers_pause_the_upstream(start: Start) -> None:
    """What a slow client does not read is not read from the upstream; it gets all in the end."""
    bench = await start()
    piece, pieces = b"x" * 65_536, 400
    written = 0

    async def script(exchange: Exchange) -> None:
        nonlocal written
        await exchange.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(piece) * pieces)
        )
        for _ in range(pieces):
            await exchange.write(piece)
            written += len(piece)

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", bench.auth))
        head = await wire.read_head()
        conn = next(iter(bench.gateway._context.connections))
        await eventually(lambda: conn._write_paused, "the client is too slow")
        stalled = -1
        while stalled != written:
            stalled = written
            await asyncio.sleep(0.05)
        assert written < len(piece) * pieces
        assert len(await wire.read_body(head)) == len(piece) * pieces
        bench.upstream.script = echo
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200


async def test_slow_upstreams_pause_the_client(start: Start) -> None:
    """What a slow upstream does not read is not read from the client."""
    bench = await start(bounds={"body_bytes": 2**30})
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await go_on.wait()
        await echo(exchange)

    bench.upstream.script = script
    piece, sent = b"x" * 2**16, 0

    async def send_body(wire: Wire) -> None:
        """Send until the upstream goes on; that is some megabytes, for the system's buffers."""
        nonlocal sent
        while not go_on.is_set():
            await wire.send(b"10000\r\n" + piece + b"\r\n")
            sent += len(piece)
        await wire.send(b"0\r\n\r\n")

    async with await bench.connect() as wire:
        await wire.send(
            build_request("POST", "/api/x", [*bench.auth, ("Transfer-Encoding", "chunked")])
        )
        sending = asyncio.create_task(send_body(wire))
        conn = next(iter(bench.gateway._context.connections))
        await eventually(
            lambda: bool(conn._pause_reasons & PauseReason.UPSTREAM), "the upstream is too slow"
        )
        go_on.set()
        await sending
        assert (await wire.read_response()).json()["body_bytes"] == sent


async def test_a_slow_head_is_refused(start: Start) -> None:
    """A head that is not complete in time gets 408; a connection without one just closes."""
    bench = await start(timeouts={"header_s": 0.1})
    async with await bench.connect() as wire, await bench.connect() as silent:
        await wire.send(b"GET /api/x HT")
        assert (await wire.read_response()).status == 408
        await wire.read_end()
        await silent.read_end()


async def test_a_slow_body_is_refused(start: Start) -> None:
    """A body that stops gets 408."""
    bench = await start(timeouts={"body_s": 0.1})
    async with await bench.connect() as wire:
        await wire.send(build_request("POST", "/api/x", [*bench.auth, ("Content-Length", "5")]))
        assert (await wire.read_response()).status == 408


async def test_a_late_answer_is_not_waited_for(start: Start) -> None:
    """An upstream that does not begin to answer in time gives 504; its connection is dropped."""
    bench = await start(timeouts={"response_s": 0.1})
    dropped = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.ended()
        dropped.set()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        response = await wire.request("GET", "/api/x", bench.auth)
        assert (response.status, response.json()["code"]) == (504, "UPSTREAM_TIMEOUT")
        await asyncio.wait_for(dropped.wait(), 20)


async def test_idle_connections_close(start: Start) -> None:
    """An idle connection is closed after the idle timeout."""
    bench = await start(timeouts={"idle_s": 0.1})
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", bench.auth)).status == 200
        await wire.read_end()


async def test_a_stalled_reader_is_given_up(start: Start) -> None:
    """A client that reads nothing of its answer for the write timeout is disconnected."""
    bench = await start(timeouts={"write_s": 0.2})

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % 2**30)
        while True:
            await exchange.write(b"x" * 2**16)

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", bench.auth))
        await wire.read_head()
        await eventually(lambda: not bench.gateway._context.connections, "it is closed")


async def test_an_early_answer_ends_the_connection(start: Start) -> None:
    """An answer before the body's end is sent; the rest of the body is not forwarded."""
    bench = await start()

    async def script(exchange: Exchange) -> None:
        await exchange.write(build_response(413, b"too much"))

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(
            build_request("POST", "/api/x", [*bench.auth, ("Content-Length", "99")]) + b"abc"
        )
        response = await wire.read_response()
        assert (response.status, response.body, response.closes) == (413, b"too much", True)
    # The upstream waits for the rest of that body, and takes what comes on its connection for it.
    bench.upstream.script = echo
    async with await bench.connect() as other:
        assert (await other.request("GET", "/api/y", bench.auth)).json()["target"] == "/api/y"
    assert [request.connection for request in bench.upstream.requests] == [0, 1]


async def test_draining(start: Start) -> None:
    """Idle connections close, requests in progress are answered, new connections refused."""
    bench = await start()
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await go_on.wait()
        await echo(exchange)

    async with await bench.connect() as idle, await bench.connect() as busy:
        assert (await idle.request("GET", "/api/x", bench.auth)).status == 200
        bench.upstream.script = script
        await busy.send(build_request("GET", "/api/x", bench.auth))
        await bench.upstream.received(2)
        stopping = asyncio.create_task(bench.gateway.stop())
        await idle.read_end()
        with pytest.raises(OSError):
            await Wire.connect(bench.gateway.port)
        assert not stopping.done()
        go_on.set()
        response = await busy.read_response()
        assert (response.status, response.closes) == (200, True)
        await asyncio.wait_for(stopping, 20)


async def test_an_answer_that_began_before_the_drain(start: Start) -> None:
    """Its client was not told to close, and gets one more answer, with `Connection: close`."""
    bench = await start()
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        await go_on.wait()
        await exchange.write(b"llo")

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", bench.auth))
        head = await wire.read_some()
        stopping = asyncio.create_task(bench.gateway.stop())
        await eventually(lambda: bench.gateway._context.draining, "it drains")
        go_on.set()
        while not head.endswith(b"hello"):
            head += await wire.read_some()
        assert b"Connection: close" not in head
        bench.upstream.script = echo
        response = await wire.request("GET", "/api/x", bench.auth)
        assert (response.status, response.closes) == (200, True)
        await asyncio.wait_for(stopping, 20)


async def test_draining_has_an_end(start: Start) -> None:
    """What is still in progress after the drain timeout is cut off."""
    bench = await start(timeouts={"drain_s": 0.1})

    async def script(exchange: Exchange) -> None:
        await exchange.ended()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", bench.auth))
        await bench.upstream.received()
        await asyncio.wait_for(bench.gateway.stop(), 20)
        await wire.read_end()


async def test_trusted_proxies(start: Start) -> None:
    """The client's address from a trusted proxy counts, here and for the upstream."""
    bench = await start(trusted_proxies=(parse_network("127.0.0.0/8"),))
    key = await bench.mint(networks=(parse_network("192.0.2.0/24"),))
    chain = [("X-Forwarded-For", "6.6.6.6, 192.0.2.7"), ("X-Forwarded-Proto", "https")]
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", [*bearer(key), *chain])).status == 200
        response = await wire.request("GET", "/api/x", bearer(key))
        assert (response.status, response.json()["code"]) == (403, "IP_NOT_ALLOWED")
    received = bench.upstream.requests[0]
    assert received.maybe("X-Forwarded-For") == "6.6.6.6, 192.0.2.7, 127.0.0.1"
    assert received.maybe("X-Forwarded-Proto") == "https"


async def test_untrusted_forwarding_fields_are_ignored(start: Start) -> None:
    """Forwarding fields of any other client are ignored."""
    bench = await start()
    key = await bench.mint(networks=(parse_network("192.0.2.0/24"),))
    async with await bench.connect() as wire:
        response = await wire.request(
            "GET", "/api/x", [*bearer(key), ("X-Forwarded-For", "192.0.2.7")]
        )
    assert response.status == 403


async def test_open_routes_pass_the_upstreams_own_authorization(start: Start) -> None:
    """On a route without keys, Authorization is forwarded; unless it is a key."""
    bench = await start()
    async with await bench.connect() as wire:
        for value in ("Basic eDp5", "Bearer of-the-upstream", f"Bearer {bench.key}"):
            await wire.request("GET", "/public/x", [("Authorization", value)])
    sent = [one.maybe("Authorization") for one in bench.upstream.requests]
    assert sent == ["Basic eDp5", "Bearer of-the-upstream", None]


# -- in memory: what is sent again, and what the whole time bounds ---------------------------------
@dataclass
class Upstreams:
    """The upstream's end of the first connection, and of those for requests that are sent again."""

    first: MemoryTransport
    again: list[MemoryTransport]


def upstreams_of(parts: ProxyBench) -> Upstreams:
    """Give a connection to each request that is sent again."""
    (pool,) = parts.context.pools._by_server.values()
    ends = Upstreams(parts.add_upstream(), [])

    def connect_afresh(_upstream: str, exchange: Any, _failed: object) -> None:
        ends.again.append(parts.add_upstream())
        connection = pool.take()
        assert connection is ends.again[-1].protocol
        exchange.connected(connection)

    parts.context.pools.connect_afresh = connect_afresh  # type: ignore[method-assign]
    return ends


@pytest.mark.parametrize(
    ("method", "pieces", "is_used", "answer", "is_repeated"),
    [
        ("GET", [b""], True, b"", True),
        ("GET", [b""], False, b"", False),  # a server that closes each new connection
        ("GET", [b""], True, b"HTTP/1.1 200", False),
        ("PUT", [b"body"], True, b"", True),
        ("PUT", [b"", b"body"], True, b"", True),
        ("PUT", [b"bo", b"dy"], True, b"", False),  # a part of it is gone
        ("PUT", [b"bo"], True, b"", False),
        ("POST", [b"body"], True, b"", False),
        ("POST", [b""], True, b"", False),
    ],
)
def test_what_is_sent_again(
    method: str, pieces: list[bytes], is_used: bool, answer: bytes, is_repeated: bool
) -> None:
    """A request that may have no second effect, all of it, on a connection that served others."""
    with proxy_bench() as parts:
        ends = upstreams_of(parts)
        client = Client(parts.context)
        if is_used:
            client.send(request(parts.key, "/api/first"))
            parts.answer()
        length = b"Content-Length: 4\r\n\r\n" if any(pieces) else b"\r\n"
        client.send(request(parts.key, "/api/x", method)[:-2] + length)
        for piece in pieces:
            client.send(piece)
        ends.first.push(answer)
        ends.first.end()
        parts.loop.run_all()
        for end in ends.again:
            assert end.written.startswith(f"{method} /api/x HTTP/1.1\r\n".encode())
            assert end.written.endswith(b"".join(pieces) or b"\r\n\r\n")
        parts.answer()
        assert len(ends.again) == is_repeated
        assert client.statuses[is_used:] == [200 if is_repeated else 502]


def timed(parts: ProxyBench, settings: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Use routes with this setting; return what sets the time since the request began."""
    parts.use(policy_of(routes=f'routes: {{api: {{match: "* /**", upstream: api, {settings}}}}}'))
    now_s = 0.0
    monkeypatch.setattr("gateway.proxy.exchange.perf_counter", lambda: now_s)

    def set_time(seconds: float) -> None:
        nonlocal now_s
        now_s = seconds

    return set_time


@pytest.mark.parametrize(("after_s", "attempts"), [(0.9, 2), (1.1, 1)])
def test_a_failure_after_the_whole_time(
    monkeypatch: pytest.MonkeyPatch, after_s: float, attempts: int
) -> None:
    """It is not tried again, though the next check of deadlines is still to come."""
    with proxy_bench() as parts:
        set_time = timed(
            parts, "timeouts: {total: 1s}, retries: {count: 3, causes: [reset]}", monkeypatch
        )
        ends = upstreams_of(parts)
        client = Client(parts.context)
        client.send(request(parts.key))
        set_time(after_s)
        ends.first.end()
        parts.loop.run_all()
        assert 1 + len(ends.again) == attempts
        parts.answer()
        assert client.statuses == [200 if attempts == 2 else 502]


def test_a_client_that_does_not_read_pauses_the_second_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer of another connection than the one that was paused is not kept whole either."""
    with proxy_bench() as parts:
        timed(parts, "retries: {count: 3, causes: [reset]}", monkeypatch)
        ends = upstreams_of(parts)
        client = Client(parts.context)
        client.takes = False
        client.send(request(parts.key))
        ends.first.push(b"HTTP/1.1 103 E\r\nLink: %b\r\n\r\n" % (b"x" * MOST_UNSENT_BYTES))
        assert ends.first.is_paused
        ends.first.end()
        parts.loop.run_all()
        (second,) = ends.again
        second.push(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nx")
        assert second.is_paused
        client.take_all()
        assert not second.is_paused


@pytest.mark.parametrize("switches", [True, False])
def test_the_whole_time_is_not_for_a_websocket(
    monkeypatch: pytest.MonkeyPatch, switches: bool
) -> None:
    """It stays open; what is still no WebSocket then is refused."""
    with proxy_bench() as parts:
        set_time = timed(parts, "timeouts: {total: 1s}", monkeypatch)
        ends = upstreams_of(parts)
        client = Client(parts.context)
        fields = "".join(f"{name}: {value}\r\n" for name, value in HANDSHAKE)
        client.send(request(parts.key)[:-2] + fields.encode() + b"\r\n")
        if switches:
            ends.first.push(AGREED)
        set_time(1.1)
        client.connection.check_deadline(parts.loop.now_s)
        assert client.statuses == [101 if switches else 504]


@pytest.mark.parametrize(("version", "is_open"), [(b"1.0", False), (b"1.1", True)])
def test_a_body_without_a_length_for_each_version(version: bytes, is_open: bool) -> None:
    """A connection of HTTP/1.0, which has no chunks, ends with the body, also if kept alive."""
    with proxy_bench() as parts:
        client = parts.client()
        sent = request(parts.key).replace(b"HTTP/1.1", b"HTTP/" + version)
        client.send(sent[:-2] + b"Connection: keep-alive\r\n\r\n")
        parts.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
        assert client.is_closed is (not is_open)
        assert client.written.endswith(b"\r\n\r\nok" if not is_open else b"0\r\n\r\n")


@pytest.mark.parametrize("scheme", ["NTLM", "Negotiate", "nEGOTIATE"])
async def test_who_authenticated_a_connection_is_nobody_else(start: Start, scheme: str) -> None:
    """A server that takes a connection for its client's, as IIS does, gets each on another one."""
    bench = await start()
    users: dict[int, str] = {}

    async def script(exchange: Exchange) -> None:
        received = exchange.request
        if given := received.maybe("Authorization"):
            users[received.connection] = given.partition(" ")[2]
        user = users.get(received.connection, "")
        challenge = (
            [] if user else [("WWW-Authenticate", "Basic realm=x"), ("WWW-Authenticate", scheme)]
        )
        await exchange.write(build_response(200 if user else 401, user.encode(), challenge))

    bench.upstream.script = script
    alice = [("Authorization", f"{scheme} alice")]
    async with await bench.connect() as wire, await bench.connect() as other:
        for _ in range(2):
            assert (await wire.request("GET", "/public/x")).status == 401
            assert (await wire.request("GET", "/public/x", alice)).body == b"alice"
            assert (await other.request("GET", "/public/x")).status == 401
    # Nor one that was asked for: whoever answers next would be identified on it.
    assert len({each.connection for each in bench.upstream.requests}) == 6


async def test_other_credentials_share_connections(start: Start) -> None:
    """What identifies one request keeps its connection for the next one."""
    bench = await start()
    bench.upstream.script = reply(401, b"", [("WWW-Authenticate", "Basic realm=x, Bearer")])
    async with await bench.connect() as wire:
        for given in ("Basic YTpi", "Digest x", "Basic YTpj"):
            await wire.request("GET", "/public/x", [("Authorization", given)])
    assert {each.connection for each in bench.upstream.requests} == {0}
