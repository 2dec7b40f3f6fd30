"""Webhooks of GitHub."""

from __future__ import annotations

import json

import pytest

from gateway.domain.webhooks.kinds.github import GITHUB
from gateway.domain.webhooks.kinds.kind import FORM
from gateway.domain.webhooks.signatures import Unverified
from tests.domain.webhooks.kinds.cases import (
    NOW,
    SECRET,
    Case,
    cases,
    check,
    check_signatures,
    form,
    of,
    refuses,
)
from tests.domain.webhooks.kinds.cases import hmac_hex as signer

SIGN = signer("X-Hub-Signature-256", "sha256=")


@pytest.mark.parametrize("case", cases("github"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(GITHUB, case, SIGN)


def test_signatures() -> None:
    """Of the body, with a prefix that is required."""
    check_signatures(GITHUB, SIGN, body=b'{"action":"opened"}')
    without_prefix = signer("X-Hub-Signature-256")(b"{}", SECRET)
    refuses(GITHUB, b"{}", without_prefix, "malformed: expected sha256=HEX")


def test_the_older_signature() -> None:
    """The header with SHA-1 does not count."""
    older = signer("X-Hub-Signature", "sha256=")(b"{}", SECRET)
    refuses(GITHUB, b"{}", older, "expected x-hub-signature-256")


def test_known_signature() -> None:
    """The example of GitHub's documentation on validating deliveries."""
    secret, body = "It's a Secret to Everybody", b"Hello, World!"
    mac = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    GITHUB.verify(body, lambda _: f"sha256={mac}", [secret], 0.0)
    with pytest.raises(Unverified):
        GITHUB.verify(body + b" ", lambda _: f"sha256={mac}", [secret], 0.0)


def test_a_form() -> None:
    """What GitHub sends unless told otherwise: the form is signed, and its field has the JSON."""
    payload = {"action": "opened", "pull_request": {"title": "50% more & é+1"}}
    body = form(payload)
    header = of({"Content-Type": FORM, **SIGN(body, SECRET)})
    GITHUB.verify(body, header, [SECRET], NOW)
    assert GITHUB.read(header, body) == payload


@pytest.mark.parametrize("content_type", [f"{FORM}; charset=utf-8", FORM.title()])
def test_content_types_of_forms(content_type: str) -> None:
    """In any case, and with parameters."""
    assert GITHUB.read(of({"Content-Type": content_type}), form({"a": 1})) == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [b"", b"payload", b"payload=", b"payload=%7B", b"other=1", b"payload=%ff", b"\xff", b"&" * 99]
    + [form({}), b"&".join([b"a=1"] * 9)],
)
def test_what_is_no_form(body: bytes) -> None:
    """Neither a form with JSON, nor JSON."""
    with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
        GITHUB.read(of({"Content-Type": FORM if body != form({}) else "text/plain"}), body)


def test_json_is_not_read_as_a_form() -> None:
    """The content type decides, and JSON without one is JSON."""
    assert GITHUB.read(of({}), b'{"payload":"{}"}') == {"payload": "{}"}
