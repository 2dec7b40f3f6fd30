"""Webhooks of Zendesk."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode

import pytest

from gateway.domain.webhooks.kinds.zendesk import ZENDESK
from gateway.domain.webhooks.signatures import TOLERANCE_S
from tests.domain.webhooks.kinds.cases import (
    NOW,
    SECRET,
    Case,
    cases,
    check,
    check_signatures,
    refuses,
)


def sign(body: bytes, secret: str, timestamp: str = "2026-11-23T17:00:00Z") -> dict[str, str]:
    """Of the timestamp, a text, with the body behind it."""
    mac = hmac.new(secret.encode(), timestamp.encode() + body, hashlib.sha256).digest()
    return {
        "X-Zendesk-Webhook-Signature": b64encode(mac).decode(),
        "X-Zendesk-Webhook-Signature-Timestamp": timestamp,
    }


@pytest.mark.parametrize("case", cases("zendesk"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(ZENDESK, case, sign)


def test_signatures() -> None:
    """Of time and body."""
    check_signatures(ZENDESK, sign, body=b'{"type":"zen:event-type:ticket.created"}')


@pytest.mark.parametrize("late_s", [TOLERANCE_S + 1, -TOLERANCE_S - 1])
def test_the_time(late_s: int) -> None:
    """It may not be far from now."""
    refuses(ZENDESK, b"{}", sign(b"{}", SECRET), "from now", now=NOW + late_s)


def test_another_time() -> None:
    """The time is signed; one that is no date is refused."""
    signed = sign(b"{}", SECRET)
    later = {**signed, "X-Zendesk-Webhook-Signature-Timestamp": "2026-11-23T17:00:01Z"}
    refuses(ZENDESK, b"{}", later, "does not fit")
    refuses(ZENDESK, b"{}", sign(b"{}", SECRET, "today"), "not a date")
