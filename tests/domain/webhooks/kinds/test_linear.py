"""Webhooks of Linear."""

from __future__ import annotations

import json

import pytest

from gateway.domain.webhooks.kinds.linear import LINEAR
from gateway.domain.webhooks.signatures import TOLERANCE_S
from tests.domain.webhooks.kinds.cases import (
    NOW,
    SECRET,
    Case,
    cases,
    check,
    check_signatures,
    hmac_hex,
    refuses,
)

SIGN = hmac_hex("Linear-Signature")
BODY = json.dumps({"webhookTimestamp": int(NOW) * 1000}).encode()


@pytest.mark.parametrize("case", cases("linear"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(LINEAR, case, SIGN)


def test_signatures() -> None:
    """Of the body."""
    check_signatures(LINEAR, SIGN, body=BODY)


@pytest.mark.parametrize("late_s", [TOLERANCE_S + 1, -TOLERANCE_S - 1])
def test_the_time(late_s: int) -> None:
    """The body says when it was sent, which may not be far from now."""
    refuses(LINEAR, BODY, SIGN(BODY, SECRET), "tolerated", now=NOW + late_s)


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"webhookTimestamp":"now"}', b"null"])
def test_no_time(body: bytes) -> None:
    """A body that does not say it is refused."""
    refuses(LINEAR, body, SIGN(body, SECRET), "tolerated")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        *((body, "not valid JSON") for body in (b"", b"{", b"\xff")),
        (b"[" * 100_000, "found 101 levels of arrays and objects at byte 101"),
    ],
)
def test_no_json(body: bytes, words: str) -> None:
    """So is one that cannot be read."""
    refuses(LINEAR, body, SIGN(body, SECRET), words)
