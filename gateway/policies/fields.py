"""Parsers of texts: rates, durations, sizes, servers, patterns of paths.

Each function parses a text from a policy file or the command line, and returns the value or raises
ValueError. The error's text is only what was expected ("a rate such as 30/minute …"); callers add
what was found.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from gateway.domain.calendar import zone_info
from gateway.domain.headers import is_forwarded
from gateway.domain.limits import MAX_AMOUNT, PERIODS_US, Limit, build_rate
from gateway.domain.networks import Network, parse_network
from gateway.domain.path_patterns import ANY, MOST_ANY, ONE, normal
from gateway.domain.patterns import HEADER_NAME, NAME, PER
from gateway.domain.rewrites import encoded
from gateway.domain.upstreams import Server

#: A century, which is still exact in microseconds.
MAX_DURATION_S: Final = 36_500 * 86_400
#: The most segments of a pattern: matching recurses once for each.
MAX_SEGMENTS: Final = 64

PERMISSION: Final = rf"{NAME}:{NAME}"
_DIGITS: Final = r"[0-9]+(?:_[0-9]+)*"
RATE_EXPECTED: Final = "a rate such as 30/minute (units: second, minute, hour, day)"
QUOTA_EXPECTED: Final = "a quota such as 10000/day (units: second, minute, hour, day, week, month)"
RATE: Final = rf"({_DIGITS}) *\/ *(second|minute|hour|day)"
QUOTA: Final = rf"({_DIGITS}) *\/ *(second|minute|hour|day|week|month)"
#: Of deliveries to a watch.
DELIVERY_RATE: Final = rf"({_DIGITS}) *\/ *(second|minute|hour)"
DELIVERY_RATE_EXPECTED: Final = "a rate such as 10/second (units: second, minute, hour)"
#: A name of the IANA time zone database.
ZONE: Final = r"[A-Z][A-Za-z0-9_+-]{0,31}(?:/[A-Za-z0-9_+-]{1,31}){0,2}"
ZONE_EXPECTED: Final = "a time zone such as Europe/Berlin"
#: Windows that are too long for a rate, which counts in sixtieths of its window.
LONGER: Final = rf"{_DIGITS} *\/ *(?:week|month)"
LONGER_EXPECTED: Final = (
    "a rate per second, minute, hour or day such as 30/minute; per week or month use quota"
)
DURATION: Final = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)"
SIZE: Final = rf"({_DIGITS}) ?(B|KB|KiB|MB|MiB|GB|GiB)"
#: From 0% to 100%, with up to four digits after the point.
PERCENT: Final = r"(?:100(?:\.0{1,4})?|[0-9]{1,2}(?:\.[0-9]{1,4})?)%"
#: The least one above 0%.
_LEAST_PERCENT: Final = 0.0001
#: A header name, or a prefix that ends in "-*". Other characters are synonyms of "-", see
#: `gateway.domain.headers`.
TRUSTED_ONLY: Final = r"[A-Za-z0-9][A-Za-z0-9-]{0,63}(?:-\*)?"
_METHOD: Final = "[A-Z][A-Z0-9_-]*"
METHODS: Final = rf"\*|{_METHOD}(?: *, *{_METHOD})*"
#: Keys of JSON objects, separated by dots, or "." for the body itself.
JSON_PATH: Final = r"\.|[A-Za-z0-9_$-]{1,64}(?:\.[A-Za-z0-9_$-]{1,64}){0,7}"
SERVER: Final = r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?(/[^\s?#]*)?"
PATH: Final = r"/\S*"
#: The name of SRV records, which have the ports. At least one letter: it is no address.
SRV: Final = r"srv\+(https?)://([0-9._-]*[A-Za-z][A-Za-z0-9._-]*)"
MATCH: Final = rf"({METHODS}) +(/\S*)"
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
#: A segment of any text, with its name.
_NAMED_SEGMENT: Final = re.compile(r"\{([A-Za-z0-9_-]{1,64})\}")
#: In a decoded segment: what could be read in two ways, or as a wildcard.
_AMBIGUOUS: Final = re.compile(r"[\x00-\x1f\x7f/\\;*?#]|%[0-9A-Fa-f]{2}|[. ]\Z")
#: Headers that may carry a key: their values must not be part of a counter's name.
_SECRET_HEADERS: Final = ("authorization", "apikey", "cookie", "proxy-authorization")


def read_rate(text: str) -> tuple[int, int]:
    """Amount and window in microseconds: "30/minute" is (30, 60_000_000)."""
    if re.fullmatch(LONGER, text.strip(" ")):
        raise ValueError(LONGER_EXPECTED)
    return _read_amount(text, RATE, RATE_EXPECTED)


def read_quota(text: str) -> tuple[int, int]:
    """The same for a quota, also per week and month."""
    return _read_amount(text, QUOTA, QUOTA_EXPECTED)


def read_delivery_rate(text: str) -> tuple[int, int]:
    """The same for the rate of a watch, per hour at most."""
    return _read_amount(text, DELIVERY_RATE, DELIVERY_RATE_EXPECTED)


def read_zone(text: str) -> str:
    """The name of a time zone that this machine knows."""
    if not re.fullmatch(ZONE, text) or text == "Factory":  # a placeholder of the database
        raise ValueError(ZONE_EXPECTED)
    try:
        zone_info(text)
    except (OSError, ValueError, KeyError) as exc:  # a folder of zones, no zone, an unknown name
        raise ValueError(f"{ZONE_EXPECTED}, as the IANA database names it") from exc
    return text


def _read_amount(text: str, pattern: str, expected: str) -> tuple[int, int]:
    found = re.fullmatch(pattern, text.strip(" "))
    if not found:
        raise ValueError(expected)
    return _amount(found[1]), PERIODS_US[found[2]]


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


def read_percent(text: str) -> float:
    """A percentage, which may be 0: "0.5%" is 0.5."""
    return _percent(text, 0.0)


def read_some_percent(text: str) -> float:
    """A percentage above 0."""
    return _percent(text, _LEAST_PERCENT)


def read_share(text: str) -> float:
    """A share of all, above 0: "20%" is 0.2."""
    return read_some_percent(text) / 100


def _percent(text: str, least: float) -> float:
    if not re.fullmatch(PERCENT, text) or float(text[:-1]) < least:
        raise ValueError(f"a percentage from {least:g}% to 100% such as 10%")
    return float(text[:-1])


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


def read_header(text: str) -> str:
    """A header that a cost is read from, in lower case."""
    if not re.fullmatch(HEADER_NAME, text) or text.lower() in _SECRET_HEADERS:
        raise ValueError("the name of a header that carries no secret, such as X-Items")
    if not is_forwarded(text):
        raise ValueError("a header that is forwarded unchanged to the upstream")
    return text.lower()


def read_json_path(text: str) -> tuple[str, ...]:
    """Keys from the outermost object on; "." is none, the body itself."""
    if not re.fullmatch(JSON_PATH, text):
        raise ValueError("an array's key such as ids or data.ids, or . for the whole body")
    return tuple(text.split(".")) if text != "." else ()


def read_trusted_only(text: str) -> str:
    """A header that only trusted proxies may send; "X-Envoy-*" is a prefix."""
    if not re.fullmatch(TRUSTED_ONLY, text):
        raise ValueError("a header's name such as X-Client-IP, or a prefix such as X-Envoy-*")
    if not is_forwarded(text.removesuffix("*")):
        raise ValueError("a header that is forwarded unchanged to the upstream")
    return text


def read_server(text: str) -> Server:
    """A server of an upstream: scheme, host and port, and perhaps a base path."""
    expected = "an address such as http://127.0.0.1:9000 (http or https, a port up to 65535)"
    srv = re.fullmatch(SRV, text)
    if srv:
        return Server(srv[1], srv[2].lower(), _PORTS[srv[1]], srv=True)
    if text.startswith("srv+"):
        raise ValueError("a name of SRV records such as srv+http://_api._tcp.example.com, no port")
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
    base = read_literals(found[4], "a base path such as /v1") if found[4] else []
    return Server(scheme, host, port, b"".join(b"/" + encoded(word) for word in base).decode())


class Match(NamedTuple):
    """A pattern of requests, as `Route` has it."""

    method: str
    segments: tuple[str, ...]
    rest: bool
    names: tuple[str, ...] = ()


def read_match(text: str) -> Match:
    """A pattern of requests: "GET /api/search/*" is ("GET", ("api", "search"), True)."""
    found = re.fullmatch(MATCH, text.strip(" "))
    if not found:
        raise ValueError(_match_expected(text))
    methods = found[1].replace(" ", "").split(",")
    if len(set(methods)) < len(methods):
        raise ValueError("each method once")
    # A slash at the end is ignored: /a/ and /a are one path.
    written = found[2].removesuffix("/").split("/")[1:]
    if len(written) > MAX_SEGMENTS:
        raise ValueError(f"a path of at most {MAX_SEGMENTS} segments")
    if written[-1:] == [ONE]:
        written[-1] = ANY
    if written.count(ANY) > MOST_ANY:
        raise ValueError(f"at most {MOST_ANY} ** in a path (a /* at its end is one, too)")
    names = list(map(read_named, written))
    for name in filter(None, names):
        if names.count(name) > 1:
            raise ValueError(f"segments with different names, not {{{name}}} twice")
    segments = [
        ONE if name else read_segment(word) for name, word in zip(names, written, strict=True)
    ]
    named_stars = iter([name for name, word in zip(names, segments, strict=True) if word == ONE])
    path = normal(segments)
    rest = path[-1:] == (ANY,)
    path = path[:-1] if rest else path
    names = [next(named_stars) if word == ONE else "" for word in path]
    return Match(",".join(methods), path, rest, tuple(names) if any(names) else ())


def read_named(word: str) -> str:
    """The name of a segment that is written as {name}; "": it is none."""
    named = _NAMED_SEGMENT.fullmatch(word)
    return named[1] if named else ""


def _match_expected(text: str) -> str:
    if "/" not in text:
        return (
            "a method and a path such as GET /api/search/*, and quotes around it if it has a comma "
            'or braces: "GET,POST /api/items/{id}"'
        )
    if "*" in text.partition("/")[0].strip(" "):
        return "a path after *, which is any method, such as * /api/search/*"
    return "methods in capitals or *, and a path, such as GET /api/search/* or GET,POST /api/items"


def read_segment(text: str) -> str:
    """One segment of a pattern, decoded like the path of a request before matching."""
    if text in {ONE, ANY}:
        return text
    if not text:
        raise ValueError("a path without empty segments")
    if "*" in text and "{" not in text:
        raise ValueError("* and ** only as whole segments")
    if text[0] + text[-1] == "{}":
        raise ValueError(
            f"a name of up to 64 letters, digits, _ and - in the braces, unlike {text!r}"
        )
    if "{" in text or "}" in text:
        raise ValueError(f"braces only around a whole segment, as in /{{name}}, unlike {text!r}")
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


def split_path(text: str, expected: str) -> list[str]:
    """The segments of a path as they are written; a slash at its end is ignored.

    Raises ValueError, with `expected` if it is none.
    """
    if not re.fullmatch(PATH, text):
        raise ValueError(expected)
    words = text.removesuffix("/").split("/")[1:]
    if len(words) > MAX_SEGMENTS:
        raise ValueError(f"a path of at most {MAX_SEGMENTS} segments")
    return words


def read_literals(text: str, expected: str) -> list[str]:
    """The segments of a path without wildcards, decoded. Raises ValueError."""
    words = [read_segment(word) for word in split_path(text, expected)]
    if ONE in words or ANY in words:
        raise ValueError(f"{expected}, without wildcards")
    return words
