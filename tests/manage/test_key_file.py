"""The file format of exported keys and accounts."""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import LEASE_US, Limit
from gateway.domain.patterns import LATEST_US
from gateway.manage import key_file
from gateway.manage.key_file import Head
from gateway.manage.problems import Invalid
from tests.suites.keys import FULL, NOW, plain_key

LIMITS = MappingProxyType(
    {
        **FULL.limits,
        "mcp/search_code": Limit("mcp/search_code", "rate", 5, 60_000_000),
        "leases": Limit("leases", "concurrency", 20, LEASE_US),
        "hidden": Limit("hidden", "rate", 5, 1_000_000, None, "header:x-tenant", shadow=True),
    }
)
ACCOUNT = Account("acme", ("edr", "scm"), "pro", LIMITS, 15, "suspended")
KEY: dict[str, Any] = json.loads(key_file.write_key(FULL))["key"]


@given(
    st.sampled_from([FULL, plain_key(), plain_key(plan="", limits=LIMITS, moved_from="zeta")]),
    st.sampled_from(["valid", "suspended", "revoked"]),
    st.integers(0, LATEST_US),
    st.none() | st.integers(0, LATEST_US),
)
def test_a_key_is_read_as_it_was_written(
    record: KeyRecord, status: Any, created_us: int, expires_us: int | None
) -> None:
    """With every field, to the microsecond; the line is plain ASCII."""
    record = replace(record, status=status, created_us=created_us, expires_us=expires_us)
    line = key_file.write_key(record)
    assert line.isascii()
    assert line.isprintable()
    assert key_file.read_line(line.encode()) == record


@pytest.mark.parametrize("account", [Account("acme"), ACCOUNT])
def test_an_account_is_read_as_it_was_written(account: Account) -> None:
    """With every field."""
    assert key_file.read_line(key_file.write_account(account).encode()) == account


def test_the_first_line() -> None:
    """It says what the file is, and how many records follow."""
    head = Head(NOW, 3, 5)
    assert key_file.read_head(key_file.write_head(head).encode()) == head


HEAD = {"format": "gateway-keys", "version": 1, "exported": "2026-12-31T12:00:00Z"}
HEAD |= {"accounts": 0, "keys": 0}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"key": KEY}, "format: found nothing, expected 'gateway-keys', on the first line"),
        ({**HEAD, "format": "other"}, "format: found 'other'"),
        ({**HEAD, "version": 2}, "version: found 2, expected 1, as this release reads"),
        ({**HEAD, "version": True}, "version: found True"),
        ({**HEAD, "version": "1"}, "version: found '1'"),
        ({**HEAD, "exported": 5}, "exported: found a number, expected a time"),
        ({**HEAD, "keys": -1}, "keys: found a number"),
        ({**HEAD, "more": 1}, "more: found an unknown field"),
        ({"format": "gateway-keys", "version": 1}, "keys: found nothing, expected a value"),
    ],
)
def test_faults_of_the_first_line(given: dict[str, Any], words: str) -> None:
    """Another file, another version, and wrong fields are refused."""
    with pytest.raises(Invalid) as caught:
        key_file.read_head(json.dumps(given).encode())
    assert words in str(caught.value)


