"""Rechecks the key of a long exchange while its answer is relayed.

A request is decided once, at its beginning; a WebSocket or an event stream may then last for hours.
So `deadlines` calls this a few times a second. Usually the cached identity is current, and only the
key's expiry is checked. Otherwise the key is looked up and checked again.
"""

from __future__ import annotations

from functools import partial

from gateway.domain.identity import Absent, Identity
from gateway.domain.judge import address_refusal, key_refusal, route_refusal, status_refusal
from gateway.errors import ADDRESS_DENIED, KEY_UNKNOWN, Refusal
from gateway.proxy.gate import Gate
from gateway.proxy.request import Request


def recheck(request: Request, gate: Gate) -> None:
    """Abandon the request if its address or its key is not valid for it any more."""
    if gate.has_address_rules:
        policy, route = gate.policy, request.route
        current = policy.routes.get(route.name, route)
        if address_refusal(policy, current, request.client_ip):
            request.abandon(ADDRESS_DENIED.reason)
            return
    identity = request.identity
    if identity is None:
        return
    record = identity.record
    if identity.current:
        _check_cached(request, gate, identity)
        return
    known = gate.directory.known(record.id)
    if known is not None:
        _check_looked_up(request, gate, record.digest, known)
    else:
        # The directory merges all look-ups of the key until the answer, the next check's included.
        gate.directory.look_up(record.id, partial(_check_looked_up, request, gate, record.digest))


def _check_cached(request: Request, gate: Gate, identity: Identity) -> None:
    """Check the cached identity: the key may have expired since."""
    refusal = _refusal_now(request, gate, identity)
    if refusal is not None:
        request.abandon(refusal.reason)


def _check_looked_up(
    request: Request, gate: Gate, key_digest: bytes, identity: Identity | Absent
) -> None:
    if request.is_over:
        return
    if identity is Absent.UNAVAILABLE:
        # The cached identity holds, and the next check looks the key up again.
        assert request.identity is not None, "it is what was looked up"
        _check_cached(request, gate, request.identity)
        return
    refusal = _refusal(request, gate, key_digest, identity)
    if refusal is not None:
        request.abandon(refusal.reason)
    else:
        assert isinstance(identity, Identity)
        request.identity = identity


def _refusal(
    request: Request, gate: Gate, key_digest: bytes, identity: Identity | Absent
) -> Refusal | None:
    """Why the key would now be refused, under the policy that the request began with."""
    if isinstance(identity, Absent):
        return KEY_UNKNOWN
    policy, record = request.policy, identity.record
    return key_refusal(
        record, key_digest, policy.environment, gate.clock_us(), request.client_ip
    ) or route_refusal(policy, request.route, record, identity.account)


def _refusal_now(request: Request, gate: Gate, identity: Identity) -> Refusal | None:
    """Why the key is not valid now, by the store's time."""
    return status_refusal(identity.record, request.policy.environment, gate.clock_us())
