"""Webhooks of all other providers."""

from __future__ import annotations

import pytest

from gateway.domain.webhooks.kinds.generic import GENERIC
from gateway.domain.webhooks.signatures import STANDARD_HEADERS, TOLERANCE_S
from gateway.domain.webhooks.signatures import sign as sign_event
from tests.domain.webhooks.kinds.cases import (
    NOW,
    SECRET,
    Case,
    Sign,
    cases,
    check,
    check_signatures,
    of,
    refuses,
)

TIMED = ("x-service-timestamp", "x-service-signature")


def timed(body: bytes, secret: str) -> dict[str, str]:
    signed = sign_event(body, [secret], event_id="evt-1", now_s=int(NOW))
    return {name: signed[name] for name in TIMED}


def standard(body: bytes, secret: str) -> dict[str, str]:
    signed = sign_event(body, [secret], event_id="evt-1", now_s=int(NOW))
    return {name: signed[name] for name in STANDARD_HEADERS}


@pytest.mark.parametrize("case", cases("generic"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(GENERIC, case, timed)


@pytest.mark.parametrize("sign", [timed, standard])
def test_signatures(sign: Sign) -> None:
    """As the service signs, in either of the forms with a time."""
    check_signatures(GENERIC, sign, body=b'{"type":"deployment.finished"}')


@pytest.mark.parametrize("sign", [timed, standard])
@pytest.mark.parametrize("late_s", [TOLERANCE_S + 1, -TOLERANCE_S - 1])
def test_the_time(sign: Sign, late_s: int) -> None:
    """It may not be far from now."""
    refuses(GENERIC, b"{}", sign(b"{}", SECRET), "tolerated", now=NOW + late_s)


def test_without_a_time() -> None:
    """The form that signs the body alone does not count."""
    signed = sign_event(b"{}", [SECRET], event_id="evt-1", now_s=int(NOW), form="body-only")
    alone = {"x-service-signature": signed["x-service-signature"]}
    refuses(GENERIC, b"{}", alone, "expected")


def test_ids() -> None:
    """The one of the body, which is signed in both forms, goes before that of the header."""
    header = of({"webhook-id": "evt-1"})
    assert GENERIC.delivery_id(header, {"id": "deploy-7"}) == "deploy-7"
    assert GENERIC.delivery_id(header, {}) == "evt-1"
    assert GENERIC.delivery_id(of({}), {}) == ""
