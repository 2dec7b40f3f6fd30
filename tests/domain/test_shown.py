"""Limits and times in JSON."""

from __future__ import annotations

import pytest

from gateway.domain.limits import LEASE_US, PERIODS_US, Limit, Standing
from gateway.domain.shown import limit_as_json, reset_after_s, rfc3339


def test_a_limit() -> None:
    """In whole units; a concurrency limit has no window; `of` is what it counts, as written."""
    search = Limit("search", "rate", 30, 60_000_000, 50, "account", shadow=True)
    assert limit_as_json(search, "search") == {
        "name": "search",
        "route": "search",
        "kind": "rate",
        "of": "requests",
        "limit": 30,
        "burst": 50,
        "window_seconds": 60,
        "period": None,
        "time_zone": None,
        "per": "account",
        "mode": "shadow",
    }
    held = limit_as_json(Limit("open", "concurrency", 5, LEASE_US), None)
    assert (held["route"], held["burst"], held["window_seconds"]) == (None, None, None)
    assert held["mode"] == "enforce"
    for limit, kind, of in (
        (Limit("sessions", "connections", 5, LEASE_US), "concurrency", "connections"),
        (Limit("all", "rate", 5, 60_000_000, of="messages"), "rate", "messages"),
        (Limit("open", "concurrency", 5, LEASE_US), "concurrency", "requests"),
    ):
        shown = limit_as_json(limit, None)
        assert (shown["kind"], shown["of"]) == (kind, of)
    monthly = limit_as_json(Limit("m", "quota", 5, PERIODS_US["month"], zone="Asia/Kolkata"), None)
    assert (monthly["period"], monthly["time_zone"]) == ("month", "Asia/Kolkata")


@pytest.mark.parametrize(("reset_us", "expected"), [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2)])
def test_reset_after(reset_us: int, expected: int) -> None:
    """Rounded up, so that it is never too early."""
    assert reset_after_s(Standing(1, reset_us)) == expected


@pytest.mark.parametrize(
    ("at_us", "expected"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_769_860_800_000_000, "2026-01-31T12:00:00Z"),
        (1_769_860_800_000_001, "2026-01-31T12:00:00.000001Z"),
        (1_769_860_800_500_000, "2026-01-31T12:00:00.500000Z"),
    ],
)
def test_a_time(at_us: int, expected: str) -> None:
    """UTC, to the second or the microsecond."""
    assert rfc3339(at_us) == expected
