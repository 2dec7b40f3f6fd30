"""Costs that depend on the request, over real sockets: what is counted, refused and forwarded."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.networks import parse_network
from gateway.domain.upstreams import Server
from gateway.policies.fields import parse_rate
from tests.kit.eventually import eventually
from tests.kit.ports import free_port
from tests.kit.upstream import Exchange, echo, reply
from tests.kit.websocket import HANDSHAKE
from tests.kit.wire import Header, Response, Wire, build_request
from tests.proxy.conftest import Bench, Start

ROUTES = """
routes:
  batch: {match: "* /batch", upstream: api, rate: 20/minute, cost: {json: ids, max: 10}}
  whole: {match: "* /whole", upstream: api, cost: {json: ., max: 10, bytes: 256KiB}}
  free:  {match: "* /free",  upstream: api, plan_limits: false, cost: {json: ids, max: 10}}
  items: {match: "* /items", upstream: api, cost: {header: X-Items, max: 10, default: 4}}
  dear:  {match: "* /dear",  upstream: api, rate: 20/minute, cost: 5}
  open:
    match: "* /open"
    upstream: api
    auth: none
    cost: {json: ids, max: 10}
    limits: [{name: open, rate: 20/minute, per: ip}]
  rpc:
    match: "* /mcp"
    upstream: api
    rate: 20/minute
    cost: {json: ids, max: 10}
  api:   {match: "* /**", upstream: api}
