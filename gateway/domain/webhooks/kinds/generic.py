"""Any other provider: signed as the service signs, with events in the service's own form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.domain.webhooks.event_types import is_type
from gateway.domain.webhooks.kinds.kind import UNKNOWN, Captured, Header, Kind
from gateway.domain.webhooks.payload import at, moment, text
from gateway.domain.webhooks.signatures import STANDARD_ID, Verification


def _verify(body: bytes, header: Header, secrets: Sequence[str], now_s: float) -> None:
    by = Verification("generic", tuple(secrets))
    by.check(by.read(header, now_s), body)


def _delivery_id(header: Header, payload: Any) -> str:
    """The one of the body, which is signed whatever the form."""
    return text(payload, "id") or header(STANDARD_ID)


def _normalize(_header: Header, payload: Any) -> Captured:
    """`{"id": …, "type": "RESOURCE.ACTION", "created": …, "data": {…}}`"""
    event_type, data = text(payload, "type"), at(payload, "data")
    if not is_type(event_type) or not isinstance(data, dict):
        return UNKNOWN
    return Captured(event_type, moment(at(payload, "created")), data)


GENERIC: Final = Kind("generic", _verify, _delivery_id, _normalize, takes_id_header=True)
