"""Reads what the scripts and hashes of a shard answer: events, deliveries and claims.

A value of another form raises ValueError, TypeError or LookupError.
"""

from __future__ import annotations

from typing import Any

from gateway.domain.json_text import read_json
from gateway.domain.webhooks.deliveries import (
    Attempt,
    Claim,
    Claimed,
    Delivery,
    Filter,
    KeptEvent,
)


def bounds_of(wanted: Filter, before_us: int) -> tuple[str, str]:
    """The bounds of a page of such entries, from and to. before_us: they end then; 0: no end"""
    ends = [end for end in (wanted.to_us, before_us or None) if end is not None]
    return (
        "-inf" if wanted.from_us is None else str(wanted.from_us),
        f"({min(ends)}" if ends else "+inf",
    )


def read_event(found: list[bytes | None]) -> KeptEvent:
    """found: as `event_shown` of the scripts returns it"""
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
    """found: as `delivery_shown` of the scripts returns it"""
    its = ((value or b"").decode("utf-8", "replace") for value in found)
    delivery, state, reason, at, ended, log = its
    attempts = tuple(Attempt(*read_json(line)) for line in log.splitlines())
    return Delivery(delivery, state, reason, int(at or 0), int(ended or 0), attempts)


def read_claim(token: str, found: Any) -> Claim:
    """What was claimed with this token."""
    wait_us, lost, claimed, faults = found
    deliveries = tuple(_read_claimed(token, each) for each in claimed)
    wait_s = wait_us / 1_000_000 if wait_us >= 0 else None
    return Claim(
        deliveries, wait_s, lost, tuple(each.decode("utf-8", "replace") for each in faults)
    )


def _read_claimed(token: str, found: Any) -> Claimed:
    delivery, watch, integration, body, attempts, at_us, is_good, openings, account = found
    return Claimed(
        id=delivery.decode(),
        token=token,
        watch=watch,
        integration=integration.decode(),
        body=body,
        attempts=int(attempts),
        at_us=int(at_us),
        is_good=bool(is_good),
        openings=int(openings),
        account=account.decode("utf-8", "replace"),
    )
