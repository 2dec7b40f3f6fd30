"""The values of a key and its account."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from gateway.domain.keys import Account, KeyRecord


def test_a_plain_key_is_restricted_to_nothing_and_may_do_nothing():
    """Without further words a key is valid, has no scopes and no expiry, and none can be added."""
    record = KeyRecord("i", b"d" * 32, "n", "a", "free", "production", "i", 1)
    assert (record.status, record.scopes, record.networks) == ("valid", (), ())
    assert (record.expires_us, record.successor) == (None, None)
    assert dict(record.permissions) == dict(record.limits) == {}
    with pytest.raises(TypeError):
        record.permissions["edr"] = ("read",)
    with pytest.raises(FrozenInstanceError):
        record.plan = "pro"


def test_a_plain_account_has_no_services():
    """A service has to be enabled by somebody."""
    assert Account("acme").services == ()
