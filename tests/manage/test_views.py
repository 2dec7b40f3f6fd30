"""The JSON of keys and accounts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.domain.keys import Account
from gateway.domain.limits import Limit
from gateway.manage import views
from tests.suites.keys import FULL, NOW, plain_key


def test_a_key():
    """Every field is a JSON value under its own name; nothing of the secret is included."""
    shown = views.key_as_json(FULL, NOW, NOW + 1)
    assert shown == {
        "id": FULL.id,
        "name": FULL.name,
        "account": "acme",
        "plan": "free",
        "environment": "production",
        "status": "suspended",
        "created": "2027-01-15T08:00:00.123456Z",
        "expires": "2255-06-05T23:47:34.740991Z",
        "last_used": "2027-01-15T08:00:00.123457Z",
        "scopes": ["connectors:read", "ticketing:write"],
        "permissions": {"ticketing": ["read", "write"], "edr": ["read"]},
        "ip_ranges": ["10.0.0.0/8", "2001:db8::/32"],
        "lineage": FULL.id,
        "successor": "bbbbbbbbbbbb",
        "limits": {"plan": "300/minute,burst=500", "daily": "10000/day"},
    }
    assert FULL.digest.hex() not in json.dumps(shown)


def test_missing_values_are_null():
    """A missing plan, expiry or last use of a key is null."""
    shown = views.key_as_json(plain_key(plan=""), NOW, None)
    assert [shown[name] for name in ("plan", "expires", "last_used", "successor")] == [None] * 4


def test_an_account():
    """An account has its status, plan, services, limits and billing day."""
    assert views.account_as_json(Account("acme")) == {
        **{"name": "acme", "status": "valid", "plan": None},
        **{"services": [], "limits": {}, "billing_day": 1},
    }
    limits = {"a": Limit("a", "quota", 5, 3_600_000_000)}
    account = Account("acme", ("edr",), "pro", limits, status="suspended")
    assert views.account_as_json(account) == {
        **{"name": "acme", "status": "suspended", "plan": "pro"},
        **{"services": ["edr"], "limits": {"a": "5/hour"}, "billing_day": 1},
    }


def test_versions():
    """A version changes with every change."""
    version = views.version_of(views.recorded(FULL))
    changes = (
        {"name": "x"},
        {"plan": ""},
        {"status": "valid"},
        {"expires_us": None},
        {"successor": None},
        {"limits": {}},
        {"networks": FULL.networks[:1]},
    )
    versions = {views.version_of(views.recorded(replace(FULL, **it))) for it in changes}
    assert len({version, *versions}) == 1 + len(changes)
    accounts = (Account("acme"), Account("acme", ("edr",)), Account("acme", plan="pro"))
    assert len({views.version_of(views.account_as_json(account)) for account in accounts}) == 3


def test_what_is_recorded():
    """All that is shown, except the last use."""
    shown = views.key_as_json(FULL, NOW, NOW)
    del shown["last_used"]
    assert views.recorded(FULL) == shown


@pytest.mark.parametrize(
    ("at_us", "text"),
    [
        (1_800_057_600_000_000, "2027-01-16T00:00:00Z"),
        (1_800_057_600_000_001, "2027-01-16T00:00:00.000001Z"),
        (None, None),
    ],
)
def test_moments(at_us, text):
    """A time is shown with its microseconds, if there are any."""
    assert views.moment(at_us) == text


def test_an_expired_key_is_shown_as_one():
    """An expired key is not shown as valid; a revoked one is shown as revoked, expired or not."""
    record = plain_key(expires_us=NOW)
    assert views.status_words(record, NOW - 1) == "valid"
    assert views.status_words(record, NOW) == "expired"
    assert views.key_as_json(record, NOW, None)["status"] == "expired"
    assert views.recorded(record)["status"] == "valid"
    assert views.status_words(replace(record, status="revoked"), NOW) == "revoked"
