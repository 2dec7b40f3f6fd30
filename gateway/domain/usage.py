"""Usage statistics, and their time buckets: plain values.

A request is counted for its key and for its plan, by route and outcome. Counts are kept by the
minute for a day, by the hour for 45 days and by the day for 13 months; a window to read defines its
steps. For each bucket, a bounded number of its busiest keys is kept as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Grain = Literal["minute", "hour", "day"]
#: The width of a bucket, in seconds.
GRAIN_S: Final[Mapping[Grain, int]] = {"minute": 60, "hour": 3_600, "day": 86_400}
#: How long a bucket is kept, in seconds: a day, 45 days, 13 months (the longest).
KEPT_S: Final[Mapping[Grain, int]] = {
    "minute": 86_400,
    "hour": 45 * 86_400,
    "day": 397 * 86_400,
}

#: (subject, route, outcome). subject: "key:ID", "plan:NAME" or, if no key is known, "plan:";
#: route: a route's name, or "none"; outcome: as `outcome_of` returns it.
Counted = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time to read, in steps. name: "24h"; grain: of the buckets that are read"""

    name: str
    span_s: int
    step_s: int
    grain: Grain


WINDOWS: Final[Mapping[str, Window]] = {
    window.name: window
    for window in (
        Window("1h", 3_600, 60, "minute"),
        Window("24h", 86_400, 900, "minute"),
        Window("7d", 7 * 86_400, 7_200, "hour"),
        Window("30d", 30 * 86_400, 86_400, "day"),
    )
}


@dataclass(frozen=True, slots=True)
class Bucket:
    """The counts of one subject in one bucket.

    start_s: Unix time at which it begins
    counts:  (route, outcome) -> requests
    """

    start_s: int
    counts: Mapping[tuple[str, str], int]


@dataclass(slots=True, eq=False)
class Tally:
    """Admitted requests of a key on a route, in one table of a worker.

    table: the one that it is in; None: the table was full
    """

    table: object
    key_id: str
    plan: str
    route: str
    requests: int


#: The most busy keys kept of a bucket; there may be twice as many until some are dropped.
MOST_BUSY: Final = 256
#: The most busy keys noted of a batch: noting all keys would cost more than counting them.
MOST_NOTED: Final = 20
#: How long the busiest keys of a bucket are kept: as long as the windows that use them.
BUSY_KEPT_S: Final[Mapping[Grain, int]] = {
    "minute": 3_600,
    "hour": 7 * 86_400,
    "day": 30 * 86_400,
}


def bucket_start(grain: Grain, at_s: int) -> int:
    """The beginning of the bucket that a time is in."""
    return at_s - at_s % GRAIN_S[grain]


def busiest_of(counts: Mapping[Counted, int]) -> dict[str, int]:
    """The busiest keys of a batch, MOST_NOTED at most: id -> requests."""
    sums: dict[str, int] = {}
    for (subject, _, _), requests in counts.items():
        kind, _, name = subject.partition(":")
        if kind == "key":
            sums[name] = sums.get(name, 0) + requests
    if len(sums) <= MOST_NOTED:
        return sums
    return dict(sorted(sums.items(), key=lambda pair: -pair[1])[:MOST_NOTED])


def note_busy(bucket: dict[str, int], noted: Mapping[str, int]) -> None:
    """Add keys to a bucket, and drop its least busy keys if there are too many."""
    for key_id, requests in noted.items():
        bucket[key_id] = bucket.get(key_id, 0) + requests
    if len(bucket) > 2 * MOST_BUSY:
        for key_id in sorted(bucket, key=lambda known: (bucket[known], known))[:-MOST_BUSY]:
            del bucket[key_id]


def outcome_of(decision: str, detail: str | None) -> str:
    """The text of an outcome: "admitted", "limited:search", "refused:ip_not_allowed".

    decision: as in the access log; detail: of "limited" the limit that refused, of "refused" and
    "failed" the reason; None if there is none; ignored with "admitted"
    """
    return decision if detail is None or decision == "admitted" else f"{decision}:{detail}"
