r"""How usage lies in Redis: in texts, each with the buckets of one subject. Names, and reading.

gw:{keys}:usage:SUBJECT       the open hour: the minutes of the last hour that it was used in
gw:{keys}:usage:SUBJECT:m:N   the minutes of the hours before it, in the Nth six hours since 1970
gw:{keys}:usage:SUBJECT:h:N   the hours before it, in the Nth nine days
gw:{keys}:usage:SUBJECT:d:N   the days without it, in the Nth 93 days

`lua/usage.lua` describes the texts, and writes them: each minute one short text, and three more
when an hour is over. What is read here may be anything that somebody wrote there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from gateway.domain.usage import GRAIN_S, Grain
from gateway.stores.records import KEYS_TAG

USAGE: Final = KEYS_TAG + "usage:"
#: What lies in one text, in seconds. A longer period keeps its first buckets longer than they are
#: wanted, and a shorter one takes more names, of some 180 bytes each.
PERIOD_S: Final[Mapping[Grain, int]] = {
    "minute": 6 * 3_600,
    "hour": 9 * 86_400,
    "day": 93 * 86_400,
}

#: Route and outcome.
Name = tuple[str, str]
Counts = dict[Name, int]

#: All numbers have the base 36; longer ones than this are none of ours.
_NUMBER: Final = "[0-9a-z]{1,10}"
_NEWEST: Final = re.compile(rf"({_NUMBER}):(.*)")
_OLDER: Final = re.compile(rf"([^:]*)(?::({_NUMBER}))?")
_COUNT: Final = re.compile(rf"({_NUMBER})(?:@({_NUMBER}))?")


@lru_cache(maxsize=8_192)
def spell(route: str, outcome: str) -> str:
    """What is counted, as it stands in a text; percent-encoding keeps any name in its place."""
    return f"{quote(route, safe='')}|{quote(outcome, safe=':')}"


@lru_cache(maxsize=8_192)
def open_name(subject: str) -> str:
    """The text of a subject's open hour; percent-encoding keeps any name in its place."""
    kind, _, name = subject.partition(":")
    return f"{USAGE}{kind}:{quote(name, safe='')}"


def text_names(subject: str, grain: Grain, start_s: int, end_s: int) -> list[str]:
    """The texts that may have something of this time, that of the open hour first."""
    opened = open_name(subject)
    width_s = PERIOD_S[grain]
    periods = range(start_s // width_s, -(-end_s // width_s))
    return [opened, *(f"{opened}:{grain[0]}:{period}" for period in periods)]


def read_text(content: bytes, grain: Grain) -> Iterator[tuple[int, Counts]]:
    """When each bucket of a text begins, Unix time, and what was counted in it; newest first."""
    names_line, *lines = content.decode("utf-8", "replace").split("\n")
    newest = _NEWEST.fullmatch(lines[0]) if lines else None
    if newest is None:
        return
    names = [_read_name(name) for name in names_line.split(",") if name]
    number, counts = int(newest[1], 36), newest[2]
    yield number * GRAIN_S[grain], _read_counts(counts, names)
    for line in lines[1:]:
        older = _OLDER.fullmatch(line)
        if older is None:
            # Nobody knows how far back the next one is.
            return
        number -= int(older[2] or "1", 36)
        yield number * GRAIN_S[grain], _read_counts(older[1], names)


def _read_name(text: str) -> Name:
    route, _, outcome = text.partition("|")
    return unquote(route), unquote(outcome)


def _read_counts(text: str, names: list[Name]) -> Counts:
    counts: Counts = {}
    place = 0
    for word in text.split(","):
        count = _COUNT.fullmatch(word)
        if count is None:
            return {}
        place = place if count[2] is None else int(count[2], 36)
        if place < len(names):
            counts[names[place]] = counts.get(names[place], 0) + int(count[1], 36)
        place += 1
    return counts
