"""Usage statistics, and their time buckets: plain values.

A request is counted for its key and for its plan, by route and outcome. Counts are kept by the
minute for a day, by the hour for 45 days and by the day for 13 months; a window to read defines its
steps. For each bucket, a bounded number of its busiest keys is kept as well. Calls of tools of MCP
servers are counted a second time, by tool: for their route, with the tool in a route's place.

The measures of answered requests, latencies and bytes, are kept by route: of a plan by the hour
and by the day, of a key by the day only. There are many keys, and a bucket with measures is ten
times as large as one without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.domain.latency import bucket_of, count

Grain = Literal["minute", "hour", "day"]
#: The width of a bucket, in seconds.
GRAIN_S: Final[Mapping[Grain, int]] = {"minute": 60, "hour": 3_600, "day": 86_400}
#: How long a bucket is kept, in seconds: a day, 45 days, 13 months (the longest).
KEPT_S: Final[Mapping[Grain, int]] = {
    "minute": 86_400,
    "hour": 45 * 86_400,
    "day": 397 * 86_400,
}

#: (subject, route, outcome). subject: "key:ID", "plan:NAME" or, if no key is known, "plan:"; or
#: "mcp:ROUTE"; route: a route's name, or "none"; with "mcp:ROUTE" the name of a tool that the
#: policy names, or "other"; outcome: as `outcome_of` or `answered_outcome` returns it.
Counted = tuple[str, str, str]
#: (subject, route).
Measured = tuple[str, str]
#: The classes of statuses of answers.
STATUS_CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time to read, in steps.

    name:  "24h"; "": of dates
    grain: of the buckets that are read
    end_s: Unix time; None: the end of the current step
    """

    name: str
    span_s: int
    step_s: int
    grain: Grain
    end_s: int | None = None


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

    start_s:  Unix time at which it begins
    counts:   (route, outcome) -> requests
    measures: by route; empty if the subject has none in this grain
    """

    start_s: int
    counts: Mapping[tuple[str, str], int]
    measures: Mapping[str, Measures] = field(default_factory=dict)


@dataclass(slots=True)
class Measures:
    """The bytes of the bodies of answered requests, and their latencies: a sketch of `latency`."""

    bytes_in: int = 0
    bytes_out: int = 0
    latencies: dict[int, int] = field(default_factory=dict)

    def add(self, other: Measures) -> None:
        """Add other requests to these."""
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        for number, requests in other.latencies.items():
            self.latencies[number] = self.latencies.get(number, 0) + requests

    def copy(self) -> Measures:
        return Measures(self.bytes_in, self.bytes_out, self.latencies.copy())

    def __bool__(self) -> bool:
        return bool(self.latencies or self.bytes_in or self.bytes_out)


#: The outcome of each hundred of statuses.
_ANSWERED: Final = (
    "",
    *(f"admitted:{hundreds}xx" for hundreds in range(1, 5)),
    *["failed:5xx"] * 5,
)
#: Fewer requests than this are added up one by one.
_FEW: Final = 24


#: In place of a latency: how long the request took says nothing of the upstream.
NONE_S: Final = -1.0


@dataclass(slots=True, eq=False)
class Tally:
    """Answered requests of a key on a route, in one table of a worker.

    table: the one that it is in; None: the table was full
    ended: requests that are not in `outcomes` and `measures` yet: status, latency in seconds (or
           NONE_S), and the bytes of both bodies. Many are added up together, which takes a fifth of
           the time
    """

    table: object
    key_id: str
    plan: str
    route: str
    ended: list[tuple[int, float, int, int]] = field(default_factory=list)
    outcomes: dict[str, int] | None = None
    measures: Measures | None = None

    def add_up(self) -> tuple[dict[str, int], Measures]:
        """Move `ended` to `outcomes` and `measures`; return these. A tunnel has no latency."""
        outcomes = self.outcomes = {} if self.outcomes is None else self.outcomes
        measures = self.measures = Measures() if self.measures is None else self.measures
        ended = self.ended
        if len(ended) < _FEW:
            for status, latency_s, received, sent in ended:
                outcome = _ANSWERED[status // 100]
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                measures.bytes_in += received
                measures.bytes_out += sent
                if status >= 200 and latency_s >= 0:
                    number = bucket_of(latency_s)
                    measures.latencies[number] = measures.latencies.get(number, 0) + 1
        else:
            statuses, seconds, bytes_in, bytes_out = zip(*ended, strict=True)
            if min(statuses) < 200 or min(seconds) < 0:
                seconds = tuple(end[1] for end in ended if end[0] >= 200 and end[1] >= 0)
            for status in set(statuses):
                outcome = _ANSWERED[status // 100]
                outcomes[outcome] = outcomes.get(outcome, 0) + statuses.count(status)
            measures.add(Measures(sum(bytes_in), sum(bytes_out), count(seconds)))
        ended.clear()
        return outcomes, measures


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


def measured_in(subject: str, grain: Grain) -> bool:
    """Does a subject have measures in buckets of this grain?"""
    return grain == "day" or (grain == "hour" and subject.startswith("plan:"))


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
    """The text of an outcome without an answer: "limited:search", "refused:ip_not_allowed".

    decision: as in the access log; detail: of "limited" the limit that refused, of "refused" and
    "failed" the reason; None if there is none
    """
    return decision if detail is None else f"{decision}:{detail}"


def answered_outcome(status: int) -> str:
    """The text of the outcome of an answered request: "admitted:2xx", "failed:5xx".

    Clients treat 600 to 999 as 5xx (RFC 9110, 15). Older counts have "admitted" for any status.
    """
    return _ANSWERED[status // 100]


def status_class(outcome: str) -> str | None:
    """The class of an outcome's status: "2xx"; None: there was no answer, or it is not known."""
    detail = outcome.partition(":")[2]
    return detail if detail in STATUS_CLASSES else None
