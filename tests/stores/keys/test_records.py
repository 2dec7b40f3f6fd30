"""Records in Redis: any content is a valid record, or corrupt."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.domain.admission import grant
from gateway.domain.identity import Identity
from gateway.domain.keys import Account, KeyRecord, with_account
from gateway.domain.meets import limits_for
from gateway.domain.patterns import MOST_ENTRIES
from gateway.domain.policy import Plan, Policy
from gateway.domain.ports import CorruptRecord
from gateway.domain.route import Route
from gateway.domain.routes import RouteTable
from gateway.domain.shown import rfc3339
from gateway.manage import views
from gateway.manage.forms import read_account as read_account_form
from gateway.manage.forms import read_new_key
from gateway.policies.fields import parse_rate
from gateway.stores.keys import records
from gateway.stores.keys.records import (
    UnreadableLog,
    read_account,
    read_record,
    write_account,
    write_record,
)
from gateway.stores.limits.script import build_command
from tests.kit.reach import mostly, reached, reaches
from tests.kit.tiers import examples
from tests.suites.keys import FULL, NOW, plain_key

ROUTE = Route("api", "*", (), True, "api", limits=(parse_rate("9/minute", name="daily"),))
POLICY = Policy(
    "production", {"free": Plan("free", parse_rate("5/minute"))}, {}, RouteTable(()), {}
)

KEY = json.loads(write_record(FULL))
ACCOUNT = json.loads(write_account(Account("acme", ("edr",), "free", FULL.limits)))
#: Replacements of a value: anything, and especially values that are nearly valid.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**40), 10**40)
    | st.floats()
    | st.text()
    | st.text("ab:\r\n\0\x7f{}%é\ud800 .-_", max_size=9)
    | st.sampled_from(["free", "acme", "rate", "quota", "key", "gwk_x", "10.0.0.0/8", FULL.id])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def places(found: Any) -> list[tuple[Any, ...]]:
    """The path to each value within a JSON value."""
    inner = found.items() if isinstance(found, dict) else enumerate(found)
    ways: list[tuple[Any, ...]] = []
    for at, value in inner:
        ways.append((at,))
        if isinstance(value, dict | list):
            ways += [(at, *way) for way in places(value)]
    return ways


def with_value(found: Any, way: tuple[Any, ...], value: Any) -> Any:
    """The same JSON with another value at one place."""
    if not way:
        return value
    changed = dict(found) if isinstance(found, dict) else list(found)
    changed[way[0]] = with_value(changed[way[0]], way[1:], value)
    return changed


def value_at(found: Any, way: tuple[Any, ...]) -> Any:
    return value_at(found[way[0]], way[1:]) if way else found


def like(value: Any) -> st.SearchStrategy[Any]:
    """Values of the same type, which may be valid in its place."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int):
        return st.integers(1, 10**15)
    if isinstance(value, str):
        return st.just(value) | st.text("abcxyz_-.", min_size=1, max_size=9)
    return st.just(value)


