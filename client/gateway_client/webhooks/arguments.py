"""Checks what the receiver itself gives: secrets, forms, and so on.

A mistake is a ValueError or a TypeError at once, whatever was received: an empty secret must never
become a signature that fits. No message has a secret.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import Final

from gateway_client.webhooks.signatures import FORMS, PREFIX, Form

#: The most secrets at a time. While they rotate there are two.
MOST_SECRETS: Final = 8

_BRAND = re.compile(r"[a-z][a-z0-9-]{0,31}").fullmatch


def secrets_of(secrets: str | Sequence[str]) -> tuple[str, ...]:
    unchecked: object = secrets
    if unchecked is None or isinstance(unchecked, bytes | bytearray):
        raise TypeError(f"secrets: found {kind_of(secrets)}, expected str or a list of str")
    given = (secrets,) if isinstance(secrets, str) else tuple(secrets)
    if not 1 <= len(given) <= MOST_SECRETS:
        raise ValueError(f"secrets: found {len(given)}, expected 1 to {MOST_SECRETS}")
    for number, secret in enumerate(given, 1):
        _check_secret(secret, f"secret {number}")
    return given


def _check_secret(secret: str, where: str) -> None:
    if not isinstance(secret, str):
        raise TypeError(f"{where}: found {kind_of(secret)}, expected str")
    # With an empty key anyone can sign.
    if not secret or secret == PREFIX:
        raise ValueError(f"{where}: found an empty secret, expected at least one character")
    if not secret.isprintable() or secret != secret.strip():
        raise ValueError(
            f"{where}: found white space at an end, or a character that cannot be printed, "
            "expected the secret alone; the end of a line is not part of it"
        )


def forms_of(forms: Sequence[Form]) -> tuple[Form, ...]:
    if isinstance(forms, str):
        raise TypeError("forms: found str, expected a list of forms")
    given = tuple(forms)
    if not given or any(form not in FORMS for form in given):
        raise ValueError(f"forms: found {given!r}, expected at least one of {', '.join(FORMS)}")
    return given


def brand_of(brand: str) -> str:
    if not isinstance(brand, str) or not _BRAND(brand):
        raise ValueError(f"brand: found {brand!r}, expected a word of a-z, 0-9 and -")
    return brand


def check_body(body: bytes) -> None:
    if not isinstance(body, bytes):
        raise TypeError(
            f"body: found {kind_of(body)}, expected bytes: pass the raw body as it was received, "
            "before any parsing or decoding"
        )


def time_of(now: float | None) -> float:
    return time.time() if now is None else finite(now, "now")


def finite(value: float, where: str, least: float = -math.inf) -> float:
    """With NaN, no timestamp would be too old."""
    try:
        if math.isfinite(value) and value >= least:
            return value
    except OverflowError:  # of an int that is too large for a float
        pass
    expected = "a finite number" if least == -math.inf else f"a finite number, at least {least:g}"
    raise ValueError(f"{where}: found {value!r:.40}, expected {expected}")


def kind_of(value: object) -> str:
    return "None" if value is None else type(value).__name__
