"""What an upstream gets of a request's head, from other clients and from trusted proxies."""

from __future__ import annotations

from base64 import b64encode

import pytest

from gateway.domain.networks import MOST_HOPS, parse_network
from gateway.errors import HEADER_REPEATED, KEY_IN_URL, LOOP_DETECTED
from gateway.http1.head import MOST_GATEWAYS
from tests.kit.policies import ROUTES
from tests.kit.proxy import proxy_bench
from tests.kit.wire import Header, build_request
from tests.proxy.conftest import Start

LOOPBACK = (parse_network("127.0.0.0/8"),)
VIA = "1.1 rate-limiting-gateway"
#: A limit per header, and one per header that only a trusted proxy may set.
COUNTED = ROUTES + (
    "  tenants: {match: GET /t/**, upstream: api, auth: none,\n"
    "    limits: [{name: tenant, rate: 2/day, per: 'header:X-Tenant'}]}\n"
    "  regions: {match: GET /r/**, upstream: api, auth: none,\n"
    "    limits: [{name: region, rate: 2/day, per: 'header:X-Region'}]}\n"
)
REGION = "headers: {trusted_only: [X-Region]}\n"


async def test_via(start: Start) -> None:
    """The gateway adds itself to Via, after the other entries, with the version it received."""
    bench = await start()
    async with await bench.connect() as wire:
        await wire.request("GET", "/api/x", bench.auth)
        await wire.request("GET", "/api/x", [*bench.auth, ("Via", "1.0 a, 2 b"), ("via", "1.1 c")])
    async with await bench.connect() as wire:
        old = build_request("GET", "/api/x", bench.auth).replace(b"HTTP/1.1", b"HTTP/1.0")
        await wire.send(old)
        assert (await wire.read_response()).status == 200
    assert [request.all("Via") for request in bench.upstream.requests] == [
        [VIA],
        ["1.0 a, 2 b", "1.1 c", VIA],
        ["1.0 rate-limiting-gateway"],
    ]


async def test_a_loop_ends(start: Start) -> None:
    """A request that returns here too often is refused, with our fields."""
    bench = await start()
    async with await bench.connect() as wire:
        via = ", ".join([VIA] * MOST_GATEWAYS)
        assert (await wire.request("GET", "/api/x", [*bench.auth, ("Via", via)])).status == 200
        response = await wire.request("GET", "/api/x", [*bench.auth, ("Via", f"{via}, {VIA}")])
        assert (response.status, response.json()["code"]) == (508, LOOP_DETECTED.code)
        assert response["X-RateLimit-Limit"]
        await wire.read_end()
    assert len(bench.upstream.requests) == 1


async def test_http10_without_a_host(start: Start) -> None:
    """HTTP/1.1 requires a Host, so an upstream gets its own name if the client sent none."""
    bench = await start()
    async with await bench.connect() as wire:
        await wire.send(b"GET /public/x HTTP/1.0\r\n\r\n")
        assert (await wire.read_response()).status == 200
    received = await bench.upstream.received()
    assert received.maybe("Host") == f"127.0.0.1:{bench.upstream.port}"


# -- fields that upstreams trust -------------------------------------------------------------------
CLAIMS: list[Header] = [
    *[("CF-Connecting-IP", "6.6.6.6"), ("True-Client-IP", "6.6.6.6"), ("X-Client-IP", "6.6.6.6")],
    *[("X-Envoy-External-Address", "6.6.6.6"), ("X-Real-IP", "6.6.6.6"), ("X-Forwarded", "6.6")],
    *[("X-Original-Host", "evil"), ("X-Host", "evil"), ("X-HTTP-Host-Override", "evil")],
    *[("Remote-User", "root"), ("Client-Cert", ":x:"), ("X-Forwarded-Host", "evil")],
]


async def test_untrusted_claims_are_not_forwarded(start: Start) -> None:
    """Only a trusted proxy's fields about the client are forwarded."""
    bench = await start()
    async with await bench.connect() as wire:
        await wire.request("GET", "/api/x", [*bench.auth, *CLAIMS, ("CF_Connecting_IP", "6.6.6.6")])
        await wire.request("GET", "/api/x", bench.auth)
    with_claims, without = bench.upstream.requests
    names = [{name for name, _ in request.headers} for request in (with_claims, without)]
    assert names[0] == names[1]