def mutated(found: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The same JSON with some values, at any depth, replaced, mostly by some of their type."""
    ways = places(found)
    alike = st.one_of([st.tuples(st.just(way), like(value_at(found, way))) for way in ways])
    changes = st.lists(
        mostly(alike, st.tuples(st.sampled_from(ways), JSON)), min_size=1, max_size=3
    )

    def change(drawn: list[tuple[tuple[Any, ...], Any]]) -> dict[str, Any]:
        changed = found
        for way, value in drawn:
            try:
                changed = with_value(changed, way, value)
            except (TypeError, KeyError, IndexError):
                continue  # its parent was replaced before
        return changed

    return changes.map(change)


def show_key(record: KeyRecord, account: Account) -> None:
    """Use the key in every place that shows, forwards or counts keys."""
    assert read_record(record.id, write_record(record)) == record
    shown = json.dumps(views.key_as_json(record, NOW, None))
    assert len(shown) < 2 * records.MOST_BYTES
    views.version_of(json.loads(shown))
    views.moment(record.created_us)
    if record.expires_us is not None:
        rfc3339(record.expires_us)
    one = Identity(with_account(record, account), account)
    granted = grant(POLICY, ROUTE, one)
    lines = granted.identity.decode("ascii").split("\r\n")
    assert [line.partition(":")[0] for line in lines] == [
        *("X-Gateway-Key-Id", "X-Gateway-Account", "X-Gateway-Plan", "X-Gateway-Scopes", "")
    ]
    assert all(line.isprintable() for line in lines)
    assert granted.check is not None
    build_command([granted.check], 0)
    for limit in limits_for(POLICY.plans["free"], ROUTE, one.record.limits):
        views.rate_words(limit)


def show_account(account: Account) -> None:
    assert read_account(account.name, write_account(account)) == account
    json.dumps(views.account_as_json(account))
    show_key(plain_key(account=account.name), account)


@reaches(0.02)
@settings(max_examples=examples(500))
@given(mutated(KEY) | JSON)
@example({**KEY, "expires_us": 10**400})
@example({**KEY, "account": "acme\r\nX-Gateway-Plan: enterprise"})
@example({**KEY, "expires_us": 253_402_300_799_999_999})
def test_a_record_is_valid_or_corrupt(found: Any) -> None:
    """Any JSON is corrupt, or a record that can be written, forwarded and shown everywhere."""
    key_id = found["id"] if isinstance(found, dict) and isinstance(found.get("id"), str) else "x"
    try:
        record = read_record(key_id, json.dumps(found).encode())
    except CorruptRecord:
        return
    reached()
    show_key(record, Account(record.account))


@reaches(0.02)
@settings(max_examples=examples(500))
@given(mutated(ACCOUNT) | JSON)
@example({**ACCOUNT, "limits": {"daily": {**ACCOUNT["limits"]["daily"], "amount": 10**400}}})
def test_an_account_is_valid_or_corrupt(found: Any) -> None:
    """The same for an account, and its keys."""
    name = found.get("name") if isinstance(found, dict) else None
    try:
        account = read_account(str(name), json.dumps(found).encode())
    except CorruptRecord:
        return
    reached()
    show_account(account)


@given(st.binary() | st.binary(max_size=9).map(write_record(FULL).__add__))
def test_any_bytes_are_read(content: bytes) -> None:
    """Any bytes are read as a record, or raise CorruptRecord."""
    with pytest.raises(CorruptRecord):
        read_account("acme", content)
    try:
        assert read_record(FULL.id, content) == FULL
    except CorruptRecord:
        assert content != write_record(FULL)


def longest_word(number: int) -> str:
    return f"{number:064}"


def test_the_largest_that_a_form_makes_can_be_read() -> None:
    """The largest key and account that a form accepts can be read and shown."""
    words = [longest_word(number) for number in range(MOST_ENTRIES)]
    figures = dict.fromkeys(words, "50001/second,burst=4294967295")
    form = {
        "name": "\U0001f511" * 100,
        "plan": longest_word(1),
        "account": longest_word(2),
        "environment": "e" * 32,
        "scopes": [f"{number:0128}" for number in range(MOST_ENTRIES)],
        "permissions": {word: ["x" * 64] for word in words},
        "ip_ranges": [f"1111:2222:3333:4444:5555:6666:7777:{n:x}/128" for n in range(4096, 4352)],
        "expires": "9999-12-31T23:59:59.999999Z",
        "limits": figures,
    }
    new = read_new_key(form, None, NOW)
    values = {field: getattr(new, field) for field in type(new).__dataclass_fields__}
    record = plain_key(successor="b" * 12, status="suspended", **values)
    assert len(write_record(record)) > 0.9 * records.MOST_BYTES
    show_key(record, Account(record.account))
    given_account = {"services": words, "plan": longest_word(1), "limits": figures}
    show_account(read_account_form(longest_word(2), given_account, None))


def test_no_more_is_read_than_a_record_can_have() -> None:
    """A record is read by a command for one byte more than its bound."""
    assert records.value_range("x") == ("GETRANGE", "x", 0, records.MOST_BYTES)
    content = write_record(FULL)
    assert read_record(FULL.id, content.ljust(records.MOST_BYTES)) == FULL
    with pytest.raises(CorruptRecord):
        read_record(FULL.id, content.ljust(records.MOST_BYTES + 1))


def test_an_error_quotes_nothing_of_the_record() -> None:
    """An error has the kind and the name of the record, and nothing of its content."""
    with pytest.raises(CorruptRecord) as caught:
        read_record(FULL.id, json.dumps({**KEY, "name": "hunter2\n"}).encode())
    assert re.fullmatch(r"the store's record of key \w{12} cannot be read: .*", str(caught.value))
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_unreadable_records_are_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """The first is logged at once, the next a second later, with the number suppressed."""
    moments = iter([0.0, 0.1, 0.2, 1.0, 2.0])
    log = UnreadableLog(lambda: next(moments))
    for name in "abcde":
        log.note(CorruptRecord("key", name))
    reason = "cannot be read: something else wrote to it"
    assert [record.getMessage() for record in caplog.records] == [
        f"the store's record of key a {reason}",
        f"the store's record of key d {reason} (2 such lines were suppressed)",
        f"the store's record of key e {reason}",
    ]
