"""The texts of measures: in journals, in the text of an open hour, and as names in closed texts.

1a.7f3.1c.2.1d.1   hexadecimal: bytes in, bytes out, and each bucket of latencies with its requests

The open hour's text begins with a line of them, if there are any: "~ROUTE=1a.…;ROUTE=…+ROUTE=…".
Before the "+" is a sum; what came since is appended, and added up only when it is long, as adding
up takes longer. Closed texts have a count for each number, with names of this module as outcomes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

from gateway.domain.latency import LAST
from gateway.domain.usage import Measures

#: The longest line of measures, as in `lua/usage.lua`: a longer one is ignored.
MOST_LINE: Final = 200_000
_BYTES_IN: Final = "~i"
_BYTES_OUT: Final = "~o"
_LATENCY: Final = re.compile("~([0-9a-f]{2})")
#: The gateway writes no longer number; LAST has two digits.
_PACKED: Final = re.compile(r"[0-9a-f]{1,13}(?:\.[0-9a-f]{1,13})*")
_SEPARATORS: Final = re.compile("[;+]")

Counts = Mapping[tuple[str, str], int]


def pack(measures: Measures) -> str:
    """Measures as a text."""
    numbers = [measures.bytes_in, measures.bytes_out]
    for number, requests in measures.latencies.items():
        numbers += (number, requests)
    return ".".join([f"{number:x}" for number in numbers])


def unpack(text: str) -> Measures | None:
    """Measures of a text; None: the gateway has not written it."""
    if _PACKED.fullmatch(text) is None:
        return None
    numbers = [int(number, 16) for number in text.split(".")]
    if len(numbers) % 2:
        return None
    latencies: dict[int, int] = {}
    for place, requests in zip(numbers[2::2], numbers[3::2], strict=True):
        if place > LAST:
            return None
        latencies[place] = latencies.get(place, 0) + requests
    return Measures(numbers[0], numbers[1], latencies)


def write_entries(entries: Iterable[tuple[str, Measures]]) -> str:
    """The measures of routes, to append to the line of an open hour."""
    return ";".join(f"{quote(route, safe='')}={pack(measures)}" for route, measures in entries)


def split_line(text: bytes) -> tuple[dict[str, Measures], bytes]:
    """The measures in the first line of the open hour's text, and the other lines."""
    if not text.startswith(b"~"):
        return {}, text
    line, _, rest = text.partition(b"\n")
    found: dict[str, Measures] = {}
    if len(line) <= MOST_LINE:
        for entry in _SEPARATORS.split(line[1:].decode("utf-8", "replace")):
            route, _, packed = entry.partition("=")
            if route and (measures := unpack(packed)) is not None:
                found.setdefault(unquote(route), Measures()).add(measures)
    return found, rest


def split_counts(counts: Counts) -> tuple[dict[tuple[str, str], int], dict[str, Measures]]:
    """The requests among the counts of a closed text, and the measures by route."""
    requests: dict[tuple[str, str], int] = {}
    found: dict[str, Measures] = {}
    for (route, name), amount in counts.items():
        if not name.startswith("~"):
            requests[route, name] = amount
            continue
        measures = found.setdefault(route, Measures())
        if name == _BYTES_IN:
            measures.bytes_in += amount
        elif name == _BYTES_OUT:
            measures.bytes_out += amount
        elif (place := _LATENCY.fullmatch(name)) and (number := int(place[1], 16)) <= LAST:
            measures.latencies[number] = amount
    return requests, found
