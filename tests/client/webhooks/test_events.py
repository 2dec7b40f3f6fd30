"""Events: what is one, and what it can be asked."""

from __future__ import annotations

import copy
import json
import pickle
import re
import sys
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from gateway_client.webhooks import EventInvalid, Integration, read_date
from gateway_client.webhooks.events import MOST_DIGITS, Event, read_event
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.webhooks import events as gateway
from gateway.domain.webhooks.event_types import is_pattern, is_type, takes
from tests.client.webhooks.samples import BODY, EVENT, PULL_REQUEST, body_of

FROM = gateway.Integration("int_1", "acme", "github", 'Our "code"', 0)


def test_an_event() -> None:
    """All that the gateway sends of one, and what it may send in future besides."""
    event = read_event(body_of(version=2))
    assert event == Event(
        id=EVENT["id"],
        type="pull_request.merged",
        created=datetime(2026, 11, 23, 16, 43, 58, 446_000, UTC),
        integration=Integration("int_5f1c8a60d3b2479e01c4a7b3", "github", "Our code"),
        data=PULL_REQUEST,
        body=body_of(version=2),
    )


def test_an_event_is_a_value() -> None:
    """It cannot be changed; it can be a key, copied, and sent to a queue's workers."""
    event = read_event(BODY)
    with pytest.raises(FrozenInstanceError):
        event.id = "evt_2"  # type: ignore[misc]
    assert {event: 1}[read_event(BODY)] == 1
    assert copy.deepcopy(event) == pickle.loads(pickle.dumps(event)) == event
    assert "ada@example.com" not in repr(event)
    assert event.id in repr(event)


def test_what_the_gateway_makes() -> None:
    """Events that are published, tests of a watch, and events of the gateway itself are read."""
    data = {"name": "Größe \ud800", "many": [1, 2.5, None, True]}
    published = gateway.published(FROM, "build.finished", data, "b-1", 1_800_000_000_123_456)
    event = read_event(published.body)
    assert (event.id, event.type, event.data) == (published.id, "build.finished", data)
    assert event.created == datetime(2027, 1, 15, 8, 0, 0, 123_000, UTC)
    assert event.integration == Integration("int_1", "github", 'Our "code"')
    assert not event.is_test
    trial = read_event(gateway.trial(FROM, "pull_request.opened", "nonce", 0).body)
    assert trial.is_test
    noticed = gateway.noticed(FROM, "limit.near", {"level": 80}, "name", 0)
    assert read_event(noticed.body).data == {"level": 80}


def without(key: str) -> bytes:
    return json.dumps({name: EVENT[name] for name in EVENT if name != key}).encode()


FAULTS = [
    (b"", "the body is not JSON, at character 1"),
    (b'{"id": }', "the body is not JSON, at character 8"),
    (BODY + b"x", "the body is not JSON"),
    (b"\xef\xbb\xbf" + BODY, "the body is not JSON"),
    (BODY.decode().encode("utf-16"), "the body is not UTF-8, at byte 1"),
    (b'{"id": "\xff"}', "the body is not UTF-8, at byte 9"),
    (
        b"[" * 100_000,
        "the body has 101 levels of arrays and objects at byte 101, expected at most 100",
    ),
    (b'{"a":' * 100_000, "the body has 101 levels of arrays and objects at byte 501"),
    (b'{"id": NaN}', "the body has NaN or Infinity"),
    (b'{"id": -Infinity}', "the body has NaN or Infinity"),
    (b'{"id": 1e999}', "the body has NaN or Infinity"),
    (b"9" * 100_000, "a number of the body has more than 4300 digits"),
    (b"-" + b"9" * 1_000_000, "a number of the body has more than 4300 digits"),
    (b'{"id": "a", "id": "a"}', "an object of the body has a key twice"),
    (BODY[:-2] + b',"a":{"x":1,"\\u0078":2}}}', "an object of the body has a key twice"),
    (b"[]", "the body: found a list, expected an object"),
    (b'"text"', "the body: found a text, expected an object"),
    (b"null", "the body: found nothing, expected an object"),
    (b"7", "the body: found a number, expected an object"),
    (b"{}", "integration: found nothing, expected an object"),
    *((without(key), f"{key}: found nothing, expected") for key in EVENT),
    (body_of(id=7), "id: found a number, expected a text"),
    (body_of(id=True), "id: found true or false, expected a text"),
    (body_of(id=""), "id: found another text, expected 1 to 256 characters"),
    (body_of(id="x" * 257), "id: found another text, expected 1 to 256 characters"),
    (body_of(id="a\nERROR b"), "id: found another text, expected 1 to 256 characters"),
    (body_of(id="\0"), "id: found another text, expected 1 to 256 characters"),
    (body_of(id="\ud800"), "id: found another text, expected 1 to 256 characters"),
    (body_of(type={}), "type: found an object, expected a text"),
    (body_of(type="a\rb"), "type: found another text"),
    (body_of(data=[]), "data: found a list, expected an object"),
    (body_of(data=None), "data: found nothing, expected an object"),
    (body_of(integration="int_1"), "integration: found a text, expected an object"),
    (body_of(integration={"id": "a"}), "integration.provider: found nothing, expected a text"),
    (body_of(created=1_800_000_000), "created: found a number, expected a text"),
    (body_of(created="yesterday"), "created: found another text, expected a date such as 2026-"),
]


@pytest.mark.parametrize(("body", "words"), FAULTS, ids=lambda value: str(value[:40]))
def test_no_event(body: bytes, words: str) -> None:
    """Says what was found and what was expected, but nothing of what was sent."""
    with pytest.raises(EventInvalid, match=re.escape(words)) as failed:
        read_event(body)
    assert len(str(failed.value)) < 120


