r"""Journals of usage: the requests of keys, until their minute is over.

Counting in a key's buckets takes the store ten times as long as appending a line. With many keys in
use, few of them occur twice within a second, and nearly every request would cost that. So a worker
appends its counts to a bounded number of texts every second or so, and merges the texts into the
buckets once a minute.

gw:{keys}:usage:journal:SHARD:MINUTE:WRITER   a text of lines "\nKEY|REQUESTS|ROUTE|OUTCOME", and
                                              "\nKEY|+|ROUTE|MEASURES"
gw:{keys}:usage:open:SHARD                    set of the existing journals: "MINUTE:WRITER"

MINUTE is when it begins, Unix time; a key is always in the same shard. A journal that is not merged
is kept for a month.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final
from zlib import crc32

from gateway.domain.usage import Counted, Measures
from gateway.stores.usage.measures import pack, unpack

#: Few enough that each gets many lines at once, and many enough that none of them is large.
SHARDS: Final = 64
KEPT_S: Final = 31 * 86_400
#: The longest journal. A worker's table of 100,000 entries, written each second of a minute, makes
#: one of 6 to 7 MB. A longer one would close the reader's connection.
MOST_BYTES: Final = 8 * 1024 * 1024
#: The most journals of a shard that are merged at a time, and that are read for one key (each
#: worker has about three at a time); and the longest label.
MOST_LABELS: Final = 10_000
MOST_LABELS_READ: Final = 2_000
MOST_LABEL: Final = 64
_KEY: Final = "key:"
_MEASURES: Final = "+"

#: The requests of a key, route and outcome; or with the outcome "" the measures of the route.
Value = int | Measures
#: A number that the gateway writes; Python refuses to parse much longer ones.
_NUMBER: Final = re.compile("[0-9]{1,15}")


def shard_of(subject: str) -> int:
    """The shard of a key's lines."""
    return crc32(subject.encode()) % SHARDS


def line_prefix(subject: str) -> str:
    """The prefix of all lines of a key, and of no other key's lines."""
    return f"\n{subject[len(_KEY) :]}|"


def label_of(minute_s: int, writer: str) -> str:
    """The label of a journal among those of its shard."""
    return f"{minute_s}:{writer}"


def read_label(label: bytes) -> tuple[int, str] | None:
    """Minute and writer of a label; None: the gateway has not written it."""
    try:
        minute, colon, writer = label.decode().partition(":")
    except UnicodeDecodeError:
        return None
    return (int(minute), writer) if colon and _NUMBER.fullmatch(minute) else None


def sort_labels(
    members: Iterable[bytes],
) -> tuple[dict[str, tuple[int, str]], list[bytes]]:
    """The labels among these members, each with its minute and writer; and the other members."""
    labels: dict[str, tuple[int, str]] = {}
    foreign: list[bytes] = []
    for member in members:
        read = read_label(member)
        if read is None:
            foreign.append(member)
        else:
            labels[member.decode()] = read
    return labels, foreign


def write_line(counted: Counted, value: Value) -> str:
    """The line for a key's requests or measures."""
    subject, route, outcome = counted
    key_id = subject[len(_KEY) :]
    if isinstance(value, Measures):
        return f"\n{key_id}|{_MEASURES}|{route}|{pack(value)}"
    return f"\n{key_id}|{value}|{route}|{outcome}"


def write_lines(values: Iterable[tuple[Counted, Value]]) -> dict[int, str]:
    """The lines to append to the journal of each shard. Every subject is a key."""
    shards: dict[int, list[str]] = {}
    for counted, value in values:
        shard = shard_of(counted[0])
        lines = shards.get(shard)
        if lines is None:
            lines = shards[shard] = []
        lines.append(write_line(counted, value))
    return {shard: "".join(lines) for shard, lines in shards.items()}


def read_lines(text: bytes) -> Mapping[Counted, Value]:
    """The values of a journal. Lines that the gateway has not written are ignored."""
    requests: dict[Counted, int] = {}
    measures: dict[Counted, Measures] = {}
    # Most lines of a key are equal, second by second: each is parsed once.
    for line, times in Counter(text.split(b"\n")).items():
        parts = line.decode("utf-8", "replace").split("|", 3)
        if len(parts) != 4:
            continue
        key_id, amount, route, rest = parts
        if amount == _MEASURES:
            if (some := unpack(rest)) is not None:
                found = measures.setdefault((_KEY + key_id, route, ""), Measures())
                for _ in range(times):
                    found.add(some)
        elif rest and _NUMBER.fullmatch(amount):
            counted = _KEY + key_id, route, rest
            requests[counted] = requests.get(counted, 0) + int(amount) * times
    return {**requests, **measures}