"""
PLANS = "plans:\n  enterprise: {rate: 6000/minute, burst: 10000}\n"
JSON = ("Content-Type", "application/json")


async def started(start: Start, **options: object) -> Bench:
    return await start(files={"routes": ROUTES, "plans": PLANS}, **options)


def ids(count: int) -> bytes:
    return json.dumps({"ids": [f"id-{number}" for number in range(count)]}).encode()


def remaining(response: Response) -> int:
    return int(response["X-RateLimit-Remaining"])


async def sent(
    bench: Bench,
    wire: Wire,
    path: str = "/batch",
    body: bytes | None = b"",
    headers: Sequence[Header] = (JSON,),
    method: str = "POST",
) -> Response:
    return await wire.request(method, path, [*bench.auth, *headers], body)


async def test_a_unit_for_each_element(start: Start) -> None:
    """N elements count N units in every limit; an empty array, and no body, count one."""
    bench = await started(start)
    async with await bench.connect() as wire:
        for count, left in ((3, 17), (0, 16), (10, 6)):
            response = await sent(bench, wire, body=ids(count))
            assert (response.status, remaining(response)) == (200, left)
        for method in ("GET", "HEAD", "OPTIONS", "POST"):
            await wire.send(build_request(method, "/batch", bench.auth))
            response = await wire.read_response(method)
            left -= 1
            assert (response.status, remaining(response)) == (200, left)
        refused = await sent(bench, wire, body=ids(3))
        assert (refused.status, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert 60 <= int(refused["Retry-After"]) <= 61
        assert (await sent(bench, wire, body=ids(2))).status == 200
        assert remaining(await sent(bench, wire, "/x")) == 6000 - 3 - 1 - 10 - 4 - 2 - 1
    assert [request.body for request in bench.upstream.requests][:3] == [ids(3), ids(0), ids(10)]


async def test_it_is_logged(start: Start, tmp_path: Path) -> None:
    """The access log has the cost that was counted, and 0 for a request that was refused for it."""
    log = tmp_path / "access.log"
    bench = await started(start, access_log=str(log))
    async with await bench.connect() as wire:
        for count in (7, 11):
            await sent(bench, wire, body=ids(count))
    await eventually(lambda: log.read_text().count("\n") == 2, "both lines are written")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["cost"], line["decision"], line["reason"]) for line in lines] == [
        (7, "admitted", None),
        (0, "refused", "cost_too_high"),
    ]


@pytest.mark.parametrize("end", ["\r\n", ""])
async def test_byte_by_byte(start: Start, end: str) -> None:
    """Each byte in a write of its own, a chunked body and its pipelined successor included."""
    bench = await started(start)
    chunked = [*bench.auth, JSON, ("Transfer-Encoding", "chunked")]
    body = b"".join(b"%x;a=b\r\n%b\r\n" % (1, bytes([byte])) for byte in ids(4))
    trailer = f"0\r\nX-Trailer: 1\r\n{end}".encode()
    data = build_request("POST", "/batch", chunked) + body + trailer
    data += b"\r\n" if not end else b""
    data += build_request("POST", "/batch", [*bench.auth, JSON], ids(5))
    async with await bench.connect() as wire:
        for at in range(len(data)):
            await wire.send(data[at : at + 1])
        assert remaining(await wire.read_response()) == 16
        assert remaining(await wire.read_response()) == 11
    assert [request.body for request in bench.upstream.requests] == [ids(4), ids(5)]
    assert bench.upstream.requests[0].maybe("Transfer-Encoding") == "chunked"


UNREADABLE: list[tuple[bytes, str]] = [
    (b"{", "Found invalid JSON"),
    (b'{"ids": [1]}x', "Found invalid JSON"),
    (b'{"ids": [1], "ids": []}', "Found an object with the same key twice"),
    (b'{"ids": [1], "IDS": []}', "Found more than one spelling of ids"),
    (b'{"id": [1]}', "Found nothing at ids, expected a JSON array as ids in the JSON body."),
    (b'{"ids": 1}', "Found a number at ids"),
    (b'\xef\xbb\xbf{"ids": []}', "Found a byte order mark"),
    ('{"ids": []}'.encode("utf-16"), "Found a body that is not UTF-8"),
    (
        b"[" * 50_000,
        "Found 101 levels of arrays and objects at byte 101, expected a JSON array as ids in the",
    ),
]


async def test_bodies_that_cannot_be_counted(start: Start) -> None:
    """400 that says what was found and what is expected; nothing is counted or forwarded, and the
    connection stays open, as all of the body was read.
    """
    bench = await started(start)
    async with await bench.connect() as wire:
        for body, words in UNREADABLE:
            refused = await sent(bench, wire, body=body)
            assert (refused.status, refused.json()["code"]) == (400, "COST_UNREADABLE")
            assert words in refused.json()["message"]
            assert (refused.closes, remaining(refused)) == (False, 20)
        assert (await sent(bench, wire, body=ids(1))).status == 200
    assert len(bench.upstream.requests) == 1


async def test_too_many(start: Start) -> None:
    """413 that says how many were found, and the maximum; nothing is counted."""
    bench = await started(start)
    async with await bench.connect() as wire:
        for path, body in (
            ("/batch", ids(11)),
            ("/free", ids(11)),
            ("/whole", b"[1" + b",1" * 10 + b"]"),
        ):
            refused = await sent(bench, wire, path, body)
            assert (refused.status, refused.json()["code"]) == (413, "COST_TOO_HIGH")
            assert "Found 11 elements" in refused.json()["message"]
            assert "expected at most 10." in refused.json()["message"]
            assert not refused.closes
        assert remaining(await sent(bench, wire, body=ids(10))) == 10


OTHER_TYPES: list[list[Header]] = [
    [],
    [("Content-Type", "text/plain")],
    [("Content-Type", "application/x-www-form-urlencoded")],
    [("Content-Type", "application/json; charset=utf-16")],
    [("Content-Type", 'application/json;a="b ' + "x" * 31_000 + '"')],
    [("Content-Type", "application/json;a1=" + '"' * 28_000)],
    [("Content_Type", "application/json")],
    [JSON, ("Content-Encoding", "gzip")],
    [JSON, ("content-encoding", "DEFLATE")],
    [JSON, ("Connection", "content-type")],
]


async def test_other_types(start: Start) -> None:
    """A body that an upstream might not read as JSON is refused, whatever is in it."""
    bench = await started(start)
    async with await bench.connect() as wire:
        for headers in OTHER_TYPES:
            for body in (ids(1), gzip.compress(ids(11))):
                refused = await sent(bench, wire, body=body, headers=headers)
                assert (refused.status, refused.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
                assert (refused.closes, remaining(refused)) == (False, 20)
        repeated = await sent(bench, wire, body=ids(1), headers=[JSON, ("Content-type", "x/y")])
        assert (repeated.status, repeated.closes) == (400, True)
    assert not bench.upstream.requests


async def test_unread_bodies(start: Start) -> None:
    """A refusal before the body was read: a short one is discarded, else the connection closes."""
    bench = await started(start)
    long = [*bench.auth, JSON, ("Content-Length", "65537")]
    async with await bench.connect() as wire:
        await wire.send(build_request("POST", "/batch", [*long, ("Expect", "100-continue")]))
        refused = await wire.read_response()
        assert (refused.status, refused.closes, refused.interim) == (413, True, [])
        assert "At most: 65536 bytes." in refused.json()["message"]
        await wire.read_end()
    async with await bench.connect() as wire:
        await wire.send(build_request("POST", "/batch", [*bench.auth, ("Content-Length", "18")]))
        assert (await wire.read_response()).status == 415
        await wire.send(ids(1)[:18].ljust(18))
        assert (await sent(bench, wire, body=ids(1))).status == 200
    async with await bench.connect() as wire:
        data = build_request("POST", "/batch", [*bench.auth, ("Transfer-Encoding", "chunked")])
        await wire.send(data + b"1\r\n{\r\n")
        refused = await wire.read_response()
        assert (refused.status, refused.closes) == (415, True)
        await wire.read_end()


async def test_expect(start: Start) -> None:
    """The client is asked to continue once its key is known, and its body is counted."""
    bench = await started(start)
    head = [*bench.auth, JSON, ("Content-Length", str(len(ids(2)))), ("Expect", "100-continue")]
    async with await bench.connect() as wire:
        await wire.send(build_request("POST", "/batch", head))
        assert (await wire.read_some()).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert not bench.upstream.requests
        await wire.send(ids(2))
        response = await wire.read_response()
        assert (remaining(response), response.interim) == (18, [])
    assert bench.upstream.requests[0].maybe("Expect") is None


async def test_http10(start: Start) -> None:
    """A client of HTTP/1.0 is counted too, and its connection closes after the answer."""
    bench = await started(start)
    data = build_request("POST", "/batch", [*bench.auth, JSON], ids(3))
    async with await bench.connect() as wire:
        await wire.send(data.replace(b"HTTP/1.1", b"HTTP/1.0"))
        response = await wire.read_response()
        assert (response.status, remaining(response), response.closes) == (200, 17, True)
        await wire.read_end()


async def test_a_websocket(start: Start) -> None:
    """A handshake has no body, and costs one; one with a body is refused as everywhere."""
    bench = await started(start)
    handshake = [*bench.auth, *HANDSHAKE]
    bench.upstream.script = reply(400)
    async with await bench.connect() as wire:
        response = await wire.request("GET", "/batch", handshake)
        assert (response.status, remaining(response)) == (400, 19)
    async with await bench.connect() as wire:
        refused = await wire.request("GET", "/batch", [*handshake, JSON], ids(1))
        assert (refused.status, refused.closes) == (400, True)


async def test_a_route_without_a_key(start: Start) -> None:
    """It counts for the address, under the same bounds."""
    bench = await started(start)
    async with await bench.connect() as wire:
        for count, status, left in ((4, 200, 16), (11, 413, 16), (10, 200, 6), (7, 429, 0)):
            response = await wire.request("POST", "/open", [JSON], ids(count))
            assert (response.status, remaining(response)) == (status, left)


async def test_a_cost_that_is_never_admitted(start: Start) -> None:
    """A key's own limit below the cost: 429 without Retry-After, which names limit and cost."""
    bench = await started(start)
    own = {name: parse_rate("4/minute", name=name) for name in ("dear", "batch", "rpc")}
    bench.key = await bench.mint(limits=own)
    words = "It counts 5 units; {} admits at most 4."
    async with await bench.connect() as wire:
        for path in ("/dear", "/batch"):
            refused = await sent(bench, wire, path, ids(5))
            error = refused.json()["error"]
            assert (refused.status, refused.closes) == (429, False)
            assert (error["code"], error["retry_after"]) == ("cost_exceeds_limit", None)
            assert words.format(path[1:]) in error["message"]
            assert refused.maybe("Retry-After") is None
        rpc = (await sent(bench, wire, "/mcp", ids(5))).json()["error"]
        assert words.format("rpc") in rpc["message"]
        assert rpc["data"]["code"] == "cost_exceeds_limit"
        assert (await sent(bench, wire, body=ids(4))).status == 200