async def test_a_trusted_proxys_claims_are_forwarded(start: Start) -> None:
    """Its fields about the client reach the upstream, but no other path than was checked."""
    bench = await start(trusted_proxies=LOOPBACK)
    paths = [("X-Original-URL", "/admin"), ("X-Rewrite-URL", "/admin")]
    async with await bench.connect() as wire:
        await wire.request("GET", "/api/x", [*bench.auth, *CLAIMS, *paths, ("X_Host", "evil")])
    received = await bench.upstream.received()
    for name, value in CLAIMS:
        assert received.maybe(name) == value
    for name in ("X-Original-URL", "X-Rewrite-URL", "X_Host"):
        assert received.maybe(name) is None


async def test_trusted_only(start: Start) -> None:
    """`trusted_only` replaces the default list; X-Forwarded-* always needs a trusted proxy."""
    bench = await start(files={"headers": REGION})
    claims = [("X-Region", "eu"), ("CF-Connecting-IP", "1.1.1.1"), ("X-Forwarded-Host", "evil")]
    async with await bench.connect() as wire:
        await wire.request("GET", "/api/x", [*bench.auth, *claims])
    received = await bench.upstream.received()
    seen = [received.maybe(name) for name, _ in claims]
    assert seen == [None, "1.1.1.1", received.maybe("Host")]


async def test_the_nearest_proxies_are_forwarded(start: Start) -> None:
    """Of an endless chain the upstream gets as much as the gateway reads."""
    bench = await start(trusted_proxies=LOOPBACK)
    chain = ["1.1.1.1", *["10.0.0.1"] * 3_000]
    async with await bench.connect() as wire:
        headers = [*bench.auth, ("X-Forwarded-For", ",".join(chain))]
        assert (await wire.request("GET", "/api/x", headers)).status == 200
    received = await bench.upstream.received()
    assert received.maybe("X-Forwarded-For") == ", ".join(["10.0.0.1"] * MOST_HOPS + ["127.0.0.1"])


# -- limits per header -----------------------------------------------------------------------------
async def test_one_value_counts_and_is_forwarded(start: Start) -> None:
    """Neither a second value nor another spelling evades the limit."""
    bench = await start(files={"routes": COUNTED})
    tries: list[list[Header]] = [
        [("X-Tenant", "a")],
        [("X_Tenant", "b"), ("X-Tenant", "a"), ("X.Tenant", "c")],
        [("X-Tenant", "a"), ("X-Tenant", "fresh")],
        [("x-tenant", "a"), ("X-TENANT", "a")],
        [("X_Tenant", "fresh"), ("X-Tenant", "a")],
    ]
    statuses = []
    for headers in tries:
        async with await bench.connect() as wire:
            response = await wire.request("GET", "/t/x", headers)
            statuses.append(response.status)
            if response.status == 400:
                assert response.json()["message"] == HEADER_REPEATED.message
    assert statuses == [200, 200, 400, 400, 429]
    for request in bench.upstream.requests:
        assert request.all("X-Tenant") == ["a"]
        assert request.all("X_Tenant") == request.all("X.Tenant") == []


async def test_without_a_value_all_count_as_one(start: Start) -> None:
    """Absent, empty and removed by Connection are the same, and share one counter."""
    bench = await start(files={"routes": COUNTED})
    async with await bench.connect() as wire:
        for headers, status in (
            ([], 200),
            ([("X-Tenant", "")], 200),
            ([("Connection", "x-tenant"), ("X-Tenant", "fresh")], 429),
        ):
            assert (await wire.request("GET", "/t/x", headers)).status == status
        assert (await wire.request("GET", "/t/x", [("X-Tenant", "a")])).status == 200


@pytest.mark.parametrize(
    ("trusted", "statuses"), [((), [200, 200, 429]), (LOOPBACK, [200, 200, 200])]
)
async def test_trusted_only_headers_count_only_if_forwarded(
    start: Start, trusted: tuple[object, ...], statuses: list[int]
) -> None:
    """A header of `trusted_only` counts as absent if it is not forwarded."""
    files = {"routes": COUNTED, "headers": REGION}
    bench = await start(files=files, trusted_proxies=trusted)
    async with await bench.connect() as wire:
        for region, status in zip(("a", "b", "c"), statuses, strict=True):
            response = await wire.request("GET", "/r/x", [("X-Region", region)])
            assert response.status == status
    seen = [request.maybe("X-Region") for request in bench.upstream.requests]
    assert seen == (["a", "b", "c"] if trusted else [None, None])


