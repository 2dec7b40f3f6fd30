"""Webhooks of Bitbucket Cloud and Data Center."""

from __future__ import annotations

import pytest

from gateway.domain.webhooks.kinds.bitbucket import BITBUCKET
from gateway.domain.webhooks.signatures import Unverified
from tests.domain.webhooks.kinds.cases import Case, cases, check, check_signatures, hmac_hex

SIGN = hmac_hex("X-Hub-Signature", "sha256=")


@pytest.mark.parametrize("case", cases("bitbucket"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(BITBUCKET, case, SIGN)


def test_signatures() -> None:
    """Of the body."""
    check_signatures(BITBUCKET, SIGN, body=b'{"eventKey":"pr:opened"}')


def test_known_signature() -> None:
    """The example of Bitbucket's documentation on the security of webhooks."""
    mac = "a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9"
    secret, body = "It's a Secret to Everybody", b"Hello World!"
    BITBUCKET.verify(body, lambda _: f"sha256={mac}", [secret], 0.0)
    with pytest.raises(Unverified):
        BITBUCKET.verify(body + b" ", lambda _: f"sha256={mac}", [secret], 0.0)
