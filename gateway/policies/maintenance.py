"""`maintenance` of a route or of all, as it is written: true, false or a mapping."""

from __future__ import annotations

from typing import Final

from gateway.domain.maintenance import Maintenance
from gateway.domain.patterns import printable
from gateway.policies import fields
from gateway.policies.settings import read_networks
from gateway.policies.values import Value, setting

MAINTENANCE: Final = ("message", "retry_after", "allow")
MOST_MESSAGE: Final = 300
MAX_RETRY_S: Final = 86_400.0


def read_maintenance(value: Value) -> Maintenance | None:
    """The setting; None: it is false, or faulty."""
    if not value.is_mapping:
        if value.is_true:
            return Maintenance()
        if not value.is_false:
            value.add_fault("true, false, or a mapping with message, retry_after and allow")
        return None
    given = value.fields(MAINTENANCE)
    if given is None:
        return None
    default = Maintenance()
    return Maintenance(
        message=setting(given, "message", _read_message, default.message),
        retry_after_s=setting(given, "retry_after", _read_retry, default.retry_after_s),
        allow=setting(given, "allow", read_networks, ()),
    )


def _read_message(value: Value) -> str | None:
    text = value.text("a message for clients")
    if text is None:
        return None
    if not text.strip() or len(text) > MOST_MESSAGE or printable(text) != text:
        value.add_fault(f"a message of one line, up to {MOST_MESSAGE} characters")
        return None
    return text.strip()


def _read_retry(value: Value) -> float | None:
    return value.duration(_retry)


def _retry(text: str) -> float:
    seconds = fields.read_duration(text)
    if not 1 <= seconds <= MAX_RETRY_S or seconds % 1:
        raise ValueError("a duration of whole seconds from 1s to 1d")
    return seconds
