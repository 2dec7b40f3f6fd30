r"""The texts of usage in Redis, each with buckets of one subject: their names, and their parser.

gw:{keys}:usage:SUBJECT       the open hour: the minutes of the last hour with requests
gw:{keys}:usage:SUBJECT:m:N   the minutes of the hours before it, in the Nth six hours since 1970
gw:{keys}:usage:SUBJECT:h:N   the hours before it, in the Nth nine days
gw:{keys}:usage:SUBJECT:d:N   the days, without the open hour, in the Nth 93 days

`lua/usage.lua` describes the texts, and writes them: each minute one short text, and three more
when an hour is over. A text is untrusted input, as others may write to the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from gateway.domain.usage import GRAIN_S, Grain
from gateway.stores.names import usage_name

#: The period of one text, in seconds. A longer one keeps its first buckets longer than needed, and
#: a shorter one takes more names, of some 180 bytes each.
PERIOD_S: Final[Mapping[Grain, int]] = {
    "minute": 6 * 3_600,
    "hour": 9 * 86_400,
    "day": 93 * 86_400,
}

#: The most bytes of a text, as in `lua/usage.lua`: longer ones are ignored.
MOST_TEXT: Final = 2_000_000

#: Route and outcome.
Name = tuple[str, str]
Counts = dict[Name, int]

#: A number in base 36; the gateway writes none that is longer.
_NUMBER: Final = "[0-9a-z]{1,10}"
_NEWEST: Final = re.compile(rf"({_NUMBER}):(.*)")
_OLDER: Final = re.compile(rf"([^:]*)(?::({_NUMBER}))?")
_COUNT: Final = re.compile(rf"({_NUMBER})(?:@({_NUMBER}))?")


@lru_cache(maxsize=8_192)
def write_name(route: str, outcome: str) -> str:
    """Route and outcome as a name in a text, percent-encoded: both may be any text."""
    return f"{quote(route, safe='')}|{quote(outcome, safe=':')}"


def text_names(subject: str, grain: Grain, start_s: int, end_s: int) -> list[str]:
    """The texts that may have buckets of this time, that of the open hour first."""
    opened = usage_name(subject)
    width_s = PERIOD_S[grain]
    periods = range(start_s // width_s, -(-end_s // width_s))
    return [opened, *(f"{opened}:{grain[0]}:{period}" for period in periods)]


def read_text(content: bytes, grain: Grain) -> Iterator[tuple[int, Counts]]:
    """The start of each bucket of a text, Unix time, and its counts; newest first.

    As many as a period has at most: what follows is not the gateway's.
    """
    most = PERIOD_S[grain] // GRAIN_S[grain]
    names_line, *lines = content.decode("utf-8", "replace").split("\n", most + 1)[: most + 1]
    newest = _NEWEST.fullmatch(lines[0]) if lines else None
    if newest is None:
        return
    names = [_read_name(name) for name in names_line.split(",") if name]
    number, counts = int(newest[1], 36), newest[2]
    yield number * GRAIN_S[grain], _read_counts(counts, names)
    for line in lines[1:]:
        older = _OLDER.fullmatch(line)
        if older is None:
            # The start of the next bucket is unknown.
            return
        number -= int(older[2] or "1", 36)
        yield number * GRAIN_S[grain], _read_counts(older[1], names)


def _read_name(text: str) -> Name:
    route, _, outcome = text.partition("|")
    return unquote(route), unquote(outcome)


def _read_counts(text: str, names: list[Name]) -> Counts:
    counts: Counts = {}
    place = 0
    # The gateway writes each name once.
    for word in text.split(",", len(names))[: len(names)]:
        count = _COUNT.fullmatch(word)
        if count is None:
            return {}
        place = place if count[2] is None else int(count[2], 36)
        if place < len(names):
            counts[names[place]] = counts.get(names[place], 0) + int(count[1], 36)
        place += 1
    return counts
