"""Webhooks of GitHub."""

from __future__ import annotations

import pytest

from gateway.domain.webhooks.kinds.github import GITHUB
from tests.domain.webhooks.kinds.cases import SECRET, Case, cases, check, check_signatures, refuses
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
    refuses(GITHUB, b"{}", without_prefix, "does not fit")


def test_the_older_signature() -> None:
    """The header with SHA-1 does not count."""
    older = signer("X-Hub-Signature", "sha256=")(b"{}", SECRET)
    refuses(GITHUB, b"{}", older, "expected x-hub-signature-256")


def test_known_signature() -> None:
    """The example of GitHub's documentation on validating deliveries."""
    secret, body = "It's a Secret to Everybody", b"Hello, World!"
    mac = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    GITHUB.verify(body, lambda _: f"sha256={mac}", [secret], 0.0)
