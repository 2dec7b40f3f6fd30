"""How key records and accounts lie in Redis: the names, and JSON in and out.

gw:{keys}:key:ID         one record; these two prefixes are what a worker's directory is told about
gw:{keys}:account:NAME   one account
gw:{keys}:index          sorted set of the keys' ids, by creation
gw:{keys}:accounts       set of the accounts' names
gw:{keys}:once:DIGEST    the id of the key that was made under a word, for a day
gw:{keys}:used           hash of id -> when it was last used; apart, so that use is no change

One hash tag puts all of it into one slot of a cluster: what belongs together is changed in one
step, and one connection hears of every change.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from redis.crc import key_slot

from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Limit
from gateway.domain.networks import parse_network
from gateway.domain.ports import CorruptRecord

KEYS_TAG: Final = "gw:{keys}:"
KEY_PREFIX: Final = KEYS_TAG + "key:"
ACCOUNT_PREFIX: Final = KEYS_TAG + "account:"
KEY_INDEX: Final = KEYS_TAG + "index"
ACCOUNT_INDEX: Final = KEYS_TAG + "accounts"
ONCE_PREFIX: Final = KEYS_TAG + "once:"
USED: Final = KEYS_TAG + "used"
#: The slot of a cluster in which all names with this tag lie.
KEYS_SLOT: Final = key_slot(KEYS_TAG.encode())

_STATUSES: Final = ("valid", "suspended", "revoked")

#: Most keys have the same few ranges, words and empty mappings as others. Shared, they take a third
#: less of memory and of the garbage collector's time, and stay in the processor's caches.
_network = lru_cache(maxsize=4_096)(parse_network)
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


def key_name(key_id: str) -> str:
    """Where a record lies. Percent-encoding keeps any text in its place."""
    # An id as the gateway makes them needs none, which is seen in a tenth of the time.
    is_plain = key_id.isascii() and key_id.isalnum()
    return KEY_PREFIX + (key_id if is_plain else quote(key_id, safe=""))


def account_name(name: str) -> str:
    """Where an account lies."""
    return ACCOUNT_PREFIX + quote(name, safe="")


def once_name(word: str) -> str:
    """Where the id of the key lies that was made under a word."""
    return ONCE_PREFIX + quote(word, safe="")


def subject_of(name: bytes, prefix: str) -> str | None:
    """The id or account that a name of ours speaks of; None: the name has another prefix."""
    text = name.decode("ascii", "replace")
    return unquote(text[len(prefix) :]) if text.startswith(prefix) else None


def write_record(record: KeyRecord) -> bytes:
    """A record as JSON. One record always gives the same bytes: `replace` compares them."""
    return _dump(
        {
            "id": record.id,
            "digest": record.digest.hex(),
            "name": record.name,
            "account": record.account,
            "plan": record.plan,
            "environment": record.environment,
            "lineage": record.lineage,
            "created_us": record.created_us,
            "scopes": record.scopes,
            "permissions": {area: list(acts) for area, acts in record.permissions.items()},
            "networks": [str(network) for network in record.networks],
            "status": record.status,
            "expires_us": record.expires_us,
            "successor": record.successor,
            "limits": _write_limits(record.limits),
        }
    )


def read_record(key_id: str, content: bytes) -> KeyRecord:
    """A record from JSON. Raises CorruptRecord, which names the id and never quotes the content."""
    try:
        record = _read_record(_load(content))
        if record.id == key_id:
            return record
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise CorruptRecord("key", key_id)


def write_account(account: Account) -> bytes:
    """An account as JSON. One account always gives the same bytes, as a record does.

    Without plan and limits they are those that releases wrote which knew neither.
    """
    written: dict[str, object] = {"name": account.name, "services": account.services}
    if account.plan:
        written["plan"] = account.plan
    if account.limits:
        written["limits"] = _write_limits(account.limits)
    return _dump(written)


def read_account(name: str, content: bytes) -> Account:
    """An account from JSON. Raises CorruptRecord."""
    try:
        found = _load(content)
        if found["name"] == name:
            return Account(
                name,
                _strings(found["services"]),
                sys.intern(_string(found.get("plan", ""))),
                _read_limits(found.get("limits", {})),
            )
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise CorruptRecord("account", name)


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _load(content: bytes) -> dict[str, Any]:
    """Raises ValueError where it is no JSON, and TypeError where it is no object."""
    found = json.loads(content)
    if not isinstance(found, dict):
        raise TypeError
    return found


def _read_record(found: Mapping[str, Any]) -> KeyRecord:
    digest = bytes.fromhex(found["digest"])
    if len(digest) != 32 or found["status"] not in _STATUSES:
        raise ValueError
    permissions = {_string(k): _strings(v) for k, v in found["permissions"].items()}
    return KeyRecord(
        id=_string(found["id"]),
        digest=digest,
        name=_string(found["name"]),
        account=_string(found["account"]),
        plan=sys.intern(_string(found["plan"])),
        environment=sys.intern(_string(found["environment"])),
        lineage=_string(found["lineage"]),
        created_us=_integer(found["created_us"]),
        scopes=_strings(found["scopes"]),
        permissions=MappingProxyType(permissions) if permissions else _EMPTY,
        networks=tuple(_network(text) for text in _strings(found["networks"])),
        status=_STATUSES[_STATUSES.index(found["status"])],
        expires_us=None if found["expires_us"] is None else _integer(found["expires_us"]),
        successor=None if found["successor"] is None else _string(found["successor"]),
        limits=_read_limits(found["limits"]),
    )


def _write_limits(limits: Mapping[str, Limit]) -> dict[str, object]:
    return {name: _write_limit(limit) for name, limit in limits.items()}


def _read_limits(found: Mapping[str, Any]) -> Mapping[str, Limit]:
    limits = {_string(name): _read_limit(name, limit) for name, limit in found.items()}
    return MappingProxyType(limits) if limits else _EMPTY


def _write_limit(limit: Limit) -> dict[str, object]:
    return {
        "kind": limit.kind,
        "amount": limit.amount,
        "window_us": limit.window_us,
        "burst": limit.burst,
        "per": limit.per,
        "shadow": limit.shadow,
    }


def _read_limit(name: str, found: Mapping[str, Any]) -> Limit:
    if found["kind"] not in ("rate", "quota") or not isinstance(found["shadow"], bool):
        raise ValueError
    return Limit(
        name,
        found["kind"],
        _positive(found["amount"]),
        _positive(found["window_us"]),
        None if found["burst"] is None else _positive(found["burst"]),
        _string(found["per"]),
        found["shadow"],
    )


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(sys.intern(_string(item)) for item in cast("list[object]", value))


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _positive(value: object) -> int:
    if (number := _integer(value)) < 1:
        raise ValueError
    return number
