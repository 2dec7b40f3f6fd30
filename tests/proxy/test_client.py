"""Clients: trusted proxies, bounds on connections, slow bodies."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.domain.headers import HeaderRules
from gateway.domain.limits import Check, Decision
from gateway.domain.networks import MOST_HOPS, parse_network
from gateway.domain.policy import ClientCertificates, Tls
from gateway.http1.field_parser import FieldParser
from gateway.http1.head import Fields
from gateway.proxy import client as client_module
from gateway.proxy.client import Client
from tests.kit.eventually import eventually
from tests.kit.pools import policy_of
from tests.kit.wire import Wire, bearer, build_request
from tests.proxy.conftest import Bench, Start

LOOPBACK = (parse_network("127.0.0.0/8"),)
V1 = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n"
V2 = (
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"
    + bytes((192, 0, 2, 7, 127, 0, 0, 1))
    + (4711).to_bytes(2, "big")
    + (80).to_bytes(2, "big")
)
LOCAL = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize("preamble", [V1, V2])
async def test_proxy_protocol(start: Start, preamble: bytes, bytewise: bool) -> None:
    """A trusted proxy's PROXY header gives the client's address for the whole connection."""
    bench = await start(trusted_proxies=LOOPBACK, proxy_protocol=True)
    key = await bench.mint(networks=(parse_network("192.0.2.0/24"),))
    message = preamble + build_request("GET", "/api/x", bearer(key))
    async with await bench.connect() as wire:
        for piece in [bytes((byte,)) for byte in message] if bytewise else [message]:
            await wire.send(piece)
            await asyncio.sleep(0)
        assert (await wire.read_response()).status == 200
        # The client behind the proxy is untrusted.
        await wire.request("GET", "/api/x", [*bearer(key), ("X-Forwarded-For", "1.1.1.1")])
    assert [one.maybe("X-Forwarded-For") for one in bench.upstream.requests] == ["192.0.2.7"] * 2
    await eventually(lambda: bench.gateway._context.connections._of == {}, "no connection is open")


async def test_a_proxys_own_connection(start: Start) -> None:
    """LOCAL is the proxy's own connection, as for its health checks."""
    bench = await start(trusted_proxies=LOOPBACK, proxy_protocol=True)
    async with await bench.connect() as wire:
        await wire.send(LOCAL + build_request("GET", "/health"))
        assert (await wire.read_response()).status == 200


