"""Requests on hosts that routes name: the route is that of the Host which is forwarded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.proxy.gate import MOST_LINES
from tests.kit.policies import ROUTES
from tests.kit.proxy import ProxyBench, policy_of, proxy_bench

HOSTS = """
routes:
  shop: {match: GET /**, upstream: api, hosts: [shop.example], auth: none}
  docs: {match: GET /**, upstream: api, hosts: ["*.docs.example"], auth: none}
  key:  {match: GET /private, upstream: api, hosts: [shop.example]}
  all:  {match: GET /all, upstream: api, auth: none}
"""


@pytest.fixture
def bench() -> Iterator[ProxyBench]:
    with proxy_bench(routes=HOSTS) as bench:
        yield bench


def ask(bench: ProxyBench, head: str) -> tuple[int, str | None]:
    """The status, and the Host that the upstream got, of one head without its empty line."""
    client = bench.client()
    client.send(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
    bench.loop.run_all()
    end = bench.asked()
    host = None
    if end is not None:
        host = end.written.split(b"\r\n")[1].removeprefix(b"Host: ").decode()
    bench.answer()
    bench.loop.run_all()
    return client.statuses[-1], host


@pytest.mark.parametrize(
    ("head", "status", "host"),
    [
        ("GET / HTTP/1.1\nHost: shop.example", 200, "shop.example"),
        ("GET / HTTP/1.1\nHost: SHOP.Example.:8080", 200, "SHOP.Example.:8080"),
        ("GET / HTTP/1.1\nHost: a.docs.example", 200, "a.docs.example"),
        ("GET / HTTP/1.1\nHost: a.b.docs.example", 200, "a.b.docs.example"),
        ("GET / HTTP/1.1\nHost: docs.example", 404, None),
        ("GET / HTTP/1.1\nHost: .docs.example", 404, None),
        ("GET / HTTP/1.1\nHost: evil.example", 404, None),
        ("GET /all HTTP/1.1\nHost: evil.example", 200, "evil.example"),
        ("POST /all HTTP/1.1\nHost: evil.example", 405, None),
        ("GET /private HTTP/1.1\nHost: shop.example", 401, None),
        ("GET /private HTTP/1.1\nHost: shop.example.", 401, None),
        # HTTP/1.0 without Host has the routes without hosts.
        ("GET /all HTTP/1.0", 200, "127.0.0.1:1"),
        ("GET / HTTP/1.0", 404, None),
        ("GET / HTTP/1.0\nHost: shop.example", 200, "shop.example"),
        # The authority of a target must be the Host.
        ("GET http://shop.example/ HTTP/1.1\nHost: shop.example", 200, "shop.example"),
        ("GET http://shop.example/ HTTP/1.1\nHost: shop.example:80", 200, "shop.example:80"),
        ("GET http://shop.example/ HTTP/1.1\nHost: a.docs.example", 400, None),
        ("GET http://shop.example/private HTTP/1.1\nHost: a.docs.example", 400, None),
        ("GET http://shop.example/all HTTP/1.0", 400, None),
        ("GET http://user@shop.example/ HTTP/1.1\nHost: shop.example", 400, None),
        ("GET / HTTP/1.1\nHost: user@shop.example", 400, None),
        ("GET / HTTP/1.1\nHost: shop.example\nHost: a.docs.example", 400, None),
        ("GET / HTTP/1.1\nHost: shop.example\nHost: shop.example", 400, None),
        ("GET / HTTP/1.1\nHost: shop.example, a.docs.example", 400, None),
        ("GET / HTTP/1.1\nHost: shop.example/x", 400, None),
        ("GET / HTTP/1.1\nHost: shop%2Eexample", 400, None),
        ("GET / HTTP/1.1\nHost:", 400, None),
        ("GET / HTTP/1.1", 400, None),
        (f"GET / HTTP/1.1\nHost: {'a' * 241}.docs.example", 200, f"{'a' * 241}.docs.example"),
        (f"GET / HTTP/1.1\nHost: {'a' * 5000}.docs.example", 400, None),
        ("GET /health HTTP/1.1\nHost: shop.example", 200, None),
        ("GET /health HTTP/1.1\nHost: evil.example", 200, None),
    ],
)
def test_a_host_decides(bench: ProxyBench, head: str, status: int, host: str | None) -> None:
    """The route is that of the Host, which the upstream gets as it was sent."""
    assert ask(bench, head) == (status, host)


def test_one_connection_with_several_hosts(bench: ProxyBench) -> None:
    """The same line is another route's on another host, also from the caches."""
    client = bench.client()
    wanted = []
    for _ in range(3):
        for host, status in (("shop.example", 401), ("a.docs.example", 200), ("x.example", 404)):
            client.send(f"GET /private HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            bench.loop.run_all()
            bench.answer()
            bench.loop.run_all()
            wanted.append(status)
    assert client.statuses == wanted


def test_a_head_in_pieces(bench: ProxyBench) -> None:
    """The line arrives before the Host: it is routed when that is known."""
    client = bench.client()
    for byte in b"GET /private HTTP/1.1\r\nHost: shop.example\r\n\r\n":
        client.send(bytes((byte,)))
    bench.loop.run_all()
    assert client.statuses == [401]


def test_a_reload_with_other_hosts(bench: ProxyBench) -> None:
    """What was cached under the former policy is not used."""
    assert ask(bench, "GET / HTTP/1.1\nHost: shop.example")[0] == 200
    bench.use(policy_of(routes=HOSTS.replace("shop.example", "other.example")))
    assert ask(bench, "GET / HTTP/1.1\nHost: shop.example")[0] == 404
    assert ask(bench, "GET / HTTP/1.1\nHost: other.example")[0] == 200
    bench.use(policy_of(routes=ROUTES))
    assert bench.context.gate.hosts is None


def test_what_clients_send_adds_no_memory(bench: ProxyBench) -> None:
    """10,000 hosts share one table's lines, and 20,000 lines are no more than the bound."""
    gate = bench.context.gate
    assert gate.hosts is not None
    line = b"GET / HTTP/1.1"
    requested = gate.requested(line)
    assert not isinstance(requested, int)
    routed = {
        id(gate.hosts.routed(line, requested, b"h%d.docs.example" % number))  # type: ignore[arg-type]
        for number in range(10_000)
    }
    assert len(routed) == 1
    assert len(gate.hosts._lines) == 1
    for number in range(20_000):
        long = b"GET /%d HTTP/1.1" % number
        gate.hosts.routed(long, gate.requested(long), b"a.docs.example")  # type: ignore[arg-type]
    assert len(gate.hosts._lines) <= MOST_LINES
    huge = b"GET /" + b"x" * 600 + b" HTTP/1.1"
    gate.hosts.routed(huge, gate.requested(huge), b"a.docs.example")  # type: ignore[arg-type]
    assert all(len(line) <= 512 for _, line in gate.hosts._lines)
