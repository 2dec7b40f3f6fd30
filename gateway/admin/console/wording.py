"""Formats values for the pages: times, counts, shares, outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from gateway.domain.limits import KINDS, SECOND_US, Limit
from gateway.manage.words import period_words

#: A status has a word and a shape, so that it can be recognised without colour.
SHAPES: Final = {
    **{"valid": "●", "suspended": "◐", "expired": "○", "revoked": "✕"},
    **{"active": "●", "failing": "◐", "paused": "○", "disabled": "✕"},
    **{"queued": "○", "leased": "◔", "waiting": "◐", "delivered": "●"},
    **{"dead": "✕", "cancelled": "-"},
}

#: The labels of the groups of outcomes, in the order in which they are stacked.
GROUPS: Final = {
    "admitted": "Admitted",
    "limited": "Limited",
    "refused": "Refused",
    "failed": "Failed",
}

#: Value of ?done= -> the message about a change.
DONE: Final = {
    "suspended": "The key is suspended. Every gateway refuses it within a second.",
    "resumed": "The key is valid again.",
    "revoked": "The key is revoked. Every gateway refuses it within a second.",
    "account-suspended": "The account is suspended. Its keys are refused within a second.",
    "account-resumed": "The account is no longer suspended.",
    "account-deleted": "The account is deleted.",
    "saved": "The changes are saved. Every gateway applies them within a second.",
    "reset": "The limit is reset.",
    "integration-created": "The integration is created.",
    "integration-saved": "The changes are saved. They apply to the next webhooks.",
    "integration-paused": "The integration is paused. Nothing is captured until it is resumed.",
    "integration-resumed": "The integration captures events again.",
    "integration-removed": "The integration is removed.",
    "address-rotated": "The integration has a new capture address. Give it to the provider.",
    "secret-set": "The secrets of the provider are replaced.",
    "watch-saved": "The changes are saved. They apply to the next attempts.",
    "watch-paused": "The watch is paused. Its events wait until it is resumed.",
    "watch-resumed": "The watch is resumed. What waits for it is delivered.",
    "watch-removed": "The watch is removed. What waited for it is cancelled.",
    "resent": "The event is queued once more, as this delivery.",
    "signed-out": "You are signed out.",
}

#: The message if someone else's change came first.
CHANGED: Final = (
    "Someone else changed this after you opened it. Your input is still here: check the current"
    " values, and save again to overwrite them."
)

#: The labels of usage windows.
WINDOWS: Final = {"1h": "1 hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}

_AGO_S: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


def moment(at_us: int) -> str:
    """For a `datetime` attribute: "2026-07-01T12:00:05Z"."""
    return _utc(at_us).strftime("%Y-%m-%dT%H:%M:%SZ")


def spelled(at_us: int) -> str:
    """For people: "2026-07-01 12:00:05 UTC"."""
    return _utc(at_us).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(at_us: int, now_us: int) -> str:
    """A time relative to now: "just now", "3 min ago", "5 d ago", "in 3 h"."""
    since_s = (now_us - at_us) / SECOND_US
    for unit, width_s in _AGO_S:
        if abs(since_s) >= width_s:
            amount = f"{abs(since_s) // width_s:.0f} {unit}"
            return f"{amount} ago" if since_s > 0 else f"in {amount}"
    return "just now" if since_s >= 0 else "in less than a minute"


def number(count: int) -> str:
    """Digits in groups of three: "12,345"."""
    return f"{count:,}"


def share(part: int, whole: int) -> str:
    """A percentage: "0 %", "< 0.1 %", "12.5 %"; "-" if the whole is 0."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %" if part else "0 %"


def duration(span_us: int) -> str:
    """A duration, rounded up: "0 s", "45 s", "12 min", "3 h", "2 d"."""
    seconds = -(-span_us // SECOND_US)
    for unit, width_s in _AGO_S:
        if seconds >= 2 * width_s:
            return f"{-(-seconds // width_s)} {unit}"
    return f"{seconds} s"


def sentence(text: str) -> str:
    """A problem's text as a sentence: with a capital letter and a full stop."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def outcome(text: str) -> str:
    """An outcome in words: "limited by search", "refused: key expired"."""
    kind, colon, detail = text.partition(":")
    if not colon:
        return kind
    return f"limited by {detail}" if kind == "limited" else f"{kind}: {detail.replace('_', ' ')}"


def limit_text(limit: Limit) -> str:
    """A limit in words: "60 a minute, burst 100", "10,000 a day (quota)"."""
    if limit.is_leased:
        return f"{number(limit.amount)} {limit.rules.unit_words}"
    burst = f", burst {number(limit.burst)}" if limit.burst is not None else ""
    label = KINDS[limit.kind].label
    counted = f" {limit.of}" if limit.of != "requests" else ""
    words = f"{number(limit.amount)}{counted} a {limit.unit}{burst}{f' ({label})' if label else ''}"
    return words + period_words(limit)


@dataclass(frozen=True, slots=True)
class Change:
    """A changed field, in words. "": no value"""

    field: str
    before: str
    after: str


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[Change]:
    """The fields in which two versions differ; all fields, if there is only one version."""
    old, new = before or {}, after or {}
    rows = (
        Change(name.replace("_", " "), plain(old.get(name)), plain(new.get(name)))
        for name in {**old, **new}
    )
    return [row for row in rows if row.before != row.after]


def plain(value: object) -> str:
    """A JSON value as text: "yes", "a:read, b:read", "plan 300/minute; search 5/minute"."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {plain(entry)}" for name, entry in value.items())
    return str(value)


def _utc(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us // SECOND_US, UTC)
