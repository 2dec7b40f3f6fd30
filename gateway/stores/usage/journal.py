r"""Journals of use: where what was counted of keys lies until its minute is over.

To count in the buckets of a key takes the store ten times as long as to take the words in. With
many keys in use, few of them come twice within a second, and nearly every request would cost that.
So what a worker writes each second is appended to one of a bounded number of texts, and counted in
the buckets once a minute.

gw:{keys}:usage:journal:SHARD:MINUTE:WRITER   a text of lines "\nKEY|REQUESTS|ROUTE|OUTCOME"
gw:{keys}:usage:open:SHARD                    set of those that there are: "MINUTE:WRITER"

MINUTE is when it begins, Unix time; a key is always of the same shard. A journal that nobody
settles is kept for a month.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final
from zlib import crc32

from gateway.domain.usage import Counted
from gateway.stores.records import KEYS_TAG

#: So few that each takes in many lines at once, so many that none of them is large.
SHARDS: Final = 64
KEPT_S: Final = 31 * 86_400
#: No journal is longer: a worker's table of 100,000 counts, written each second of a minute, makes
#: one of 4 to 5 MB. A longer one would cost the reader its connection.
MOST_BYTES: Final = 8 * 1024 * 1024
#: The most journals of a shard that are looked at in one go, and how long what they are called is;
#: the most that a reader looks at: each worker has three or so open at a time.
MOST_LABELS: Final = 10_000
MOST_LABELS_READ: Final = 2_000
MOST_LABEL: Final = 64
_JOURNAL: Final = KEYS_TAG + "usage:journal:"
_OPEN: Final = KEYS_TAG + "usage:open:"
_KEY: Final = "key:"
#: What the gateway writes as a number; a much longer one would be no integer to Python.
_NUMBER: Final = re.compile("[0-9]{1,15}")


def shard_of(subject: str) -> int:
    """Where the lines of a key are."""
    return crc32(subject.encode()) % SHARDS


def beginning(subject: str) -> str:
    """What all lines of a key begin with, and no other's."""
    return f"\n{subject[len(_KEY) :]}|"


def open_name(shard: int) -> str:
    """The set of a shard's journals."""
    return f"{_OPEN}{shard}"


def names_begin(shard: int) -> str:
    """What the names of a shard's journals begin with; a label follows."""
    return f"{_JOURNAL}{shard}:"


def label_of(minute_s: int, writer: str) -> str:
    """What a journal is called among those of its shard."""
    return f"{minute_s}:{writer}"


def read_label(label: bytes) -> tuple[int, str] | None:
    """Minute and writer; None: this is not of ours."""
    try:
        minute, colon, writer = label.decode().partition(":")
    except UnicodeDecodeError:
        return None
    return (int(minute), writer) if colon and _NUMBER.fullmatch(minute) else None


def sort_labels(
    members: Iterable[bytes],
) -> tuple[dict[str, tuple[int, str]], list[bytes]]:
    """The labels among these members, each with its minute and writer; and what is none."""
    labels: dict[str, tuple[int, str]] = {}
    foreign: list[bytes] = []
    for member in members:
        read = read_label(member)
        if read is None:
            foreign.append(member)
        else:
            labels[member.decode()] = read
    return labels, foreign


def line(counted: Counted, requests: int) -> str:
    """What a journal has of a key's requests."""
    subject, route, outcome = counted
    return f"\n{subject[len(_KEY) :]}|{requests}|{route}|{outcome}"


def write_lines(counts: Iterable[tuple[Counted, int]]) -> dict[int, str]:
    """What to append to the journal of each shard. Every subject is a key."""
    shards: dict[int, list[str]] = {}
    for counted, requests in counts:
        shard = shard_of(counted[0])
        lines = shards.get(shard)
        if lines is None:
            lines = shards[shard] = []
        lines.append(line(counted, requests))
    return {shard: "".join(lines) for shard, lines in shards.items()}


def read_lines(text: bytes) -> Mapping[Counted, int]:
    """All that a journal has counted. Lines that are not of ours count nothing."""
    counts: dict[Counted, int] = {}
    # Most lines of a key are the same, second by second: each is read once.
    for line, times in Counter(text.split(b"\n")).items():
        parts = line.decode("utf-8", "replace").split("|", 3)
        if len(parts) == 4 and _NUMBER.fullmatch(parts[1]):
            key_id, requests, route, outcome = parts
            counted = _KEY + key_id, route, outcome
            counts[counted] = counts.get(counted, 0) + int(requests) * times
    return counts
