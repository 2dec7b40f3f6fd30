"""What one line of an access log says about a request, and the readers of its values.

`log_formats` reads the lines of each format with these functions. Each raises ValueError with the
field, what was found and what was expected. Nothing here trusts the line: texts are bounded, and
what is quoted in an error is short and has no control characters.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address
from typing import Any, Final, Literal, get_args

from gateway.domain.json_text import TooDeep, read_json

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
#: Later times cannot be divided exactly as Lua numbers: the year 2112.
LATEST_US: Final = 2**52
_MOST_COST: Final = 2**32 - 1
#: The most characters of a name, such as a key's id; the longest of the gateway's own has 64.
_MOST_NAME: Final = 256
_TIME_EXPECTED: Final = "a time such as 2026-01-02T03:04:05.000006Z"
_is_number = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,12})?").fullmatch
_is_share = re.compile(r"[0-9](?:\.[0-9]{1,12})?(?:e-[0-9]{1,2})?").fullmatch
#: $time_local of nginx, %t of Apache: 22/Nov/2026:10:37:13 +0000
_local_time = re.compile(
    r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d:\d\d:\d\d) ([+-]\d\d)(\d\d)", re.ASCII
).fullmatch
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)

Decided = Literal["admitted", "limited", "refused", "failed"]
DECISIONS: Final[tuple[Decided, ...]] = get_args(Decided)


@dataclass(frozen=True, slots=True)
class Line:
    """One request, as far as its line has it.

    time_us:   when it came (or, in logs of other servers, ended), Unix microseconds
    method, path: "" if the request could not be read that far; the path may have a query
    key_id:    None: it had no key, or an invalid one
    cost:      None: the line has none
    status:    None: the line has none
    decision:  what happened, as in the gateway's log; None: the line says nothing about it
    reason, limit: why, as in the gateway's log
    is_own:    the gateway itself wrote it, or a line like its
    duration_us: the line was written so long after its time; None: not known
    host:      of the request; None: the line has none
    sample:    the share of such requests that the log has lines of
    """

    time_us: int
    method: str
    path: str
    client_ip: str = ""
    key_id: str | None = None
    account: str | None = None
    plan: str | None = None
    cost: int | None = None
    status: int | None = None
    decision: Decided | None = None
    reason: str | None = None
    limit: str | None = None
    is_own: bool = False
    duration_us: int | None = None
    host: str | None = None
    sample: Decimal = Decimal(1)


def decision_by(status: int | None, *, is_readable: bool) -> Decided | None:
    """What the status of a line without a decision says about it."""
    if status is None:
        return None
    if status == 429:
        return "limited"
    return "refused" if status == 401 or not is_readable else "admitted"


def brief(value: object) -> str:
    """A value for a message: on one line, in ASCII, of bounded length."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, Decimal):
        text = str(value)
    else:
        text = json.dumps(value[:100] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:59] + "…"


def parse_time(text: str) -> int:
    """RFC 3339 as Unix microseconds, exactly; finer digits are cut off. Raises ValueError."""
    try:
        time_us = (datetime.fromisoformat(text) - EPOCH) // _MICROSECOND
    except (ValueError, TypeError, OverflowError):  # TypeError: it has no time zone
        time_us = 0
    return _checked(time_us, text)


