"""Keys and accounts as JSON values and as text. Never a secret or its digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

from gateway.domain import keylife
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Limit
from gateway.domain.shown import rfc3339


def key_as_json(record: KeyRecord, now_us: int, used_us: int | None) -> dict[str, object]:
    """A key as JSON. used_us: when it was last used; None: never"""
    return {
        "id": record.id,
        "name": record.name,
        "account": record.account,
        "plan": record.plan or None,
        "environment": record.environment,
        "status": keylife.status_at(record, now_us),
        "created": moment(record.created_us),
        "expires": moment(record.expires_us),
        "last_used": moment(used_us),
        "scopes": list(record.scopes),
        "permissions": {area: list(actions) for area, actions in record.permissions.items()},
        "ip_ranges": [str(network) for network in record.networks],
        "lineage": record.lineage,
        "successor": record.successor,
        "limits": _limits_as_json(record.limits),
    }


def account_as_json(account: Account) -> dict[str, object]:
    """An account as JSON."""
    return {
        "name": account.name,
        "status": account.status,
        "plan": account.plan or None,
        "services": list(account.services),
        "limits": _limits_as_json(account.limits),
        "billing_day": account.billing_day,
    }


def recorded(record: KeyRecord) -> dict[str, object]:
    """A key as JSON, without what changes by itself: its last use, and its expiry as a status."""
    shown = key_as_json(record, 0, None)  # at this time no key has expired
    del shown["last_used"]
    return shown


def version_of(recorded: Mapping[str, object]) -> str:
    """The version of a record, which changes with every field.

    recorded: `recorded` of a key, `account_as_json` of an account, …
    """
    content = json.dumps(recorded, separators=(",", ":"), sort_keys=True)
    return sha256(content.encode()).hexdigest()[:32]


def status_words(record: KeyRecord, now_us: int) -> str:
    """The status of a key: "valid", "suspended", "revoked" or "expired"."""
    return keylife.status_at(record, now_us)


def moment(at_us: int | None) -> str | None:
    """RFC 3339 in UTC, with microseconds if there are any."""
    return None if at_us is None else rfc3339(at_us)


def rate_words(limit: Limit) -> str:
    """The values of a limit in the format of forms: "300/minute,burst=500", "20"."""
    if limit.is_leased:
        return str(limit.amount)
    burst = f",burst={limit.burst}" if limit.burst is not None else ""
    return f"{limit.amount}/{limit.unit}{burst}"


def _limits_as_json(limits: Mapping[str, Limit]) -> dict[str, str]:
    return {name: rate_words(limit) for name, limit in limits.items()}
