"""Signs webhooks and verifies them, in the forms that receivers know.

| form | headers | what is signed |
| --- | --- | --- |
| TIMED | `x-service-timestamp`, `x-service-signature: v1=HEX` | TIMESTAMP.BODY |
| STANDARD | `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,BASE64` | ID.TIMESTAMP.BODY |
| BODY_ONLY | `x-service-signature: HEX` | BODY |

Each is an HMAC with SHA-256. Its key is the secret's text; for STANDARD the bytes that `whsec_`
names in base64, as https://www.standardwebhooks.com says. BODY_ONLY does not protect against a
replay. `service` stands for the brand, which is a setting.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Form = Literal["timed", "standard", "body-only"]

#: How far the timestamp may be from the receiver's clock, in seconds.
TOLERANCE_S: Final = 300
#: What texts of secrets begin with.
PREFIX: Final = "whsec_"
#: The most signatures of a header that are compared: a sender sends one for each secret.
MOST_SIGNATURES: Final = 8

_INTEGER = re.compile(r"-?[0-9]{1,18}").fullmatch
#: What the other forms sign before a body: TIMESTAMP. or ID.TIMESTAMP.
_SIGNED_BEFORE = re.compile(rb"(?:[0-9A-Za-z_.:\-]{1,256}\.)?-?[0-9]{1,18}\.").match
_HEX = re.compile(r"[0-9A-Fa-f]{64}").fullmatch


@dataclass(frozen=True, slots=True)
class Names:
    """The headers of TIMED and BODY_ONLY, in lower case."""

    timestamp: str = "x-service-timestamp"
    signature: str = "x-service-signature"

    @classmethod
    def of_brand(cls, brand: str) -> Names:
        """brand: "acme" for `x-acme-signature`"""
        return cls(f"x-{brand}-timestamp", f"x-{brand}-signature")


DEFAULT_NAMES: Final = Names()
STANDARD_ID: Final = "webhook-id"
STANDARD_TIMESTAMP: Final = "webhook-timestamp"
STANDARD_SIGNATURE: Final = "webhook-signature"
STANDARD_HEADERS: Final = (STANDARD_ID, STANDARD_TIMESTAMP, STANDARD_SIGNATURE)


@dataclass(frozen=True, slots=True)
class Verification:
    """How webhooks that a route receives are verified: an entry of `signatures`.

    secrets:    any of them
    forms:      that are accepted
    body_bytes: the largest body, which is kept until it is verified
    """

    name: str
    secrets: tuple[str, ...] = field(repr=False)
    forms: tuple[Form, ...] = ("timed", "standard")
    names: Names = DEFAULT_NAMES
    tolerance_s: float = TOLERANCE_S
    body_bytes: int = 1024 * 1024

    @property
    def headers(self) -> tuple[str, ...]:
        """Those that are read, in lower case."""
        own = (self.names.timestamp, self.names.signature)
        return (
            *(STANDARD_HEADERS if "standard" in self.forms else ()),
            *(own if {"timed", "body-only"}.intersection(self.forms) else ()),
        )

    @property
    def words(self) -> str:
        """For people: "partner (timed or standard, within 300 s)"."""
        return f"{self.name} ({' or '.join(self.forms)}, within {self.tolerance_s:g} s)"

    def read(self, header: Callable[[str], str], now_s: float) -> Claim:
        """What a request's headers claim, before its body is there. Raises Unverified.

        header: the value by its lower-case name; "": there is none
        """
        found = {name: value for name in self.headers if (value := header(name))}
        return read_claim(
            found, now_s=now_s, tolerance_s=self.tolerance_s, names=self.names, forms=self.forms
        )

    def check(self, claim: Claim, body: bytes) -> None:
        """Raises Unverified."""
        claim.check(body, self.secrets)


class Unverified(Exception):
    """The webhook is not from whoever has the secret, or is too old; the message says which."""


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
        """Raises Unverified. body: as it was received, before anything has parsed it"""
        if self.form == "body-only" and self.is_one_of and _SIGNED_BEFORE(body):
            # Whoever has seen a webhook of another form could send what was signed of it as a body,
            # at any time.
            raise Unverified("the body begins like what another form signs")
        signed = self.prefix + body
        # All are compared: the time tells nothing of which secret or signature fits.
        fits = [
            hmac.compare_digest(mac, signature)
            for mac in [_mac(_key(secret, self.form), signed) for secret in secrets]
            for signature in self.signatures
        ]
        if not any(fits):
            raise Unverified("the signature does not fit the body and the secret")


def sign(
    body: bytes,
    secrets: Sequence[str],
    *,
    event_id: str,
    now_s: int,
    names: Names = DEFAULT_NAMES,
    form: Literal["timed", "body-only"] = "timed",
) -> dict[str, str]:
    """The headers of a delivery.

    secrets: the newest first; while they change, STANDARD carries a signature for each. The other
             forms have room for one
    """
    newest = secrets[0].encode("ascii")
    standard = f"{event_id}.{now_s}.".encode("ascii") + body
    signed = [b64encode(_mac(_standard_key(secret), standard)).decode() for secret in secrets]
    headers = {
        STANDARD_ID: event_id,
        STANDARD_TIMESTAMP: str(now_s),
        STANDARD_SIGNATURE: " ".join(f"v1,{each}" for each in signed),
    }
    if form == "body-only":
        return {names.signature: _mac(newest, body).hex(), **headers}
    timed = _mac(newest, b"%d.%b" % (now_s, body)).hex()
    return {names.timestamp: str(now_s), names.signature: f"v1={timed}", **headers}


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secrets: Sequence[str],
    *,
    now_s: float,
    tolerance_s: float = TOLERANCE_S,
    names: Names = DEFAULT_NAMES,
    forms: Sequence[Form] = ("timed", "standard"),
) -> Form:
    """The form by which the webhook is verified. Raises Unverified.

    body, headers, forms: as of `Claim.check` and `read_claim`
    """
    claim = read_claim(headers, now_s=now_s, tolerance_s=tolerance_s, names=names, forms=forms)
    claim.check(body, secrets)
    return claim.form


def read_claim(
    headers: Mapping[str, str],
    *,
    now_s: float,
    tolerance_s: float = TOLERANCE_S,
    names: Names = DEFAULT_NAMES,
    forms: Sequence[Form] = ("timed", "standard"),
) -> Claim:
    """What the headers claim. Raises Unverified where no body could make it true.

    headers: by lower-case name
    forms:   that are accepted; the first whose headers are there decides
    """
    for form in forms:
        found = _of_form(form, headers, names)
        if found is not None:
            timestamp, prefix, signatures = found
            if timestamp is not None:
                _check_time(timestamp, now_s, tolerance_s)
            if not signatures:
                raise Unverified(f"the signature is malformed: expected {_WRITINGS[form]}")
            return Claim(form, prefix, tuple(signatures), len(forms) > 1)
    expected = ", or ".join(_HEADERS[form].format(names=names) for form in forms)
    raise Unverified(f"no signature: expected {expected}")


_HEADERS: Final[Mapping[Form, str]] = {
    "timed": "{names.timestamp} and {names.signature}",
    "standard": "webhook-id, webhook-timestamp and webhook-signature",
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
        return timestamp, in_bytes(f"{event_id}.{timestamp}."), _in_base64(signature)
    signature, timestamp = headers.get(names.signature), headers.get(names.timestamp)
    if signature is None or (form == "timed" and timestamp is None):
        return None
    if form == "body-only" or timestamp is None:
        return None, b"", in_hex(signature)
    return timestamp, in_bytes(f"{timestamp}."), in_hex(signature)


def in_bytes(value: str) -> bytes:
    """Of headers. Bytes that are not UTF-8 are surrogates in them, as aiohttp reads them."""
    return value.encode("utf-8", "surrogatepass")


def _check_time(timestamp: str, now_s: float, tolerance_s: float) -> None:
    if not _INTEGER(timestamp):
        raise Unverified("the timestamp is not an integer")
    age_s = now_s - int(timestamp)
    if abs(age_s) > tolerance_s:
        when = "old" if age_s > 0 else "in the future"
        raise Unverified(
            f"the timestamp is {abs(age_s):.0f} s {when}, and {tolerance_s:.0f} s are tolerated"
        )


def in_hex(value: str) -> list[bytes]:
    """The signature of a header `v1=HEX`, `HEX`, or a list of them; malformed ones fit nothing."""
    found = [part.strip().removeprefix("v1=") for part in value.split(",")[:MOST_SIGNATURES]]
    return [bytes.fromhex(part) for part in found if _HEX(part)]


def _in_base64(value: str) -> list[bytes]:
    """The signatures of a header `v1,BASE64 v1,BASE64`; those of other versions fit nothing."""
    found = []
    for part in value.split(" ")[:MOST_SIGNATURES]:
        version, _, text = part.partition(",")
        if version == "v1":
            try:
                found.append(b64decode(text, validate=True))
            except (Base64Error, ValueError):
                continue
    return found


def _key(secret: str, form: Form) -> bytes:
    return _standard_key(secret) if form == "standard" else secret.encode()


def _standard_key(secret: str) -> bytes:
    """The key of a secret: what is after `whsec_`, in base64; the text itself, if it is not."""
    try:
        return b64decode(secret.removeprefix(PREFIX), validate=True)
    except (Base64Error, ValueError):
        return secret.encode()


def _mac(key: bytes, signed: bytes) -> bytes:
    return hmac.digest(key, signed, "sha256")
