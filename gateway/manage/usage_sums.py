"""Sums of usage over a span of time: by step, by outcome, by status class, and by route."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from gateway.domain.keys import KeyRecord
from gateway.domain.latency import QUANTILES, quantile
from gateway.domain.usage import STATUS_CLASSES, Bucket, Measures, Window, status_class

Group = Literal["admitted", "limited", "refused", "failed"]
GROUPS: Final[tuple[Group, ...]] = ("admitted", "limited", "refused", "failed")


@dataclass(frozen=True, slots=True)
class Point:
    """One step of a report. start_s: its start, Unix time; counts: requests by outcome"""

    start_s: int
    counts: Mapping[str, int]


@dataclass(slots=True)
class Sum:
    """Requests of any number of buckets.

    counts:   by outcome; "admitted" whatever the status
    statuses: by class of the status, of answered requests; older ones have none
    measures: None: none are kept for so short a time
    """

    counts: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    measures: Measures | None = None

    @property
    def requests(self) -> int:
        return sum(self.counts.values())

    @property
    def groups(self) -> dict[str, int]:
        return grouped(self.counts)

    def count(self, outcome: str, requests: int) -> None:
        """Add requests; outcome: as in the store."""
        shown = "admitted" if group(outcome) == "admitted" else outcome
        self.counts[shown] = self.counts.get(shown, 0) + requests
        if (status := status_class(outcome)) is not None:
            self.statuses[status] = self.statuses.get(status, 0) + requests

    def measure(self, measures: Measures) -> None:
        """Add the measures of requests."""
        if self.measures is None:
            self.measures = Measures()
        self.measures.add(measures)

    def add(self, other: Sum) -> None:
        """Add another sum."""
        for mine, its in ((self.counts, other.counts), (self.statuses, other.statuses)):
            for name, requests in its.items():
                mine[name] = mine.get(name, 0) + requests
        if other.measures is not None:
            self.measure(other.measures)

    def latency(self, name: str) -> float | None:
        """A quantile of the latencies, seconds: "p95"; None: unknown."""
        return None if self.measures is None else quantile(self.measures.latencies, QUANTILES[name])


@dataclass(slots=True)
class UsageReport:
    """The usage of one or more subjects in a window.

    start_s, end_s: Unix time
    total, routes:  all of it, and by route
    cells:          by step and route, without those without requests
    measured_s:     the span of the measures: whole hours or days, so perhaps a longer one
    """

    window: Window
    start_s: int
    end_s: int
    measured_s: tuple[int, int]
    total: Sum = field(default_factory=Sum)
    routes: dict[str, Sum] = field(default_factory=dict)
    cells: dict[tuple[int, str], Sum] = field(default_factory=dict)

    @property
    def totals(self) -> Mapping[str, int]:
        """Requests by outcome."""
        return self.total.counts

    @property
    def points(self) -> tuple[Point, ...]:
        """Every step, by time."""
        steps: dict[int, dict[str, int]] = {}
        for (at_s, _), cell in self.cells.items():
            counts = steps.setdefault(at_s, {})
            for outcome, requests in cell.counts.items():
                counts[outcome] = counts.get(outcome, 0) + requests
        return tuple(
            Point(at_s, steps.get(at_s, {}))
            for at_s in range(self.start_s, self.end_s, self.window.step_s)
        )

    def count(self, buckets: Iterable[Bucket], *, with_measures: bool) -> None:
        """Add the requests of buckets."""
        cells = dict[tuple[int, str], Sum]()
        for bucket in buckets:
            at_s = bucket.start_s - (bucket.start_s - self.start_s) % self.window.step_s
            for (route, outcome), requests in bucket.counts.items():
                cells.setdefault((at_s, route), Sum()).count(outcome, requests)
            if with_measures:
                for route, measures in bucket.measures.items():
                    cells.setdefault((at_s, route), Sum()).measure(measures)
        # There are fewer cells than counts.
        routes = dict[str, Sum]()
        for (at_s, route), cell in cells.items():
            known = self.cells.setdefault((at_s, route), cell)
            if known is not cell:
                known.add(cell)
            routes.setdefault(route, Sum()).add(cell)
        for route, one in routes.items():
            self._route(route).add(one)
            self.total.add(one)

    def measure(self, buckets: Iterable[Bucket]) -> None:
        """Add only the measures of buckets, which may be wider than a step."""
        for bucket in buckets:
            for route, measures in bucket.measures.items():
                self.total.measure(measures)
                self._route(route).measure(measures)

    def add(self, other: UsageReport) -> None:
        """Add the usage of other subjects in the same window."""
        self.total.add(other.total)
        for route, one in other.routes.items():
            self._route(route).add(one)
        for (at_s, route), one in other.cells.items():
            self._cell(at_s, route).add(one)

    def of_route(self, route: str) -> UsageReport:
        """The part of one route."""
        found = UsageReport(self.window, self.start_s, self.end_s, self.measured_s)
        if route in self.routes:
            found.total = found.routes[route] = self.routes[route]
        found.cells = {at: cell for at, cell in self.cells.items() if at[1] == route}
        return found

    def _route(self, route: str) -> Sum:
        return self.routes.setdefault(route, Sum())

    def _cell(self, at_s: int, route: str) -> Sum:
        return self.cells.setdefault((at_s, route), Sum())


def group(outcome: str) -> Group:
    """The group of an outcome: "limited:search" is "limited"."""
    word = outcome.partition(":")[0]
    return word if word in GROUPS else "failed"


def grouped(counts: Mapping[str, int]) -> dict[str, int]:
    """Requests by group (all four), from requests by outcome."""
    sums: dict[str, int] = dict.fromkeys(GROUPS, 0)
    for outcome, requests in counts.items():
        sums[group(outcome)] += requests
    return sums


def busiest_routes(report: UsageReport) -> list[tuple[str, Sum]]:
    """The routes, the one with the most requests first."""
    return _by(report, lambda one: one.requests)


def slowest_routes(report: UsageReport) -> list[tuple[str, Sum]]:
    """The routes whose latency is known, the one with the highest p95 first."""
    found = _by(report, lambda one: one.latency("p95") or 0.0)
    return [(route, one) for route, one in found if one.latency("p95") is not None]


def _by(report: UsageReport, weight: Callable[[Sum], float]) -> list[tuple[str, Sum]]:
    return sorted(report.routes.items(), key=lambda pair: (-weight(pair[1]), pair[0]))


def report_as_json(report: UsageReport) -> dict[str, object]:
    """The report as the admin API and the commands' JSON show it."""
    return {
        "window": report.window.name or None,
        "from": moment(report.start_s),
        "to": moment(report.end_s),
        "step_seconds": report.window.step_s,
        "requests": report.total.requests,
        "totals": dict(report.totals),
        "groups": report.total.groups,
        "statuses": _statuses(report.total),
        "measures": {
            "from": moment(report.measured_s[0]),
            "to": moment(report.measured_s[1]),
            **measures_as_json(report.total),
        },
        "routes": {route: dict(one.counts) for route, one in sorted(report.routes.items())},
        "points": [
            {"start": moment(point.start_s), "counts": dict(point.counts)}
            for point in report.points
        ],
    }


