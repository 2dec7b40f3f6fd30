"""Webhooks of PagerDuty, version 3."""

from __future__ import annotations

import pytest

from gateway.domain.webhooks.kinds.pagerduty import PAGERDUTY
from tests.domain.webhooks.kinds.cases import (
    NOW,
    OTHER,
    SECRET,
    Case,
    cases,
    check,
    check_signatures,
    hmac_hex,
    of,
    refuses,
)

HEADER = "X-PagerDuty-Signature"
SIGN = hmac_hex(HEADER, "v1=")


@pytest.mark.parametrize("case", cases("pagerduty"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(PAGERDUTY, case, SIGN)


def test_signatures() -> None:
    """Of the body."""
    check_signatures(PAGERDUTY, SIGN, body=b'{"event":{}}')


@pytest.mark.parametrize("separator", [",", ", "])
def test_several(separator: str) -> None:
    """While a secret changes there is a signature for each, and any of them counts."""
    of_both = [SIGN(b"{}", secret)[HEADER] for secret in (OTHER, SECRET)]
    headers = {HEADER: separator.join(of_both)}
    PAGERDUTY.verify(b"{}", of(headers), [SECRET], NOW)
    refuses(PAGERDUTY, b"{}", headers, "does not fit", secrets=["a third one"])