async def test_a_reload_changes_what_counts(start: Start) -> None:
    """The same bytes on the same connection are read under the current policy."""
    bench = await start(files={"routes": COUNTED})
    with_count = bench.gateway._policy
    without = (await start()).gateway._policy
    twice = [("X-Tenant", "a"), ("X-Tenant", "b")]
    bench.gateway._use(without)
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/public/x", twice)).status == 200
        bench.gateway._use(with_count)
        assert (await wire.request("GET", "/public/x", twice)).status == 400


# -- keys in the wrong place -----------------------------------------------------------------------
async def test_open_routes_forward_no_key(start: Start) -> None:
    """An open route's Authorization is forwarded, unless it contains a key."""
    bench = await start()
    key = bench.key
    kept = ["Basic dXNlcjpwYXNz", "Bearer e30.e30.x_gwk_y", "Basic ??", "Digest a=b"]
    basic = [b64encode(text.encode()).decode() for text in (f"{key}:", f"u:{key}")]
    dropped = [
        *(f"Bearer {key}", f"bearer {key},", f"Token {key}", key, f"x={key}{key}", f'x="{key}"'),
        *(f"Bearer {key[:-1]}", f"Basic {basic[0]}", f"basic  {basic[1]}"),
        f"Basic {basic[0].rstrip('=')}",
    ]
    async with await bench.connect() as wire:
        for value in (*kept, *dropped):
            answer = await wire.request("GET", "/public/x", [("Authorization", value)])
            assert answer.status == 200
    seen = [request.maybe("Authorization") for request in bench.upstream.requests]
    assert seen == [*kept, *[None] * len(dropped)]
    assert not any(key[:40].encode() in request.raw_head for request in bench.upstream.requests)


async def test_no_field_forwards_a_key(start: Start) -> None:
    """A key in any field is never forwarded, even from a trusted proxy."""
    for trusted in ((), LOOPBACK):
        bench = await start(trusted_proxies=trusted)
        names = ["X-Api-Key", "Cookie", "Referer", "X-Request-Id", "X-Forwarded-For", "Forwarded"]
        headers = [(name, bench.key) for name in (*names, "X-Real-IP", "Via")]
        async with await bench.connect() as wire:
            response = await wire.request("GET", "/public/x", headers)
            assert response.status == 200
            assert bench.key not in str(response.headers)
        received = await bench.upstream.received()
        assert bench.key.encode() not in received.raw_head
        assert received.maybe("X-Forwarded-For") == "127.0.0.1"


@pytest.mark.parametrize("target", ["/public/x?key=%s", "/api/x?key=%s", "/public/%s"])
async def test_a_key_in_the_url_is_refused(start: Start, target: str) -> None:
    """It would be in the upstream's log; the refusal says so, even with a key in a header."""
    bench = await start()
    async with await bench.connect() as wire:
        for headers in ([], bench.auth):
            response = await wire.request("GET", target % bench.key, headers)
            assert (response.status, response.json()["message"]) == (401, KEY_IN_URL.message)
            assert response["WWW-Authenticate"] == "Bearer"
    assert bench.upstream.requests == []


async def test_the_consoles_session_passes_in_neither_direction(start: Start) -> None:
    """A browser sends it to every port of the host; no upstream gets or sets it."""
    bench = await start()
    cookies = [("Cookie", "a=1; gateway_session=secret; __Host-gateway_session=secret; b=2")]
    async with await bench.connect() as wire:
        await wire.request("GET", "/api/x", [*bench.auth, *cookies])
    received = await bench.upstream.received()
    assert received.maybe("Cookie") == "a=1; b=2"
    assert b"secret" not in received.raw_head


