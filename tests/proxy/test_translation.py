"""Two sites behind one gateway, by host: redirects and cookies lead a real client through both."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.kit.certificates import make_certificate
from tests.kit.upstream import Exchange, Script, ScriptedUpstream, SecureUpstream, reply
from tests.kit.wire import build_request
from tests.proxy.conftest import Bench, Start

ROUTES = """
routes:
  shop:   {match: "* /shop/**", upstream: shop, auth: none, hosts: [shop.example],
           strip_prefix: /shop, translate: [location, cookies]}
  bare:   {match: "* /bare/**", upstream: shop, auth: none, hosts: [shop.example],
           strip_prefix: /bare}
  secure: {match: "* /**", upstream: secure, auth: none, hosts: ["*.secure.example"],
           translate: [location, cookies]}
"""


class Loopback(AbstractResolver):
    """Every name is this machine."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0
            )
        ]

    async def close(self) -> None: ...


def site(base: str, scheme: str, domain: str) -> Script:
    """A site with a page that needs a sign-in; it names its places as it sees them."""

    async def script(exchange: Exchange) -> None:
        request = exchange.request
        if request.target == f"{base}/login":
            cookie = f"session=1; Path={base or '/'}; HttpOnly{domain}"
            fields = [("Set-Cookie", cookie), ("Location", f"{base}/private")]
            await reply(303, b"", fields)(exchange)
        elif "session=1" in (request.maybe("Cookie") or ""):
            await reply(200, request.target.encode())(exchange)
        else:
            url = f"{scheme}://{request.maybe('Host')}{base}/login"
            await reply(302, b"", [("Location", url)])(exchange)

    return script


@pytest.fixture
async def sites(start: Start, tmp_path: Path) -> Any:
    """The gateway, and both upstreams."""
    made = make_certificate(tmp_path / "tls", ["secure.internal"])
    async with (
        ScriptedUpstream(site("/v1", "http", "")) as shop,
        SecureUpstream(
            site("", "https", "; Domain=secure.internal"), made.certificate, made.key
        ) as secure,
    ):
        upstreams = (
            "upstreams:\n"
            f"  shop: {{servers: ['{shop.url}/v1']}}\n"
            f"  secure: {{servers: ['https://127.0.0.1:{secure.port}'], ca: '{made.ca}',"
            " host: secure.internal, health: {path: /up}}\n"
        )
        yield await start(files={"routes": ROUTES, "upstreams": upstreams}), shop, secure


async def test_a_client_is_led_through(
    sites: tuple[Bench, ScriptedUpstream, SecureUpstream],
) -> None:
    """It follows redirects and keeps cookies as if each site were at this host and path."""
    bench, shop, secure = sites
    port = bench.gateway.port
    connector = aiohttp.TCPConnector(resolver=Loopback())
    async with aiohttp.ClientSession(connector=connector) as session:
        for url, body in (
            (f"http://shop.example:{port}/shop/private", "/v1/private"),
            (f"http://a.secure.example:{port}/private", "/private"),
        ):
            async with session.get(url) as answer:
                assert (answer.status, await answer.text(), str(answer.url)) == (200, body, url)
                assert [each.status for each in answer.history] == [302, 303]
        cookies = {cookie["domain"]: cookie["path"] for cookie in session.cookie_jar}
    assert cookies == {"shop.example": "/shop", "a.secure.example": "/"}
    assert {request.maybe("Host") for request in shop.requests} == {f"shop.example:{port}"}
    # Health checks included.
    assert {request.maybe("Host") for request in secure.requests} == {"secure.internal"}
    assert set(secure.names) == {"secure.internal"}
    asked = [request for request in secure.requests if request.target != "/up"]
    assert {request.maybe("X-Forwarded-Host") for request in asked} == {f"a.secure.example:{port}"}


async def test_only_where_it_is_asked_for(
    sites: tuple[Bench, ScriptedUpstream, SecureUpstream],
) -> None:
    """Without `translate` an answer is passed on as it is."""
    bench, shop, _ = sites
    host = [("Host", "shop.example")]
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/bare/private", host))
        assert (await wire.read_response())["Location"] == "http://shop.example/v1/login"
        await wire.send(build_request("GET", "/shop/private", host))
        assert (await wire.read_response())["Location"] == "/shop/login"
        await wire.send(build_request("GET", "/shop/login", host))
        answer = await wire.read_response()
        assert answer["Set-Cookie"] == "session=1; Path=/shop; HttpOnly"
        assert answer["Location"] == "/shop/private"
    assert [request.target for request in shop.requests] == [
        "/v1/private",
        "/v1/private",
        "/v1/login",
    ]
