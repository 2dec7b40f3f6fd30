"""PagerDuty: https://developer.pagerduty.com/docs/webhooks-overview (version 3)"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any, Final

from gateway.domain.webhooks.kinds.forms import incident
from gateway.domain.webhooks.kinds.kind import UNKNOWN, Captured, Header, Kind, payload_id
from gateway.domain.webhooks.payload import at, moment, number, text
from gateway.domain.webhooks.signatures import Unverified, in_hex

_SIGNATURE: Final = "x-pagerduty-signature"
_ACTIONS: Final = {
    "incident.triggered": "triggered",
    "incident.reopened": "triggered",
    "incident.acknowledged": "acknowledged",
    "incident.unacknowledged": "triggered",
    "incident.resolved": "resolved",
}


def _verify(body: bytes, header: Header, secrets: Sequence[str], _now_s: float) -> None:
    """`v1=HEX`, several with commas while a secret changes."""
    sent = header(_SIGNATURE)
    if not sent:
        raise Unverified(f"no signature: expected {_SIGNATURE}")
    found = in_hex(sent)
    if not found:
        raise Unverified("the signature is malformed: expected v1=HEX, with 64 digits")
    macs = [hmac.digest(secret.encode(), body, "sha256") for secret in secrets]
    fits = [hmac.compare_digest(one, mac) for one in found for mac in macs]
    if not any(fits):
        raise Unverified("the signature does not fit the body and the secret")


def _normalize(_header: Header, payload: Any) -> Captured:
    event = at(payload, "event")
    action = _ACTIONS.get(text(event, "event_type"))
    if action is None:
        return UNKNOWN
    its = at(event, "data")
    status = text(its, "status")
    data = incident(
        its_id=text(its, "id"),
        number=number(its, "number"),
        title=text(its, "title"),
        status=status if status in {"triggered", "acknowledged", "resolved"} else action,
        urgency=text(its, "urgency"),
        service=text(its, "service.summary", "service.id"),
        url=text(its, "html_url"),
        created=at(its, "created_at"),
    )
    return Captured(f"incident.{action}", moment(at(event, "occurred_at")), data)


PAGERDUTY: Final = Kind("pagerduty", _verify, payload_id("event.id"), _normalize)
