"""`request_headers` and `response_headers` of a route, as they are written.

What the gateway decides by, frames messages with or says about the key cannot be changed: a fault
says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gateway.domain.header_edits import HeaderEdits, Pairs, read_template
from gateway.domain.headers import plain_name
from gateway.domain.key_format import looks_like_key
from gateway.domain.patterns import HEADER_NAME
from gateway.policies.faults import quoted
from gateway.policies.values import Value, setting

EDITS: Final = ("set", "add", "remove")
#: Of each of the three.
MOST_ENTRIES: Final = 32
MOST_VALUE: Final = 1024
#: RFC 9110, 5.5: printable ASCII, without spaces around it.
VALUE: Final = r"[!-~](?:[\t -~]{0,1022}[!-~])?"
NAME: Final = HEADER_NAME.replace("+", "{1,64}")

_FRAMING: Final = "it frames the message, or is of one connection"
_OURS: Final = "the gateway sets it itself"
_OVERRIDES: Final = "it overrides the path or method that was checked"
#: Why a field cannot be changed, by the beginning of its name; "x-" and "=": the whole name.
_OF_BOTH: Final = (
    (_FRAMING, "=connection =keep-alive proxy- =te =trailer =upgrade =transfer-encoding"),
    (_FRAMING, "=content-length =http2-settings =expect sec-websocket-"),
    (_OURS, "=x-request-id =via x-ratelimit- x-gateway-"),
)
_OF_REQUESTS: Final = (
    *_OF_BOTH,
    ("it was checked with the request", "=host"),
    ("it carries API keys", "=authorization =apikey"),
    (_OURS, "=x-forwarded-for =x-forwarded-proto =forwarded"),
    (_OVERRIDES, "=x-original-url =x-original-uri =x-original-method =x-rewrite-url"),
    (_OVERRIDES, "=x-http-method =x-http-method-override =x-method-override"),
    ("programs read it as HTTP_PROXY", "=proxy"),
)
_OF_RESPONSES: Final = (
    *_OF_BOTH,
    (_OURS, "ratelimit =date"),
    ("cors sets it", "access-control-"),
)

Reasons = tuple[tuple[str, str], ...]


def read_request_edits(value: Value) -> HeaderEdits | None:
    return _read(value, _OF_REQUESTS)


def read_response_edits(value: Value) -> HeaderEdits | None:
    return _read(value, _OF_RESPONSES)


def why_fixed(name: str, reasons: Reasons) -> str | None:
    """Why a field of this name cannot be changed; None: it can."""
    plain = plain_name(name.lower().encode("ascii")).decode("ascii")
    for reason, names in reasons:
        for each in names.split():
            if plain == each[1:] if each.startswith("=") else plain.startswith(each):
                return reason
    return None


def _read(value: Value, reasons: Reasons) -> HeaderEdits | None:
    given = value.fields(EDITS)
    if given is None:
        return None
    if not value.node.value:
        value.add_fault("set, add or remove", "none of them")
        return None

    def read_pairs(value: Value) -> Pairs | None:
        return _read_pairs(value, reasons)

    def read_names(value: Value) -> tuple[str, ...] | None:
        return _read_names(value, reasons)

    edits = HeaderEdits(
        set=setting(given, "set", read_pairs, ()),
        add=setting(given, "add", read_pairs, ()),
        remove=setting(given, "remove", read_names, ()),
    )
    written = {name.lower() for name, _ in (*edits.set, *edits.add)}
    for name in edits.remove:
        if name.lower() in written:
            found = f"{name}, which set or add has as well"
            given["remove"].add_fault("a name that is removed only, as set replaces it", found)
    return edits


def _read_pairs(value: Value, reasons: Reasons) -> Pairs | None:
    given = value.entries("a mapping from the names of headers to values")
    if given is None or not _is_bounded(value, len(given)):
        return None
    seen: set[str] = set()
    pairs: list[tuple[str, str]] = []
    for name, written in given.items():
        is_valid = _check_name(written, name, reasons)
        if is_valid and name.lower() in seen:
            written.add_fault("each header once", f"{name} again")
        seen.add(name.lower())
        text = _read_value(written)
        if is_valid and text is not None:
            pairs.append((name, text))
    return tuple(pairs)


def _read_value(value: Value) -> str | None:
    expected = f"printable ASCII without spaces around it, up to {MOST_VALUE} characters"
    text = value.matching(VALUE, expected)
    if text is None:
        return None
    if looks_like_key(text):
        value.add_fault("a value without an API key", "an API key")
        return None
    try:
        read_template(text)
    except ValueError as exc:
        value.add_fault(str(exc))
        return None
    return text


def _read_names(value: Value, reasons: Reasons) -> tuple[str, ...] | None:
    items = value.items("a list of header names such as [Server]")
    if items is None or not _is_bounded(value, len(items)):
        return None
    names: list[str] = []
    for item in items:
        name = item.text("the name of a header such as Server")
        if name is not None and _check_name(item, name, reasons):
            names.append(name)
    return tuple(dict.fromkeys(names))


def _is_bounded(value: Value, count: int) -> bool:
    if count <= MOST_ENTRIES:
        return True
    value.add_fault(f"at most {MOST_ENTRIES} headers", f"{count} headers")
    return False


def _check_name(value: Value, name: str, reasons: Reasons) -> bool:
    if not _is_name(name):
        value.add_fault("the name of a header such as X-Tenant, up to 64 characters", quoted(name))
        return False
    why = why_fixed(name, reasons)
    if why is not None:
        value.add_fault("a header that a policy can change", f"{name} ({why})")
    return why is None


_is_name: Callable[[str], re.Match[str] | None] = re.compile(NAME).fullmatch
