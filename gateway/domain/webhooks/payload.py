"""Reads the JSON of providers: a missing text is "", whatever is in its place, and never null.

No list is read to its end: a webhook of 1 MiB can have half a million of elements.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

#: Dates that `datetime.fromisoformat` does not read as they are: a space before a zone, UTC as a
#: word, more digits than microseconds have.
_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))? ?(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII
).fullmatch
#: The most elements of a list that are read.
MOST_ITEMS: Final = 1_000
#: Later numbers are milliseconds: as seconds, this is the year 5138.
_MOST_SECONDS: Final = 100_000_000_000


def at(payload: Any, path: str) -> Any:
    """The value at these keys, as "a.b.c"; None: there is none."""
    for key in path.split("."):
        if not isinstance(payload, dict):
            return None
        payload = payload.get(key)
    return payload


def text(payload: Any, *paths: str) -> str:
    """The first of these values that is a text or a whole number, as a text; "": none is."""
    for path in paths:
        found = at(payload, path)
        if isinstance(found, str) and found:
            # JSON can have half of a surrogate pair, which UTF-8 cannot.
            return found if found.isascii() else found.encode("utf-8", "replace").decode()
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
    return ""


def items(payload: Any, path: str, most: int = MOST_ITEMS) -> list[Any]:
    """The first elements of the list there; []: there is none."""
    found = at(payload, path)
    return found[:most] if isinstance(found, list) else []


def number(payload: Any, path: str) -> int:
    """The whole number there, also if it is written as a text; 0: there is none."""
    found = text(payload, path)
    return int(found) if re.fullmatch(r"-?[0-9]{1,18}", found) else 0


def moment(value: Any) -> str:
    """A date in one form, "2026-11-23T16:43:58.446Z"; "": it cannot be read.

    value: ISO 8601 with any number of digits and any zone (UTC without one), "2017-12-10 17:01:11
    UTC", or a number of seconds or milliseconds since 1970
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            seconds = value / 1000 if abs(value) > _MOST_SECONDS else value
            return _written(datetime.fromtimestamp(seconds, UTC))
        except (OverflowError, ValueError, OSError):
            return ""
    found = _DATE(value) if isinstance(value, str) else None
    if found is None:
        return ""
    day, time, fraction, zone = found.groups()
    offset = "+00:00" if zone in {None, "Z", "UTC"} else zone
    try:
        read = datetime.fromisoformat(f"{day}T{time}.{(fraction or '0')[:6].ljust(6, '0')}{offset}")
        return _written(read.astimezone(UTC))
    except (OverflowError, ValueError):
        return ""


def _written(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
