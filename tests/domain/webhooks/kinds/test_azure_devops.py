"""Webhooks of Azure DevOps, which it calls service hooks."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from gateway.domain.webhooks.kinds.azure_devops import AZURE_DEVOPS
from gateway.domain.webhooks.signatures import Unverified
from tests.domain.webhooks.kinds.cases import (
    FIXTURES,
    SECRET,
    Case,
    cases,
    check,
    check_signatures,
    of,
    refuses,
)


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
    with pytest.raises(Unverified):
        AZURE_DEVOPS.verify(b"{}", lambda _: header, ["a-password"], 0.0)


def payload(name: str) -> dict[str, Any]:
    """The body of a fixture."""
    found: dict[str, Any] = json.loads((FIXTURES / "azure_devops" / f"{name}.json").read_text())
    return found["body"]


def named(body: dict[str, Any]) -> str:
    return AZURE_DEVOPS.delivery_id(of({}), body)


def test_one_completion_is_one_event() -> None:
    """Two subscriptions send it, with two ids: it has one name, also when it is changed later."""
    updated, merged = payload("pull_request_updated_when_completed"), payload("pull_request_merged")
    assert updated["id"] != merged["id"]
    assert (
        named(updated) == named(merged) == named(payload("pull_request_updated_after_completion"))
    )


def test_other_completions() -> None:
    """Another pull request, repository, end or time is another event."""
    body = payload("pull_request_merged")
    its = body["resource"]
    others = [
        {**its, "pullRequestId": 119},
        {**its, "repository": {"id": "4bc14d40-0000-0000-0000-000000000002"}},
        {**its, "status": "abandoned"},
        {**its, "closedDate": "2026-11-23T12:30:01Z"},
    ]
    names = {named({**body, "resource": each}) for each in [its, *others]}
    assert len(names) == 5


def test_names_of_others() -> None:
    """One that is open again has its end no more; without a time its body's id stands."""
    body = payload("pull_request_merged")
    its = body["resource"]
    assert named({**body, "resource": {**its, "status": "active"}}) == body["id"]
    assert named({**body, "resource": {**its, "closedDate": None}}) == body["id"]
    assert named({**body, "eventType": "build.complete"}) == body["id"]
