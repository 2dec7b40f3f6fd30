"""`verify`, `check` and `sign`: their arguments, and the packages of others as judges."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from email.message import Message
from typing import Any

import pytest
import stripe
from gateway_client.webhooks import EventInvalid, SignatureInvalid, check, sign, verify
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.client.webhooks.samples import BODY, EVENT, NOW, OTHER, SECRET, body_of, signed
from tests.kit.reach import mostly, reached, reaches


def test_the_event_of_a_webhook() -> None:
    """What the gateway sends is verified and read."""
    event = verify(BODY, signed(), SECRET, now=NOW)
    assert (event.id, event.type, event.data) == (EVENT["id"], EVENT["type"], EVENT["data"])
    assert event.body == BODY


def test_the_time_is_now() -> None:
    """Unless it is given, of a receiver and of a sender."""
    assert check(BODY, sign(BODY, SECRET, event_id="evt_1"), SECRET) == "timed"
    with pytest.raises(SignatureInvalid, match="300 s are tolerated"):
        check(BODY, signed(now=0), SECRET)


class Headers(Message):
    """As of `http.server`: no mapping, its names in the case in which they were sent."""


def as_message(headers: dict[str, str]) -> Message:
    message = Headers()
    for name, value in headers.items():
        message[name.title()] = value
    return message


class Multi(dict[str, str]):
    """As of frameworks: a mapping whose `items` has all values of a name."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs


@pytest.mark.parametrize("shape", [dict, as_message, lambda one: Multi([*one.items()])])
def test_headers_of_frameworks(shape: Any) -> None:
    """A mapping, or whatever has `items`; other headers beside them do not matter."""
    headers = {"Host": "example.com", **signed(), "X-Forwarded-For": "::1"}
    assert check(BODY, shape(headers), SECRET, now=NOW) == "timed"
    assert check(BODY, iter(headers.items()), SECRET, now=NOW) == "timed"


@pytest.mark.parametrize("name", signed())
@pytest.mark.parametrize("again", [str.upper, str.lower, str.title])
def test_a_header_twice(name: str, again: Any) -> None:
    """Refused, whatever its values and its case; so is it by the gateway, with 400."""
    pairs = [*signed().items()]
    pairs.append((again(name), signed()[name]))
    for headers in (pairs, Multi(pairs), dict(pairs) if again(name) != name else pairs):
        with pytest.raises(SignatureInvalid, match=f"the header {name} is there more than once"):
            check(BODY, headers, SECRET, now=NOW)


def test_a_header_twice_that_is_not_read() -> None:
    """Of a form that is not accepted, or of no form: it does not matter."""
    pairs = [*signed().items(), ("webhook-id", "another"), ("accept", "a"), ("accept", "b")]
    assert check(BODY, pairs, SECRET, forms=["timed"], now=NOW) == "timed"


def test_a_name_that_is_no_header() -> None:
    """The Kelvin sign is a k in lower case, but no header has it."""
    headers = signed()
    headers["webhoo\N{KELVIN SIGN}-id"] = headers.pop("webhook-id")
    with pytest.raises(SignatureInvalid, match="no signature"):
        check(BODY, headers, SECRET, forms=["standard"], now=NOW)


@pytest.mark.parametrize("secrets", [[SECRET], (OTHER, SECRET), [OTHER] * 7 + [SECRET]])
def test_several_secrets(secrets: Any) -> None:
    """Any of them, while they rotate."""
    assert check(BODY, signed(), secrets, now=NOW) == "timed"
    with pytest.raises(SignatureInvalid, match="does not fit"):
        check(BODY, signed(secret="another"), secrets, now=NOW)


#: As of an environment variable that is not set, a file that was not stripped, and so on.
BAD_SECRETS = [
    ([], ValueError, "found 0, expected 1 to 8"),
    ((), ValueError, "found 0, expected 1 to 8"),
    (["a"] * 9, ValueError, "found 9, expected 1 to 8"),
    ("", ValueError, "secret 1: found an empty secret"),
    ("whsec_", ValueError, "secret 1: found an empty secret"),
    ([SECRET, ""], ValueError, "secret 2: found an empty secret"),
    ([SECRET, "whsec_"], ValueError, "secret 2: found an empty secret"),
    (f"{SECRET}\n", ValueError, "secret 1: found white space at an end"),
    (f" {SECRET}", ValueError, "secret 1: found white space at an end"),
    (f"{SECRET}\n{OTHER}", ValueError, "a character that cannot be printed"),
    ("\udcff", ValueError, "a character that cannot be printed"),
    (None, TypeError, "secrets: found None, expected str"),
    (SECRET.encode(), TypeError, "secrets: found bytes, expected str"),
    ([None], TypeError, "secret 1: found None, expected str"),
    ([SECRET.encode()], TypeError, "secret 1: found bytes, expected str"),
]


