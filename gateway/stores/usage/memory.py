"""Usage in process, for memory:// and tests."""

from __future__ import annotations

from collections.abc import MutableMapping
from copy import deepcopy
from functools import partial
from typing import Any

from gateway.domain.ports import UsageBatch
from gateway.domain.usage import (
    BUSY_KEPT_S,
    GRAIN_S,
    KEPT_S,
    Bucket,
    Grain,
    Measures,
    bucket_start,
    busiest_of,
    measured_in,
    note_busy,
)


class MemoryUsageStore:
    """domain.ports.UsageStore over dictionaries; it never raises StoreDown."""

    def __init__(self) -> None:
        #: By grain, by the bucket's start and by subject.
        self._counts: dict[Grain, dict[int, dict[str, dict[tuple[str, str], int]]]]
        self._counts = {grain: {} for grain in GRAIN_S}
        self._measures: dict[Grain, dict[int, dict[str, dict[str, Measures]]]]
        self._measures = {grain: {} for grain in GRAIN_S}
        self._busiest: dict[Grain, dict[int, dict[str, int]]] = {grain: {} for grain in GRAIN_S}
        #: By the kind of subject.
        self._named: dict[str, set[str]] = {"plan": set(), "mcp": set()}
        self._numbers: dict[str, int] = {}

    async def add(self, batch: UsageBatch) -> None:
        """Count a batch in all of its buckets."""
        if batch.number <= self._numbers.get(batch.writer, 0):
            return
        self._numbers[batch.writer] = batch.number
        for (subject, route, outcome), requests in batch.counts.items():
            kind, _, name = subject.partition(":")
            if kind in self._named:
                self._named[kind].add(name)
            for grain in GRAIN_S:
                bucket = self._counts[grain].setdefault(bucket_start(grain, batch.minute_s), {})
                counts = bucket.setdefault(subject, {})
                counts[route, outcome] = counts.get((route, outcome), 0) + requests
        for (subject, route), measures in batch.measures.items():
            for grain in filter(partial(measured_in, subject), GRAIN_S):
                at_s = bucket_start(grain, batch.minute_s)
                routes = self._measures[grain].setdefault(at_s, {}).setdefault(subject, {})
                routes.setdefault(route, Measures()).add(measures)
        noted = busiest_of(batch.counts)
        for grain in GRAIN_S:
            start_s = bucket_start(grain, batch.minute_s)
            note_busy(self._busiest[grain].setdefault(start_s, {}), noted)
        self._expire(batch.minute_s)

    async def merge(self, writer: str, now_s: int) -> None:
        """Do nothing: `add` counts a batch at once."""

    async def read(self, subject: str, grain: Grain, start_s: int, end_s: int) -> list[Bucket]:
        """The buckets of a subject that begin from `start_s` on and before `end_s`, by time."""
        return [
            Bucket(
                at_s,
                dict(bucket[subject]),
                deepcopy(self._measures[grain].get(at_s, {}).get(subject, {})),
            )
            for at_s, bucket in sorted(self._counts[grain].items())
            if start_s <= at_s < end_s and subject in bucket
        ]

    async def plans(self) -> list[str]:
        """The plans with any usage, by name."""
        return sorted(self._named["plan"])

    async def mcp_routes(self) -> list[str]:
        """The routes with calls of tools, by name."""
        return sorted(self._named["mcp"])

    async def busiest(
        self, grain: Grain, start_s: int, end_s: int, count: int
    ) -> list[tuple[str, int]]:
        """The ids of the busiest keys of these buckets, and their requests; most first."""
        sums: dict[str, int] = {}
        for at_s, bucket in self._busiest[grain].items():
            if start_s <= at_s < end_s:
                for key_id, requests in bucket.items():
                    sums[key_id] = sums.get(key_id, 0) + requests
        return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))[:count]

    def _expire(self, now_s: int) -> None:
        """Drop buckets that have expired."""
        for grain in GRAIN_S:
            for buckets in (self._counts[grain], self._measures[grain]):
                _drop(buckets, now_s - KEPT_S[grain] - GRAIN_S[grain])
            _drop(self._busiest[grain], now_s - BUSY_KEPT_S[grain] - GRAIN_S[grain])


def _drop(buckets: MutableMapping[int, Any], before_s: int) -> None:
    for at_s in [at_s for at_s in buckets if at_s < before_s]:
        del buckets[at_s]
