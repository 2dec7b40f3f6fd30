"""Signs webhooks, and compares the signatures of received ones.

| form | headers | what is signed |
| --- | --- | --- |
| timed | `x-service-timestamp`, `x-service-signature: v1=HEX` | TIMESTAMP.BODY |
| standard | `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,BASE64` | ID.TIMESTAMP.BODY |
| body-only | `x-service-signature: HEX` | BODY |

Each is an HMAC with SHA-256. Its key is the secret's text; for "standard" the bytes that `whsec_`
names in base64, as https://www.standardwebhooks.com says. `service` stands for the brand, which is
a setting of the gateway.

Decides as the gateway does for webhooks that it receives itself. Any number of bytes in any header
ends in `SignatureInvalid`, in time and memory proportional to their number.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Form = Literal["timed", "standard", "body-only"]

FORMS: Final[tuple[Form, ...]] = ("timed", "standard", "body-only")
#: What texts of secrets begin with.
PREFIX: Final = "whsec_"
#: The most signatures of a header that are compared: a sender sends one for each secret.
MOST_SIGNATURES: Final = 8

STANDARD_ID: Final = "webhook-id"
STANDARD_TIMESTAMP: Final = "webhook-timestamp"
STANDARD_SIGNATURE: Final = "webhook-signature"

_INTEGER = re.compile(r"-?[0-9]{1,18}").fullmatch
#: What the other forms sign before a body: TIMESTAMP. or ID.TIMESTAMP.
_SIGNED_BEFORE = re.compile(rb"(?:[0-9A-Za-z_.:\-]{1,256}\.)?-?[0-9]{1,18}\.").match
_HEX = re.compile(r"[0-9A-Fa-f]{64}").fullmatch
#: The 32 bytes of a signature in base64.
_MAC_BASE64 = re.compile(r"[0-9A-Za-z+/]{43}=").fullmatch
#: Base64 with its padding. `b64decode` has its own opinion of it in each release of Python.
_BASE64 = re.compile(
    r"(?:[0-9A-Za-z+/]{4})*(?:[0-9A-Za-z+/]{2}==|[0-9A-Za-z+/]{3}=)?", re.ASCII
).fullmatch


class SignatureInvalid(Exception):
    """The webhook is not from whoever has the secret, or is too old.

    The message says what was wrong. It has nothing of the secret, nor of what was sent.
    """


@dataclass(frozen=True, slots=True)
class Names:
    """The headers of "timed" and "body-only", in lower case."""

    timestamp: str
    signature: str

    @classmethod
    def of_brand(cls, brand: str) -> Names:
        """brand: "acme" for `x-acme-signature`"""
        return cls(f"x-{brand}-timestamp", f"x-{brand}-signature")


@dataclass(frozen=True, slots=True)
class Claim:
    """The signatures of a webhook, and what they sign before its body.

    is_one_of: other forms are accepted as well
    """

    form: Form
    prefix: bytes
    signatures: tuple[bytes, ...]
    is_one_of: bool = False

    def check(self, body: bytes, secrets: Sequence[str]) -> None:
        """Raises SignatureInvalid. body: as it was received, before anything has parsed it"""
        if self.form == "body-only" and self.is_one_of and _SIGNED_BEFORE(body):
            # Whoever has seen a webhook of another form could send what was signed of it as a body,
            # at any time.
            raise SignatureInvalid("the body begins like what another form signs")
        signed = self.prefix + body
        # All are compared: the time tells nothing of which secret or signature fits.
        fits = [
            hmac.compare_digest(mac, signature)
            for mac in [_mac(_key(secret, self.form), signed) for secret in secrets]
            for signature in self.signatures
        ]
        if not any(fits):
            raise SignatureInvalid("the signature does not fit the body and the secret")


def read_claim(
    headers: Mapping[str, str],
    *,
    now: float,
    tolerance: float,
    names: Names,
    forms: Sequence[Form],
) -> Claim:
    """What the headers claim. Raises SignatureInvalid where no body could make it true.

    headers: by lower-case name
    forms:   that are accepted; the first whose headers are there decides
    """
    for form in forms:
        found = _of_form(form, headers, names)
        if found is not None:
            timestamp, prefix, signatures = found
            if timestamp is not None:
                _check_time(timestamp, now, tolerance)
            if not signatures:
                raise SignatureInvalid(f"the signature is malformed: expected {_WRITINGS[form]}")
            return Claim(form, prefix, tuple(signatures), len(forms) > 1)
    expected = ", or ".join(_HEADERS[form].format(names=names) for form in forms)
    raise SignatureInvalid(f"no signature: expected {expected}")


def signature_headers(
    body: bytes, secrets: Sequence[str], names: Names, *, event_id: str, now: int, is_timed: bool
) -> dict[str, str]:
    """The headers of a delivery, as the gateway sends them: those of "standard", and its own.

    secrets:  the newest first; "standard" has a signature for each, the other forms have one
    is_timed: whether its own are those of "timed"; else of "body-only"
    """
    standard = f"{event_id}.{now}.".encode() + body
    signed = [b64encode(_mac(_key(each, "standard"), standard)).decode() for each in secrets]
    headers = {
        STANDARD_ID: event_id,
        STANDARD_TIMESTAMP: str(now),
        STANDARD_SIGNATURE: " ".join(f"v1,{each}" for each in signed),
    }
    newest = secrets[0].encode()
    if not is_timed:
        return {names.signature: _mac(newest, body).hex(), **headers}
    timed = _mac(newest, b"%d.%b" % (now, body)).hex()
    return {names.timestamp: str(now), names.signature: f"v1={timed}", **headers}


_HEADERS: Final[Mapping[Form, str]] = {
    "timed": "{names.timestamp} and {names.signature}",
    "standard": f"{STANDARD_ID}, {STANDARD_TIMESTAMP} and {STANDARD_SIGNATURE}",
    "body-only": "{names.signature}",
}


_WRITINGS: Final[Mapping[Form, str]] = {
    "timed": "v1= and 64 hex digits",
    "standard": "v1, and 44 characters of base64",
    "body-only": "64 hex digits",
}


def _of_form(
    form: Form, headers: Mapping[str, str], names: Names
) -> tuple[str | None, bytes, list[bytes]] | None:
    """The timestamp, what is signed before the body, and the signatures; None: not this form."""
    if form == "standard":
        event_id, timestamp = headers.get(STANDARD_ID), headers.get(STANDARD_TIMESTAMP)
        signature = headers.get(STANDARD_SIGNATURE)
        if event_id is None or timestamp is None or signature is None:
            return None
        return timestamp, _in_bytes(f"{event_id}.{timestamp}."), _in_base64(signature)
    signature, timestamp = headers.get(names.signature), headers.get(names.timestamp)
    if signature is None or (form == "timed" and timestamp is None):
        return None
    if form == "body-only" or timestamp is None:
        return None, b"", _in_hex(signature)
    return timestamp, _in_bytes(f"{timestamp}."), _in_hex(signature)


def _in_bytes(value: str) -> bytes:
    # A header may have surrogates, for bytes that are not UTF-8.
    return value.encode("utf-8", "surrogatepass")


def _check_time(timestamp: str, now: float, tolerance: float) -> None:
    if not _INTEGER(timestamp):
        raise SignatureInvalid("the timestamp is not an integer")
    age_s = now - int(timestamp)
    if abs(age_s) > tolerance:
        when = "old" if age_s > 0 else "in the future"
        raise SignatureInvalid(
            f"the timestamp is {abs(age_s):.0f} s {when}, and {tolerance:.0f} s are tolerated"
        )


def _in_hex(value: str) -> list[bytes]:
    """The signatures of a header `v1=HEX`, `HEX`, or a list of them; malformed ones fit nothing."""
    parts = value.split(",", MOST_SIGNATURES)[:MOST_SIGNATURES]
    found = [part.strip().removeprefix("v1=") for part in parts]
    return [bytes.fromhex(part) for part in found if _HEX(part)]


def _in_base64(value: str) -> list[bytes]:
    """The signatures of a header `v1,BASE64 v1,BASE64`; those of other versions fit nothing."""
    parts = value.split(" ", MOST_SIGNATURES)[:MOST_SIGNATURES]
    found = [part.partition(",") for part in parts]
    return [b64decode(text) for version, _, text in found if version == "v1" and _MAC_BASE64(text)]


def _key(secret: str, form: Form) -> bytes:
    """For "standard" what is after `whsec_`, in base64; the text itself, if it is not."""
    encoded = secret.removeprefix(PREFIX)
    if form == "standard" and _BASE64(encoded):
        return b64decode(encoded)
    return secret.encode()


def _mac(key: bytes, signed: bytes) -> bytes:
    return hmac.digest(key, signed, "sha256")
