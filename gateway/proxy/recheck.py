"""Whether a long exchange may go on: its key is looked at again while the answer flows.

A request is judged once, at its beginning; a WebSocket or a stream of events then lives for hours.
So `deadlines` comes by a few times a second. Usually the key is what it was, and that is one look
at its identity. Else it is judged anew, and where it is still good, nobody notices.
"""

from __future__ import annotations

from functools import partial
from hmac import compare_digest
from typing import TYPE_CHECKING

from gateway.domain.admission import grant
from gateway.domain.keylife import status_refusal
from gateway.domain.networks import is_within, parse_address
from gateway.domain.ports import Absent, Identity
from gateway.errors import IP_NOT_ALLOWED, KEY_UNKNOWN, Refusal

if TYPE_CHECKING:
    from gateway.proxy.exchange import Exchange


def recheck(exchange: Exchange) -> None:
    """Break the exchange off if its key is not good for it any more."""
    identity = exchange.identity
    if identity is None:
        return
    record = identity.record
    if identity.current:
        _judge_as_known(exchange, identity)
        return
    directory = exchange.context.gate.directory
    known = directory.known(record.id)
    if known is not None:
        _judge_again(exchange, record.digest, known)
    else:
        # The directory makes one trip of all who ask meanwhile, the next look included.
        directory.look_up(record.id, partial(_judge_again, exchange, record.digest))


def _judge_as_known(exchange: Exchange, identity: Identity) -> None:
    """By what was known already: the key may have expired since."""
    refusal = _refusal_now(exchange, identity)
    if refusal is not None:
        exchange.abandon(refusal.reason)


def _judge_again(exchange: Exchange, key_digest: bytes, identity: Identity | Absent) -> None:
    if exchange.is_over:
        return
    if identity is Absent.UNAVAILABLE:
        # What was known of the key stands, and the next look asks again.
        assert exchange.identity is not None, "it is what was looked up"
        _judge_as_known(exchange, exchange.identity)
        return
    refusal = _refusal(exchange, key_digest, identity)
    if refusal is not None:
        exchange.abandon(refusal.reason)
    else:
        assert isinstance(identity, Identity)
        exchange.identity = identity


def _refusal(exchange: Exchange, key_digest: bytes, identity: Identity | Absent) -> Refusal | None:
    """What the key would now be told, under the policy that the exchange began with."""
    if isinstance(identity, Absent) or not compare_digest(identity.record.digest, key_digest):
        return KEY_UNKNOWN
    refusal = _refusal_now(exchange, identity)
    if refusal is not None:
        return refusal
    networks = identity.record.networks
    if networks and not is_within(parse_address(exchange.client_ip), networks):
        return IP_NOT_ALLOWED
    return grant(exchange.policy, exchange.route, identity).refusal


def _refusal_now(exchange: Exchange, identity: Identity) -> Refusal | None:
    """Why the key is no good at this moment, by the store's time."""
    environment = exchange.policy.environment
    return status_refusal(identity.record, environment, exchange.context.gate.clock_us())
