"""Notices: events that the gateway itself makes, of the kinds `gateway` and `operator`.

A notice has a name. Workers and couriers that make the same one make the same event of it, which is
accepted once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from gateway.domain.json_text import read_json
from gateway.domain.patterns import LATEST_US
from gateway.domain.warnings import LimitWarning, of_values
from gateway.domain.webhooks.events import Event, Integration, noticed
from gateway.domain.webhooks.kinds.own import GATEWAY
from gateway.domain.webhooks.payload import moment

LIMIT_NEAR: Final = "limit.near"
LIMIT_REACHED: Final = "limit.reached"
WATCH_DISABLED: Final = "watch.disabled"

#: The most notices that wait for a courier, some 30 MB; beyond it the oldest are dropped.
MOST_WAITING: Final = 100_000
#: The longest notice that is read.
MOST_BYTES: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class Notice:
    """What an account, or whoever runs the gateway, is told.

    account: that it is about
    named:   what it is the only one of, as hexadecimal digits
    at_us:   when it happened, Unix microseconds
    """

    account: str
    type: str
    named: str
    at_us: int
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Disabled:
    """A watch was disabled. why: in words; at_us: when, Unix microseconds"""

    integration: str
    watch: str
    why: str
    at_us: int


def has_notices(account: str, integrations: Iterable[Integration]) -> bool:
    """Has the account an integration of the kind `gateway`? It may have one."""
    return any(each.account == account and each.kind == GATEWAY.name for each in integrations)


def limit_notice(warning: LimitWarning) -> Notice:
    """A limit is nearly used up, or is: once for its counter, level and window."""
    data = {
        "account": warning.account,
        "limit": warning.limit,
        "level": warning.level,
        "per": warning.per,
        "key_id": warning.key_id,
        "plan": warning.plan,
        "amount": warning.amount,
        "used": warning.used,
        "used_percent": warning.used * 100 // max(1, warning.amount),
        "window_seconds": warning.window_us // 1_000_000,
        "resets": moment(warning.resets_us / 1_000_000),
    }
    named = _digest(warning.account, warning.limit, warning.counter, warning.level, warning.window)
    kind = LIMIT_NEAR if warning.level < 100 else LIMIT_REACHED
    return Notice(warning.account, kind, named, warning.at_us, data)


def disabled_notice(disabled: Disabled, integration: Integration, host: str) -> Notice:
    """A watch was disabled.

    integration: of the watch
    host:        of the watch's URL, of which the rest may have a secret; "": it was removed
    """
    data = {
        "account": integration.account,
        "watch_id": disabled.watch,
        "integration_id": integration.id,
        "provider": integration.kind,
        "host": host,
        "reason": disabled.why,
    }
    named = _digest(disabled.integration, disabled.watch, disabled.at_us)
    return Notice(integration.account, WATCH_DISABLED, named, disabled.at_us, data)


def event_of(integration: Integration, notice: Notice) -> Event:
    """The event of a notice for this integration."""
    return noticed(integration, notice.type, notice.data, notice.named, notice.at_us)


def read_warning(content: bytes) -> LimitWarning | None:
    """What the script of warnings has written. None: it is not one of ours."""
    try:
        return of_values(read_json(content)) if len(content) <= MOST_BYTES else None
    except (ValueError, TypeError):
        return None


def read_disabled(content: bytes) -> Disabled | None:
    """What `disable.lua` has written. None: it is not one of ours."""
    try:
        if len(content) > MOST_BYTES:
            return None
        integration, watch, why, at = read_json(content)
        texts = all(isinstance(each, str) for each in (integration, watch, why, at))
        if not texts or not at.isascii() or not at.isdigit() or int(at) > LATEST_US:
            return None
    except (ValueError, TypeError):
        return None
    return Disabled(integration, watch, why, int(at))


def _digest(*parts: str | int) -> str:
    text = "\0".join(map(str, parts))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
