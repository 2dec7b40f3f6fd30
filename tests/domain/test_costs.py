"""What a body or a header says about a request's cost."""

from __future__ import annotations

import pytest

from gateway.domain.costs import (
    HeaderCost,
    JsonCost,
    Uncounted,
    body_cost,
    header_cost,
    is_json,
)
from gateway.errors import COST_TOO_HIGH, COST_UNREADABLE

IDS, WHOLE = JsonCost(("data", "ids"), 3), JsonCost((), 3)
ITEMS = HeaderCost("x-items", 100, 7)


@pytest.mark.parametrize(
    ("content_type", "content_encoding", "expected"),
    [
        ("application/json", "", True),
        ("Application/JSON ; Charset=UTF-8", "identity", True),
        ('application/json; charset="utf-8"', "", True),
        ("application/vnd.api+json; ext=bulk", "", True),
        ("", "", False),
        ("text/plain", "", False),
        ("text/json", "", False),
        ("application/x-www-form-urlencoded", "", False),
        ("multipart/form-data; boundary=json", "", False),
        ("application/jsonp", "", False),
        ("application/json, text/plain", "", False),
        ("application/json; charset=utf-7", "", False),
        ("application/json; charset=utf-16", "", False),
        ("application/json; charset=utf-8; charset=utf-16", "", False),
        ("application/json; charset=utf-8; charset=utf-8", "", False),
        ("application/json; charset*=utf-16''x", "", False),
        ('application/json; x="; charset=utf-16"', "", False),
        ("application/json; charset", "", False),
        ("application/json;", "", False),
        ('application/json; a="b ' + "x" * 200 + '"', "", True),
        ('application/json; a="b ' + "x" * 31_000 + '"', "", False),
        ("application/json", "gzip", False),
        ("application/json", "identity, gzip", False),
    ],
)
def test_media_types(content_type: str, content_encoding: str, expected: bool) -> None:
    """Only what every upstream reads as JSON in UTF-8."""
    assert is_json(content_type, content_encoding) is expected


@pytest.mark.parametrize(
    ("costing", "body", "expected"),
    [
        (IDS, b"", 1),
        (IDS, b'{"data": {"ids": []}}', 1),
        (IDS, b'{"data": {"ids": [1, 2, 3]}}', 3),
        (WHOLE, b"[1, 2]", 2),
    ],
)
def test_body_cost(costing: JsonCost, body: bytes, expected: int) -> None:
    """A unit for each element, and at least one."""
    assert body_cost(costing, body) == expected


def test_refused_bodies() -> None:
    """The detail says what was found and what is expected."""
    assert body_cost(IDS, b'{"data": {"ids": [1, 2, 3, 4]}}') == Uncounted(
        COST_TOO_HIGH, "Found 4 elements of data.ids in the JSON body, expected at most 3."
    )
    assert body_cost(IDS, b'{"ids": [1]}') == Uncounted(
        COST_UNREADABLE,
        "Found nothing at data, expected a JSON array as data.ids in the JSON body.",
    )
    assert body_cost(WHOLE, b"{}") == Uncounted(
        COST_UNREADABLE, "Found an object as the body, expected a JSON array."
    )


@pytest.mark.parametrize(("value", "expected"), [("", 7), ("1", 1), ("99", 99), ("100", 100)])
def test_header_cost(value: str, expected: int) -> None:
    """The number; the default without one."""
    assert header_cost(ITEMS, value) == expected


@pytest.mark.parametrize("value", ["101", "9999999999", "9" * 8_000])
def test_too_high(value: str) -> None:
    """More than the maximum; a long number is cut off in the message."""
    found = header_cost(ITEMS, value)
    assert isinstance(found, Uncounted)
    assert found.refusal is COST_TOO_HIGH
    assert found.detail.startswith(f"Found {value[:10]}")
    assert len(found.detail) < 100


@pytest.mark.parametrize(
    "value", ["0", "00", "01", "-1", "+1", "1.0", "1e2", " 1", "1,2", "x", "²", "٣", "0x1"]
)
def test_no_number(value: str) -> None:
    """Decimal digits alone, without leading zeros; the value is not repeated in the message."""
    assert header_cost(ITEMS, value) == Uncounted(
        COST_UNREADABLE, "Expected a whole number from 1 to 100 in the header x-items."
    )