async def test_in_an_outage(start: Start) -> None:
    """If the limiter is unavailable the answer is 503, after the body was read."""
    bench = await started(start)
    bench.gateway._gate.limiter.decide = lambda check, done: done(None)  # type: ignore[method-assign]
    async with await bench.connect() as wire:
        refused = await sent(bench, wire, body=ids(3))
        assert (refused.status, refused.closes) == (503, False)


async def test_other_servers_are_tried(start: Start) -> None:
    """A server that refuses connections costs nothing twice: another one gets the whole body."""
    bench = await started(start)
    policy = bench.gateway._gate.policy
    servers = Server("http", "127.0.0.1", free_port()), *policy.upstreams["api"].servers
    bench.gateway._context.pools.use(
        replace(policy, upstreams={"api": replace(policy.upstreams["api"], servers=servers)})
    )
    async with await bench.connect() as wire:
        for left in range(19, 9, -1):
            response = await sent(bench, wire, body=ids(1))
            assert (response.status, remaining(response)) == (200, left)
    assert [request.body for request in bench.upstream.requests] == [ids(1)] * 10


async def test_a_large_body(start: Start) -> None:
    """Up to the bound of the route, whatever the element's size; beyond it 413."""
    bench = await started(start)
    largest = json.dumps(["x" * (256 * 1024 - 4)]).encode()
    async with await bench.connect() as wire:
        assert (await sent(bench, wire, "/whole", largest)).status == 200
        refused = await sent(bench, wire, "/whole", largest + b" ")
        assert (refused.status, refused.closes) == (413, True)
    assert bench.upstream.requests[0].body == largest


