"""What is read of providers' JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.webhooks.payload import MOST_ITEMS, at, items, moment, number, text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2017-12-10 17:01:11 UTC", "2017-12-10T17:01:11.000Z"),
        ("2026-11-23T16:43:58Z", "2026-11-23T16:43:58.000Z"),
        ("2026-11-23T16:43:58.1234567Z", "2026-11-23T16:43:58.123Z"),
        ("2026-11-23T16:43:58.5+01:00", "2026-11-23T15:43:58.500Z"),
        ("2026-11-23T16:43:58.447+0000", "2026-11-23T16:43:58.447Z"),
        ("2026-11-23T16:43:58", "2026-11-23T16:43:58.000Z"),
        ("2026-11-23 16:43:58 +0100", "2026-11-23T15:43:58.000Z"),
        (1_795_452_238_447, "2026-11-23T16:43:58.447Z"),
        (1_795_452_238, "2026-11-23T16:43:58.000Z"),
        ("0001-01-01T00:00:00+14:00", ""),
        ("2026-13-01T00:00:00Z", ""),
        ("yesterday", ""),
        ("", ""),
        (None, ""),
        (True, ""),
        (1e300, ""),
        (float("nan"), ""),
        (10**400, ""),
        (-(10**400), ""),
    ],
)
def test_dates(value: Any, expected: str) -> None:
    """All forms of providers become one; what is no date becomes nothing."""
    assert moment(value) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
)


@given(JSON, st.text(max_size=9))
def test_anything(payload: Any, path: str) -> None:
    """Nothing raises, and each has its type."""
    assert isinstance(text(payload, path), str)
    assert isinstance(number(payload, path), int)
    assert isinstance(moment(at(payload, path)), str)
    assert isinstance(moment(payload), str)


def test_lists() -> None:
    """The first elements; nothing of what is no list."""
    payload = {"a": {"b": list(range(MOST_ITEMS * 2))}, "t": "text"}
    assert items(payload, "a.b") == list(range(MOST_ITEMS))
    assert items(payload, "a.b", 2) == [0, 1]
    assert items(payload, "t") == items(payload, "a") == items([1], "a") == []


def test_values() -> None:
    """The first text or whole number of several places."""
    payload = {"a": {"b": "x", "n": 7, "t": True, "e": ""}, "s": "12", "l": [1]}
    assert (text(payload, "a.b"), text(payload, "a.n"), text(payload, "a.t")) == ("x", "7", "")
    assert (text(payload, "a.e", "a.b"), text(payload, "l"), text(payload, "a.b.c")) == (
        "x",
        "",
        "",
    )
    assert text({"a": "half \ud83d é 😀"}, "a") == "half ? é 😀"
    assert (number(payload, "s"), number(payload, "a.n"), number(payload, "a.b")) == (12, 7, 0)
