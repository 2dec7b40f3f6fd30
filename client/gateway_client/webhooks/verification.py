"""Verifies what was received, and signs what a test sends: the functions for any framework.

A mistake of the receiver, such as an empty secret, is a ValueError or a TypeError (`arguments`).
Everything that a sender can do wrong is a `SignatureInvalid`, or an `EventInvalid`
once it is verified, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gateway_client.webhooks.arguments import (
    brand_of,
    check_body,
    finite,
    forms_of,
    kind_of,
    secrets_of,
    time_of,
)
from gateway_client.webhooks.events import Event, read_event
from gateway_client.webhooks.signatures import (
    STANDARD_ID,
    STANDARD_SIGNATURE,
    STANDARD_TIMESTAMP,
    Claim,
    Form,
    Names,
    SignatureInvalid,
    read_claim,
    signature_headers,
)

Headers = Mapping[str, str] | Iterable[tuple[str, str]]

#: How far a timestamp may be from the receiver's clock, in seconds.
TOLERANCE_S: Final = 300
DEFAULT_FORMS: Final[tuple[Form, ...]] = ("timed", "standard")
DEFAULT_BRAND: Final = "service"


def verify(
    body: bytes,
    headers: Headers,
    secrets: str | Sequence[str],
    tolerance: float = TOLERANCE_S,
    *,
    forms: Sequence[Form] = DEFAULT_FORMS,
    brand: str = DEFAULT_BRAND,
    now: float | None = None,
) -> Event:
    """The event of a webhook, which is verified first and parsed afterwards.

    body:      the bytes as they were received, before anything has parsed them
    headers:   of the request, their names in any case. A header of the signature that is there
               twice is refused
    secrets:   one, or 1 to 8 while they rotate: any of them
    tolerance: how far the timestamp may be from `now`, in seconds, to both sides
    forms:     that are accepted; the first whose headers are there decides. "body-only" is the
               older form, off unless it is asked for: it has no timestamp, so whoever has seen one
               such webhook can send it again for ever. It also has no mark of its own: the signed
               TIMESTAMP.BODY of a "timed" webhook, sent as a body, passes `check`
    brand:     "acme" for `x-acme-signature`
    now:       Unix seconds; None: the clock's

    Raises SignatureInvalid, and EventInvalid if what is verified is no event.
    """
    check(body, headers, secrets, tolerance, forms=forms, brand=brand, now=now)
    return read_event(body)


def check(
    body: bytes,
    headers: Headers,
    secrets: str | Sequence[str],
    tolerance: float = TOLERANCE_S,
    *,
    forms: Sequence[Form] = DEFAULT_FORMS,
    brand: str = DEFAULT_BRAND,
    now: float | None = None,
) -> Form:
    """The form by which a webhook is verified; its body, of any kind, is not parsed.

    The arguments are those of `verify`. Raises SignatureInvalid.
    """
    verification = Verification.of(secrets, tolerance, forms, brand)
    check_body(body)
    claim = verification.read(headers, time_of(now))
    verification.check(claim, body)
    return claim.form


def sign(
    body: bytes,
    secrets: str | Sequence[str],
    *,
    event_id: str,
    now: float | None = None,
    form: Literal["timed", "body-only"] = "timed",
    brand: str = DEFAULT_BRAND,
) -> dict[str, str]:
    """The headers with which the gateway signs a delivery, for tests of receivers.

    secrets:  the newest first; "standard" signs with each, the other forms with the newest
    event_id: for `webhook-id`; the gateway sends the `id` of the event
    form:     that comes with "standard", as `form` of a watch
    """
    check_body(body)
    if form not in {"timed", "body-only"}:
        raise ValueError(f"form: found {form!r}, expected 'timed' or 'body-only'")
    if not event_id or not event_id.isascii() or not event_id.isprintable():
        raise ValueError(f"event_id: found {event_id!r}, expected printable ASCII characters")
    checked, names = secrets_of(secrets), Names.of_brand(brand_of(brand))
    at, is_timed = math.floor(time_of(now)), form == "timed"
    return signature_headers(body, checked, names, event_id=event_id, now=at, is_timed=is_timed)


@dataclass(frozen=True, slots=True)
class Verification:
    """How webhooks are verified; the arguments of `verify`, which are checked."""

    secrets: tuple[str, ...] = field(repr=False)
    tolerance: float
    forms: tuple[Form, ...]
    names: Names

    @classmethod
    def of(
        cls, secrets: str | Sequence[str], tolerance: float, forms: Sequence[Form], brand: str
    ) -> Verification:
        """Raises ValueError and TypeError; their messages have no secret."""
        return cls(
            secrets_of(secrets),
            finite(tolerance, "tolerance", least=0),
            forms_of(forms),
            Names.of_brand(brand_of(brand)),
        )

    def read(self, headers: Headers, now: float) -> Claim:
        """What a request's headers claim, before its body is there. Raises SignatureInvalid."""
        return read_claim(
            _collected(headers, self._headers),
            now=now,
            tolerance=self.tolerance,
            names=self.names,
            forms=self.forms,
        )

    def check(self, claim: Claim, body: bytes) -> None:
        """Raises SignatureInvalid."""
        claim.check(body, self.secrets)

    @property
    def _headers(self) -> frozenset[str]:
        """Those that are read, in lower case."""
        standard = (STANDARD_ID, STANDARD_TIMESTAMP, STANDARD_SIGNATURE)
        own = (self.names.timestamp, self.names.signature)
        return frozenset(
            (
                *(standard if "standard" in self.forms else ()),
                *(own if {"timed", "body-only"}.intersection(self.forms) else ()),
            )
        )


def _collected(headers: Headers, names: frozenset[str]) -> dict[str, str]:
    """The headers of these names. Raises SignatureInvalid if one is there twice."""
    found: dict[str, str] = {}
    for name, value in _pairs(headers):
        # Only ASCII: the Kelvin sign is a "k" in lower case.
        lower = name.lower() if name.isascii() else ""
        if lower not in names:
            continue
        if lower in found:
            raise SignatureInvalid(f"the header {lower} is there more than once")
        if not isinstance(value, str):
            raise TypeError(f"headers: found {kind_of(value)} for {lower}, expected str")
        found[lower] = value
    return found


def _pairs(headers: Headers) -> Iterable[tuple[str, str]]:
    # Those of frameworks have `items` but often are no Mapping; with it they give all of a name.
    items = getattr(headers, "items", None)
    pairs: Iterable[Any] = items() if callable(items) else headers
    try:
        for name, value in pairs:
            if not isinstance(name, str):
                raise TypeError(f"headers: found a name that is {kind_of(name)}, expected str")
            yield name, value
    except ValueError:
        raise TypeError("headers: expected a mapping, or pairs of a name and a value") from None
