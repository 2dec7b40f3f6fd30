"""What a kind of provider is: how its webhooks are verified, named, and brought into one form."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from binascii import a2b_qp
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.domain import json_text
from gateway.domain.media_types import read_media_type
from gateway.domain.webhooks.payload import text
from gateway.domain.webhooks.signatures import Unverified, in_bytes

#: The value of a header by its lower-case name; "": there is none.
Header = Callable[[str], str]
#: (body, header, secrets, now in seconds); raises Unverified.
Verify = Callable[[bytes, Header, Sequence[str], float], None]


@dataclass(frozen=True, slots=True)
class Captured:
    """One event of a provider in the service's form.

    type:    "pull_request.merged"; "": no table knows what it is
    created: by the provider, as `payload.moment` writes it; "": it does not say
    """

    type: str
    created: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


_is_hex: Final = re.compile(r"[0-9A-Fa-f]{64}").fullmatch
#: The content type of a form.
FORM: Final = "application/x-www-form-urlencoded"
#: What the field with the JSON of a form begins with.
_FIELD: Final = b"payload="
#: The most fields of a form.
_MOST_FIELDS: Final = 8
#: Makes the text of a form quoted-printable, which is decoded in C. `urllib.parse` takes seconds
#: for 1 MiB of escapes.
_AS_QUOTED: Final = bytes.maketrans(b"%+", b"= ")
#: An event that is not passed on: it is of a kind that no table knows.
UNKNOWN: Final = Captured("")


def read_json(_header: Header, body: bytes) -> Any:
    """Raises ValueError."""
    return json_text.read_json(body)


def read_json_or_form(header: Header, body: bytes) -> Any:
    """JSON, or a form whose field `payload` is JSON. Raises as `read_json`."""
    content = form_payload(header, body)
    return json_text.read_json(body if content is None else content)


def form_payload(header: Header, body: bytes) -> bytes | None:
    """The field `payload` of a form; None: the body is no form, or has no such field.

    Strangers can have it decoded, as some providers sign only the field.
    """
    is_form = read_media_type(header("content-type")).is_exactly(FORM)
    if not is_form or not body.isascii() or body.count(b"&") >= _MOST_FIELDS:
        return None
    found = next((each for each in body.split(b"&") if each.startswith(_FIELD)), None)
    # A form has no other "=" in a value: it is escaped.
    if found is None or b"=" in (value := found.removeprefix(_FIELD)):
        return None
    return a2b_qp(value.translate(_AS_QUOTED))


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of provider.

    name:        as in events: "github"
    read:        (header, body) the payload. Raises ValueError
    delivery_id: (header, payload) how the provider names this webhook, so that one that is sent
                 again is the same event; "": it does not
    normalize:   (header, payload)
    is_basic:    its secret is USER:PASSWORD
    captures:    it has a capture address and a provider's secret; False: nobody sends it anything
    takes_id_header: an integration may say in which header the delivery id is
    """

    name: str
    read: Callable[[Header, bytes], Any] = field(default=read_json, kw_only=True)
    verify: Verify
    delivery_id: Callable[[Header, Any], str]
    normalize: Callable[[Header, Any], Captured]
    is_basic: bool = False
    captures: bool = True
    takes_id_header: bool = False


def by_mac(*header_names: str, prefix: str = "") -> Verify:
    """Verifies an HMAC-SHA-256 of the body, in hex after this prefix, in the first header there."""

    def verify(body: bytes, header: Header, secrets: Sequence[str], _now_s: float) -> None:
        check_any(sent_mac(header, *header_names, prefix=prefix), macs_of(body, secrets))

    return verify


def sent_mac(header: Header, *header_names: str, prefix: str = "") -> str:
    """The HMAC in the first of these headers that is there. Raises Unverified if it cannot be one.

    It is read before anything is done with the body.
    """
    sent = next(filter(None, map(header, header_names)), "")
    if not sent:
        raise Unverified(f"no signature: expected {header_names[0]}")
    if not sent.startswith(prefix) or not _is_hex(sent.removeprefix(prefix)):
        raise Unverified(f"the signature is malformed: expected {prefix}HEX, with 64 digits")
    return sent.removeprefix(prefix).lower()


def macs_of(signed: bytes, secrets: Sequence[str]) -> list[str]:
    """The HMAC-SHA-256 by each secret, in hex."""
    return [hmac.digest(secret.encode(), signed, "sha256").hex() for secret in secrets]


def by_token(header_name: str) -> Verify:
    """Verifies a header that is the secret itself."""

    def verify(_body: bytes, header: Header, secrets: Sequence[str], _now_s: float) -> None:
        sent = header(header_name)
        if not sent:
            raise Unverified(f"no signature: expected {header_name}")
        check_any(sent, secrets)

    return verify


def check_any(sent: str, expected: Sequence[str]) -> None:
    """Raises Unverified unless one of these was sent. All are compared, in constant time."""
    given = in_bytes(sent)
    fits = [hmac.compare_digest(given, each.encode()) for each in expected]
    if not given or not any(fits):
        raise Unverified("the signature does not fit the body and the secret")


def basic_secret(value: str) -> str:
    """USER:PASSWORD of an Authorization header; "": it has none."""
    scheme, _, rest = value.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return b64decode(rest.strip(), validate=True).decode()
    except (Base64Error, ValueError):
        return ""


def in_base64(mac: bytes) -> str:
    return b64encode(mac).decode("ascii")


def header_id(*names: str) -> Callable[[Header, Any], str]:
    """The delivery id in the first of these headers that is there."""
    return lambda header, _payload: next(filter(None, map(header, names)), "")


def payload_id(path: str) -> Callable[[Header, Any], str]:
    """The delivery id at these keys of the body."""
    return lambda _header, payload: text(payload, path)
