"""`signatures`, and `verify_signature` of a route: how webhooks that it receives are verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from gateway.domain.webhooks.signatures import Form, Names, Verification
from gateway.policies.routes import RouteEntry
from gateway.policies.secrets import read_secret_lines
from gateway.policies.settings import read_size_up_to, read_timeout
from gateway.policies.values import Value, setting

SIGNATURE: Final = ("secrets", "forms", "brand", "tolerance", "max_body")
FORMS: Final[tuple[Form, ...]] = ("timed", "standard", "body-only")
BRAND: Final = r"[a-z][a-z0-9-]{0,31}"
#: A secret that is shorter can be guessed; and the most: those of a sender that changes its own.
LEAST_SECRET: Final = 16
MOST_SECRETS: Final = 4
#: A body is kept whole until its signature is verified. With four secrets that takes 3 to 8 ms a
#: MiB, in which the worker serves nobody else.
MOST_BODY_BYTES: Final = 4 * 1024 * 1024


def read_signature(name: str, at: Value) -> Verification | None:
    """One entry of `signatures`."""
    given = at.fields(SIGNATURE, required=("secrets",))
    if given is None or "secrets" not in given:
        return None
    secrets = _read_secrets(given["secrets"])
    default = Verification(name, ())
    brand = given["brand"].matching(BRAND, "a word of a-z, 0-9 and -") if "brand" in given else None
    return Verification(
        name,
        secrets or (),
        forms=setting(given, "forms", _read_forms, default.forms),
        names=default.names if brand is None else Names.of_brand(brand),
        tolerance_s=setting(given, "tolerance", read_timeout, default.tolerance_s),
        body_bytes=setting(
            given, "max_body", partial(read_size_up_to, MOST_BODY_BYTES), default.body_bytes
        ),
    )


def with_signature(entry: RouteEntry, signatures: Mapping[str, Verification]) -> RouteEntry:
    """The same route with the verification that its `verify_signature` names."""
    at, route = entry.given.get("verify_signature"), entry.route
    name = None if at is None else at.text("the name of an entry of signatures")
    if at is None or name is None or route is None:
        return entry
    if "mcp" in entry.given or "respond" in entry.given:
        other = "mcp" if "mcp" in entry.given else "respond"
        at.add_fault(f"no verify_signature on a route with {other}", "verify_signature")
        return entry
    found = signatures.get(name)
    if found is None:
        names = ", ".join(sorted(signatures)) or "none is defined"
        at.add_fault(f"the name of an entry of signatures ({names})")
        return entry
    most = min(route.body_bytes or found.body_bytes, found.body_bytes)
    return replace(entry, route=replace(route, verification=found, body_bytes=most))


def _read_secrets(value: Value) -> tuple[str, ...] | None:
    """The file with the secrets, one in a line."""
    expected = f"one to {MOST_SECRETS} lines of at least {LEAST_SECRET} printable ASCII characters"
    lines = read_secret_lines(value, MOST_SECRETS, expected)
    if lines is None:
        return None
    for number, line in enumerate(lines, 1):
        if len(line) < LEAST_SECRET or not all(0x20 < byte < 0x7F for byte in line):
            value.add_fault(expected, f"{value.found}, whose line {number} {_fault_of(line)}")
            return None
    return tuple(line.decode("ascii") for line in lines)


def _fault_of(line: bytes) -> str:
    if len(line) < LEAST_SECRET:
        return f"has {len(line)} characters"
    return "has other characters"


def _read_forms(value: Value) -> tuple[Form, ...] | None:
    items = value.items("a list of timed, standard and body-only")
    if items is None:
        return None
    forms: list[Form] = []
    for item in items:
        form: Form | None = item.choice(*FORMS)
        if form is not None and form not in forms:
            forms.append(form)
    if not items:
        value.add_fault("at least one form", "an empty list")
    return tuple(forms) or None