def account_usage_as_json(
    name: str, parts: Iterable[tuple[KeyRecord, Sum]], whole: UsageReport
) -> dict[str, object]:
    """The usage of an account. parts: of its keys; whole: their sum"""
    keys = [
        {"id": record.id, "name": record.name, **sum_as_json(one)}
        for record, one in sorted(parts, key=lambda part: -part[1].requests)
        if one.counts
    ]
    return {"account": name, **report_as_json(whole), "keys": keys}


def route_as_json(route: str, one: Sum) -> dict[str, object]:
    """The usage of a route as the admin API shows it."""
    return {"route": route, **sum_as_json(one)}


def sum_as_json(one: Sum) -> dict[str, object]:
    """Requests and measures."""
    return {
        "requests": one.requests,
        "totals": dict(one.counts),
        "groups": one.groups,
        "statuses": _statuses(one),
        "measures": measures_as_json(one),
    }


def measures_as_json(one: Sum) -> dict[str, object]:
    """Bytes and quantiles; null: unknown."""
    measures = one.measures
    return {
        "bytes_in": None if measures is None else measures.bytes_in,
        "bytes_out": None if measures is None else measures.bytes_out,
        "latency_ms": {name: milliseconds(one.latency(name)) for name in QUANTILES},
    }


def milliseconds(seconds: float | None) -> float | None:
    """With two significant digits, as a quantile has no more."""
    return None if seconds is None else float(f"{seconds * 1_000:.2g}")


def _statuses(one: Sum) -> dict[str, int]:
    return {name: one.statuses.get(name, 0) for name in STATUS_CLASSES}


def moment(at_s: int) -> str:
    """A time as in JSON: "2026-07-01T12:00:05Z"."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
