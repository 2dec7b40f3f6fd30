"""Which events a watch gets."""

from __future__ import annotations

import pytest

from gateway.domain.webhooks.event_types import MOST_TYPE, is_pattern, is_type, takes


@pytest.mark.parametrize(
    ("pattern", "event_type", "expected"),
    [
        ("pull_request.merged", "pull_request.merged", True),
        ("pull_request.merged", "pull_request.closed", False),
        ("pull_request.*", "pull_request.merged", True),
        ("pull_request.*", "pull_request.review.submitted", True),
        ("pull_request.*", "pull_request_review.submitted", False),
        ("pull_request.*", "pull_request", False),
        ("pull.*", "pull_request.merged", False),
        ("a.b.*", "a.b.c", True),
        ("a.b.*", "a.bc.d", False),
    ],
)
def test_patterns(pattern: str, event_type: str, expected: bool) -> None:
    """Exact types, or everything below a prefix, by segment."""
    assert takes([pattern], event_type) is expected
    assert takes(["x.y", pattern], event_type) is expected


@pytest.mark.parametrize("text", ["a.b", "a.b.c", "pull_request.merged", "a1.b2"])
def test_types(text: str) -> None:
    """Segments of lower-case letters, digits and _."""
    assert is_type(text)
    assert is_pattern(text)


@pytest.mark.parametrize(
    "text", ["", "a", ".a", "a.", "a..b", "A.b", "a.b ", "a.b\n", "a.*.b", "*", "*.a", "a*", "a.b*"]
)
def test_neither(text: str) -> None:
    """One segment, empty ones, other characters, and a * elsewhere."""
    assert not is_type(text)
    assert not is_pattern(text)


def test_only_patterns() -> None:
    """A pattern is no type; both have a bound."""
    assert is_pattern("a.*")
    assert not is_type("a.*")
    assert not is_pattern("a." + "b" * MOST_TYPE)
