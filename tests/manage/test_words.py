"""Limits in words."""

from __future__ import annotations

import pytest

from gateway.domain.limits import LEASE_US, UNITS_US, Limit, Standing
from gateway.manage.words import limit_words, standing_words

MINUTE_US = UNITS_US["minute"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (Limit("a", "rate", 60, MINUTE_US, 100), "60/minute, burst 100, per key"),
        (Limit("a", "quota", 9, MINUTE_US, per="ip"), "quota 9/minute, per ip"),
        (Limit("a", "rate", 60, MINUTE_US, of="messages"), "60/minute of messages, per key"),
        (Limit("a", "concurrency", 5, LEASE_US), "5 concurrent requests, per key"),
        (
            Limit("a", "connections", 5, LEASE_US, shadow=True),
            "5 connections, per key, shadow: never refuses",
        ),
    ],
)
def test_a_limit(limit: Limit, expected: str) -> None:
    """A limit says what it counts, if that is not requests in a window."""
    assert limit_words(limit) == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (Limit("a", "rate", 60, MINUTE_US), "4 of 60 remaining, reset after 60 s"),
        (Limit("a", "concurrency", 5, LEASE_US), "each freed when its request ends"),
        (Limit("a", "connections", 5, LEASE_US), "each freed when its connection ends"),
    ],
)
def test_a_standing(limit: Limit, expected: str) -> None:
    """What remains, and when there is more."""
    assert standing_words(limit, Standing(4, MINUTE_US)).endswith(expected)
