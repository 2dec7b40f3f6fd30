"""Webhooks of providers and the events that they become: `fixtures/KIND/NAME.json`.

A file has the provider's `headers` without its signature, the `body`, the `delivery_id`, and the
`event` with `type`, `created` and `data`. Those that become no event have the type "". They are
written after the providers' documentation, with the fields that tell right from wrong.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from gateway.domain.webhooks.kinds.kind import Captured, Header, Kind
from gateway.domain.webhooks.signatures import Unverified

FIXTURES: Final = Path(__file__).parent / "fixtures"
SECRET: Final = "of-this-integration"
OTHER: Final = "of-another-integration"
#: When webhooks arrive: 2026-11-23T17:00:00Z.
NOW: Final = 1_795_453_200.0
#: (body, secret): the headers by which a provider signs.
Sign = Callable[[bytes, str], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Case:
    headers: dict[str, str]
    body: bytes
    delivery_id: str
    event: Captured


def cases(folder: str) -> list[Any]:
    """The parameters of a test, one of each file."""
    files = sorted((FIXTURES / folder).glob("*.json"))
    assert files, f"no fixtures of {folder}"
    return [pytest.param(_read(file), id=file.stem) for file in files]


def _read(file: Path) -> Case:
    found = json.loads(file.read_text())
    body = json.dumps(found["body"], indent=1).encode()
    return Case(found["headers"], body, found["delivery_id"], Captured(**found["event"]))


def of(headers: Mapping[str, str]) -> Header:
    lower = {name.lower(): value for name, value in headers.items()}
    return lambda name: lower.get(name, "")


def form(payload: Any) -> bytes:
    """The body of a form whose field is this JSON."""
    return urlencode({"payload": json.dumps(payload)}).encode()


def check(kind: Kind, case: Case, sign: Sign) -> None:
    """The webhook is verified and named, and becomes exactly the event."""
    header = of({**case.headers, **sign(case.body, SECRET)})
    kind.verify(case.body, header, [SECRET], NOW)
    payload = kind.read(header, case.body)
    assert kind.delivery_id(header, payload) == case.delivery_id
    found = kind.normalize(header, payload)
    assert (found.type, found.created) == (case.event.type, case.event.created)
    assert found.data == case.event.data


def check_signatures(kind: Kind, sign: Sign, *, body: bytes, of_body: bool = True) -> None:
    """Verified by any of several secrets; by no other, for no other body, and with all headers.

    of_body: does the signature depend on the body?
    """
    signed = sign(body, SECRET)
    for secrets in ([SECRET], [OTHER, SECRET], [SECRET, OTHER]):
        kind.verify(body, of(signed), secrets, NOW)
    refuses(kind, body, signed, "does not fit", secrets=[OTHER])
    refuses(kind, body, signed, "does not fit", secrets=[])
    refuses(kind, body, {name: value[:-1] for name, value in signed.items()}, ".")
    for name in signed:
        refuses(kind, body, {**signed, name: ""}, "expected")
    if of_body:
        refuses(kind, body + b" ", signed, "does not fit")


def refuses(
    kind: Kind,
    body: bytes,
    headers: Mapping[str, str],
    reason: str,
    *,
    secrets: list[str] | None = None,
    now: float = NOW,
) -> None:
    with pytest.raises(Unverified, match=reason):
        kind.verify(body, of(headers), [SECRET] if secrets is None else secrets, now)


def hmac_hex(header: str, prefix: str = "") -> Sign:
    """Signs with an HMAC-SHA-256 of the body, in hex."""

    def sign(body: bytes, secret: str) -> dict[str, str]:
        mac = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return {header: prefix + mac}

    return sign
