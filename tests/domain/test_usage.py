"""Windows, buckets and outcomes."""

from __future__ import annotations

import pytest

from gateway.domain.usage import (
    BUSY_KEPT_S,
    GRAIN_S,
    KEPT_S,
    MOST_BUSY,
    WINDOWS,
    bucket_start,
    note_busy,
    outcome_of,
)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_windows_hold_together(window):
    """A window is whole steps of whole buckets, few enough to draw, of a grain kept that long."""
    assert WINDOWS[window.name] is window
    assert window.span_s % window.step_s == 0
    assert window.step_s % GRAIN_S[window.grain] == 0
    assert 12 <= window.span_s // window.step_s <= 120
    assert KEPT_S[window.grain] >= window.span_s
    assert BUSY_KEPT_S["day"] >= BUSY_KEPT_S["hour"] >= BUSY_KEPT_S["minute"]


@pytest.mark.parametrize(
    ("grain", "at_s", "start_s"),
    [
        ("minute", 59, 0),
        ("minute", 60, 60),
        ("hour", 7_199, 3_600),
        ("day", 86_400 * 3 - 1, 86_400 * 2),
        ("day", 86_400 * 3, 86_400 * 3),
    ],
)
def test_bucket_start(grain, at_s, start_s):
    """A moment lies in the bucket that has begun last."""
    assert bucket_start(grain, at_s) == start_s


@pytest.mark.parametrize(
    ("decision", "detail", "outcome"),
    [
        ("admitted", None, "admitted"),
        ("admitted", "upstream_truncated", "admitted"),
        ("limited", "search", "limited:search"),
        ("limited", None, "limited"),
        ("refused", "ip_not_allowed", "refused:ip_not_allowed"),
        ("failed", "upstream_timeout", "failed:upstream_timeout"),
    ],
)
def test_outcome_of(decision, detail, outcome):
    """An outcome is the decision and what was behind it, which an admission has not."""
    assert outcome_of(decision, detail) == outcome


def test_a_newcomer_takes_the_least_place():
    """With no room left, the least makes way, and leaves its figure."""
    bucket = {f"k{at:03}": at + 5 for at in range(MOST_BUSY)}
    note_busy(bucket, "new", 2)
    assert len(bucket) == MOST_BUSY
    assert "k000" not in bucket
    assert bucket["new"] == 7
    note_busy(bucket, "new", 1)
    assert bucket["new"] == 8
