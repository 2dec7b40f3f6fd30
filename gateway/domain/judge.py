"""Whether a key is valid now, and may use a route: the only place of these rules.

They are checked when a request begins (`proxy/gate.py`), again for a long exchange when its key or
account changes (`proxy/recheck.py`), and by `gateway explain` without a request. The first refusal
in this order is the answer:

0. `address_refusal`, for any key or none: the lists of addresses.
1. `key_refusal`, for any route: the secret, status, account's status, expiry and environment,
   networks. All but the networks are failed attempts to authenticate, which count against the
   client's address.
2. `route_refusal`: the plan exists, then scopes, permission, service.

Limits are not decided here: `meets` has the limits of a key.
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

#: Parsing an address takes 2 us, and one connection may send the requests of many keys.
_address = lru_cache(maxsize=4_096)(parse_address)


def key_refusal(
    record: KeyRecord, digest: bytes | None, environment: str, now_us: int, client_ip: str
) -> Refusal | None:
    """Why the key is not valid now and from this address; None: it is.

    digest:    that of the key that the client sent; None: it was compared, or the client's
               certificate stands for the key
    now_us:    the store's time, Unix microseconds
    client_ip: the client's address, as `parse_address` formats it
    """
    if digest is not None and not compare_digest(record.digest, digest):
        return KEY_UNKNOWN
    refusal = status_refusal(record, environment, now_us)
    if refusal is None and record.networks:
        return network_refusal(record, client_ip)
    return refusal


def status_refusal(record: KeyRecord, environment: str, now_us: int) -> Refusal | None:
    """Why the key is not valid at this time in this environment; None: it is.

    The most permanent reason comes first: a key that was revoked and has expired is revoked.
    record: as returned by `with_account`
    """
    if record.status != "valid":
        return KEY_REVOKED if record.status == "revoked" else KEY_SUSPENDED
    if record.account_status != "valid":
        return ACCOUNT_SUSPENDED
    if record.expires_us is not None and has_expired(record, now_us):
        return KEY_EXPIRED
    return None if record.environment == environment else KEY_ENVIRONMENT


def address_refusal(policy: Policy, route: Route, client_ip: str) -> Refusal | None:
    """Why no request from this address is accepted; None: they are."""
    address = _address(client_ip)
    for access in (policy.access, route.access):
        if access is not None and not access.permits(address):
            return ADDRESS_DENIED
    return None


def network_refusal(record: KeyRecord, client_ip: str) -> Refusal | None:
    """Why the key may not be used from this address; None: it may."""
    if not record.networks or is_within(_address(client_ip), record.networks):
        return None
    return IP_NOT_ALLOWED


def route_refusal(
    policy: Policy, route: Route, record: KeyRecord, account: Account
) -> Refusal | None:
    """Why a valid key may not use the route; None: it may."""
    if policy.plan(record.plan) is None:
        return PLAN_UNKNOWN
    return access_refusal(route, record, account)


def access_refusal(route: Route, record: KeyRecord, account: Account) -> Refusal | None:
    """The refusal by the route's own rules: scopes, permission, service, in this order."""
    if not set(route.scopes) <= set(record.scopes):
        return INSUFFICIENT_SCOPE
    if route.permission is not None:
        area, action = route.permission
        if action not in record.permissions.get(area, ()):
            return INSUFFICIENT_PERMISSION
    if route.service is not None and route.service not in account.services:
        return SERVICE_NOT_ENABLED
    return None
