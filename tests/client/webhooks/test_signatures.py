"""Signatures: what the gateway signs is verified, nothing else is, and the gateway agrees."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

import pytest
from gateway_client.webhooks import Form, SignatureInvalid, check, sign
from gateway_client.webhooks.signatures import FORMS, MOST_SIGNATURES
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.domain.webhooks import signatures as gateway
from tests.client.webhooks.samples import BODY, NOW, OTHER, SECRET, VECTORS, body_in, signed
from tests.kit.rows import each_row

each_vector = each_row("vector", VECTORS)


def decided(vector: dict[str, Any], headers: Any) -> Form | None:
    """What the client library says to a vector; None: it is refused."""
    more = {key: vector[key] for key in ("tolerance", "forms", "brand", "now") if key in vector}
    try:
        return check(body_in(vector), headers, vector["secrets"], **more)
    except SignatureInvalid:
        return None


@each_vector
def test_a_vector(vector: dict[str, Any]) -> None:
    """The verdict of the file, with names of headers in any case, as a mapping or as pairs."""
    headers = vector["headers"]
    assert decided(vector, headers) == vector["verdict"]
    assert decided(vector, {name.upper(): headers[name] for name in headers}) == vector["verdict"]
    assert decided(vector, [(name.title(), headers[name]) for name in headers]) == vector["verdict"]


@each_vector
def test_the_gateway_decides_the_same(vector: dict[str, Any]) -> None:
    """The same vectors judge the gateway, which signs and verifies itself."""
    headers, now = vector["headers"], vector["now"]
    names = gateway.Names.of_brand(vector.get("brand", "service"))
    forms, tolerance = vector.get("forms", ["timed", "standard"]), vector.get("tolerance", 300)
    more = {"tolerance_s": tolerance, "names": names}
    secrets = tuple(vector["secrets"])
    try:
        form = gateway.verify(body_in(vector), headers, secrets, now_s=now, forms=forms, **more)
    except gateway.Unverified:
        form = None
    assert form == vector["verdict"]
    if "" not in headers.values():  # for its routes, an empty header is none
        by = gateway.Verification("of a route", secrets, forms=tuple(forms), **more)
        try:
            claim = by.read(lambda name: headers.get(name, ""), now)
            by.check(claim, body_in(vector))
        except gateway.Unverified:
            assert vector["verdict"] is None
        else:
            assert claim.form == vector["verdict"]


def of_gateway(
    body: bytes, headers: dict[str, str], secrets: Sequence[str], forms: Sequence[Form]
) -> tuple[Form | None, str]:
    try:
        return gateway.verify(body, headers, secrets, now_s=NOW, forms=forms), ""
    except gateway.Unverified as error:
        return None, str(error)


def of_client(
    body: bytes, headers: dict[str, str], secrets: Sequence[str], forms: Sequence[Form]
) -> tuple[Form | None, str]:
    try:
        return check(body, headers, secrets, forms=forms, now=NOW), ""
    except SignatureInvalid as error:
        return None, str(error)


#: Of which each may replace a header of a signed webhook, or a part of it.
PARTS = st.one_of(
    st.sampled_from(
        [*signed().values(), signed(form="body-only")["x-service-signature"]]
        + [*signed(secret=OTHER).values(), "", ",", " ", "v1=", "v1,", "v2,", "0" * 64, "\udcff"]
        + [str(NOW - 300), str(NOW + 301), f"-{NOW}", "1e9", "9" * 18]
    ),
    st.text(max_size=4),
)
VALUES = st.builds(
    str.join, st.sampled_from(["", ",", " ", ", "]), st.lists(PARTS, min_size=1, max_size=10)
)
NAMES = st.sampled_from([*signed(), "host"])


@given(
    st.sampled_from([BODY, b"", BODY + b" ", f"{NOW}.".encode() + BODY]),
    st.dictionaries(NAMES, VALUES),
    st.sets(NAMES),
    st.lists(st.sampled_from([SECRET, OTHER, "plain text"]), min_size=1, max_size=3),
    st.permutations(FORMS).flatmap(lambda forms: st.sampled_from([forms[:1], forms[:2], forms])),
)
def test_the_gateway_agrees_on_whatever_is_sent(
    body: bytes, changes: dict[str, str], left_out: set[str], secrets: list[str], forms: list[Form]
) -> None:
    """The same form, or a refusal of the same kind, for headers that were changed in any way."""
    headers = {**signed(), **changes}
    for name in left_out:
        headers.pop(name, None)
    ours, theirs = (judge(body, headers, secrets, forms) for judge in (of_client, of_gateway))
    assert ours[0] == theirs[0]
    if "malformed" not in ours[1]:  # what has another length fits nothing, and is malformed here
        assert ours[1] == theirs[1]


@given(
    st.binary(max_size=200),
    st.lists(st.sampled_from([SECRET, OTHER, "any text, ä"]), min_size=1, max_size=3),
    st.sampled_from(["timed", "body-only"]),
    st.floats(0, 1e11),
)
@example(b"", [SECRET], "timed", 0.999)
def test_it_signs_as_the_gateway(body: bytes, secrets: list[str], form: Any, now: float) -> None:
    """The headers are the same, in the same order, for every secret that the gateway has."""
    made = sign(body, secrets, event_id="evt_1", now=now, form=form)
    if secrets[0].isascii():
        theirs = gateway.sign(body, secrets, event_id="evt_1", now_s=int(now), form=form)
        assert list(made.items()) == list(theirs.items())
    for one in secrets:
        assert check(body, made, one, forms=["standard"], now=now) == "standard"
    assert check(body, made, secrets[0], forms=[form], now=now) == form


@pytest.mark.parametrize("secrets", [1, 2, 8])
@pytest.mark.parametrize("signatures", [1, 2, 8])
@pytest.mark.parametrize("form", ["timed", "standard"])
@pytest.mark.parametrize("fits", ["first", "last", "none"])
def test_the_time_tells_nothing(
    secrets: int, signatures: int, form: Form, fits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every secret is compared with every signature, wherever the right one is."""
    compared = []
    compare = hmac.compare_digest

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    at = {"first": 0, "last": -1, "none": 0}[fits]
    known = [f"{OTHER}{number}" for number in range(secrets)]
    wrong = {"timed": "v1=" + "0" * 64, "standard": "v1," + "A" * 43 + "="}[form]
    sent = [wrong] * signatures
    name = {"timed": "x-service-signature", "standard": "webhook-signature"}[form]
    if fits != "none":
        known[at], sent[at] = SECRET, signed()[name]
    headers = {**signed(), name: {"timed": ",", "standard": " "}[form].join(sent)}
    monkeypatch.setattr(hmac, "compare_digest", noted)
    expected = (form, "") if fits != "none" else (None, "the signature does not fit the body and")
    found = of_client(BODY, headers, known, [form])
    assert (found[0], found[1][: len(expected[1])]) == expected
    assert compared == [(32, 32)] * (secrets * signatures)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-service-signature", ",".join(["v1=" + "0" * 64] * 100_000)),
        ("x-service-signature", "," * 10_000_000),
        ("x-service-signature", "0" * 10_000_000),
        ("x-service-signature", " " * 10_000_000),
        ("x-service-timestamp", "1" * 10_000_000),
        ("x-service-timestamp", "\udcff" * 1_000_000),
        ("webhook-signature", "v1," * 3_000_000),
        ("webhook-signature", " ".join(["v1," + "A" * 43 + "="] * 100_000)),
        ("webhook-signature", "v1," + "A" * 10_000_000),
        ("webhook-id", "x" * 10_000_000),
        ("webhook-id", "\udcff" * 1_000_000),
        ("webhook-timestamp", "-" * 10_000_000),
    ],
    ids=lambda value: f"{value[:12]}, {len(value)}".encode("ascii", "replace").decode(),
)
def test_headers_without_measure(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused; no more signatures are compared than a header may have."""
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *two: compared.append(two) or compare(*two))
    forms: list[Form] = ["timed"] if name.startswith("x-") else ["standard"]
    assert of_client(BODY, {**signed(), name: value}, [SECRET], forms)[0] is None
    assert len(compared) <= MOST_SIGNATURES


def test_what_a_refusal_says() -> None:
    """What was wrong, in the gateway's words; nothing of a secret or of what was sent."""
    cases = [
        ({}, "no signature: expected x-service-timestamp and x-service-signature, or webhook-id,"),
        ({"x-service-timestamp": "123456"}, "s old, and 300 s are tolerated"),
        ({"x-service-timestamp": "9123456789"}, "s in the future, and 300 s are tolerated"),
        ({"x-service-timestamp": "soon"}, "the timestamp is not an integer"),
        ({"x-service-signature": "soon"}, "malformed: expected v1= and 64 hex digits"),
        ({"x-service-signature": "0" * 64}, "the signature does not fit the body and the secret"),
    ]
    for change, words in cases:
        headers = {**signed(), **change} if change else {}
        with pytest.raises(SignatureInvalid) as failed:
            check(BODY, headers, SECRET, now=NOW)
        assert words in str(failed.value)
        assert not any(part in str(failed.value) for part in (SECRET, *change.values()))


def test_what_another_form_signed_is_no_body() -> None:
    """A webhook that was seen cannot be sent again as the body of one without a timestamp."""
    signed_before = b"%d.%b" % (NOW, BODY)
    signature = signed()["x-service-signature"].removeprefix("v1=")
    replayed = {"x-service-signature": signature}
    with pytest.raises(SignatureInvalid, match="begins like what another form signs"):
        check(signed_before, replayed, SECRET, now=NOW + 86_400, forms=FORMS)
    check(signed_before, replayed, SECRET, now=NOW + 86_400, forms=["body-only"])
