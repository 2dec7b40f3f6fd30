"""Whether a key is valid, here and now, and may use a route."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from gateway.domain.address_lists import AccessList, AddressRanges
from gateway.domain.judge import (
    access_refusal,
    address_refusal,
    key_refusal,
    route_refusal,
    status_refusal,
)
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Limit
from gateway.domain.networks import parse_network
from gateway.domain.policy import Plan, Policy
from gateway.domain.route import Route
from gateway.domain.routes import RouteTable
from gateway.errors import (
    ACCOUNT_SUSPENDED,
    ADDRESS_DENIED,
    INSUFFICIENT_PERMISSION,
    INSUFFICIENT_SCOPE,
    IP_NOT_ALLOWED,
    KEY_ENVIRONMENT,
    KEY_EXPIRED,
    KEY_REVOKED,
    KEY_SUSPENDED,
    KEY_UNKNOWN,
    PLAN_UNKNOWN,
    SERVICE_NOT_ENABLED,
    Refusal,
)

NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000
DIGEST = b"d" * 32
KEY = KeyRecord(
    id="7h3k9m2p4q6r",
    digest=DIGEST,
    name="ci",
    account="acme",
    plan="pro",
    environment="production",
    lineage="aaaaaaaaaaaa",
    created_us=NOW - HOUR,
    scopes=("a:read", "b:read"),
    permissions=MappingProxyType({"ticketing": ("read",)}),
)
ACCOUNT = Account("acme", ("scm",))
ROUTE = Route("r", "*", (), True, "api")
POLICY = Policy(
    environment="production",
    plans={"pro": Plan("pro", Limit("plan", "rate", 60, 60_000_000))},
    routes={},
    table=RouteTable(()),
    upstreams={},
)


@pytest.mark.parametrize(
    ("change", "environment", "refusal"),
    [
        ({}, "production", None),
        ({"expires_us": NOW + 1}, "production", None),  # its last microsecond
        ({"expires_us": NOW}, "production", KEY_EXPIRED),  # and the first after it
        ({"expires_us": NOW - HOUR}, "production", KEY_EXPIRED),
        ({"successor": "b"}, "production", None),  # rotated, in its overlap
        ({"status": "suspended"}, "production", KEY_SUSPENDED),
        ({"account_status": "suspended"}, "production", ACCOUNT_SUSPENDED),
        ({"account_status": "suspended", "status": "suspended"}, "production", KEY_SUSPENDED),
        ({"account_status": "suspended", "expires_us": 1}, "production", ACCOUNT_SUSPENDED),
        ({"status": "revoked"}, "production", KEY_REVOKED),
        ({}, "development", KEY_ENVIRONMENT),
        # The most final reason comes first.
        ({"status": "revoked", "expires_us": 1}, "development", KEY_REVOKED),
        ({"status": "suspended", "expires_us": 1}, "development", KEY_SUSPENDED),
        ({"expires_us": 1}, "development", KEY_EXPIRED),
    ],
)
def test_whether_a_key_is_good(
    change: dict[str, Any], environment: str, refusal: Refusal | None
) -> None:
    """A key must be valid, unexpired and in its environment; otherwise there is a reason."""
    assert status_refusal(replace(KEY, **change), environment, NOW) is refusal


OFFICE = {"networks": (parse_network("192.0.2.0/24"), parse_network("2001:db8::/32"))}


@pytest.mark.parametrize(
    ("change", "client_ip", "digest", "refusal"),
    [
        ({}, "198.51.100.1", DIGEST, None),
        (OFFICE, "192.0.2.1", DIGEST, None),
        (OFFICE, "2001:db8::1", DIGEST, None),
        (OFFICE, "198.51.100.1", DIGEST, IP_NOT_ALLOWED),
        ({}, "192.0.2.1", b"e" * 32, KEY_UNKNOWN),
        ({}, "192.0.2.1", b"", KEY_UNKNOWN),
        ({"expires_us": NOW}, "192.0.2.1", DIGEST, KEY_EXPIRED),
        # Without the right secret, the key's state is not revealed.
        ({"status": "revoked"}, "192.0.2.1", b"e" * 32, KEY_UNKNOWN),
        # The status comes before the network.
        ({**OFFICE, "status": "revoked"}, "198.51.100.1", DIGEST, KEY_REVOKED),
    ],
)
def test_key_refusal(
    change: dict[str, Any], client_ip: str, digest: bytes, refusal: Refusal | None
) -> None:
    """The secret comes first, then status, then networks."""
    record = replace(KEY, **change)
    assert key_refusal(record, digest, "production", NOW, client_ip) is refusal


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({}, None),
        ({"scopes": ("a:read",)}, None),
        ({"scopes": ("a:read", "b:read")}, None),
        ({"scopes": ("a:read", "a:write")}, INSUFFICIENT_SCOPE),
        ({"permission": ("ticketing", "read")}, None),
        ({"permission": ("ticketing", "write")}, INSUFFICIENT_PERMISSION),
        ({"permission": ("edr", "read")}, INSUFFICIENT_PERMISSION),
        ({"service": "scm"}, None),
        ({"service": "ticketing"}, SERVICE_NOT_ENABLED),
        ({"scopes": ("x",), "permission": ("x", "y"), "service": "z"}, INSUFFICIENT_SCOPE),
        ({"permission": ("x", "y"), "service": "z"}, INSUFFICIENT_PERMISSION),
    ],
)
def test_access(fields: dict[str, Any], refusal: Refusal | None) -> None:
    """All rules of a route apply; the first that fails is reported."""
    assert access_refusal(replace(ROUTE, **fields), KEY, ACCOUNT) is refusal


def test_the_plan_comes_first() -> None:
    """A plan that is not in the policies is reported first, whatever the route requires."""
    route = replace(ROUTE, scopes=("x",))
    assert route_refusal(POLICY, ROUTE, KEY, ACCOUNT) is None
    assert route_refusal(POLICY, route, KEY, ACCOUNT) is INSUFFICIENT_SCOPE
    assert route_refusal(POLICY, route, replace(KEY, plan="gone"), ACCOUNT) is PLAN_UNKNOWN
    assert route_refusal(POLICY, ROUTE, replace(KEY, plan=""), ACCOUNT) is PLAN_UNKNOWN


@pytest.mark.parametrize(
    ("of_policy", "of_route", "refusal"),
    [
        (None, None, None),
        ("192.0.2.0/24", None, ADDRESS_DENIED),
        (None, "192.0.2.0/24", ADDRESS_DENIED),
        ("198.51.100.0/24", "192.0.2.0/24", ADDRESS_DENIED),
        ("192.0.2.0/24", "198.51.100.0/24", ADDRESS_DENIED),
        ("198.51.100.0/24", "198.51.100.0/24", None),
    ],
)
def test_lists_of_addresses(
    of_policy: str | None, of_route: str | None, refusal: Refusal | None
) -> None:
    """An address has to pass both lists, of the policy and of the route."""
    first, second = (
        None if text is None else AccessList(deny=AddressRanges((parse_network(text),)))
        for text in (of_policy, of_route)
    )
    policy, route = replace(POLICY, access=first), replace(ROUTE, access=second)
    assert address_refusal(policy, route, "192.0.2.7") is refusal
