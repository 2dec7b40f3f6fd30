"""Webhooks of GitLab."""

from __future__ import annotations

import pytest

from gateway.domain.webhooks.kinds.gitlab import GITLAB
from gateway.domain.webhooks.signatures import STANDARD_HEADERS, TOLERANCE_S
from gateway.domain.webhooks.signatures import sign as sign_event
from tests.domain.webhooks.kinds.cases import (
    NOW,
    SECRET,
    Case,
    cases,
    check,
    check_signatures,
    of,
    refuses,
)


def by_token(_body: bytes, secret: str) -> dict[str, str]:
    return {"X-Gitlab-Token": secret}


def by_signing_token(body: bytes, secret: str) -> dict[str, str]:
    """As newer versions sign: Standard Webhooks."""
    signed = sign_event(body, [secret], event_id="f5e5f430", now_s=int(NOW))
    return {name: signed[name] for name in STANDARD_HEADERS}


@pytest.mark.parametrize("case", cases("gitlab"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(GITLAB, case, by_token)


def test_tokens() -> None:
    """The header is the secret."""
    check_signatures(GITLAB, by_token, body=b"{}", of_body=False)


def test_signing_tokens() -> None:
    """Of id, time and body."""
    check_signatures(GITLAB, by_signing_token, body=b"{}")


@pytest.mark.parametrize("late_s", [TOLERANCE_S + 1, -TOLERANCE_S - 1])
def test_the_time(late_s: int) -> None:
    """A signed webhook has a time, which may not be far from now."""
    refuses(GITLAB, b"{}", by_signing_token(b"{}", SECRET), "tolerated", now=NOW + late_s)


def test_a_signature_decides() -> None:
    """With a signature that does not fit, a token that fits does not count."""
    signed = by_signing_token(b"{ }", SECRET)
    refuses(GITLAB, b"{}", {**signed, **by_token(b"{}", SECRET)}, "does not fit")


def test_ids() -> None:
    """The id that is signed, else the one that stays the same when a webhook is sent again."""
    all_of_them = {
        "webhook-id": "signed",
        "Idempotency-Key": "key",
        "X-Gitlab-Event-UUID": "uuid",
    }
    assert GITLAB.delivery_id(of(all_of_them), {}) == "signed"
    del all_of_them["webhook-id"]
    assert GITLAB.delivery_id(of(all_of_them), {}) == "key"
    del all_of_them["Idempotency-Key"]
    assert GITLAB.delivery_id(of(all_of_them), {}) == "uuid"
    assert GITLAB.delivery_id(of({}), {}) == ""