def parse_any_time(value: object) -> int:
    """A time as logs of other servers have it, as Unix microseconds. Raises ValueError.

    RFC 3339; the form of nginx and Apache, 22/Nov/2026:10:37:13 +0000; or a Unix time as a number
    or a text, in seconds, milliseconds, microseconds or nanoseconds by its size.
    """
    if isinstance(value, str):
        local = _local_time(value)
        if local is not None:
            return parse_time(_iso(*local.groups()))
        if not _is_number(value):
            return parse_time(value)
    elif type(value) not in (int, Decimal):
        raise ValueError(f"time: found {brief(value)}, expected {_TIME_EXPECTED}")
    number = Decimal(str(value))
    if not number.is_finite() or abs(number) >= 10**20:
        return _checked(0, value)
    for size in (10**11, 10**14, 10**17):  # seconds, milliseconds, microseconds
        if number < size:
            return _checked(int(number * (10**17 // size)), value)
    return _checked(int(number / 1000), value)


def _iso(day: str, month: str, year: str, time: str, hours: str, minutes: str) -> str:
    number = _MONTHS.index(month) + 1 if month in _MONTHS else 0
    return f"{year}-{number:02}-{day}T{time}{hours}:{minutes}"


def _checked(time_us: int, found: object) -> int:
    if not 0 < time_us < LATEST_US:
        raise ValueError(f"time: found {brief(found)}, expected {_TIME_EXPECTED}")
    return time_us


def read_text(field: str, value: object, *, needed: bool = False) -> str | None:
    """A text; None: there is none. needed: not empty, and there must be one. Raises ValueError."""
    if isinstance(value, str) and (value or not needed):
        return value
    if value is None and not needed:
        return None
    raise ValueError(f"{field}: found {brief(value)}, expected a text")


def read_name(field: str, value: object) -> str | None:
    """A short text, such as a key's id; None: there is none. Raises ValueError."""
    text = read_text(field, value)
    if text is not None and len(text) > _MOST_NAME:
        raise ValueError(f"{field}: found {len(text)} characters, expected at most {_MOST_NAME}")
    return text


def read_cost(value: object) -> int | None:
    """A whole number of units; None: there is none. Raises ValueError."""
    if value is not None and (type(value) is not int or not 0 <= value <= _MOST_COST):
        raise ValueError(f"cost: found {brief(value)}, expected a whole number such as 1")
    return value


def read_status(value: object) -> int | None:
    """A status; None: there is none, or nothing was sent (0 or "-"). Raises ValueError."""
    if value in (None, "", "-", "0", 0):
        return None
    status = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{3}", value) else value
    if type(status) is not int or not 100 <= status <= 999:
        raise ValueError(f"status: found {brief(value)}, expected a status such as 200")
    return status


def read_duration(value: object) -> int | None:
    """Milliseconds as microseconds; None: there are none, or no sensible number."""
    if isinstance(value, str) and _is_number(value):
        value = Decimal(value)
    if isinstance(value, Decimal) and not value.is_finite():
        return None
    if not isinstance(value, int | Decimal) or not 0 <= value <= LATEST_US // 1000:
        return None
    return int(value * 1000)


def read_sample(value: object) -> Decimal:
    """The share that a line stands for, 1 if it says none. Raises ValueError."""
    if isinstance(value, str) and _is_share(value):
        value = Decimal(value)
    if value is None:
        return Decimal(1)
    share = Decimal(value) if isinstance(value, int | Decimal) else Decimal(0)
    if not share.is_finite() or not 0 < share <= 1:
        raise ValueError(f"sample: found {brief(value)}, expected a share such as 0.1")
    return share


def read_decision(value: object) -> Decided | None:
    """A decision of the gateway; None: there is none. Raises ValueError."""
    if value is None:
        return None
    for decision in DECISIONS:
        if value == decision:
            return decision
    raise ValueError(f"decision: found {brief(value)}, expected one of {', '.join(DECISIONS)}")


def read_address(text: str) -> str:
    """An address as other servers write it, without its port; any other text as it is."""
    if text.startswith("["):
        host = text[1:].partition("]")[0]
    else:
        host = text.partition(":")[0] if text.count(":") == 1 else text
    try:
        return str(ip_address(host))
    except ValueError:
        return text


def read_target(text: str) -> str:
    """The path of a request target, without its query and, in absolute form, its authority."""
    found = re.match(r"(?i:https?)://[^/?#]*", text)
    path = (text if found is None else text[found.end() :]).partition("?")[0]
    return path or ("/" if text else "")


def split_request(request: str) -> tuple[str, str]:
    """The method and the path of "GET /x?q=1 HTTP/1.1"; ("", "") if it is no request line."""
    method, space, rest = request.partition(" ")
    target, _, version = rest.rpartition(" ")
    if not version.startswith("HTTP/"):
        target = rest  # HTTP/0.9, which has none
    is_request = bool(space) and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}", method)
    if not is_request or not target or target in "-":
        return "", ""
    return method, target if target == "*" else read_target(target)


def as_object(raw: bytes) -> dict[str, Any]:
    """The object of a JSON line; its fractions are Decimals. Raises ValueError."""
    try:
        fields = read_json(raw, parse_float=Decimal)
    except TooDeep:
        raise
    except ValueError:
        raise ValueError("found invalid JSON, expected one JSON object per line") from None
    if not isinstance(fields, dict):
        raise ValueError("found another JSON value, expected an object")
    return fields
