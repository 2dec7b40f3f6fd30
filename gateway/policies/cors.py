"""`cors`: which pages of other origins may use a route, as it is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Final

from gateway.domain.cors import ANY, DEFAULT_HEADERS, Cors
from gateway.domain.patterns import HEADER_NAME
from gateway.policies import fields
from gateway.policies.values import Fields, Value, setting

CORS: Final = ("origins", "methods", "headers", "expose", "credentials", "max_age")
#: The most entries of a list; each is compared, or sent with every answer.
MOST_ENTRIES: Final = 256
MOST_NAMES: Final = 64
#: What Firefox allows; Chromium at most two hours.
MAX_AGE_S: Final = 86_400.0
#: As browsers send it, or a pattern.
ORIGIN: Final = (
    r"\*|[a-z][a-z0-9+.-]{0,31}://(?:(?:\*\.)?[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_])?"
    r"|\[[0-9a-f:.]{2,45}\])(?::(?:[0-9]{1,5}|\*))?"
)
METHOD: Final = "[A-Z][A-Z_-]{0,31}"

_EXPECTED: Final = "an origin such as https://app.example.com or https://*.example.com"
_DEFAULT_PORTS: Final = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}
#: Fetch, 4.6: no script can send these methods.
_FORBIDDEN: Final = frozenset({"CONNECT", "TRACE", "TRACK"})
_is_origin = re.compile(ORIGIN).fullmatch
#: Domains of one label below which one owner has all names.
_OWN_DOMAINS: Final = frozenset({"localhost", "test", "internal", "local", "example", "invalid"})


def read_route_cors(value: Value) -> Cors | None:
    """The setting of a route; None: it is false, or faulty."""
    if value.is_mapping:
        return read_cors(value)
    if not value.is_false:
        value.add_fault("a mapping with origins, or false")
    return None


def read_cors(value: Value) -> Cors | None:
    """The setting; None: it is faulty."""
    given = value.fields(CORS, required=("origins",))
    if given is None or "origins" not in given:
        return None
    cors = Cors(
        origins=setting(given, "origins", _read_origins, ()),
        methods=setting(given, "methods", _read_methods, ()),
        headers=setting(given, "headers", _read_names, DEFAULT_HEADERS),
        expose=setting(given, "expose", _read_names, ()),
        credentials=setting(given, "credentials", Value.flag, False),
        max_age_s=setting(given, "max_age", _read_max_age, None),
    )
    _check(given, cors)
    return cors if cors.origins else None


def _check(given: Fields, cors: Cors) -> None:
    """What cannot be combined."""
    if cors.credentials and ANY in cors.origins:
        given["origins"].add_fault(
            "the origins themselves, as credentials is true: any page could act as the user",
            "any origin",
        )
    if cors.credentials and ANY in cors.expose:
        # Fetch, 4.10: with credentials, "*" is the name of a field.
        given["expose"].add_fault('names, as browsers ignore "*" with credentials', '"*"')


def read_origin(text: str) -> str:
    """An origin as browsers send it, or a pattern. ValueError says what was expected."""
    if text == "null":
        raise ValueError("an origin that is one page's: null is that of any sandboxed page")
    lower = text.lower()
    if text != lower and _is_origin(lower):
        raise ValueError(f"it as browsers send it, in lower case: {lower}")
    if not _is_origin(text):
        raise ValueError(_expected(text))
    scheme, _, rest = text.partition("://")
    host, _, port = rest.rpartition(":") if re.search(r":(?:[0-9]+|\*)\Z", rest) else (rest, "", "")
    if port and port == _DEFAULT_PORTS.get(scheme):
        raise ValueError(f"it as browsers send it, without the default port: {scheme}://{host}")
    if port.isdigit() and not (1 <= int(port) <= 65_535 and port[0] != "0"):
        raise ValueError("a port from 1 to 65535")
    if host.startswith("["):
        try:
            address = f"[{IPv6Address(host[1:-1]).compressed}]"
        except ValueError as exc:
            raise ValueError(_EXPECTED) from exc
        if address != host:
            raise ValueError(f"it as browsers send it: {scheme}://{address}")
    domain = host.removeprefix("*.")
    if domain != host and "." not in domain and domain not in _OWN_DOMAINS:
        raise ValueError(f"a domain with one owner after *., not all of .{domain}")
    return text


def _expected(text: str) -> str:
    """What to write in place of a text that is no origin."""
    if not text.isascii():
        return "a host in ASCII, as browsers send it: xn--… for other letters"
    origin, slash, _ = text.partition("://")[2].partition("/")
    if slash and _is_origin(f"{text.partition('://')[0]}://{origin}"):
        return f"an origin, which has no path: {text.partition('://')[0]}://{origin}"
    if "*" in text:
        return f'{_EXPECTED}: * before the host, for any labels, or for a port; or only "*"'
    return _EXPECTED


def _read_origins(value: Value) -> tuple[str, ...] | None:
    origins = _list(value, f"a list of origins such as {_EXPECTED.partition('such as ')[2]}", _one)
    if origins is None:
        return None
    if not origins and not value.node.value:
        value.add_fault("at least one origin", "an empty list")
    if ANY in origins and len(origins) > 1:
        value.add_fault('"*" alone, or other origins', '"*" and other origins')
        return None
    return origins


def _one(value: Value) -> str | None:
    return value.parsed(read_origin, _EXPECTED)


def _read_methods(value: Value) -> tuple[str, ...] | None:
    methods = _list(value, "a list of methods such as [GET, POST]", _read_method, MOST_NAMES)
    if methods == () and not value.node.value:
        value.add_fault("at least one method", "an empty list")
    return methods


def _read_method(value: Value) -> str | None:
    method = value.matching(METHOD, "a method in capitals such as GET")
    if method in _FORBIDDEN:
        value.add_fault("a method that scripts can send, such as GET")
        return None
    return method


def _read_names(value: Value) -> tuple[str, ...] | None:
    names = _list(value, "a list of header names such as [X-Total-Count]", _read_name, MOST_NAMES)
    if names is not None and ANY in names and len(names) > 1:
        value.add_fault('"*" alone, or names', '"*" and names')
        return None
    return names


def _read_name(value: Value) -> str | None:
    return value.matching(rf"{HEADER_NAME}", "the name of a header such as X-Total-Count")


def _read_max_age(value: Value) -> float | None:
    return value.duration(_max_age)


def _max_age(text: str) -> float:
    seconds = fields.read_duration(text)
    if seconds > MAX_AGE_S or seconds % 1:
        raise ValueError("a duration of whole seconds from 0s to 1d")
    return seconds


def _list(
    value: Value,
    expected: str,
    read: Callable[[Value], str | None],
    most: int = MOST_ENTRIES,
) -> tuple[str, ...] | None:
    """The entries of a list, each once, without faulty ones."""
    items = value.items(expected)
    if items is None:
        return None
    if len(items) > most:
        value.add_fault(f"at most {most} entries", f"{len(items)} entries")
        return None
    return tuple(dict.fromkeys(one for one in map(read, items) if one is not None))