@pytest.mark.parametrize(
    "first", [b"PROXY nonsense\r\n", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"]
)
async def test_a_missing_proxy_header_is_refused(start: Start, first: bytes) -> None:
    """A request is refused if an expected PROXY header is missing."""
    bench = await start(trusted_proxies=LOOPBACK, proxy_protocol=True)
    async with await bench.connect() as wire:
        await wire.send(first)
        response = await wire.read_response()
        assert (response.status, response.closes) == (400, True)
        assert response["X-RateLimit-Limit"]


async def test_untrusted_proxy_headers_are_refused(start: Start) -> None:
    """From an address that is not trusted, a PROXY header is a bad request."""
    bench = await start(proxy_protocol=True)
    async with await bench.connect() as wire:
        await wire.send(V1 + build_request("GET", "/health"))
        assert (await wire.read_response()).status == 400


async def _fill(bench: Bench, stack: AsyncExitStack, connections: int) -> list[Wire]:
    wires = [await stack.enter_async_context(await bench.connect()) for _ in range(connections)]
    for wire in wires:
        assert (await wire.request("GET", "/health")).status == 200
    return wires


@pytest.mark.parametrize("bound", ["connections", "connections_per_address"])
async def test_one_connection_too_many(start: Start, bound: str) -> None:
    """Over the bound a connection gets 503 and ends; after one closes, the next is served."""
    bench = await start(bounds={bound: 16})
    async with AsyncExitStack() as stack:
        wires = await _fill(bench, stack, 16)
        async with await bench.connect() as wire:
            response = await wire.read_response()
            assert (response.status, response.json()["code"]) == (503, "TOO_MANY_CONNECTIONS")
            assert response["X-RateLimit-Limit"]
            assert response["Retry-After"] == "1"
            await wire.read_end()
        assert (await wires[0].request("GET", "/health")).status == 200
        await wires[0].close()
        context = bench.gateway._context
        await eventually(lambda: len(context.connections) < 16, "one has closed")
        async with await bench.connect() as wire:
            assert (await wire.request("GET", "/health")).status == 200


async def test_far_too_many_connections(start: Start) -> None:
    """Far over the bound, connections are closed without an answer: refusing costs memory, too."""
    bench = await start(bounds={"connections": 16})
    async with AsyncExitStack() as stack:
        await _fill(bench, stack, 16)
        await stack.enter_async_context(await bench.connect())
        async with await bench.connect() as wire:
            await wire.read_end()


async def test_trusted_proxies_have_no_bound_of_their_own(start: Start) -> None:
    """A proxy carries many clients over its one address."""
    bench = await start(bounds={"connections_per_address": 1}, trusted_proxies=LOOPBACK)
    async with AsyncExitStack() as stack:
        wires = await _fill(bench, stack, 3)
        assert len(wires) == 3


async def test_a_body_in_single_bytes_is_refused(start: Start) -> None:
    """A body that arrives in single bytes, each in time, cannot hold its connection forever."""
    bench = await start(timeouts={"body_s": 0.3})
    async with await bench.connect() as wire:
        await wire.send(build_request("POST", "/api/x", [*bench.auth, ("Content-Length", "9999")]))
        answer = asyncio.create_task(wire.read_response())
        for _ in count():
            if answer.done():
                break
            await wire.send(b"x")
            await asyncio.sleep(0.02)
        assert (await answer).status == 408


class Unavailable:
    """A limiter that cannot decide."""

    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        done(None)


@pytest.mark.parametrize(
    ("trusted", "headers", "expected"),
    [
        ((), [], None),
        ((), [("X-Forwarded-Proto", "https")], None),
        (LOOPBACK, [], None),
        (LOOPBACK, [("X-Forwarded-Proto", "https")], "max-age=1"),
        (LOOPBACK, [("X-Forwarded-Proto", "http")], None),
    ],
)
async def test_hsts(
    start: Start,
    trusted: tuple[object, ...],
    headers: list[tuple[str, str]],
    expected: str | None,
) -> None:
    """Strict-Transport-Security is sent only if the client came over TLS (RFC 6797, 7.2)."""
    bench = await start(trusted_proxies=trusted, hsts="max-age=1")
    async with await bench.connect() as wire:
        for target in ("/api/x", "/nowhere"):
            response = await wire.request("GET", target, [*bench.auth, *headers])
            assert response.maybe("Strict-Transport-Security") == expected
        bench.gateway._context.gate.limiter = Unavailable()  # type: ignore[assignment]
        response = await wire.request("GET", "/api/x", [*bench.auth, *headers])
        assert response.status == 503
        assert response.maybe("Strict-Transport-Security") == expected


async def test_forwarded(start: Start) -> None:
    """A trusted proxy may use Forwarded, if there is no X-Forwarded-For."""
    bench = await start(trusted_proxies=LOOPBACK)
    key = await bench.mint(networks=(parse_network("192.0.2.0/24"),))
    statuses = []
    async with await bench.connect() as wire:
        for headers in (
            [("Forwarded", 'for=6.6.6.6;proto=https, For="192.0.2.7:4711"')],
            [("Forwarded", "for=192.0.2.7"), ("X-Forwarded-For", "6.6.6.6")],
            [("Forwarded", "for=_hidden")],
        ):
            statuses.append((await wire.request("GET", "/api/x", [*bearer(key), *headers])).status)
    assert statuses == [200, 403, 403]


async def test_networks_of_ipv6_clients_share(start: Start) -> None:
    """Limits per address count an IPv6 client's network; another network has another counter."""
    bench = await start(trusted_proxies=LOOPBACK)
    left = []
    async with await bench.connect() as wire:
        for ip in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"):
            response = await wire.request("GET", "/api/x", [("X-Forwarded-For", ip)])
            left.append(int(response["X-RateLimit-Remaining"]))
    assert left[1] == left[0] - 1
    assert left[2] == left[0]


# -- fields of a trusted proxy, and their cost -----------------------------------------------------
PROXIES = tuple(parse_network(f"10.{n}.0.0/16") for n in range(24))


def proxy_under(**changes: object) -> Client:
    """The connection of a trusted proxy."""
    policy = replace(policy_of(), trusted_proxies=PROXIES, **changes)
    return Client("10.0.0.1", "http", policy)


def fields_with(*lines: bytes) -> Fields:
    block = b"".join(line + b"\r\n" for line in (b"Host: a", *lines))
    fields = FieldParser(HeaderRules(100)).parse(block, 1)
    assert isinstance(fields, Fields)
    return fields


@pytest.mark.parametrize(
    ("lines", "ip", "forwarded"),
    [
        ([], "10.0.0.1", b"10.0.0.1"),
        ([b"X-Forwarded-For: 1.1.1.1"], "1.1.1.1", b"1.1.1.1, 10.0.0.1"),
        ([b"X-Forwarded-For: a", b"x-forwarded-for: 1.1.1.1"], "1.1.1.1", b"a, 1.1.1.1, 10.0.0.1"),
        ([b"Forwarded: for=1.1.1.1"], "1.1.1.1", b"1.1.1.1, 10.0.0.1"),
        ([b"Forwarded: for=1.1.1.1", b"X-Forwarded-For: 2.2.2.2"], "2.2.2.2", b"2.2.2.2, 10.0.0.1"),
        ([b"Forwarded: for=1.1.1.1", b"X-Forwarded-For:"], "1.1.1.1", b"1.1.1.1, 10.0.0.1"),
    ],
)
def test_the_address_of_a_request(lines: list[bytes], ip: str, forwarded: bytes) -> None:
    """The address in X-Forwarded-For, else in Forwarded; an empty X-Forwarded-For is none."""
    client, fields = proxy_under(), fields_with(*lines)
    assert client.origin(fields) == (ip, ip)
    assert client.forwarded_lines(fields) == (
        b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n" % forwarded
    )


def test_the_same_fields_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated block is not parsed again, until the policy changes."""
    read = []
    client_address = client_module.client_address

    def counted(*arguments: Any) -> object:
        read.append(arguments)
        return client_address(*arguments)

    monkeypatch.setattr(client_module, "client_address", counted)
    client, fields = proxy_under(), fields_with(b"X-Forwarded-For: 1.1.1.1")
    for _ in range(3):
        assert client.origin(fields) == ("1.1.1.1", "1.1.1.1")
        client.forwarded_lines(fields)
        client.is_secure(fields)
    assert len(read) == 1
    client.use(replace(client.policy, trusted_proxies=(parse_network("1.0.0.0/8"),)))
    client.origin(fields)
    client.origin(fields_with(b"X-Forwarded-For: 1.1.1.2"))
    assert len(read) == 3


@pytest.mark.parametrize("name", [b"X-Forwarded-For: ", b"Forwarded: for="])
def test_a_long_chain_is_read_from_its_near_end(name: bytes) -> None:
    """However long it is, only a bounded number of addresses is compared with the proxies'."""
    compared = []

    class Counting(tuple[Any, ...]):
        def __iter__(self) -> Iterator[Any]:
            compared.append(self)
            return super().__iter__()

    client = proxy_under()
    client.policy = replace(client.policy, trusted_proxies=Counting(PROXIES))
    separator = b"," if name.startswith(b"X") else b",for="
    fields = fields_with(
        name + separator.join(b"10.1.%d.%d" % (n % 250, n // 250) for n in range(2_000))
    )
    client.origin(fields)
    assert MOST_HOPS <= len(compared) <= MOST_HOPS + 1


@pytest.mark.parametrize(
    ("lines", "trusted", "value"),
    [
        ([], True, ""),
        ([b"X-Tenant: a"], False, "a"),
        ([b"X-Tenant: \xe9"], True, "\xe9"),
        ([b"X-Host: a"], False, ""),
        ([b"X-Host: a"], True, "a"),
    ],
)
def test_what_a_limit_counts_by(lines: list[bytes], trusted: bool, value: str) -> None:
    """The value of a header as forwarded to the upstream."""
    block = b"".join(line + b"\r\n" for line in (b"Host: a", *lines))
    fields = FieldParser(HeaderRules(100, counted=("x-tenant", "x-host"))).parse(block, 1)
    assert isinstance(fields, Fields)
    client = proxy_under() if trusted else Client("1.1.1.1", "http", policy_of())
    assert client.counted(fields, "x-host" if b"X-Host" in block else "x-tenant") == value


def test_the_key_of_a_certificate() -> None:
    """Read once for each policy; none after the certificate has expired, or without TLS."""
    described = {
        "subject": ((("commonName", "ci"),),),
        "notAfter": "Jan  1 00:00:00 2030 GMT",
    }
    asked = ClientCertificates("ca.pem", keys=(("DNS:x", "no"), ("CN=ci", "one"), ("CN=ci", "two")))
    policy = replace(policy_of(), tls=Tls("a", "b", client_certificates=asked))
    ends_s = ssl.cert_time_to_seconds(described["notAfter"])
    client = Client("192.0.2.1", "https", policy)
    assert client.certified_key(0) is None
    read: list[int] = []

    def described_now() -> dict[str, Any]:
        read.append(1)
        return described

    session = cast(ssl.SSLObject, SimpleNamespace(getpeercert=described_now))
    client = Client("192.0.2.1", "https", policy, lambda: session)
    assert [client.certified_key(at) for at in (0, ends_s, ends_s + 1)] == ["one", "one", None]
    assert len(read) == 1
    client.use(replace(policy, tls=Tls("a", "b")))
    assert client.certified_key(0) is None
    client.use(policy)
    assert client.certified_key(0) == "one"
