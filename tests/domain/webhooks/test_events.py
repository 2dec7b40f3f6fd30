"""Events: one webhook is one event, whose bytes say what the provider's webhook said."""

from __future__ import annotations

import hmac
import json
from dataclasses import replace
from hashlib import sha256

import pytest

from gateway.domain.webhooks.events import (
    MOST_EVENT,
    Integration,
    NotJson,
    TooLarge,
    captured,
    noticed,
    published,
    trial,
)
from gateway.domain.webhooks.signatures import Unverified, sign

NOW_US = 1_800_000_000_123_456
SECRET = "s" * 20
INTEGRATION = Integration("int_1", "acme", "generic", "Acme's cloud", created_us=1)
PAYLOAD = {"id": "d-1", "type": "host.created", "created": "2026-01-02T03:04:05Z", "data": {"a": 1}}


def capture(
    payload: object = PAYLOAD, integration: Integration = INTEGRATION, most: int = MOST_EVENT
):
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    signed = sign(body, [SECRET], event_id="x", now_s=NOW_US // 1_000_000)
    headers = {name: value for name, value in signed.items() if name != "webhook-id"}
    return captured(integration, body, lambda name: headers.get(name, ""), [SECRET], NOW_US, most)


def test_the_record() -> None:
    """The fields of the service's description, in its order."""
    event = capture()
    assert json.loads(event.body) == {
        "id": event.id,
        "type": "host.created",
        "created": "2026-01-02T03:04:05.000Z",
        "integration": {"id": "int_1", "provider": "generic", "name": "Acme's cloud"},
        "data": {"a": 1},
    }
    assert event.type == "host.created"
    assert list(json.loads(event.body)) == ["id", "type", "created", "integration", "data"]


def test_ids() -> None:
    """A resend is the same event; another delivery or integration is another."""
    again = capture({**PAYLOAD, "data": {"a": 2}})
    assert capture().id == again.id
    others = {
        capture({**PAYLOAD, "id": "d-2"}).id,
        capture(integration=replace(INTEGRATION, id="int_2")).id,
        published(INTEGRATION, "host.created", {}, "d-1", NOW_US).id,
    }
    assert len(others | {again.id}) == 4


@pytest.mark.parametrize("where", ["body", "header"])
def test_a_sender_does_not_take_the_id_of_another_origin(where: str) -> None:
    """Whatever a webhook names itself, an event of the API or the gateway has another id."""
    body = json.dumps({"type": "host.created", "data": {}}).encode()
    ours = {
        "published order-1": published(INTEGRATION, "host.created", {}, "order-1", NOW_US).id,
        "notice near": noticed(INTEGRATION, "limit.near", {}, "near", NOW_US).id,
        "test 1": trial(INTEGRATION, "host.created", "1", NOW_US).id,
        f"body {sha256(body).hexdigest()}": capture(body).id,
        sha256(body).hexdigest(): capture(body).id,
    }
    for named, event_id in ours.items():
        found = with_header(named) if where == "header" else capture({**PAYLOAD, "id": named}).id
        assert found != event_id


def with_header(value: str, payload: object = PAYLOAD, sent: str = "x-delivery") -> str:
    """The id of the event of an integration that names the header x-delivery."""
    body = json.dumps(payload).encode()
    headers = {**sign(body, [SECRET], event_id="std-1", now_s=NOW_US // 1_000_000), sent: value}
    integration = replace(INTEGRATION, id_header="x-delivery")
    event = captured(integration, body, lambda name: headers.get(name, ""), [SECRET], NOW_US)
    assert event is not None
    return event.id


def test_an_id_in_a_header() -> None:
    """It is the id if the integration names the header, whatever the signed body has."""
    other = {**PAYLOAD, "id": "d-2", "data": {}}
    assert with_header("h-1") == with_header("h-1", other)
    assert with_header("h-1") != with_header("h-2")
    # Those that have it in both places stay the same when the integration is changed.
    assert with_header("d-1", other) == capture().id


@pytest.mark.parametrize("value", ["", " ", "a b", "a, a", "é", "\udcff", "x" * 201, "x" * 10_000])
def test_a_header_without_an_id(value: str) -> None:
    """As without one: the id of the body, then that of Standard Webhooks, then the content."""
    bare = {key: each for key, each in PAYLOAD.items() if key != "id"}
    assert with_header(value) == capture().id
    assert with_header(value, bare) == with_header("std-1")
    assert with_header("h-1", sent="x-other") == capture().id


def test_without_an_id_and_a_date() -> None:
    """The content stands for the id, and the time of capture for the date."""
    bare = {key: value for key, value in PAYLOAD.items() if key not in ("id", "created")}
    event = capture(bare)
    assert event.id == capture(bare).id
    assert event.id != capture({**bare, "data": {}}).id
    assert json.loads(event.body)["created"] == "2027-01-15T08:00:00.123Z"


def test_what_no_table_knows() -> None:
    assert capture({"type": "Unknown Thing"}) is None


def test_it_is_verified_before_it_is_parsed() -> None:
    with pytest.raises(Unverified):
        captured(INTEGRATION, b"{", lambda name: "", [SECRET], NOW_US)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"NaN,",
        b'{"type":"a.b","data":{"x":1e999}}',
        b'{"type":"a.b","data":{"x":NaN}}',
        b'{"type":"a.b","data":{},"created":1' + b"0" * 5_000 + b"}",
    ],
)
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(NotJson):
        capture(body)


@pytest.mark.parametrize("field", ["%7B%22action%22%3A%22opened%22%7D", "%7B"])
def test_a_form(field: str) -> None:
    """The body of a kind that sends forms. The form is signed, and its field is JSON."""
    body = f"payload={field}".encode()
    mac = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    headers = {
        "x-github-event": "pull_request",
        "x-hub-signature-256": f"sha256={mac}",
        "content-type": "application/x-www-form-urlencoded",
    }
    integration = replace(INTEGRATION, kind="github")
    if field == "%7B":
        with pytest.raises(NotJson):
            captured(integration, body, lambda name: headers.get(name, ""), [SECRET], NOW_US)
    else:
        event = captured(integration, body, lambda name: headers.get(name, ""), [SECRET], NOW_US)
        assert event.type == "pull_request.opened"


@pytest.mark.parametrize("text", ["\ud800", "\u2028", "é", "\x00"])
def test_any_text_is_written(text: str) -> None:
    """Also those that have no form in UTF-8; the same bytes each time."""
    event = capture({**PAYLOAD, "id": text, "data": {"text": text}})
    assert json.loads(event.body)["data"]["text"] == text
    assert event.body.isascii()


@pytest.mark.parametrize("value", [b"1e15,", "é".encode(), b"x", b"[],"])
def test_the_largest(value: bytes) -> None:
    """No event is larger than its bound, however much it grows when it is written."""
    written = b"[" + value * 5_000 + b"0]" if b"," in value else b'"' + value * 5_000 + b'"'
    body = b'{"id":"1","type":"a.b","data":{"x":' + written + b"}}"
    size = len(capture(body).body)
    assert size > len(body)
    assert len(capture(body, most=size).body) == size
    with pytest.raises(TooLarge, match=f"has {size} bytes, and may have {size - 1}"):
        capture(body, most=size - 1)


def test_none_is_larger() -> None:
    """Whoever makes it."""
    data = {"x": "y" * MOST_EVENT}
    with pytest.raises(TooLarge):
        capture({**PAYLOAD, "data": data})
    with pytest.raises(TooLarge):
        published(INTEGRATION, "ticket.created", data, "1", NOW_US)
    with pytest.raises(TooLarge):
        noticed(INTEGRATION, "limit.near", data, "1", NOW_US)


def test_published() -> None:
    """An event of the API: the id is its publisher's."""
    event = published(INTEGRATION, "ticket.created", {"id": "7"}, "order-1", NOW_US)
    assert json.loads(event.body)["data"] == {"id": "7"}
    assert event.id == published(INTEGRATION, "ticket.closed", {}, "order-1", NOW_US).id
    with pytest.raises(ValueError, match="Ticket"):
        published(INTEGRATION, "Ticket", {}, "1", NOW_US)
