"""The file of `gateway keys export`: keys and accounts as JSON lines, one record on each.

    {"format": "gateway-keys", "version": 1, "exported": "2026-12-31T12:00:00Z", "accounts": 1, …}
    {"account": {"name": "acme", "status": "valid", "plan": "pro", …}}
    {"key": {"id": "7h3k9m2p4q6r", "digest": "…", "name": "ci", …}}

A key's line has the SHA-256 of its text, never the text. All fields of a record are there, and no
others, so that a record is read exactly as it was written. A file is untrusted input: its records
have to match the same patterns as forms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from gateway.domain.json_text import MOST_LEVELS, TooDeep, read_json
from gateway.domain.key_format import is_key_id
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import KINDS, MAX_AMOUNT, Limit, build_rate, values_of
from gateway.domain.patterns import (
    LATEST_US,
    MOST_ENTRIES,
    MOST_TITLE,
    is_limit_name,
    is_per,
    is_title,
)
from gateway.manage.problems import Fault, Invalid
from gateway.manage.reading import (
    NAME_WORDS,
    Reader,
    found,
    or_none,
    read_billing_day,
    read_environment,
    read_fields,
    read_networks,
    read_permissions,
    read_scopes,
    read_services,
    read_word,
)
from gateway.manage.views import moment
from gateway.policies.faults import one_of

FORMAT: Final = "gateway-keys"
VERSION: Final = 1
#: The longest line. That of the largest record which the gateway can create has 145 KB.
MOST_LINE_BYTES: Final = 256 * 1024

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT_WORDS: Final = "a time such as 2026-12-31T12:00:00Z"
_is_moment = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{6})?Z"
).fullmatch


@dataclass(frozen=True, slots=True)
class Head:
    """The first line. accounts, keys: how many lines follow; fewer are there if it was cut off"""

    exported_us: int
    accounts: int
    keys: int


def write_head(head: Head) -> str:
    """The first line."""
    return _line(
        {
            "format": FORMAT,
            "version": VERSION,
            "exported": moment(head.exported_us),
            "accounts": head.accounts,
            "keys": head.keys,
        }
    )


def write_account(account: Account) -> str:
    """The line of an account."""
    return _line(
        {
            "account": {
                "name": account.name,
                "status": account.status,
                "plan": account.plan or None,
                "services": list(account.services),
                "limits": {name: values_of(limit) for name, limit in account.limits.items()},
                "billing_day": account.billing_day,
            }
        }
    )


def write_key(record: KeyRecord) -> str:
    """The line of a key."""
    return _line(
        {
            "key": {
                "id": record.id,
                "digest": record.digest.hex(),
                "name": record.name,
                "account": record.account,
                "plan": record.plan or None,
                "environment": record.environment,
                "status": record.status,
                "created": moment(record.created_us),
                "expires": moment(record.expires_us),
                "scopes": list(record.scopes),
                "permissions": {area: list(acts) for area, acts in record.permissions.items()},
                "ip_ranges": [str(network) for network in record.networks],
                "lineage": record.lineage,
                "successor": record.successor,
                "moved_from": record.moved_from or None,
                "limits": {name: values_of(limit) for name, limit in record.limits.items()},
            }
        }
    )


def read_head(content: bytes) -> Head:
    """The first line of a file. Raises Invalid."""
    given = _load(content)
    if given.get("format") != FORMAT:
        raise Invalid(Fault("format", found(given.get("format")), f"'{FORMAT}', on the first line"))
    version = given.get("version")
    if version != VERSION or isinstance(version, bool):
        shown = str(version) if isinstance(version, int) else found(version)
        expected = f"{VERSION}, as this release reads; export with the same release"
        raise Invalid(Fault("version", shown, expected))
    readers: dict[str, Reader] = {
        "format": _any,
        "version": _any,
        "exported": partial(_moment_us, "exported"),
        "accounts": partial(_integer, "accounts", 0, 10**9),
        "keys": partial(_integer, "keys", 0, 10**9),
    }
    values = read_fields(given, readers, *readers)
    return Head(values["exported"], values["accounts"], values["keys"])


def read_line(content: bytes) -> KeyRecord | Account:
    """The record of another line. Raises Invalid with all of its faults."""
    given = _load(content)
    readers: dict[str, Reader] = {"key": _read_key, "account": _read_account}
    if len(given) != 1:
        raise Invalid(Fault("line", f"{len(given)} fields", "one: key or account"))
    (record,) = read_fields(given, readers).values()
    assert isinstance(record, KeyRecord | Account)
    return record


# -- the parts -------------------------------------------------------------------------------------


def _line(value: Mapping[str, object]) -> str:
    """JSON in ASCII: what is printed on a terminal has no control characters."""
    return json.dumps(value, separators=(", ", ": "))


def _load(content: bytes) -> Mapping[str, Any]:
    """An object, strictly: UTF-8, no name twice, no NaN, no lone surrogate. Raises Invalid."""
    try:
        value = read_json(content.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except TooDeep as error:
        raise Invalid(Fault("line", error.found, f"at most {MOST_LEVELS}")) from error
    except ValueError as error:
        expected = "a JSON object in UTF-8, with each name once"
        raise Invalid(Fault("line", "another text", expected)) from error
    if not isinstance(value, Mapping):
        raise Invalid(Fault("line", found(value), "a JSON object"))
    return value


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name is repeated")
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _read_account(value: object) -> Account:
    readers: dict[str, Reader] = {
        "name": partial(read_word, "name"),
        "status": partial(_one_of, "status", ("valid", "suspended")),
        "plan": _maybe_word("plan"),
        "services": read_services,
        "limits": _read_limits,
        "billing_day": read_billing_day,
    }
    return Account(**read_fields(_object("account", value), readers, *readers))


def _read_key(value: object) -> KeyRecord:
    readers: dict[str, Reader] = {
        "id": partial(_key_id, "id"),
        "digest": _read_digest,
        "name": _read_title,
        "account": partial(read_word, "account"),
        "plan": _maybe_word("plan"),
        "environment": read_environment,
        "status": partial(_one_of, "status", ("valid", "suspended", "revoked")),
        "created": partial(_moment_us, "created"),
        "expires": or_none(partial(_moment_us, "expires")),
        "scopes": read_scopes,
        "permissions": read_permissions,
        "ip_ranges": read_networks,
        "lineage": partial(_key_id, "lineage"),
        "successor": or_none(partial(_key_id, "successor")),
        "moved_from": _maybe_word("moved_from"),
        "limits": _read_limits,
    }
    values = read_fields(_object("key", value), readers, *readers)
    in_record = {"created": "created_us", "expires": "expires_us", "ip_ranges": "networks"}
    return KeyRecord(**{in_record.get(name, name): value for name, value in values.items()})


def _any(value: object) -> object:
    return value


def _object(at: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise Invalid(Fault(at, found(value), "an object"))
    return value


def _maybe_word(at: str) -> Reader:
    """Of null, "" is in the record."""
    return lambda value: "" if value is None else read_word(at, value)


def _one_of(at: str, words: tuple[str, ...], value: object) -> str:
    if value not in words:
        raise Invalid(Fault(at, found(value), one_of(words)))
    return str(value)


def _key_id(at: str, value: object) -> str:
    if not isinstance(value, str) or not is_key_id(value):
        raise Invalid(Fault(at, found(value), "a key's id: 12 lower-case letters and digits"))
    return value


def _read_digest(value: object) -> bytes:
    """Never shown: it may be a secret."""
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise Invalid(Fault("digest", "another value", "64 lower-case hexadecimal digits"))
    return bytes.fromhex(value)


def _read_title(value: object) -> str:
    if not isinstance(value, str) or not is_title(value):
        expected = f"1 to {MOST_TITLE} printable characters, without spaces around them"
        raise Invalid(Fault("name", found(value), expected))
    return value


def _moment_us(at: str, value: object) -> int:
    try:
        if not isinstance(value, str) or not _is_moment(value):
            raise ValueError
        since = datetime.fromisoformat(value) - _EPOCH
    except ValueError as error:
        raise Invalid(Fault(at, found(value), _MOMENT_WORDS)) from error
    at_us = since // timedelta(microseconds=1)
    return _integer(at, 0, LATEST_US, at_us)


def _integer(at: str, least: int, most: int, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Invalid(Fault(at, found(value), f"a whole number from {least} to {most}"))
    return value


def _read_limits(value: object) -> Mapping[str, Limit]:
    given = _object("limits", value)
    if len(given) > MOST_ENTRIES:
        raise Invalid(Fault("limits", f"{len(given)} entries", f"{MOST_ENTRIES} at most"))
    limits: dict[str, Limit] = {}
    for name, one in given.items():
        if not is_limit_name(name):
            raise Invalid(Fault("limits", found(name), NAME_WORDS))
        limits[name] = _read_limit(name, _object(f"limits.{name}", one))
    return MappingProxyType(limits)


def _read_limit(name: str, given: Mapping[str, object]) -> Limit:
    at = f"limits.{name}"
    readers: dict[str, Reader] = {
        "kind": partial(_one_of, f"{at}.kind", tuple(KINDS)),
        "amount": partial(_integer, f"{at}.amount", 1, MAX_AMOUNT),
        "window_us": partial(_integer, f"{at}.window_us", 1, LATEST_US),
        "burst": or_none(partial(_integer, f"{at}.burst", 1, MAX_AMOUNT)),
        "per": partial(_matching, f"{at}.per", is_per, "key, account, ip or header:NAME"),
        "shadow": partial(_boolean, f"{at}.shadow"),
    }
    values = read_fields(given, readers, *readers, at=f"{at}.")
    rules = KINDS[values["kind"]]
    if values["window_us"] not in rules.windows_us:
        windows = one_of(tuple(map(str, sorted(rules.windows_us))))
        raise Invalid(Fault(f"{at}.window_us", str(values["window_us"]), windows))
    if rules.takes_burst:
        del values["kind"]
        try:
            return build_rate(name, **values)
        except ValueError as error:
            raise Invalid(Fault(f"{at}.burst", str(values["burst"]), str(error))) from error
    if values["burst"] is not None:
        raise Invalid(Fault(f"{at}.burst", str(values["burst"]), f"null for a {values['kind']}"))
    return Limit(name, **values)


def _matching(at: str, rule: Callable[[str], bool], expected: str, value: object) -> str:
    if not isinstance(value, str) or not rule(value):
        raise Invalid(Fault(at, found(value), expected))
    return value


def _boolean(at: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise Invalid(Fault(at, found(value), "true or false"))
    return value
