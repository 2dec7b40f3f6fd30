"""The ways of verification that kinds share."""

from __future__ import annotations

from base64 import b64encode

import pytest

from gateway.domain.webhooks.kinds.kind import (
    basic_secret,
    by_mac,
    by_token,
    check_any,
    header_id,
    in_base64,
    payload_id,
)
from gateway.domain.webhooks.signatures import Unverified
from tests.domain.webhooks.kinds.cases import SECRET, hmac_hex, of


def test_capital_hex() -> None:
    """A digest may be in capitals, its prefix may not."""
    mac = hmac_hex("x")(b"{}", SECRET)["x"]
    by_mac("x", prefix="sha256=")(b"{}", of({"x": f"sha256={mac.upper()}"}), [SECRET], 0.0)
    with pytest.raises(Unverified, match="malformed: expected sha256=HEX"):
        by_mac("x", prefix="sha256=")(b"{}", of({"x": f"SHA256={mac}"}), [SECRET], 0.0)


def test_the_first_header_decides() -> None:
    """A second one does not make up for it."""
    mac = hmac_hex("x")(b"{}", SECRET)["x"]
    verify = by_mac("x", "y")
    verify(b"{}", of({"y": mac}), [SECRET], 0.0)
    with pytest.raises(Unverified, match="does not fit"):
        verify(b"{}", of({"x": "0" * 64, "y": mac}), [SECRET], 0.0)
    with pytest.raises(Unverified, match=r"expected x$"):
        verify(b"{}", of({}), [SECRET], 0.0)


@pytest.mark.parametrize("sent", ["é", "\udce9", "", SECRET.upper(), SECRET + "\n"])
def test_other_tokens(sent: str) -> None:
    """Whatever characters a header has, it is refused and nothing else is raised."""
    with pytest.raises(Unverified):
        by_token("x")(b"{}", of({"x": sent}), [SECRET], 0.0)


def test_nothing_sent() -> None:
    """Nothing is no secret, even where that is empty by mistake."""
    with pytest.raises(Unverified):
        check_any("", [""])


def test_tokens_beyond_ascii() -> None:
    """A secret may have them."""
    check_any("clé", ["other", "clé"])
    with pytest.raises(Unverified):
        check_any("clé", ["other", "cle"])


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("Basic " + b64encode(b"ann:x:y").decode(), "ann:x:y"),
        ("basic  " + b64encode("ann:é".encode()).decode(), "ann:é"),
        ("Basic " + b64encode(b"\xff").decode(), ""),
        ("Basic YQ", ""),
        ("Basic é", ""),
        ("Bearer YQ==", ""),
        ("", ""),
    ],
)
def test_basic(value: str, secret: str) -> None:
    """User and password of a header; nothing of any other."""
    assert basic_secret(value) == secret


def test_ids() -> None:
    """The first header there is, or what is in the body."""
    assert header_id("a", "b")(of({"B": "2"}), {}) == "2"
    assert header_id("a", "b")(of({"b": "2", "a": "1"}), {}) == "1"
    assert payload_id("a.b")(of({}), {"a": {"b": 7}}) == "7"
    assert payload_id("a.b")(of({}), []) == ""
    assert in_base64(b"\xff\xfe") == "//4="
