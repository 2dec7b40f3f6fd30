"""Webhooks of Gitea and Forgejo."""

from __future__ import annotations

import json

import pytest

from gateway.domain.webhooks.kinds.gitea import GITEA
from gateway.domain.webhooks.kinds.kind import FORM
from tests.domain.webhooks.kinds.cases import (
    NOW,
    OTHER,
    SECRET,
    Case,
    Sign,
    cases,
    check,
    check_signatures,
    form,
    hmac_hex,
    of,
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
    refuses(GITEA, b"{}", prefixed, "malformed: expected HEX")


def test_forms() -> None:
    """Of a form the JSON in it is signed; a signature of the form itself is accepted as well."""
    payload = {"action": "opened", "number": 2}
    body = form(payload)
    for signed in (json.dumps(payload).encode(), body):
        header = of({"Content-Type": FORM, **SIGN(signed, SECRET)})
        GITEA.verify(body, header, [OTHER, SECRET], NOW)
        assert GITEA.read(header, body) == payload
    changed = form({**payload, "number": 3})
    refuses(GITEA, changed, {"Content-Type": FORM, **SIGN(body, SECRET)}, "does not fit")
    refuses(GITEA, body, {"Content-Type": FORM, **SIGN(body, OTHER)}, "does not fit")
    refuses(GITEA, body, {"Content-Type": FORM}, "expected")


def test_the_secret_in_the_body() -> None:
    """Older versions send it in the clear: nothing of the event has it."""
    case = next(each.values[0] for each in cases("gitea") if "in-the-clear" in str(each))
    found = GITEA.normalize(of(case.headers), GITEA.read(of(case.headers), case.body))
    assert found.type
    assert "in-the-clear" not in json.dumps(found.data)