async def test_a_slow_client(start: Start) -> None:
    """408 after timeouts.body; meanwhile others on the route are served."""
    bench = await started(start, timeouts={"body_s": 0.5})
    async with await bench.connect() as slow, await bench.connect() as wire:
        await slow.send(build_request("POST", "/batch", [*bench.auth, JSON], ids(9))[:-9])
        assert (await sent(bench, wire, body=ids(1))).status == 200
        refused = await slow.read_response()
        assert (refused.status, refused.closes, remaining(refused)) == (408, True, 19)


async def test_a_drain(start: Start) -> None:
    """A request whose body is on its way is answered before the gateway stops."""
    bench = await started(start)
    data = build_request("POST", "/batch", [*bench.auth, JSON], ids(2))
    async with await bench.connect() as wire:
        await wire.send(data[:-5])
        await eventually(lambda: bool(bench.gateway._context.metrics.inflight), "it has begun")
        stopping = asyncio.create_task(bench.gateway.stop())
        await eventually(lambda: bench.gateway._context.draining, "it drains")
        await wire.send(data[-5:])
        response = await wire.read_response()
        assert (response.status, response.closes) == (200, True)
        await stopping


async def test_an_upstream_that_answers_early(start: Start) -> None:
    """The body was sent whole, so its connections stay usable on both sides."""
    bench = await started(start)

    async def early(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n")

    bench.upstream.script = early
    async with await bench.connect() as wire:
        assert (await sent(bench, wire, body=ids(1))).status == 400
        bench.upstream.script = echo
        assert (await sent(bench, wire, body=ids(1))).status == 200


# -- the number in a header -----------------------------------------------------------------------
async def test_a_header(start: Start) -> None:
    """Its number is counted and forwarded; without it the default; the body is streamed."""
    bench = await started(start)
    async with await bench.connect() as wire:
        for value, left in (("3", 5997), ("10", 5987)):
            response = await sent(bench, wire, "/items", b"x", [("X-Items", value)])
            assert (response.status, remaining(response)) == (200, left)
            assert bench.upstream.requests[-1].maybe("X-Items") == value
        assert remaining(await sent(bench, wire, "/items", b"x", [])) == 5983
        assert remaining(await sent(bench, wire, "/items", None, [("x_items", "1")])) == 5979
        assert bench.upstream.requests[-1].maybe("x_items") is None
        for value, status, code in (("11", 413, "COST_TOO_HIGH"), ("x", 400, "COST_UNREADABLE")):
            refused = await sent(bench, wire, "/items", b"x", [("X-Items", value)])
            assert (refused.status, refused.json()["code"]) == (status, code)
            assert (refused.closes, remaining(refused)) == (False, 5979)
        twice = await sent(bench, wire, "/items", None, [("X-Items", "1"), ("x-items", "1")])
        assert (twice.status, twice.json()["code"]) == (400, "BAD_REQUEST")


async def test_a_trusted_header(start: Start) -> None:
    """Of a header for trusted proxies only, a client's own value counts as absent."""
    bench = await started(start, trusted_only=("X-Items",))
    async with await bench.connect() as wire:
        assert remaining(await sent(bench, wire, "/items", None, [("X-Items", "1")])) == 5996
    bench = await started(
        start, trusted_only=("X-Items",), trusted_proxies=(parse_network("127.0.0.1/32"),)
    )
    async with await bench.connect() as wire:
        assert remaining(await sent(bench, wire, "/items", None, [("X-Items", "1")])) == 5999
