"""Signatures of webhooks: what is sent is verified, and nothing else is."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.webhooks.signatures import (
    TOLERANCE_S,
    Form,
    Names,
    Unverified,
    sign,
    verify,
)

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
BODY = b'{"id":"evt_1"}'
NOW = 1_800_000_000
FORMS: tuple[Form, ...] = ("timed", "standard", "body-only")


def signed(
    body: bytes = BODY, secrets: tuple[str, ...] = (SECRET,), **more: object
) -> dict[str, str]:
    return sign(body, secrets, event_id="evt_1", now_s=NOW, **more)  # type: ignore[arg-type]


def test_the_service_form() -> None:
    """As its description says: HMAC of TIMESTAMP.BODY by the secret, in hex after v1=."""
    expected = hmac.new(SECRET.encode(), f"{NOW}.".encode() + BODY, hashlib.sha256).hexdigest()
    headers = signed()
    assert headers["x-service-timestamp"] == str(NOW)
    assert headers["x-service-signature"] == f"v1={expected}"


def test_the_older_form() -> None:
    """The signature of the body alone, without a timestamp."""
    headers = signed(form="body-only")
    expected = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()
    assert headers["x-service-signature"] == expected
    assert "x-service-timestamp" not in headers
    assert verify(BODY, headers, [SECRET], now_s=NOW, forms=["body-only"]) == "body-only"


def test_standard_webhooks() -> None:
    """The example of the specification's libraries."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    assert verify(body, headers, [secret], now_s=1614265330) == "standard"
    made = sign(body, [secret], event_id=headers["webhook-id"], now_s=1614265330)
    assert made["webhook-signature"] == headers["webhook-signature"]


@given(st.binary(max_size=200), st.sampled_from(FORMS), st.integers(-TOLERANCE_S, TOLERANCE_S))
def test_what_is_sent_is_verified(body: bytes, form: Form, late_s: int) -> None:
    """Within the tolerance, to both sides; and by a receiver that has another secret as well."""
    headers = signed(body, form="body-only" if form == "body-only" else "timed")
    now_s = NOW + late_s
    assert verify(body, headers, [OTHER, SECRET], now_s=now_s, forms=[form]) == form
    with pytest.raises(Unverified, match="does not fit"):
        verify(body + b" ", headers, [SECRET], now_s=now_s, forms=[form])
    with pytest.raises(Unverified, match="does not fit"):
        verify(body, headers, [OTHER], now_s=now_s, forms=[form])


def test_secrets_that_change() -> None:
    """The standard form is signed by both secrets, so receivers may have either."""
    headers = signed(secrets=(SECRET, OTHER))
    for secret in (SECRET, OTHER):
        assert verify(BODY, headers, [secret], now_s=NOW, forms=["standard"]) == "standard"
    assert verify(BODY, headers, [SECRET], now_s=NOW, forms=["timed"]) == "timed"


@pytest.mark.parametrize(
    ("timestamp", "words"),
    [
        (str(NOW - 301), "301 s old"),
        (str(NOW + 301), "301 s in the future"),
        ("1.5", "not an integer"),
        ("", "not an integer"),
        ("\N{SUPERSCRIPT TWO}", "not an integer"),
        ("9" * 400, "not an integer"),
    ],
)
def test_timestamps(timestamp: str, words: str) -> None:
    """One that is too far away or not an integer, in both forms that have one."""
    for name, form in (("x-service-timestamp", "timed"), ("webhook-timestamp", "standard")):
        with pytest.raises(Unverified, match=words):
            verify(BODY, {**signed(), name: timestamp}, [SECRET], now_s=NOW, forms=[form])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "bad", ["", "v1=", "v1=zz", "v1=" + "0" * 63, "v2=" + "0" * 64, "\xff" * 64]
)
def test_malformed_signatures(bad: str) -> None:
    """They fail as wrong ones do, without another exception."""
    with pytest.raises(Unverified, match=r"does not fit|is malformed"):
        verify(BODY, {**signed(), "x-service-signature": bad}, [SECRET], now_s=NOW)
    for standard in (bad, "v1," + bad, "v1a," + bad):
        headers = {**signed(), "webhook-signature": standard}
        with pytest.raises(Unverified, match=r"does not fit|is malformed"):
            verify(BODY, headers, [SECRET], now_s=NOW, forms=["standard"])


@pytest.mark.parametrize(
    ("form", "name", "written"),
    [
        ("timed", "x-service-signature", "v1= and 64 hex digits"),
        ("standard", "webhook-signature", "v1, and 44 characters of base64"),
        ("body-only", "x-service-signature", "64 hex digits"),
    ],
)
def test_what_a_signature_should_be(form: Form, name: str, written: str) -> None:
    """The error says how it is written; not what was sent."""
    with pytest.raises(Unverified) as failed:
        verify(BODY, {**signed(), name: "wrong"}, [SECRET], now_s=NOW, forms=[form])
    assert str(failed.value) == f"the signature is malformed: expected {written}"


def test_no_signature() -> None:
    """The error names the headers that are expected; no secret is in it."""
    with pytest.raises(Unverified) as failed:
        verify(BODY, {}, [SECRET], now_s=NOW, forms=FORMS)
    assert str(failed.value) == (
        "no signature: expected x-service-timestamp and x-service-signature, or webhook-id, "
        "webhook-timestamp and webhook-signature, or x-service-signature"
    )
    # Without its timestamp it is the older form, which has to be asked for.
    headers = signed()
    del headers["x-service-timestamp"]
    with pytest.raises(Unverified, match="no signature"):
        verify(BODY, headers, [SECRET], now_s=NOW, forms=["timed"])


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "x-service-timestamp"])
def test_headers_that_are_not_utf8(name: str) -> None:
    """Are refused as any that do not fit."""
    form: Form = "timed" if name.startswith("x-") else "standard"
    with pytest.raises(Unverified):
        verify(BODY, {**signed(), name: "\udcff"}, [SECRET], now_s=NOW, forms=[form])


def test_brands() -> None:
    """The names of the headers are a setting."""
    names = Names.of_brand("acme")
    headers = signed(names=names)
    assert "x-acme-signature" in headers
    assert verify(BODY, headers, [SECRET], now_s=NOW, names=names) == "timed"


@pytest.mark.parametrize("form", ["timed", "standard"])
def test_what_another_form_signed_is_no_body(form: Form) -> None:
    """A webhook that was seen cannot be sent again as the body of one without a timestamp."""
    headers = sign(BODY, ["a secret"], event_id="evt_1.x", now_s=NOW)
    if form == "timed":
        signed, signature = b"%d.%b" % (NOW, BODY), headers["x-service-signature"]
    else:
        signed = b"evt_1.x.%d.%b" % (NOW, BODY)
        signature = hmac.digest(b"a secret", signed, "sha256").hex()
    replayed = {"x-service-signature": signature.removeprefix("v1=")}
    with pytest.raises(Unverified, match="begins like what another form signs"):
        verify(signed, replayed, ["a secret"], now_s=NOW + 86_400, forms=FORMS)
    assert verify(signed, replayed, ["a secret"], now_s=NOW, forms=["body-only"]) == "body-only"
