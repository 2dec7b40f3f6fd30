"""Webhooks of Jira Cloud and Data Center."""

from __future__ import annotations

import pytest

from gateway.domain.webhooks.kinds.jira import JIRA
from tests.domain.webhooks.kinds.cases import Case, cases, check, check_signatures, hmac_hex

SIGN = hmac_hex("X-Hub-Signature", "sha256=")


@pytest.mark.parametrize("case", cases("jira"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(JIRA, case, SIGN)


def test_signatures() -> None:
    """Of the body."""
    check_signatures(JIRA, SIGN, body=b'{"webhookEvent":"jira:issue_created"}')
