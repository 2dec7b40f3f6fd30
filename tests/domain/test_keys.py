"""The values of a key and its account."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from gateway.domain.keys import Account, KeyRecord, with_account
from gateway.domain.limits import Limit


def test_a_plain_key_is_restricted_to_nothing_and_may_do_nothing():
    """By default a key is valid, without scopes or expiry, and its collections are immutable."""
    record = KeyRecord("i", b"d" * 32, "n", "a", "free", "production", "i", 1)
    assert (record.status, record.scopes, record.networks) == ("valid", (), ())
    assert (record.expires_us, record.successor) == (None, None)
    assert dict(record.permissions) == dict(record.limits) == {}
    with pytest.raises(TypeError):
        record.permissions["edr"] = ("read",)
    with pytest.raises(FrozenInstanceError):
        record.plan = "pro"


def test_a_plain_account_has_no_services():
    """A service must be enabled explicitly."""
    assert Account("acme").services == ()


def test_an_account_provides_what_its_key_lacks():
    """A key's own plan and values take precedence over its account's."""
    record = KeyRecord("i", b"d" * 32, "n", "acme", "", "production", "i", 1)
    one, two = (Limit("a", "rate", amount, 1_000_000) for amount in (1, 2))
    other = Limit("b", "rate", 3, 1_000_000)
    account = Account("acme", ("edr",), "pro", {"a": two, "b": other})
    assert with_account(record, Account("acme")) is record
    assert with_account(record, Account("acme", plan="pro")) == replace(record, plan="pro")
    own = replace(record, plan="free", limits={"a": one})
    assert with_account(own, Account("acme", plan="pro")) is own
    assert with_account(own, account) == replace(own, limits={"a": one, "b": other})
    suspended = with_account(record, Account("acme", status="suspended"))
    assert suspended == replace(record, account_status="suspended")
    assert with_account(suspended, Account("acme")) == record
    assert with_account(record, account) == replace(record, plan="pro", limits=account.limits)
