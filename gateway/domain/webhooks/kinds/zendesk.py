"""Zendesk: https://developer.zendesk.com/documentation/webhooks/verifying/"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from gateway.domain.webhooks.kinds.forms import Person, ticket
from gateway.domain.webhooks.kinds.kind import (
    UNKNOWN,
    Captured,
    Header,
    Kind,
    check_any,
    in_base64,
)
from gateway.domain.webhooks.payload import at, moment, text
from gateway.domain.webhooks.signatures import TOLERANCE_S, Unverified, in_bytes

_SIGNATURE: Final = "x-zendesk-webhook-signature"
_TIMESTAMP: Final = "x-zendesk-webhook-signature-timestamp"
_is_base64: Final = re.compile(r"[A-Za-z0-9+/]{43}=").fullmatch
_PREFIX: Final = "zen:event-type:ticket."
_ACTIONS: Final = {
    "created": "created",
    **dict.fromkeys(("soft_deleted", "permanently_deleted"), "deleted"),
    **dict.fromkeys(("marked_as_spam", "merged"), "closed"),
}
_STATUS: Final = {
    **dict.fromkeys(("new", "open"), "open"),
    **dict.fromkeys(("pending", "hold", "on-hold"), "in_progress"),
    **dict.fromkeys(("solved", "closed", "deleted", "archived", "scrubbed"), "closed"),
}


def _verify(body: bytes, header: Header, secrets: Sequence[str], now_s: float) -> None:
    sent, timestamp = header(_SIGNATURE), header(_TIMESTAMP)
    if not sent or not timestamp:
        raise Unverified(f"no signature: expected {_SIGNATURE} and {_TIMESTAMP}")
    if not _is_base64(sent):
        raise Unverified("the signature is malformed: expected 32 bytes in base64")
    # A text such as 2021-03-25T05:09:27Z.
    read = moment(timestamp)
    if not read:
        raise Unverified("the timestamp is not a date")
    age_s = now_s - datetime.fromisoformat(read).timestamp()
    if abs(age_s) > TOLERANCE_S:
        raise Unverified(f"the timestamp is {abs(age_s):.0f} s from now")
    signed = in_bytes(timestamp) + body
    check_any(
        sent, [in_base64(hmac.digest(secret.encode(), signed, "sha256")) for secret in secrets]
    )


def _delivery_id(header: Header, payload: Any) -> str:
    """What a trigger sends has no id of its own, only that of its sending."""
    return text(payload, "id") or header("x-zendesk-webhook-invocation-id")


def _normalize(_header: Header, payload: Any) -> Captured:
    event = text(payload, "type")
    if not event.startswith(_PREFIX):
        return UNKNOWN
    its = at(payload, "detail")
    status = _STATUS.get(text(its, "status").lower(), "open")
    action = _ACTIONS.get(event.removeprefix(_PREFIX), "updated")
    # One that was solved is closed some days later.
    before = _STATUS.get(text(payload, "event.previous").lower())
    if event == f"{_PREFIX}status_changed" and status == "closed" and before != "closed":
        action = "closed"
    its_id = text(its, "id")
    data = ticket(
        its_id=its_id,
        key=its_id,
        title=text(its, "subject"),
        description=text(its, "description"),
        status=status,
        priority=text(its, "priority"),
        reporter=_person(text(its, "requester_id")),
        assignee=_person(text(its, "assignee_id")),
        created=at(its, "created_at"),
        updated=at(its, "updated_at"),
    )
    return Captured(f"ticket.{action}", moment(at(payload, "time")), data)


def _person(its_id: str) -> Person:
    return Person(id=its_id, username="", email="")


ZENDESK: Final = Kind("zendesk", _verify, _delivery_id, _normalize)
