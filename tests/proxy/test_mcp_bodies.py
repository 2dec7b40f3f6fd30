"""Long messages for MCP servers, in memory and in manual time: read in two turns of the loop."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from gateway.domain.mcp.messages import ONE_STEP_BYTES
from gateway.http1.phases import Phase
from tests.kit.proxy import Client, ProxyBench, proxy_bench

ROUTES = """
routes:
  mcp:   {match: "* /mcp", upstream: api, mcp: {max_body: 256KiB}}
  plain: {match: "* /plain", upstream: api}
"""
PLANS = "plans:\n  pro: {rate: 600/minute}\n"


@pytest.fixture
def bench() -> Iterator[ProxyBench]:
    with proxy_bench(routes=ROUTES, plans=PLANS) as bench:
        yield bench


def message(size: int) -> bytes:
    """A call with a body of this size."""
    params = {"name": "search", "arguments": {"text": ""}}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    body = json.dumps(call).encode()
    return body.replace(b'""', b'"%b"' % (b"x" * (size - len(body))))


def post(key: str, body: bytes, path: str = "/mcp") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: gateway.example\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def forwarded(bench: ProxyBench) -> bytes | None:
    """The body that the upstream got; None: nothing yet."""
    end = bench.asked()
    return None if end is None else bytes(end.written).partition(b"\r\n\r\n")[2]


def phase_of(client: Client) -> int:
    exchange = client.connection.exchange
    assert exchange is not None
    return exchange.phase


@pytest.mark.parametrize(("size", "turns"), [(ONE_STEP_BYTES, 1), (ONE_STEP_BYTES + 1, 3)])
def test_turns(bench: ProxyBench, size: int, turns: int) -> None:
    """One longer than the bound takes three; its bytes are forwarded as they came."""
    client, body = bench.client(), message(size)
    client.send(post(bench.key, body))
    for _ in range(turns):
        assert (phase_of(client), forwarded(bench)) == (Phase.READING, None)
        bench.loop.run()
    assert forwarded(bench) == body
    bench.answer()
    assert client.statuses == [200]


def test_others_are_served_in_between(bench: ProxyBench) -> None:
    """What comes after a step is answered before the next."""
    slow, other = bench.client(), bench.client()
    slow.send(post(bench.key, message(100_000)))
    for step in (1, 2):
        bench.loop.run()
        other.send(post(bench.key, b"{}", "/plain"))
        bench.answer()
        assert (other.statuses, phase_of(slow)) == ([200] * step, Phase.READING)
    bench.loop.run_all()
    bench.answer()
    assert slow.statuses == [200]


def test_nothing_of_it_is_kept_while_it_is_answered(bench: ProxyBench) -> None:
    """A stream may be long, and the body was sent."""
    client = bench.client()
    client.send(post(bench.key, message(100_000)))
    bench.loop.run_all()
    bench.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\npart")
    exchange = client.connection.exchange
    assert exchange is not None
    assert (exchange.phase, exchange.pending) == (Phase.RELAYING, [])
    assert exchange.mcp.steps is None


@pytest.mark.parametrize("body", [message(100_000)[:-1], b"\xff" * 100_000, b"[" * 100_000])
def test_a_faulty_one(bench: ProxyBench, body: bytes) -> None:
    """It is refused as a short one, and the connection stays open."""
    client = bench.client()
    client.send(post(bench.key, body))
    bench.loop.run_all()
    assert (client.statuses, client.is_closed, forwarded(bench)) == ([400], False, None)
    client.send(post(bench.key, b"{}", "/plain"))
    bench.answer()
    assert client.statuses == [400, 200]


def test_a_key_that_is_revoked_in_between(bench: ProxyBench) -> None:
    """The key is checked again before the next step."""
    client = bench.client()
    client.send(post(bench.key, message(100_000)))
    bench.loop.run()
    bench.change_key(bench.key, status="revoked")
    bench.loop.run_all()
    assert (client.statuses, forwarded(bench)) == ([401], None)


def test_a_client_that_leaves_in_between(bench: ProxyBench) -> None:
    """Nothing is forwarded, and nothing is left."""
    client = bench.client()
    client.send(post(bench.key, message(100_000)))
    bench.loop.run()
    client.end()
    bench.loop.run_all()
    assert (client.statuses, forwarded(bench), bench.metrics.inflight) == ([], None, 0)


@pytest.mark.parametrize("turns", [None, 0, 1, 2])
def test_one_beyond_the_bound_of_all(bench: ProxyBench, turns: int | None) -> None:
    """It gets 503 as an error of JSON-RPC, while it arrives or is read, and its connection closes.

    turns: of reading; None: a byte of it is missing
    """
    client = bench.client()
    sent = post(bench.key, message(100_000))
    client.send(sent if turns is not None else sent[:-1])
    for _ in range(turns or 0):
        bench.loop.run()
    bench.context.connections._budget_bytes = lambda: 50_000
    bench.context.connections.check()
    head, _, body = bytes(client.written).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 1\r\n" in head + b"\r\n"
    found = json.loads(body)
    assert (found["id"], found["error"]["code"]) == (None, 503)
    assert found["error"]["data"]["retry_after"] == 1
    assert client.wrote_eof
    bench.loop.run_all()
    assert (forwarded(bench), bench.metrics.inflight) == (None, 0)