@pytest.mark.parametrize(("secrets", "kind", "words"), BAD_SECRETS)
def test_secrets_that_are_a_mistake(secrets: Any, kind: type[Exception], words: str) -> None:
    """An error of the receiver at once, never a pass; its text has no secret."""
    empty = sign(BODY, "-", event_id="evt_1", now=NOW)
    for call in (
        lambda: check(BODY, empty, secrets, now=NOW),
        lambda: verify(BODY, {}, secrets, now=NOW),
        lambda: sign(BODY, secrets, event_id="evt_1"),
    ):
        with pytest.raises(kind, match=words) as failed:
            call()
        assert SECRET[6:] not in str(failed.value)


@pytest.mark.parametrize(
    "body", ["text", BODY.decode(), {"id": 1}, None, bytearray(BODY), memoryview(BODY), 7, [BODY]]
)
def test_a_body_that_was_parsed(body: Any) -> None:
    """Says to pass the bytes, whatever the headers."""
    for call in (verify, check):
        with pytest.raises(
            TypeError, match="pass the raw body as it was received, before any pars"
        ):
            call(body, {}, SECRET)
    with pytest.raises(TypeError, match="pass the raw body"):
        sign(body, SECRET, event_id="evt_1")


def test_forms_are_a_list() -> None:
    """One form alone would be read letter by letter."""
    with pytest.raises(TypeError, match="forms: found str, expected a list of forms"):
        check(BODY, signed(), SECRET, forms="timed", now=NOW)  # type: ignore[arg-type]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tolerance": NAN}, "tolerance: found nan, expected a finite number, at least 0"),
        ({"tolerance": INF}, "tolerance: found inf"),
        ({"tolerance": -1}, "tolerance: found -1"),
        ({"tolerance": 10**400}, "tolerance: found 1000"),
        ({"now": NAN}, "now: found nan, expected a finite number"),
        ({"now": -INF}, "now: found -inf"),
        ({"now": 10**400}, "now: found 1000"),
        ({"forms": ["timed", "none"]}, "expected at least one of timed, standard, body-only"),
        ({"forms": []}, "expected at least one of timed, standard, body-only"),
        ({"forms": ["Timed"]}, "expected at least one of timed, standard, body-only"),
        ({"brand": ""}, "expected a word of a-z, 0-9 and -"),
        ({"brand": "Acme"}, "found 'Acme', expected a word"),
        ({"brand": "a\r\nb"}, "expected a word"),
        ({"brand": "service\n"}, "expected a word"),
        ({"brand": None}, "expected a word"),
    ],
)
def test_arguments_that_are_a_mistake(arguments: dict[str, Any], words: str) -> None:
    """An error at once: with NaN as a tolerance no timestamp would be too old."""
    with pytest.raises(ValueError, match=words):
        check(BODY, signed(), SECRET, **{"now": NOW, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"form": "standard"}, "form: found 'standard', expected 'timed' or 'body-only'"),
        ({"event_id": ""}, "expected printable ASCII"),
        ({"event_id": "a\r\nb: c"}, "expected printable ASCII"),
        ({"event_id": "é"}, "expected printable ASCII"),
        ({"now": NAN}, "now: found nan"),
        ({"brand": "x y"}, "expected a word"),
    ],
)
def test_what_cannot_be_signed(arguments: Any, words: str) -> None:
    """An error that says what was found."""
    with pytest.raises(ValueError, match=words):
        sign(BODY, SECRET, **{"event_id": "evt_1", **arguments})


@pytest.mark.parametrize(
    "headers",
    [None, 7, [7], ["name"], [("a", "b", "c")], [(b"webhook-id", b"a")], {"webhook-id": b"a"}]
    + [{"webhook-id": None}, {"webhook-id": ["a"]}, {7: "a"}, "webhook-id: a"],
)
def test_headers_that_are_a_mistake(headers: Any) -> None:
    """A TypeError, as the webhook may be right: the receiver passed something else."""
    with pytest.raises(TypeError):
        check(BODY, headers, SECRET, now=NOW)


