"""The status of a key at a time, and the changes it permits."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain import keylife
from gateway.domain.keys import KeyRecord
from gateway.domain.limits import Limit
from gateway.domain.networks import parse_network
from gateway.domain.ports import KeyFilter

NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000
KEY = KeyRecord(
    id="7h3k9m2p4q6r",
    digest=b"d" * 32,
    name="ci",
    account="acme",
    plan="pro",
    environment="production",
    lineage="aaaaaaaaaaaa",
    created_us=NOW - HOUR,
    scopes=("connectors:read",),
    permissions=MappingProxyType({"ticketing": ("read",)}),
    networks=(parse_network("10.0.0.0/8"),),
    limits=MappingProxyType({"plan": Limit("plan", "rate", 5, 60_000_000)}),
)


@pytest.mark.parametrize(
    ("status", "suspended", "resumed", "revoked"),
    [
        ("valid", "suspended", None, "revoked"),
        ("suspended", None, "valid", "revoked"),
        ("revoked", None, None, None),
    ],
)
def test_the_statuses(status, suspended, resumed, revoked):
    """A change returns the record with only its status changed, or an error if it is impossible."""
    record = replace(KEY, status=status)
    for change, expected in (
        (keylife.suspend, suspended),
        (keylife.resume, resumed),
        (keylife.revoke, revoked),
    ):
        changed = change(record)
        if expected is None:
            assert isinstance(changed, str)
        else:
            assert changed == replace(record, status=expected)


@given(
    st.none() | st.integers(1, 100 * HOUR),
    st.integers(0, 100 * HOUR),
)
def test_rotation(left, overlap):
    """The successor inherits all but id and secret; the old key expires by the overlap's end."""
    record = replace(KEY, expires_us=None if left is None else NOW + left)
    rotated = keylife.rotate(record, "b" * 12, b"e" * 32, NOW, overlap)
    assert not isinstance(rotated, str)
    old, new = rotated
    assert new == replace(record, id="b" * 12, digest=b"e" * 32, created_us=NOW)
    assert new.lineage == record.lineage
    end = NOW + (overlap if left is None else min(left, overlap))
    assert old == replace(record, successor="b" * 12, expires_us=end)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "revoked"}, "revoked"),
        ({"status": "suspended"}, "suspended"),
        ({"expires_us": NOW}, "expired"),
        ({"successor": "cccccccccccc"}, "cccccccccccc"),
    ],
)
def test_what_cannot_be_rotated(change, words):
    """An invalid key, or one with a successor, cannot be; the fault has the reason."""
    refused = keylife.rotate(replace(KEY, **change), "b", b"e" * 32, NOW, HOUR)
    assert isinstance(refused, str)
    assert words in refused


def test_moving_to_another_account():
    """A key keeps the account that its counters are named by; once it is back, that is its own."""
    moved = keylife.edit(KEY, {"account": "globex"})
    assert (moved.account, moved.home) == ("globex", "acme")
    again = keylife.edit(moved, {"account": "initech", "name": "x"})
    assert (again.account, again.home) == ("initech", "acme")
    old, new = keylife.rotate(again, "bbbbbbbbbbbb", b"e" * 32, NOW, HOUR)
    assert old.home == new.home == "acme"
    assert keylife.edit(again, {"account": "acme"}) == replace(KEY, name="x")


def test_editing():
    """Only named fields change; an expired key can get a later expiry."""
    for record in (KEY, replace(KEY, status="suspended"), replace(KEY, expires_us=1)):
        changes = {"name": "x", "expires_us": NOW + HOUR}
        assert keylife.edit(record, changes) == replace(record, name="x", expires_us=NOW + HOUR)
        assert keylife.edit(record, {}) == record
    refused = keylife.edit(replace(KEY, status="revoked"), {"name": "x"})
    assert isinstance(refused, str)
    assert "final" in refused


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "valid"),
        ({"expires_us": NOW + 1}, "valid"),
        ({"expires_us": NOW}, "expired"),
        ({"status": "suspended", "expires_us": NOW}, "suspended"),
        ({"status": "revoked", "expires_us": NOW}, "revoked"),
    ],
)
def test_the_status_at_a_moment(change, status):
    """A valid key after its expiry has the status expired; a revoked one stays revoked."""
    assert keylife.status_at(replace(KEY, **change), NOW) == status


@pytest.mark.parametrize(
    ("wanted", "is_wanted"),
    [
        (KeyFilter(), True),
        (KeyFilter(text="H3K", status="valid", plans=frozenset({"pro"}), account="acme"), True),
        (KeyFilter(text="CI"), True),
        (KeyFilter(text="cm"), True),
        (KeyFilter(text="production"), False),
        (KeyFilter(status="expired"), False),
        (KeyFilter(plans=frozenset({"free"})), False),
        (KeyFilter(account="acm"), False),
        (KeyFilter(environment="staging"), False),
    ],
)
def test_which_keys_are_wanted(wanted, is_wanted):
    """A key matches if it matches each part of the filter that is not None."""
    assert keylife.is_wanted(KEY, "pro", wanted) is is_wanted