def limit(**fields: object) -> dict[str, object]:
    return {"plan": {**KEY["limits"]["plan"], **fields}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id": "7h3k9m2p4q6"}, "id: found '7h3k9m2p4q6', expected a key's id"),
        ({"id": 7}, "id: found a number"),
        ({"digest": "ab"}, "digest: found another value, expected 64"),
        ({"digest": None}, "digest: found another value"),
        ({"name": "a\x1b[2Jb"}, "expected 1 to 100 printable characters"),
        ({"name": "\u202egnp"}, "expected 1 to 100 printable characters"),
        ({"name": "x" * 101}, "expected 1 to 100 printable characters"),
        ({"account": "a:b"}, "account: found 'a:b'"),
        ({"plan": ""}, "plan: found ''"),
        ({"environment": "Production"}, "environment: found 'Production'"),
        ({"status": "expired"}, "status: found 'expired', expected one of valid, suspended"),
        ({"status": []}, "status: found a list"),
        ({"created": None}, "created: found nothing"),
        ({"created": "2026-12-31"}, "created: found '2026-12-31', expected a time"),
        ({"created": "2026-02-30T00:00:00Z"}, "created: found"),
        ({"created": "1969-12-31T23:59:59Z"}, "created: found a number"),
        ({"expires": 10**400}, "expires: found a number"),
        ({"scopes": ["a b"]}, "scopes[0]: found 'a b'"),
        ({"scopes": "a:b"}, "scopes: found 'a:b', expected a list"),
        ({"scopes": ["a"] * 257}, "scopes: found 257 entries"),
        ({"permissions": {"a b": ["x"]}}, "permissions.'a b': found 'a b'"),
        ({"ip_ranges": ["10.0.0.1/8"]}, "ip_ranges[0]: found '10.0.0.1/8'"),
        ({"lineage": "acme"}, "lineage: found 'acme'"),
        ({"successor": ""}, "successor: found ''"),
        ({"moved_from": 5}, "moved_from: found a number"),
        ({"limits": []}, "limits: found a list, expected an object"),
        ({"limits": {"a b": {}}}, "limits: found 'a b'"),
        ({"limits": {"plan": 5}}, "limits.plan: found a number, expected an object"),
        ({"limits": {"plan": {}}}, "limits.plan.kind: found nothing"),
        ({"limits": limit(zzz=1)}, "limits.plan.zzz: found an unknown field"),
        ({"limits": limit(kind="bucket")}, "limits.plan.kind: found 'bucket'"),
        ({"limits": limit(kind=[])}, "limits.plan.kind: found a list"),
        ({"limits": limit(amount=0)}, "limits.plan.amount: found a number"),
        ({"limits": limit(amount=True)}, "limits.plan.amount: found true"),
        ({"limits": limit(window_us=61_000_000)}, "limits.plan.window_us: found 61000000"),
        ({"limits": limit(burst=1)}, "limits.plan.burst: found 1, expected a burst of at least"),
        ({"limits": limit(kind="quota", window_us=86_400_000_000)}, "expected null for a quota"),
        ({"limits": limit(per="header:a b")}, "limits.plan.per: found 'header:a b'"),
        ({"limits": limit(shadow=0)}, "limits.plan.shadow: found a number"),
        ({"key": "x"}, "key: found an unknown field"),
    ],
)
def test_faults_of_a_key(fields: dict[str, object], words: str) -> None:
    """Each says what was found and expected, without control characters."""
    with pytest.raises(Invalid) as caught:
        key_file.read_line(json.dumps({"key": {**KEY, **fields}}).encode())
    assert words in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", KEY)
def test_a_key_has_all_fields(name: str) -> None:
    """A record without one of them is refused, not completed."""
    lacking = {field: value for field, value in KEY.items() if field != name}
    with pytest.raises(Invalid, match=f"{name}: found nothing, expected a value"):
        key_file.read_line(json.dumps({"key": lacking}).encode())


def test_secrets_are_not_shown() -> None:
    """A whole key in a field is refused and not repeated, nor is a wrong digest."""
    secret = "gwk_production_7h3k9m2p4q6r_" + "A" * 38
    for name in ("id", "name", "account", "digest", "lineage", "status"):
        with pytest.raises(Invalid) as caught:
            key_file.read_line(json.dumps({"key": {**KEY, name: secret}}).encode())
        assert "AAAA" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"null", b"[]", b"5", b"{", b"\xff", b"[" * 100_000, b'{"key": NaN}', b"{}"),
        *(b'{"key": {}, "key": {}}', b'{"key": {}, "account": {}}', b'{"key": null}'),
        *(b'{"key": "\\ud800"}', b'{"secret": 1}', b'{"key": ' + b"1" * 5_000 + b"}"),
    ],
)
def test_what_is_no_record(content: bytes) -> None:
    """Anything else is refused as a fault, as a record and as the first line."""
    for read in (key_file.read_line, key_file.read_head):
        with pytest.raises(Invalid):
            read(content)


def test_the_largest_record_fits_a_line() -> None:
    """A key with the most entries of everything is shorter than the longest line."""
    words = tuple(f"{number:064}" for number in range(256))
    limits = {word: Limit(word, "rate", 9, 1_000_000, 9, "header:" + "x" * 64) for word in words}
    record = plain_key(
        name="\U0001f600" * 100,
        scopes=tuple(f"{number:0128}" for number in range(256)),
        permissions={word: (word,) for word in words},
        limits=limits,
    )
    line = key_file.write_key(record).encode()
    assert len(line) < key_file.MOST_LINE_BYTES
    assert key_file.read_line(line) == record
