"""Metrics of any kind: families, their series, and a snapshot of all of them.

A worker counts in plain dicts and lists, because it does so several times per request. `Registry`
creates them, and takes a `Snapshot`: a plain value that can be sent to another process and merged
with those of others (`totals`), and then formatted for Prometheus (`exposition`).

All of this belongs to one event loop: there are no locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram", "info"]
#: How the values of several workers are merged.
Merge = Literal["sum", "max", "min"]
Labels = tuple[str | int, ...]
#: By labels: one number, or for a histogram the number in each bucket and then the sum.
Values = Mapping[Labels, tuple[float, ...]]


class Exemplar(NamedTuple):
    """A value in a bucket, and its request's trace. trace_id: in hexadecimal; at_s: Unix time"""

    trace_id: str
    value: float
    at_s: float


#: By labels: of each bucket that has one, the latest.
Exemplars = Mapping[Labels, Mapping[int, Exemplar]]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric. name: without "gateway_" and "_total"; bounds: the buckets of a histogram"""

    kind: Kind
    name: str
    text: str
    labels: tuple[str, ...] = ()
    merge: Merge = "sum"
    bounds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """A metric and its values at one time. exemplars: of a histogram"""

    family: Family
    values: Values
    exemplars: Exemplars = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All metrics at one time. routes: those of the policy in effect, whose series are kept"""

    series: tuple[Series, ...] = ()
    routes: frozenset[str] = frozenset()


class Histogram:
    """The number of values in each bucket (the last: above all bounds), and their sum."""

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        #: None: there are none.
        self.exemplars: dict[int, Exemplar] | None = None
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def exemplify(self, exemplar: Exemplar) -> None:
        """Set the exemplar of its value's bucket."""
        if self.exemplars is None:
            self.exemplars = {}
        self.exemplars[bisect_left(self.bounds, exemplar.value)] = exemplar

    def values(self) -> tuple[float, ...]:
        return (*self.counts, self.total)


def _none() -> Exemplars:
    return {}


class Registry:
    """The metrics of one worker, each with a function that returns its values."""

    def __init__(self) -> None:
        self._sources: list[tuple[Family, Callable[[], Values], Callable[[], Exemplars]]] = []

    def snapshot(self, routes: frozenset[str] = frozenset()) -> Snapshot:
        """All metrics as they are now; about a millisecond with 1,000 routes."""
        return Snapshot(
            tuple(
                Series(family, values(), exemplars()) for family, values, exemplars in self._sources
            ),
            routes,
        )

    def add(
        self,
        family: Family,
        values: Callable[[], Values],
        exemplars: Callable[[], Exemplars] = _none,
    ) -> None:
        """Add a metric whose values are computed for each snapshot."""
        self._sources.append((family, values, exemplars))

    def counter(
        self, name: str, text: str, *labels: str, merge: Merge = "sum"
    ) -> defaultdict[Labels, int]:
        """Add a counter; returns a dict to count in, by labels."""
        return self._counts(Family("counter", name, text, labels, merge))

    def gauge(
        self, name: str, text: str, *labels: str, merge: Merge = "sum"
    ) -> defaultdict[Labels, int]:
        """Add a gauge; returns a dict of its current values, by labels."""
        return self._counts(Family("gauge", name, text, labels, merge))

    def _counts(self, family: Family) -> defaultdict[Labels, int]:
        counts: defaultdict[Labels, int] = defaultdict(int)
        self.add(family, lambda: {key: (count,) for key, count in counts.items()})
        return counts

    def number(
        self,
        kind: Literal["counter", "gauge"],
        name: str,
        text: str,
        read: Callable[[], float | None],
        merge: Merge = "sum",
    ) -> None:
        """Add a metric without labels. read: returns its current value; None: it has none"""

        def values() -> Values:
            value = read()
            return {} if value is None else {(): (value,)}

        self.add(Family(kind, name, text, (), merge), values)

    def histogram(self, name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
        """Add a histogram without labels."""
        histogram = Histogram(bounds)
        family = Family("histogram", name, text, (), "sum", bounds)
        self.add(
            family, lambda: {(): histogram.values()}, lambda: _exemplars({(): histogram}.items())
        )
        return histogram

    def histograms(
        self, name: str, text: str, label: str, bounds: tuple[float, ...]
    ) -> defaultdict[str, Histogram]:
        """Add histograms; returns a dict of them by the value of the label."""
        histograms = defaultdict[str, Histogram](lambda: Histogram(bounds))
        family = Family("histogram", name, text, (label,), "sum", bounds)
        self.add(
            family,
            lambda: {(key,): each.values() for key, each in histograms.items()},
            lambda: _exemplars(((key,), each) for key, each in histograms.items()),
        )
        return histograms


def _exemplars(histograms: Iterable[tuple[Labels, Histogram]]) -> Exemplars:
    """Copies of those that have any."""
    return {labels: dict(each.exemplars) for labels, each in histograms if each.exemplars}
