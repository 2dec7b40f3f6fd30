"""Windows, buckets and outcomes."""

from __future__ import annotations

import pytest

from gateway.domain.usage import (
    BUSY_KEPT_S,
    GRAIN_S,
    KEPT_S,
    MOST_BUSY,
    MOST_NOTED,
    WINDOWS,
    answered_outcome,
    bucket_start,
    busiest_of,
    note_busy,
    outcome_of,
    status_class,
)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_windows_hold_together(window):
    """A window has whole steps of whole buckets, few enough to draw, and kept that long."""
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
    """A time is in the bucket that began last."""
    assert bucket_start(grain, at_s) == start_s


@pytest.mark.parametrize(
    ("decision", "detail", "outcome"),
    [
        ("limited", "search", "limited:search"),
        ("limited", None, "limited"),
        ("refused", "ip_not_allowed", "refused:ip_not_allowed"),
        ("failed", "upstream_timeout", "failed:upstream_timeout"),
    ],
)
def test_outcome_of(decision, detail, outcome):
    """An outcome is the decision and its reason."""
    assert outcome_of(decision, detail) == outcome


def test_the_least_busy_are_dropped():
    """Up to twice as many keys are kept; then those with the fewest requests go, ties by id."""
    bucket = {f"k{at:03}": at + 5 for at in range(2 * MOST_BUSY)}
    note_busy(bucket, {})
    assert len(bucket) == 2 * MOST_BUSY
    note_busy(bucket, {"new": 5, "k001": 1_000})
    assert len(bucket) == MOST_BUSY
    assert bucket["k001"] == 1_006
    assert not {"k000", "new", f"k{MOST_BUSY:03}"} & bucket.keys()


def test_the_busiest_of_a_batch():
    """Of few keys all, by their totals; of many, those with the most. Plans do not count."""
    counts = {
        ("key:a", "x", "admitted"): 1,
        ("key:a", "y", "failed"): 2,
        ("plan:free", "x", "a"): 9,
    }
    assert busiest_of(counts) == {"a": 3}
    counts |= {(f"key:k{at}", "x", "admitted"): at for at in range(1, MOST_NOTED + 1)}
    noted = busiest_of(counts)
    assert len(noted) == MOST_NOTED
    assert noted["a"] == 3
    assert "k1" not in noted


@pytest.mark.parametrize(
    ("status", "outcome", "name"),
    [
        (101, "admitted:1xx", "1xx"),
        (200, "admitted:2xx", "2xx"),
        (304, "admitted:3xx", "3xx"),
        (499, "admitted:4xx", "4xx"),
        (500, "failed:5xx", "5xx"),
        (999, "failed:5xx", "5xx"),
    ],
)
def test_an_answer_counts_by_its_status(status, outcome, name):
    """An answer of 500 and above is a failure."""
    assert answered_outcome(status) == outcome
    assert status_class(outcome) == name


@pytest.mark.parametrize("outcome", ["admitted", "limited:2xx0", "failed:upstream_timeout", ""])
def test_outcomes_without_a_status(outcome):
    """Older counts, and requests without an answer of an upstream."""
    assert status_class(outcome) is None