def test_long_numbers() -> None:
    """As many digits as Python reads by default."""
    number = 10**MOST_DIGITS - 1
    body = BODY[:-2] + b',"n":' + b"9" * MOST_DIGITS + b"}}"
    assert read_event(body).data["n"] == number


def test_a_python_that_reads_fewer_digits() -> None:
    """The same refusal: the bound of Python is a setting of the process."""
    body = BODY[:-2] + b',"n":' + b"9" * 700 + b"}}"
    most = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(EventInvalid, match="a number of the body has more than"):
            read_event(body)
    finally:
        sys.set_int_max_str_digits(most)
    assert read_event(body).data["n"] == 10**700 - 1


# -- patterns --------------------------------------------------------------------------------------
SEGMENTS = st.sampled_from(["pull", "pull_request", "pull_request_review", "opened", "a", "_", "1"])
TYPES = st.lists(SEGMENTS, min_size=2, max_size=4).map(".".join)
PATTERNS = st.one_of(
    TYPES, st.lists(SEGMENTS, min_size=1, max_size=3).map(lambda parts: ".".join([*parts, "*"]))
)


@given(TYPES, st.lists(PATTERNS, max_size=4))
def test_patterns_are_those_of_watches(event_type: str, patterns: list[str]) -> None:
    """An event is of a pattern if a watch with it gets the event."""
    assert is_type(event_type)
    assert all(map(is_pattern, patterns))
    event = replace(read_event(BODY), type=event_type)
    assert event.is_a(*patterns) is takes(patterns, event_type)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("pull_request.*", True),
        ("pull_request.merged", True),
        ("pull_request.opened", False),
        ("pull.*", False),
        ("pull_request_review.*", False),
        ("ticket.*", False),
    ],
)
def test_a_pattern(pattern: str, expected: bool) -> None:
    """By segment, not by character."""
    assert read_event(BODY).is_a(pattern) is expected
    assert read_event(BODY).is_a("ticket.created", pattern) is expected


@pytest.mark.parametrize("pattern", ["", "*", "pull_request", "pull_*", "*.merged", "A.b", "a.b\n"])
def test_what_is_no_pattern(pattern: str) -> None:
    """An error, as it would never fit: watches refuse it as well."""
    assert not is_pattern(pattern)
    with pytest.raises(ValueError, match=r"expected a type such as ticket.created, or PREFIX"):
        read_event(BODY).is_a("pull_request.merged", pattern)


# -- dates -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-23T16:43:58.446Z", datetime(2026, 11, 23, 16, 43, 58, 446_000, UTC)),
        ("2026-11-23T16:43:58Z", datetime(2026, 11, 23, 16, 43, 58, 0, UTC)),
        ("2026-11-23T16:43:58.1Z", datetime(2026, 11, 23, 16, 43, 58, 100_000, UTC)),
        ("2026-11-23T16:43:58.123456789Z", datetime(2026, 11, 23, 16, 43, 58, 123_456, UTC)),
        ("2026-11-23T18:43:58+02:00", datetime(2026, 11, 23, 16, 43, 58, 0, UTC)),
        ("2026-11-23T11:13:58-05:30", datetime(2026, 11, 23, 16, 43, 58, 0, UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, 0, 0, 0, 0, UTC)),
    ],
)
def test_a_date(text: str, expected: datetime) -> None:
    """ISO 8601 with a zone, in every Python."""
    assert read_date(text) == expected
    assert read_date(text).tzinfo is not None


@pytest.mark.parametrize(
    "text",
    ["", "2026-11-23", "2026-11-23T16:43:58", "2026-11-23 16:43:58Z", "2026-13-23T16:43:58Z"]
    + ["2026-02-30T00:00:00Z", "2026-11-23T24:00:00Z", "2026-11-23T16:43:60Z", "1800000000"]
    + ["0000-01-01T00:00:00Z", "2026-11-23T16:43:58+24:00", "2026-11-23T16:43:58.Z"]
    + ["2026-11-23T16:43:58Z\n", "\uff12026-11-23T16:43:58Z", "2026-11-23T16:43:58+99:99"],
)
def test_no_date(text: str) -> None:
    """A ValueError, also for a date without a zone."""
    with pytest.raises(ValueError, match=r"expected a date such as 2026-11-23T16:43:58.446Z"):
        read_date(text)


@given(st.datetimes(), st.integers(-1439, 1439))
def test_dates_are_read_back(when: datetime, offset: int) -> None:
    """Whatever the zone, to the microsecond."""
    aware = when.replace(tzinfo=timezone(timedelta(minutes=offset)))
    assert read_date(aware.isoformat()).replace(tzinfo=None) == when
    assert read_date(aware.isoformat()).utcoffset() == aware.utcoffset()


def test_data_by_type() -> None:
    """Its fields, if the event is of that type and has them; a test of a watch has none."""
    event = read_event(BODY)
    assert event.as_pull_request()["repository"]["full_name"] == "lab/tides"
    others: list[Any] = [event.as_ticket, event.as_incident, event.as_package]
    for other in others:
        with pytest.raises(
            EventInvalid, match=r"found an event of type 'pull_request.merged', exp"
        ):
            other()
    trial = read_event(gateway.trial(FROM, "pull_request.opened", "nonce", 0).body)
    with pytest.raises(
        EventInvalid, match=r"the data of 'pull_request.opened' has no author, desc"
    ):
        trial.as_pull_request()
