"""Webhooks of Harbor."""

from __future__ import annotations

import json

import pytest

from gateway.domain.webhooks.kinds.harbor import HARBOR
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


def by_header(_body: bytes, secret: str) -> dict[str, str]:
    return {"Authorization": secret}


@pytest.mark.parametrize("case", cases("harbor"))
def test_webhooks(case: Case) -> None:
    """Each becomes the event of its fixture."""
    check(HARBOR, case, by_header)


def test_the_header() -> None:
    """The whole header is the secret, with whatever scheme it has."""
    check_signatures(HARBOR, by_header, body=b"{}", of_body=False)
    refuses(HARBOR, b"{}", {"Authorization": f"Bearer {SECRET}"}, "does not fit")
    bearer = f"Bearer {SECRET}"
    HARBOR.verify(b"{}", of({"Authorization": bearer}), [bearer], 0.0)


def test_ids_of_its_own_form() -> None:
    """The same content, in any order, is the same webhook; other content is another."""
    payload = json.loads((FIXTURES / "harbor" / "push_artifact.json").read_text())["body"]
    names = HARBOR.delivery_id(of({}), payload)
    assert HARBOR.delivery_id(of({}), dict(reversed(payload.items()))) == names
    assert HARBOR.delivery_id(of({}), {**payload, "occur_at": 1}) != names
