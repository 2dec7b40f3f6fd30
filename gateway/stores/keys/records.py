"""How key records and accounts lie in Redis: the names, and JSON in and out.

gw:{keys}:key:ID         one record; these two prefixes are what a worker's directory is told about
gw:{keys}:account:NAME   one account
gw:{keys}:index          sorted set of the keys' ids, by creation
gw:{keys}:accounts       set of the accounts' names
gw:{keys}:once:DIGEST    the id of the key that was made under a word, for a day
gw:{keys}:used           hash of id -> when it was last used; apart, so that use is no change

One hash tag puts all of it into one slot of a cluster: what belongs together is changed in one
step, and one connection hears of every change.

What is read is input: others may write to the store, too. A record is held to the same patterns as
the forms that make one, because its texts become header lines, log fields, metric labels and pages.
One that breaks them is a CorruptRecord, whatever is in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from redis.crc import key_slot

from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import MAX_AMOUNT, UNITS_US, Limit, build_rate
from gateway.domain.networks import parse_network
from gateway.domain.patterns import LATEST_US, MOST_ENTRIES, is_per, is_scope, is_title, is_word
from gateway.domain.ports import CorruptRecord
from gateway.domain.spelling import is_environment, is_key_id

KEYS_TAG: Final = "gw:{keys}:"
KEY_PREFIX: Final = KEYS_TAG + "key:"
ACCOUNT_PREFIX: Final = KEYS_TAG + "account:"
KEY_INDEX: Final = KEYS_TAG + "index"
ACCOUNT_INDEX: Final = KEYS_TAG + "accounts"
ONCE_PREFIX: Final = KEYS_TAG + "once:"
USED: Final = KEYS_TAG + "used"
#: The slot of a cluster in which all names with this tag lie.
KEYS_SLOT: Final = key_slot(KEYS_TAG.encode())

#: The longest record that is read, in bytes. The largest that the forms can make has 126 KB.
MOST_BYTES: Final = 128 * 1024

_STATUSES: Final = ("valid", "suspended", "revoked")
_WINDOWS_US: Final = frozenset(UNITS_US.values())
#: What reading a value can end in that was not written here. RecursionError: JSON that is nested
#: thousands of levels deep.
_UNREADABLE: Final = (ValueError, TypeError, KeyError, RecursionError)

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


def value_range(name: str) -> tuple[str, str, int, int]:
    """The command that reads a record: no more of it than one can have, and one byte beyond.

    What is not there is read as nothing: b"".
    """
    return "GETRANGE", name, 0, MOST_BYTES


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
    except _UNREADABLE:
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
        if _word(found["name"]) == name:
            return Account(
                name,
                _each(found["services"], is_word),
                _maybe_word(found.get("plan", "")),
                _read_limits(found.get("limits", {})),
            )
    except _UNREADABLE:
        pass
    raise CorruptRecord("account", name)


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _load(content: bytes) -> dict[str, Any]:
    """Raises ValueError where it is too long or no JSON, and TypeError where it is no object."""
    if len(content) > MOST_BYTES:
        raise ValueError
    found = json.loads(content.decode(), object_pairs_hook=_once_each)
    if not isinstance(found, dict):
        raise TypeError
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Whoever reads a field twice would else see another value than the next one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _read_record(found: Mapping[str, Any]) -> KeyRecord:
    digest = bytes.fromhex(found["digest"])
    if len(digest) != 32 or found["status"] not in _STATUSES:
        raise ValueError
    expires_us, successor = found["expires_us"], found["successor"]
    return KeyRecord(
        id=_key_id(found["id"]),
        digest=digest,
        name=_text(found["name"], is_title),
        account=_word(found["account"]),
        plan=_maybe_word(found["plan"]),
        environment=sys.intern(_text(found["environment"], is_environment)),
        lineage=_key_id(found["lineage"]),
        created_us=_integer(found["created_us"], 0, LATEST_US),
        scopes=_each(found["scopes"], is_scope),
        permissions=_read_permissions(found["permissions"]),
        networks=tuple(map(_network, _each(found["networks"], str.isascii))),
        status=_STATUSES[_STATUSES.index(found["status"])],
        expires_us=None if expires_us is None else _integer(expires_us, 0, LATEST_US),
        successor=None if successor is None else _key_id(successor),
        limits=_read_limits(found["limits"]),
    )


def _read_permissions(found: object) -> Mapping[str, tuple[str, ...]]:
    entries = _entries(found)
    if sum(map(len, entries.values())) > MOST_ENTRIES:
        raise ValueError
    permissions = {_word(area): _each(actions, is_word) for area, actions in entries.items()}
    return MappingProxyType(permissions) if permissions else _EMPTY


def _write_limits(limits: Mapping[str, Limit]) -> dict[str, object]:
    return {name: _write_limit(limit) for name, limit in limits.items()}


def _read_limits(found: object) -> Mapping[str, Limit]:
    limits = {_word(name): _read_limit(name, limit) for name, limit in _entries(found).items()}
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
    shadow, burst, per = found["shadow"], found["burst"], _text(found["per"], is_per)
    amount = _integer(found["amount"], 1, MAX_AMOUNT)
    window_us = _integer(found["window_us"], 1, LATEST_US)
    if window_us not in _WINDOWS_US or not isinstance(shadow, bool):
        raise ValueError
    if found["kind"] == "rate":
        burst = None if burst is None else _integer(burst, 1, MAX_AMOUNT)
        return build_rate(name, amount, window_us, burst, per, shadow)
    if found["kind"] != "quota" or burst is not None:
        raise ValueError
    return Limit(name, "quota", amount, window_us, None, per, shadow)


def _text(value: object, rule: Callable[[str], bool]) -> str:
    if not isinstance(value, str):
        raise TypeError
    if not rule(value):
        raise ValueError
    return value


def _word(value: object) -> str:
    return _text(value, is_word)


def _maybe_word(value: object) -> str:
    """Few and shared by many, so that each is kept once."""
    return "" if value == "" else sys.intern(_word(value))


def _key_id(value: object) -> str:
    return _text(value, is_key_id)


def _each(value: object, rule: Callable[[str], bool]) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    if len(cast("list[object]", value)) > MOST_ENTRIES:
        raise ValueError
    return tuple(sys.intern(_text(item, rule)) for item in cast("list[object]", value))


def _entries(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    entries = cast("dict[str, Any]", value)
    if len(entries) > MOST_ENTRIES:
        raise ValueError
    return entries


def _integer(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    if not least <= value <= most:
        raise ValueError
    return value
