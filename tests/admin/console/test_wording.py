"""Values as the pages show them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.console import wording
from gateway.domain.limits import UNITS_US, Limit

S = 1_000_000
AT_US = 1_782_907_205 * S + 999_999


def test_a_moment_is_in_utc() -> None:
    """A time is shown in UTC, to the second, for programs and for people."""
    assert wording.moment(AT_US) == "2026-07-01T12:00:05Z"
    assert wording.spelled(AT_US) == "2026-07-01 12:00:05 UTC"


@pytest.mark.parametrize(
    ("since_s", "expected"),
    [
        (0, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3_599, "59 min ago"),
        (3_600, "1 h ago"),
        (86_399, "23 h ago"),
        (5 * 86_400, "5 d ago"),
        (-1, "in less than a minute"),
        (-7_200, "in 2 h"),
    ],
)
def test_how_long_ago(since_s: int, expected: str) -> None:
    """The largest unit that fits, rounded down; future times are marked as such."""
    assert wording.ago(AT_US, AT_US + since_s * S) == expected


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (0, 0, "-"),
        (0, 5, "0 %"),
        (1, 8, "12.5 %"),
        (5, 5, "100.0 %"),
        (1, 5000, "< 0.1 %"),
        (1, 1000, "0.1 %"),
    ],
)
def test_a_share(part: int, whole: int, expected: str) -> None:
    """A share of nothing is none, and a share above 0 is never shown as 0."""
    assert wording.share(part, whole) == expected


@pytest.mark.parametrize(
    ("span_us", "expected"),
    [
        (0, "0 s"),
        (1, "1 s"),
        (119 * S, "119 s"),
        (120 * S, "2 min"),
        (121 * S, "3 min"),
        (7_200 * S, "2 h"),
        (2 * 86_400 * S, "2 d"),
    ],
)
def test_a_time_to_wait(span_us: int, expected: str) -> None:
    """Rounded up: after that time, the wait is over."""
    assert wording.duration(span_us) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("admitted", "admitted"),
        ("limited:search", "limited by search"),
        ("refused:key_expired", "refused: key expired"),
        ("failed:upstream_timeout", "failed: upstream timeout"),
    ],
)
def test_an_outcome(text: str, expected: str) -> None:
    """Outcomes are shown in words."""
    assert wording.outcome(text) == expected


def limit(**given: Any) -> Limit:
    plain = {
        "name": "plan",
        "kind": "rate",
        "amount": 6000,
        "burst": None,
        "window_us": UNITS_US["minute"],
        "per": "key",
        "shadow": False,
    }
    return Limit(**{**plain, **given})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "6,000 a minute"),
        ({"burst": 10_000}, "6,000 a minute, burst 10,000"),
        ({"kind": "quota", "window_us": UNITS_US["day"]}, "6,000 a day (quota)"),
        ({"kind": "concurrency", "amount": 5}, "5 concurrent requests"),
        ({"kind": "connections", "amount": 1000}, "1,000 connections"),
        ({"of": "messages"}, "6,000 messages a minute"),
    ],
)
def test_a_limits_values(given: dict[str, Any], expected: str) -> None:
    """Each kind of limit has its own wording."""
    assert wording.limit_text(limit(**given)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("there is none", "There is none."), ("Done.", "Done."), ("", "."), ("Why?", "Why?")],
)
def test_a_sentence(text: str, expected: str) -> None:
    """A problem's sentence begins with a capital and ends with one full stop."""
    assert wording.sentence(text) == expected


def test_changes_are_the_fields_that_differ() -> None:
    """Unchanged fields are omitted; lists and mappings are shown as text."""
    before = {"name": "a", "scopes": ["x:read"], "limits": {}, "expired": False, "plan": "free"}
    after = {
        "name": "a",
        "scopes": ["x:read", "y"],
        "limits": {"plan": "5/minute"},
        "expired": True,
    }
    assert wording.changes(before, after) == [
        wording.Change("scopes", "x:read", "x:read, y"),
        wording.Change("limits", "", "plan 5/minute"),
        wording.Change("expired", "no", "yes"),
        wording.Change("plan", "free", ""),
    ]


def test_of_something_new_all_is_a_change() -> None:
    """With only one version, its fields are shown, except empty ones."""
    assert wording.changes(None, {"ip_ranges": ["::1"], "scopes": []}) == [
        wording.Change("ip ranges", "", "::1")
    ]
    assert wording.changes(None, None) == []
