"""Webhooks of Gitea and Forgejo."""

from __future__ import annotations

import pytest

from gateway.domain.webhooks.kinds.gitea import GITEA
from tests.domain.webhooks.kinds.cases import (
    SECRET,
    Case,
    Sign,
    cases,
    check,
    check_signatures,
    hmac_hex,
    refuses,
)

SIGN = hmac_hex("X-Gitea-Signature")
FORGEJO = hmac_hex("X-Forgejo-Signature")


@pytest.mark.parametrize("case", cases("gitea"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(GITEA, case, SIGN)


@pytest.mark.parametrize("sign", [SIGN, FORGEJO])
def test_signatures(sign: Sign) -> None:
    """Of the body, in the header of either, without a prefix."""
    check_signatures(GITEA, sign, body=b'{"action":"opened"}')


def test_prefixed() -> None:
    """The form of GitHub is none of theirs."""
    prefixed = hmac_hex("X-Gitea-Signature", "sha256=")(b"{}", SECRET)
    refuses(GITEA, b"{}", prefixed, "does not fit")
