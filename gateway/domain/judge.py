"""Whether a key is good, here and now, and may use a route: each rule of it once.

A request's key is held to these rules at its beginning (`proxy/gate.py`), a long exchange's again
when its key or account changes (`proxy/recheck.py`), and `gateway explain` asks them of a request
that was never sent. In order, the first refusal being the answer:

1. `key_refusal`, whatever the route: the secret, status, expiry and environment, networks. All but
   the networks are failed attempts to authenticate, which count against the client's address.
2. `route_refusal`: the plan is configured, then scopes, permission, service.

Limits are not decided here: `effective_limits` says which ones a key has.
"""

from __future__ import annotations

from functools import lru_cache
from hmac import compare_digest

from gateway.domain.keylife import has_expired
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.networks import is_within, parse_address
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.errors import (
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

#: Reading an address takes 2 us, and one connection may bring the requests of many keys.
_address = lru_cache(maxsize=4_096)(parse_address)


def key_refusal(
    record: KeyRecord, digest: bytes, environment: str, now_us: int, client_ip: str
) -> Refusal | None:
    """Why the key is not good here and now; None: it is.

    digest:    of the key that the client sent
    now_us:    the store's time, Unix microseconds
    client_ip: the client's address, in the one spelling of `parse_address`
    """
    if not compare_digest(record.digest, digest):
        return KEY_UNKNOWN
    refusal = status_refusal(record, environment, now_us)
    if refusal is None and record.networks:
        return network_refusal(record, client_ip)
    return refusal


def status_refusal(record: KeyRecord, environment: str, now_us: int) -> Refusal | None:
    """Why the key is not good at this moment in this environment; None: it is.

    The most final reason comes first: a key that was revoked and has expired is a revoked one.
    """
    if record.status != "valid":
        return KEY_REVOKED if record.status == "revoked" else KEY_SUSPENDED
    if record.expires_us is not None and has_expired(record, now_us):
        return KEY_EXPIRED
    return None if record.environment == environment else KEY_ENVIRONMENT


def network_refusal(record: KeyRecord, client_ip: str) -> Refusal | None:
    """Why the key may not be used from this address; None: it may."""
    if not record.networks or is_within(_address(client_ip), record.networks):
        return None
    return IP_NOT_ALLOWED


def route_refusal(
    policy: Policy, route: Route, record: KeyRecord, account: Account
) -> Refusal | None:
    """Why a key that is good may not use the route; None: it may."""
    return (
        PLAN_UNKNOWN if record.plan not in policy.plans else access_refusal(route, record, account)
    )


def access_refusal(route: Route, record: KeyRecord, account: Account) -> Refusal | None:
    """What the route's own rules say: scopes, permission, service, in this order."""
    if not set(route.scopes) <= set(record.scopes):
        return INSUFFICIENT_SCOPE
    if route.permission is not None:
        area, action = route.permission
        if action not in record.permissions.get(area, ()):
            return INSUFFICIENT_PERMISSION
    if route.service is not None and route.service not in account.services:
        return SERVICE_NOT_ENABLED
    return None
