"""Reads what the scripts and hashes of a shard answer: events, deliveries and claims.

A value of another form raises ValueError, TypeError or LookupError.
"""

from __future__ import annotations

import json
from typing import Any, Final

from gateway.domain.webhooks.deliveries import Attempt, Claim, Claimed, Delivery, KeptEvent

EVENT_FIELDS: Final = ("integration", "type", "body", "at", "left")
DELIVERY_FIELDS: Final = ("state", "reason", "at", "ended", "log")


def bound_before(at_us: int) -> str:
    """The bound of a range that ends before this time. 0: it has no end"""
    return f"({at_us}" if at_us else "+inf"


def read_event(found: list[bytes | None]) -> KeptEvent:
    """found: its id, and EVENT_FIELDS"""
    event, integration, kind, body, at, left = (value or b"" for value in found)
    return KeptEvent(
        id=event.decode("utf-8", "replace"),
        integration=integration.decode("utf-8", "replace"),
        type=kind.decode("utf-8", "replace"),
        body=body,
        at_us=int(at or 0),
        left=int(left or 0),
    )


def read_delivery(found: list[bytes | None]) -> Delivery:
    """found: its id, and DELIVERY_FIELDS"""
    its = ((value or b"").decode("utf-8", "replace") for value in found)
    delivery, state, reason, at, ended, log = its
    attempts = tuple(Attempt(*json.loads(line)) for line in log.splitlines())
    return Delivery(delivery, state, reason, int(at or 0), int(ended or 0), attempts)


def read_claim(token: str, found: Any) -> Claim:
    """What was claimed with this token."""
    wait_us, lost, claimed = found
    deliveries = tuple(
        Claimed(
            id=delivery.decode(),
            token=token,
            watch=watch,
            integration=integration.decode(),
            body=body,
            attempts=int(attempts),
            at_us=int(at_us),
            is_good=bool(is_good),
            openings=int(openings),
        )
        for delivery, watch, integration, body, attempts, at_us, is_good, openings in claimed
    )
    return Claim(deliveries, wait_us / 1_000_000 if wait_us >= 0 else None, lost)
