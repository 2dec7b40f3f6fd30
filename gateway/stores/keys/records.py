"""Key records and accounts as JSON in Redis. `stores/names.py` has their names.

Records are untrusted input, as others may write to the store. They have to match the same patterns
as the input that creates them, because their texts get into header lines, log fields, metric labels
and pages. A record that does not match is a CorruptRecord.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, cast

from gateway.domain.json_text import read_json
from gateway.domain.key_format import is_environment, is_key_id
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import KINDS, MAX_AMOUNT, Limit, build_rate, values_of
from gateway.domain.networks import parse_network
from gateway.domain.patterns import (
    LATEST_US,
    MOST_ENTRIES,
    is_limit_name,
    is_per,
    is_scope,
    is_title,
    is_word,
)
from gateway.domain.ports import CorruptRecord
from gateway.observe.log_throttle import LogThrottle

log = logging.getLogger("gateway")

#: The longest record that is read, in bytes. The largest that the gateway can create has 126 KB.
MOST_BYTES: Final = 128 * 1024

_STATUSES: Final = ("valid", "suspended", "revoked")
_ACCOUNT_STATUSES: Final = ("valid", "suspended")
#: What reading a foreign value can raise.
_UNREADABLE: Final = (ValueError, TypeError, KeyError)

#: Most keys have the same few ranges, names and empty mappings as other keys. Shared, they need a
#: third less memory and less time of the garbage collector, and stay in the processor's caches.
_network = lru_cache(maxsize=4_096)(parse_network)
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


def value_range(name: str) -> tuple[str, str, int, int]:
    """The command that reads a record, up to one byte more than the longest has.

    Its reply for a missing record is b"".
    """
    return "GETRANGE", name, 0, MOST_BYTES


def write_record(record: KeyRecord) -> bytes:
    """A record as JSON. One record always gives the same bytes: `replace` compares them."""
    moved = {"moved_from": record.moved_from} if record.moved_from else {}
    return _dump(
        {
            **moved,
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

    Without the fields after the services, the bytes are the same as in releases that had none.
    """
    written: dict[str, object] = {"name": account.name, "services": account.services}
    if account.plan:
        written["plan"] = account.plan
    if account.limits:
        written["limits"] = _write_limits(account.limits)
    if account.billing_day != 1:
        written["billing_day"] = account.billing_day
    if account.status != "valid":
        written["status"] = account.status
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
                _integer(found.get("billing_day", 1), 1, 31),
                _ACCOUNT_STATUSES[_ACCOUNT_STATUSES.index(found.get("status", "valid"))],
            )
    except _UNREADABLE:
        pass
    raise CorruptRecord("account", name)


class UnreadableLog:
    """Logs records that cannot be read, at most one a second.

    now_s: a clock that never steps back
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._throttle = LogThrottle()

    def note(self, error: CorruptRecord) -> None:
        """Log the record, or count it for the next line."""
        suppressed = self._throttle.suppressed("records", self._now_s())
        if suppressed is not None:
            more = f" ({suppressed} such lines were suppressed)" if suppressed else ""
            log.error("%s%s", error, more)


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _load(content: bytes) -> dict[str, Any]:
    """Parse an object. Raises ValueError if it is too long or not JSON, TypeError if no object."""
    if len(content) > MOST_BYTES:
        raise ValueError
    found = read_json(content.decode(), object_pairs_hook=_once_each)
    if not isinstance(found, dict):
        raise TypeError
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Repeated fields are invalid, as parsers differ in which value they use."""
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
        moved_from=_maybe_word(found.get("moved_from", "")),
    )


def _read_permissions(found: object) -> Mapping[str, tuple[str, ...]]:
    entries = _entries(found)
    if sum(map(len, entries.values())) > MOST_ENTRIES:
        raise ValueError
    permissions = {_word(area): _each(actions, is_word) for area, actions in entries.items()}
    return MappingProxyType(permissions) if permissions else _EMPTY


def _write_limits(limits: Mapping[str, Limit]) -> dict[str, object]:
    return {name: values_of(limit) for name, limit in limits.items()}


def _read_limits(found: object) -> Mapping[str, Limit]:
    limits = {
        _text(name, is_limit_name): _read_limit(name, limit)
        for name, limit in _entries(found).items()
    }
    return MappingProxyType(limits) if limits else _EMPTY


def _read_limit(name: str, found: Mapping[str, Any]) -> Limit:
    shadow, burst, per = found["shadow"], found["burst"], _text(found["per"], is_per)
    amount = _integer(found["amount"], 1, MAX_AMOUNT)
    window_us = _integer(found["window_us"], 1, LATEST_US)
    kind = found["kind"]
    rules = KINDS[kind]
    if window_us not in rules.windows_us or not isinstance(shadow, bool):
        raise ValueError
    if rules.takes_burst:
        burst = None if burst is None else _integer(burst, 1, MAX_AMOUNT)
        return build_rate(name, amount, window_us, burst, per, shadow)
    if burst is not None:
        raise ValueError
    return Limit(name, kind, amount, window_us, None, per, shadow)


def _text(value: object, rule: Callable[[str], bool]) -> str:
    if not isinstance(value, str):
        raise TypeError
    if not rule(value):
        raise ValueError
    return value


def _word(value: object) -> str:
    return _text(value, is_word)


def _maybe_word(value: object) -> str:
    """A word or "". Many keys share a few of them: each is stored once."""
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
