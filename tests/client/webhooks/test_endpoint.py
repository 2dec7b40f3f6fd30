"""What both receivers share: from a head and a body to an answer."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from gateway_client.webhooks import answers
from gateway_client.webhooks.answers import Answer
from gateway_client.webhooks.endpoint import Endpoint
from gateway_client.webhooks.events import Event, read_event
from gateway_client.webhooks.signatures import Claim
from hypothesis import given
from hypothesis import strategies as st

from tests.client.webhooks.samples import BODY, NOW, OTHER, SECRET, Handler, signed
from tests.kit.reach import mostly, reached, reaches


def endpoint(max_body: int = 1000, secrets: Any = SECRET, now: float = NOW) -> Endpoint:
    forms = ("timed", "standard")
    return Endpoint.of(secrets, Handler(), None, 300, forms, "service", max_body, lambda: now)


def claim_of(headers: dict[str, str]) -> Claim:
    claim = endpoint().opened("POST", headers)
    assert isinstance(claim, Claim)
    return claim


def test_a_webhook() -> None:
    """Its head is a claim, its body an event."""
    assert endpoint().read(claim_of(signed()), BODY) == read_event(BODY)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS", "post", "", "P\udcff"])
def test_other_methods(method: str) -> None:
    """405, whatever the headers; of HEAD without a body."""
    answer = endpoint().opened(method, signed())
    assert isinstance(answer, Answer)
    assert (answer.status, dict(answer.headers)["Allow"]) == (405, "POST")
    assert bool(answer.body) is (method != "HEAD")


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "no signature: expected x-service-timestamp"),
        ({**signed(), "x-service-timestamp": "1"}, "s old, and 300 s are tolerated"),
        ({**signed(), "x-service-signature": "1"}, "the signature is malformed"),
        ({**signed(), "X-Service-Signature": "1"}, "x-service-signature is there more than once"),
    ],
)
def test_a_head_that_no_body_makes_right(headers: dict[str, str], words: str) -> None:
    """401 before any body is read. It says what is wrong."""
    answer = endpoint().opened("POST", headers)
    assert isinstance(answer, Answer)
    check_unauthorized(answer, words)


def check_unauthorized(answer: Answer, words: str) -> None:
    found = json.loads(answer.body)
    assert (answer.status, answer.status_line) == (401, "401 Unauthorized")
    assert found.keys() == {"error", "message", "code"}
    assert (found["error"], found["code"]) == ("unauthorized", "INVALID_SIGNATURE")
    assert words in found["message"]
    assert SECRET not in found["message"]
    assert dict(answer.headers)["WWW-Authenticate"] == "Webhook"


@pytest.mark.parametrize("body", [b"", BODY + b" ", BODY[:-1], b"{"])
def test_a_body_that_does_not_fit(body: bytes) -> None:
    """401, before anything parses it."""
    answer = endpoint().read(claim_of(signed()), body)
    assert isinstance(answer, Answer)
    check_unauthorized(answer, "the signature does not fit the body and the secret")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"[" * 500, b"9" * 900, b"\xff"])
def test_a_body_that_is_no_event(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """400, and the log has it: the sender is the right one."""
    answer = endpoint().read(claim_of(signed(body)), body)
    assert isinstance(answer, Answer)
    assert (answer.status, json.loads(answer.body)["code"]) == (400, "INVALID_EVENT")
    assert "it is verified, but no event" in caplog.text


@pytest.mark.parametrize(
    ("length", "expected"),
    [("0", 0), ("7", 7), ("1000", 1000), ("0001000", 1000), ("0" * 100_000 + "7", 7)]
    + [("1001", 413), ("9" * 19, 413), ("9" * 100_000, 413)]
    + [("", 400), ("-1", 400), ("+1", 400), ("1_0", 400), (" 1", 400), ("1\n", 400)]
    + [("1, 1", 400), ("0x1", 400), ("1.0", 400), ("\N{SUPERSCRIPT TWO}", 400), ("\uff11", 400)],
    ids=lambda value: ascii(value)[:12],
)
def test_lengths(length: str, expected: int) -> None:
    """A whole number up to the bound; 413 beyond it, 400 for anything else."""
    found = endpoint().bounded(length)
    assert (found.status if isinstance(found, Answer) else found) == expected


@given(st.text())
def test_any_length(length: str) -> None:
    """Nothing is raised."""
    found = endpoint().bounded(length)
    assert isinstance(found, Answer) or 0 <= found <= 1000


@reaches(0.05)
@given(
    mostly(
        st.tuples(st.just("POST"), st.permutations([*signed().items()]), st.just(BODY)),
        st.tuples(
            st.sampled_from(["POST", "GET"]),
            st.lists(
                st.tuples(st.sampled_from([*signed()]), st.sampled_from([*signed().values(), ""]))
            ),
            st.sampled_from([BODY, b"", b"[]"]),
        ),
    )
)
def test_whatever_is_sent(sent: tuple[str, list[tuple[str, str]], bytes]) -> None:
    """An event, or an answer in JSON with the length that it has."""
    method, headers, body = sent
    found: Claim | Event | Answer = endpoint().opened(method, headers)
    if isinstance(found, Claim):
        found = endpoint().read(found, body)
    if isinstance(found, Event):
        reached()
        assert found.body == BODY
    else:
        assert json.loads(found.body).keys() == {"error", "message", "code"}
        assert dict(found.headers)["Content-Length"] == str(len(found.body))


def test_refusals_are_not_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    """Anyone can cause them, so the log of a receiver does not grow by them."""
    with caplog.at_level(logging.INFO):
        endpoint().opened("POST", {})
        endpoint(secrets=OTHER).read(claim_of(signed()), BODY)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"handle": None}, TypeError, "handle: found NoneType, expected a function"),
        ({"max_body": 0}, ValueError, "max_body: found 0, expected at least 1 byte"),
        ({"secrets": ""}, ValueError, "found an empty secret"),
        ({"tolerance": float("nan")}, ValueError, "tolerance: found nan"),
        ({"forms": []}, ValueError, "forms: found"),
        ({"brand": ""}, ValueError, "brand: found"),
    ],
)
def test_mistakes_are_found_at_the_start(arguments: Any, kind: type[Exception], words: str) -> None:
    """When the receiver is made, not when the first webhook arrives."""
    right: dict[str, Any] = {
        "secrets": SECRET,
        "handle": print,
        "seen": None,
        "tolerance": 300,
        "forms": ["timed"],
        "brand": "service",
        "max_body": 1,
        "clock": float,
    }
    with pytest.raises(kind, match=words):
        Endpoint.of(**{**right, **arguments})


def test_no_secret_is_shown() -> None:
    """Where an endpoint is written to a log."""
    assert SECRET not in repr(endpoint())


def test_answers_that_have_it_sent_again() -> None:
    """None of them is a success, nor 410, by which the gateway disables a watch."""
    again = (answers.FAILED, answers.BUSY_NOW, answers.STORE_DOWN)
    assert [answer.status for answer in again] == [500, 503, 503]
    assert [answers.HANDLED.status, answers.SEEN.status] == [200, 200]
