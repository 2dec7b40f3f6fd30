"""Parsers of texts: rates, durations, sizes, servers, patterns of paths.

Each function parses a text from a policy file or the command line, and returns the value or raises
ValueError. The error's text is only what was expected ("a rate such as 30/minute …"); callers add
what was found.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import unquote_to_bytes

from gateway.domain.headers import is_forwarded
from gateway.domain.limits import MAX_AMOUNT, UNITS_US, Limit, build_rate
from gateway.domain.networks import Network, parse_network
from gateway.domain.patterns import NAME, PER
from gateway.domain.policy import Server

#: A century, which is still exact in microseconds.
MAX_DURATION_S: Final = 36_500 * 86_400
#: The most segments of a pattern: matching recurses once for each.
MAX_SEGMENTS: Final = 64

PERMISSION: Final = rf"{NAME}:{NAME}"
_DIGITS: Final = r"[0-9]+(?:_[0-9]+)*"
RATE_EXPECTED: Final = "a rate such as 30/minute (units: second, minute, hour, day)"
QUOTA_EXPECTED: Final = "a quota such as 10000/day (units: second, minute, hour, day)"
RATE: Final = rf"({_DIGITS}) *\/ *(second|minute|hour|day)"
DURATION: Final = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)"
SIZE: Final = rf"({_DIGITS}) ?(B|KB|KiB|MB|MiB|GB|GiB)"
#: A header name, or a prefix that ends in "-*". Other characters are synonyms of "-", see
#: `gateway.domain.headers`.
TRUSTED_ONLY: Final = r"[A-Za-z0-9][A-Za-z0-9-]{0,63}(?:-\*)?"
METHOD: Final = r"\*|[A-Z][A-Z0-9_-]*"
SERVER: Final = r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?"
MATCH: Final = rf"({METHOD}) +(/\S*)"
#: RFC 3986, 3.3 and 3.4: a path and a query, sent unchanged.
HEALTH_PATH: Final = r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}){0,1023}"
#: RFC 6797, 6.1: max-age in seconds, and directives after it. The quoted form is not supported.
HSTS: Final = r"max-age=[0-9]{1,10}(?: *; *[A-Za-z][A-Za-z0-9-]{0,63}){0,8}"
#: An http or https URL without a fragment, by the characters of RFC 3986.
URL: Final = r"https?://[A-Za-z0-9\[](?:[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2}){0,1023}"

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_BYTES: Final = {
    **{"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
}
_PORTS: Final = {"http": 80, "https": 443}
#: The characters of a segment: pchar of RFC 3986 except ";", which begins parameters.
_PLAIN_SEGMENT: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,=:@-]|%[0-9A-Fa-f]{2}|[^\x00-\xa0])+")
#: In a decoded segment: what could be read in two ways, or as a wildcard.
_AMBIGUOUS: Final = re.compile(r"[\x00-\x1f\x7f/\\;*?#]|%[0-9A-Fa-f]{2}|[. ]\Z")
#: Headers that may carry a key: their values must not be part of a counter's name.
_SECRET_HEADERS: Final = ("authorization", "apikey", "cookie", "proxy-authorization")


def read_rate(text: str, expected: str = RATE_EXPECTED) -> tuple[int, int]:
    """Amount and window in microseconds: "30/minute" is (30, 60_000_000)."""
    found = re.fullmatch(RATE, text.strip(" "))
    if not found:
        raise ValueError(expected)
    return _amount(found[1]), UNITS_US[found[2]]


def read_quota(text: str) -> tuple[int, int]:
    """The same for a quota."""
    return read_rate(text, QUOTA_EXPECTED)


def parse_rate(text: str, *, name: str = "plan", burst: int | None = None) -> Limit:
    """A limit from its short form: a plan's, or a key's override ("300/minute")."""
    amount, window_us = read_rate(text)
    return build_rate(name, amount, window_us, burst)


def _amount(digits: str) -> int:
    # int() of a text with thousands of digits is slow, and raises an error with another text.
    amount = int(digits) if len(digits) <= 32 else MAX_AMOUNT + 1
    if not 1 <= amount <= MAX_AMOUNT:
        raise ValueError(f"an amount from 1 to {MAX_AMOUNT}")
    return amount


def read_duration(text: str) -> float:
    """Seconds: "10s" is 10.0, "50ms" 0.05, "1.5h" 5400.0."""
    found = re.fullmatch(DURATION, text.strip(" "))
    if not found:
        raise ValueError("a duration such as 10s (units: ms, s, m, h, d)")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if seconds > MAX_DURATION_S:
        raise ValueError("a duration up to 36500d")
    return seconds


def read_size(text: str) -> int:
    """Bytes: "32KiB" is 32768, "10MB" 10000000."""
    found = re.fullmatch(SIZE, text.strip(" "))
    if not found or len(found[1]) > 32:
        raise ValueError("bytes such as 32768 or 32KiB (units: B, KB, KiB, MB, MiB, GB, GiB)")
    return int(found[1]) * _BYTES[found[2]]


def read_network(text: str) -> Network:
    """A range of addresses, or one address."""
    try:
        return parse_network(text)
    except ValueError as exc:
        raise ValueError(
            "an address or a CIDR range such as 10.0.0.0/8, with no host bits set"
        ) from exc


def read_per(text: str) -> str:
    """The subject of a limit; a header's name in lower case."""
    if not re.fullmatch(PER, text):
        raise ValueError("key, account, ip or header:NAME")
    kind, colon, name = text.partition(":")
    if name.lower() in _SECRET_HEADERS:
        raise ValueError("key, or a header that carries no secret")
    if name and not is_forwarded(name):
        raise ValueError("a header that is forwarded unchanged to the upstream")
    return kind + colon + name.lower()


