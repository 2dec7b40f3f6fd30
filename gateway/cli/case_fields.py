"""Single values of test files: durations, times, addresses, headers, statuses.

Every reader returns None if the value is not as expected, after adding a fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from gateway.cli.log_lines import LATEST_US, parse_time
from gateway.domain.limits import SECOND_US
from gateway.domain.networks import Address, parse_address
from gateway.domain.patterns import HEADER_NAME
from gateway.http1.head import is_host
from gateway.policies.faults import quoted
from gateway.policies.fields import read_duration
from gateway.policies.values import Value

#: Names and values, in order.
Headers = tuple[tuple[str, str], ...]
#: The status of a request that the gateway admits: the upstream answers it.
ADMITTED: Final = "admitted"
#: The most requests of a step; 20,000 are decided in a second.
MOST_TIMES: Final = 100_000
MOST_TITLE: Final = 200
_YEAR_US: Final = 366 * 86_400 * SECOND_US
#: The method and the target of a request line.
SEND: Final = r"[A-Z][A-Z_-]{0,31} [\x21-\x7e]+"
#: The value of a header: no line breaks or other control characters.
HEADER_VALUE: Final = r"[^\x00-\x08\x0a-\x1f\x7f]*"
_BODY_EXPECTED: Final = "a text, or a mapping or a list, which is sent as JSON"
_SEND_EXPECTED: Final = (
    "a method in capitals and a path such as GET /v1/connectors, with other characters than ASCII "
    "as %XX"
)
_HOST_EXPECTED: Final = "a host such as api.example.com, without scheme and path"
#: When a test may begin: before the latest time there is a year for its waits.
_LATEST_US: Final = LATEST_US - _YEAR_US


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request. media_type: of its Content-Type; "": it has none"""

    content: bytes
    media_type: str


def read_title(value: Value) -> str | None:
    text = value.text("a name, which says what should happen")
    if text is not None and not (text.isprintable() and 0 < len(text) <= MOST_TITLE):
        value.add_fault(f"1 to {MOST_TITLE} printable characters")
    return text


def read_line(value: Value) -> str | None:
    return value.matching(SEND, _SEND_EXPECTED)


def read_host(value: Value) -> str | None:
    text = value.text(_HOST_EXPECTED)
    if text is not None and not (text.isascii() and is_host(text.encode("ascii"))):
        value.add_fault(_HOST_EXPECTED)
        return None
    return text


def read_times(value: Value) -> int | None:
    return value.integer(1, MOST_TIMES)


def read_known(value: Value, names: Collection[str]) -> str | None:
    return value.choice(*names)


def read_amount(value: Value) -> int | None:
    return value.integer(0, 2**52)


def read_status(value: Value) -> str | int | None:
    if value.is_text and value.node.value == ADMITTED:
        return ADMITTED
    expected = f"{ADMITTED}, or a status of the gateway from 400 to 599"
    text = str(value.plain())
    if re.fullmatch(r"[45][0-9]{2}", text):
        return int(text)
    is_upstreams = re.fullmatch(r"[123][0-9]{2}", text)
    value.add_fault(f"{ADMITTED}, as the upstream answers then" if is_upstreams else expected)
    return None


def read_span(value: Value) -> int | None:
    """A duration in microseconds."""
    seconds = value.duration(read_duration)
    if seconds is None:
        return None
    if seconds * SECOND_US > _YEAR_US:
        value.add_fault("a duration up to 366d")
        return None
    return round(seconds * SECOND_US)


def read_moment(value: Value) -> int | None:
    """A time with its zone, as Unix microseconds."""
    try:
        at_us = parse_time(str(value.plain()))
    except ValueError:
        at_us = _LATEST_US
    if at_us < _LATEST_US:
        return at_us
    value.add_fault("a time from 1970 to 2111 such as 2027-01-31T23:59:00Z")
    return None


def read_address(value: Value) -> Address | None:
    try:
        return parse_address(str(value.plain()))
    except ValueError:
        value.add_fault("an IP address such as 192.0.2.7")
        return None


def read_headers(value: Value) -> Headers | None:
    """Names and values; a list of values is a line for each."""
    found: list[tuple[str, str]] = []
    for name, each in (value.entries("a mapping from names of headers to values") or {}).items():
        if not re.fullmatch(HEADER_NAME, name):
            each.add_fault("the name of a header", f"the key {quoted(name)}")
        plain = each.plain()
        for item in plain if isinstance(plain, list) else [plain]:
            if isinstance(item, bool) or not isinstance(item, str | int):
                each.add_fault("a text, or a list of texts")
            elif not re.fullmatch(HEADER_VALUE, str(item)):
                each.add_fault("a text without control characters")
            else:
                found.append((name, str(item)))
    return tuple(found)


def read_body(value: Value) -> Body | None:
    """A text is sent as it is; a mapping or a list as JSON."""
    plain = value.plain()
    if isinstance(plain, dict | list):
        return Body(json.dumps(plain).encode(), "application/json")
    text = value.text(_BODY_EXPECTED)
    return None if text is None else Body(text.encode(), "")
