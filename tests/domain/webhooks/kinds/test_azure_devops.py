"""Webhooks of Azure DevOps, which it calls service hooks."""

from __future__ import annotations

from base64 import b64encode

import pytest

from gateway.domain.webhooks.kinds.azure_devops import AZURE_DEVOPS
from tests.domain.webhooks.kinds.cases import SECRET, Case, cases, check, check_signatures, refuses


def basic(_body: bytes, secret: str) -> dict[str, str]:
    """The secret is USER:PASSWORD."""
    return {"Authorization": "Basic " + b64encode(secret.encode()).decode()}


@pytest.mark.parametrize("case", cases("azure_devops"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(AZURE_DEVOPS, case, basic)


def test_passwords() -> None:
    """User and password together are the secret."""
    check_signatures(AZURE_DEVOPS, basic, body=b"{}", of_body=False)


@pytest.mark.parametrize(
    "value",
    [
        f"Bearer {SECRET}",
        SECRET,
        "Basic",
        f"Basic {SECRET}",
        "Basic " + b64encode(b"user:" + SECRET.encode()).decode(),
    ],
)
def test_other_credentials(value: str) -> None:
    """No other scheme, no secret as it is, no other user."""
    refuses(AZURE_DEVOPS, b"{}", {"Authorization": value}, "does not fit")


def test_a_user_without_a_password() -> None:
    """A password without a user is usual: the secret is ":PASSWORD"."""
    header = basic(b"", ":a-password")["Authorization"].replace("Basic", "basic")
    AZURE_DEVOPS.verify(b"{}", lambda _: header, [":a-password"], 0.0)