# -- the path --------------------------------------------------------------------------------------
MOVED = """
routes:
  shop:  {match: "* /shop/**", upstream: api, auth: none, strip_prefix: /shop}
  items: {match: "GET /items/{id}/**", upstream: api, auth: none, rewrite: "/v2/{id}/**"}
  kept:  {match: "* /kept/**", upstream: api, auth: none, encoded_slash: keep, rewrite: "/**"}
  plain: {match: "GET /plain", upstream: api, auth: none}
"""
BASE = 'upstreams:\n  api: {servers: ["http://127.0.0.1:1/v1/"]}\n'


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/plain?q", "/v1/plain?q"),
        ("/shop", "/v1/"),
        ("/shop/", "/v1/"),
        ("/shop/a/b?x=1&y=%2F", "/v1/a/b?x=1&y=%2F"),
        ("/SHOP//a/./b/../c", "/v1/a/c"),
        ("/shop/%61%3a%20", "/v1/a%3A%20"),
        ("/shop?", "/v1/?"),
        ("/shop?/../x", "/v1/?/../x"),
        ("/items/7", "/v1/v2/7"),
        ("/items/7/a%3Fb/c/?q", "/v1/v2/7/a%3Fb/c/?q"),
        ("/kept/a%2fb", "/v1/a%2Fb"),
        ("/shop/%2e%2e/shop/x", "/v1/x"),
        # No way out.
        ("/shop/..%2f..%2fetc", None),
        ("/kept/..%2f..%2fetc", None),
        ("/shop/../../etc", None),
        ("/shop/%2e%2e/%2e%2e/etc", None),
        ("/shop/..%5c..%5cetc", None),
        ("/shop/%252e%252e/etc", None),
        ("/shop/a%0d%0aX:%20y", None),
        ("/shop/..;/etc", None),
    ],
)
def test_the_path_for_the_upstream(target: str, sent: str | None) -> None:
    """Made from the canonical path, after the base path; the query and encoded characters stay."""
    with proxy_bench(routes=MOVED, upstreams=BASE) as bench:
        client = bench.client()
        client.send(f"GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n".encode())
        bench.loop.run_all()
        end = bench.asked()
        if sent is None:
            assert (end, client.statuses) == (None, [400])
        else:
            assert end is not None
            assert end.written.startswith(f"GET {sent} HTTP/1.1\r\nHost: a.example\r\n".encode())


# -- the host --------------------------------------------------------------------------------------
def head_for(host: str, lines: bytes, version: bytes = b"1.1") -> list[bytes]:
    """The lines with a host that an upstream with this setting gets."""
    upstreams = f"upstreams:\n  api: {{servers: ['http://192.0.2.1:9000']{host}}}\n"
    with proxy_bench(routes=MOVED, upstreams=upstreams) as bench:
        client = bench.client()
        client.send(b"GET /plain HTTP/%b\r\n%b\r\n" % (version, lines))
        bench.loop.run_all()
        end = bench.asked()
        assert end is not None, client.written
        return [line for line in end.written.split(b"\r\n") if b"ost: " in line]


@pytest.mark.parametrize(
    ("host", "lines", "sent"),
    [
        ("", b"Host: A.example:80\r\n", [b"Host: A.example:80", b"X-Forwarded-Host: A.example:80"]),
        (", host: client", b"X: y\r\nhost: a\r\n", [b"Host: a", b"X-Forwarded-Host: a"]),
        (
            ", host: upstream",
            b"Host: a.example\r\n",
            [b"Host: 192.0.2.1:9000", b"X-Forwarded-Host: a.example"],
        ),
        (
            ", host: 'API.internal:8443'",
            b"Host: a.example\r\nX-Forwarded-Host: evil\r\nX-Host: evil\r\n",
            [b"Host: api.internal:8443", b"X-Forwarded-Host: a.example"],
        ),
        (
            ", host: api.internal",
            b"Connection: x-forwarded-host\r\nHost: a\r\n",
            [b"Host: api.internal", b"X-Forwarded-Host: a"],
        ),
    ],
)
def test_the_host_for_the_upstream(host: str, lines: bytes, sent: list[bytes]) -> None:
    """By `host` of the upstream; X-Forwarded-Host is what the client asked for."""
    assert head_for(host, lines) == sent


@pytest.mark.parametrize(
    ("host", "sent"),
    [("", b"192.0.2.1:9000"), (", host: client", b"192.0.2.1:9000"), (", host: x", b"x")],
)
def test_without_a_host(host: str, sent: bytes) -> None:
    """A client of HTTP/1.0 asked for none, so there is nothing to forward of it."""
    assert head_for(host, b"", b"1.0") == [b"Host: " + sent]


async def test_a_trusted_proxys_x_forwarded_host(start: Start) -> None:
    """What a trusted proxy says is kept; if it says nothing, its Host is what was asked for."""
    bench = await start(trusted_proxies=LOOPBACK)
    async with await bench.connect() as wire:
        for more in ([("X-Forwarded-Host", "first.example")], []):
            await wire.request("GET", "/public/x", [*more])
    first, second = bench.upstream.requests
    assert first.maybe("X-Forwarded-Host") == "first.example"
    assert second.maybe("X-Forwarded-Host") == second.maybe("Host")