TEXTS = st.text(st.characters(exclude_categories=()), max_size=80)
ANY_NAMES = st.one_of(st.sampled_from([*signed(), "X-SERVICE-SIGNATURE", "Webhook-Id"]), TEXTS)
ANY_VALUES = st.one_of(st.sampled_from([*signed().values()]), TEXTS)


FORMS = st.sampled_from([["timed", "standard"], ["body-only", "timed", "standard"]])
RIGHT = st.tuples(
    st.just(BODY), st.permutations([*signed().items()]), st.just(["timed", "standard"])
)
ANY = st.tuples(
    st.binary() | st.just(BODY), st.lists(st.tuples(ANY_NAMES, ANY_VALUES), max_size=9), FORMS
)


@reaches(0.05)
@given(mostly(RIGHT, ANY))
def test_whatever_is_sent(sent: tuple[bytes, list[tuple[str, str]], list[Any]]) -> None:
    """It is refused, and nothing else is raised; unless the right headers are all there."""
    body, pairs, forms = sent
    try:
        verify(body, pairs, SECRET, forms=forms, now=NOW)
    except SignatureInvalid:
        return
    reached()
    assert body == BODY
    assert dict(pairs).items() & signed().items()


#: Values of JSON, also of kinds that Python alone writes.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
BODIES = st.one_of(
    st.binary(max_size=80),
    st.builds(lambda value: json.dumps(value).encode(), JSON),
    st.builds(
        lambda changes: body_of(**changes),
        st.dictionaries(st.sampled_from([*EVENT]), JSON, min_size=1),
    ),
)


@given(BODIES)
def test_whatever_is_signed(body: bytes) -> None:
    """What is verified is an event, or an EventInvalid; nothing else is raised."""
    headers = signed(body)
    assert check(body, headers, SECRET, now=NOW) == "timed"
    try:
        event = verify(body, headers, SECRET, now=NOW)
    except EventInvalid:
        return
    event.id.encode()
    assert event.created.tzinfo is not None
    hash(event)


def test_it_is_verified_first() -> None:
    """A body that is no event is not even parsed, unless it is verified."""
    for body in (b"", b"{", b"[" * 100_000, b"1" * 100_000, b"\xff"):
        with pytest.raises(SignatureInvalid):
            verify(body, signed(), SECRET, now=NOW)
        with pytest.raises(EventInvalid):
            verify(body, signed(body), SECRET, now=NOW)


# -- judges ----------------------------------------------------------------------------------------
#: Bodies that both other packages take: they are texts.
JSON_TEXTS = st.builds(lambda data: body_of(data={"of": data}), st.text(max_size=30))


@given(JSON_TEXTS, st.lists(st.sampled_from([SECRET, OTHER]), min_size=1, max_size=2, unique=True))
def test_others_take_what_is_signed(body: bytes, secrets: list[str]) -> None:
    """By each of the secrets for Standard Webhooks, by the newest one for the timed form."""
    # They read the clock, and tolerate 300 s.
    headers = sign(body, secrets, event_id="evt_1", now=time.time())
    for secret in secrets:
        assert Webhook(secret).verify(body, headers) == json.loads(body)
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body + b" ", headers)
    header = f"t={headers['x-service-timestamp']},{headers['x-service-signature']}"
    signature = stripe.WebhookSignature
    assert signature.verify_header(body.decode(), header, secrets[0], tolerance=300)
    with pytest.raises(stripe.SignatureVerificationError):
        signature.verify_header(body.decode() + " ", header, secrets[0], tolerance=300)


@given(JSON_TEXTS)
def test_what_others_sign_is_taken(body: bytes) -> None:
    """A webhook of Standard Webhooks, and one that is signed as Stripe signs."""
    at = datetime.fromtimestamp(NOW, UTC)
    standard = Webhook(SECRET).sign("msg_1", at, body.decode())
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(NOW),
        "webhook-signature": f"v1a,{'A' * 86}== {standard}",
    }
    assert verify(body, headers, [OTHER, SECRET], now=NOW).body == body
    with pytest.raises(SignatureInvalid):
        verify(body, headers, OTHER, now=NOW)
    compute = stripe.WebhookSignature._compute_signature
    timed = compute(f"{NOW}.{body.decode()}", SECRET)
    headers = {"X-Service-Timestamp": str(NOW), "X-Service-Signature": f"v1={timed}"}
    assert verify(body, headers, SECRET, now=NOW).body == body
