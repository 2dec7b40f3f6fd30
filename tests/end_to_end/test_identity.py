"""What the upstream gets about the client: only from the gateway, and never the key."""

from __future__ import annotations

import pytest

from tests.end_to_end.conftest import Site, add_key
from tests.kit.wire import bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_upstream_gets_the_identity(site: Site) -> None:
    """Key id, account, plan and scopes are forwarded, once each."""
    scopes = ("connectors:read", "ticketing:read")
    key, record = await add_key(site.keys, "pro", account="acme", scopes=scopes)
    await site.gateway.fetch("/api/things", key=key)
    received = site.upstream.requests[0]
    assert received.maybe("X-Gateway-Key-Id") == record.id
    assert received.maybe("X-Gateway-Account") == "acme"
    assert received.maybe("X-Gateway-Plan") == "pro"
    assert received.maybe("X-Gateway-Scopes") == "connectors:read ticketing:read"


@pytest.mark.parametrize("name", ["Authorization", "apiKey", "APIKEY"])
async def test_the_key_is_not_forwarded(site: Site, name: str) -> None:
    """Neither the key's headers, nor the key in any other place, are forwarded."""
    key = await site.key()
    value = f"Bearer {key}" if name == "Authorization" else key
    await site.gateway.fetch("/api/things", headers=[(name, value)])
    received = site.upstream.requests[0]
    assert key.encode() not in received.raw_head
    assert received.all("Authorization") == received.all("apiKey") == []


@pytest.mark.parametrize(
    "forged",
    [
        [("X-Gateway-Plan", "enterprise")],
        [("x-gateway-plan", "enterprise")],
        [("X-GATEWAY-PLAN", "enterprise")],
        [("X_Gateway_Plan", "enterprise")],
        [("X-Gateway_Plan", "enterprise")],
        [("X-Gateway-Plan", "enterprise"), ("x-gateway-plan", "enterprise")],
        [("X-Gateway-Anything", "enterprise")],
        [("Connection", "close, X-Gateway-Plan"), ("X-Gateway-Plan", "enterprise")],
        [("Connection", "X-Gateway-Key-Id, X-Gateway-Plan, X-Gateway-Account")],
    ],
)
async def test_claims_of_a_client_are_dropped(site: Site, forged: list[tuple[str, str]]) -> None:
    """A client's X-Gateway-* is dropped in any spelling, and cannot remove the gateway's."""
    key, record = await add_key(site.keys, "free")
    answer = await site.gateway.fetch("/api/things", headers=[*bearer(key), *forged])
    assert answer.status in (200, 400)
    if answer.status == 400:
        assert site.upstream.requests == []
        return
    received = site.upstream.requests[0]
    assert b"enterprise" not in received.raw_head
    assert received.maybe("X-Gateway-Plan") == "free"
    assert received.maybe("X-Gateway-Key-Id") == record.id


async def test_a_public_route_has_no_identity(site: Site) -> None:
    """On a route without keys, a client's X-Gateway-* headers are dropped, too."""
    await site.gateway.fetch("/public/page", headers=[("X-Gateway-Account", "acme")])
    assert b"acme" not in site.upstream.requests[0].raw_head


async def test_hop_by_hop_fields_end_here(site: Site) -> None:
    """Fields that Connection names, and known hop-by-hop fields, are not forwarded."""
    headers = [
        ("Connection", "keep-alive, X-Mine"),
        ("X-Mine", "secret"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "Basic secret"),
        ("X-Kept", "yes"),
    ]
    key = await site.key()
    answer = await site.gateway.fetch("/api/things", headers=[*bearer(key), *headers])
    assert answer.status == 200
    received = site.upstream.requests[0]
    assert b"secret" not in received.raw_head
    assert received.all("Keep-Alive") == received.all("TE") == []
    assert received.maybe("X-Kept") == "yes"


async def test_the_requests_id_is_one(site: Site) -> None:
    """The client's answer and the upstream's request have the same id; a safe one is kept."""
    key = await site.key()
    answer = await site.gateway.fetch("/api/things", key=key)
    assert site.upstream.requests[-1].maybe("X-Request-Id") == answer["X-Request-Id"]
    mine = [*bearer(key), ("X-Request-Id", "mine-1")]
    answer = await site.gateway.fetch("/api/things", headers=mine)
    assert answer["X-Request-Id"] == "mine-1"
    assert site.upstream.requests[-1].maybe("X-Request-Id") == "mine-1"