def read_trusted_only(text: str) -> str:
    """A header that only trusted proxies may send; "X-Envoy-*" is a prefix."""
    if not re.fullmatch(TRUSTED_ONLY, text):
        raise ValueError("a header's name such as X-Client-IP, or a prefix such as X-Envoy-*")
    if not is_forwarded(text.removesuffix("*")):
        raise ValueError("a header that is forwarded unchanged to the upstream")
    return text


def read_server(text: str) -> Server:
    """A server of an upstream: scheme, host and port, nothing else."""
    expected = (
        "an address such as http://127.0.0.1:9000 (http or https, a port up to 65535, no path)"
    )
    found = re.fullmatch(SERVER, text)
    if not found:
        raise ValueError(expected)
    scheme, host = found[1], found[2].lower()
    port = int(found[3]) if found[3] else _PORTS[scheme]
    if not 1 <= port <= 65_535:
        raise ValueError(f"a port from 1 to 65535, not {port}")
    if host.startswith("["):
        try:
            host = str(IPv6Address(host[1:-1]))
        except ValueError as exc:
            raise ValueError(expected) from exc
    return Server(scheme, host, port)


def read_match(text: str) -> tuple[str, tuple[str, ...], bool]:
    """Method, segments, and whether any further segments match as well.

    "GET /api/search/*" is ("GET", ("api", "search"), True).
    """
    found = re.fullmatch(MATCH, text.strip(" "))
    if not found:
        raise ValueError("a method in capitals or *, and a path, such as GET /api/search/*")
    method, path = found[1], found[2]
    # A slash at the end is ignored: /a/ and /a are one path.
    written = path.removesuffix("/").split("/")[1:]
    if len(written) > MAX_SEGMENTS:
        raise ValueError(f"a path of at most {MAX_SEGMENTS} segments")
    rest = bool(written) and written[-1] in {"*", "**"}
    if rest:
        written.pop()
    return method, tuple(map(_segment, written)), rest


def _segment(text: str) -> str:
    """One segment of a pattern, decoded like the path of a request before matching."""
    if text == "*":
        return text
    if not text:
        raise ValueError("a path without empty segments")
    if text == "**":
        raise ValueError("** only as the last segment")
    if "*" in text:
        raise ValueError("* only as a whole segment")
    if not _PLAIN_SEGMENT.fullmatch(text):
        raise ValueError(f"a path whose segments are plain or percent-encoded, unlike {text!r}")
    try:
        segment = unquote_to_bytes(text).decode()
    except UnicodeDecodeError as exc:
        raise ValueError(f"a path that is UTF-8 once decoded, unlike {text!r}") from exc
    if segment in {".", ".."}:
        raise ValueError("a path without dot segments")
    if _AMBIGUOUS.search(segment):
        raise ValueError(f"a path with only one spelling, unlike {text!r}")
    return segment
