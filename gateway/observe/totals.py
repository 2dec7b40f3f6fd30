"""Merges the metrics of several workers.

Workers fill slots, 0 to N-1, one after the other in each slot. A counter never decreases: the last
known values of a slot's ended workers are added to those of its running one. A gauge is only that
of running workers. Each metric defines how the values of slots are merged (`Family.merge`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from gateway.observe.registry import Exemplar, Family, Labels, Merge, Series, Snapshot, Values

_MERGES: Final[dict[Merge, Callable[[float, float], float]]] = {
    "sum": operator.add,
    "max": max,
    "min": min,
}

#: By the metric's name.
_Table = dict[str, tuple[Family, dict[Labels, tuple[float, ...]]]]


class Totals:
    """The metrics of each slot; `snapshot` merges them."""

    def __init__(self) -> None:
        self._latest: dict[int, Snapshot] = {}
        self._carried: dict[int, _Table] = {}
        self._routes: set[str] = set()

    def update(self, slot: int, snapshot: Snapshot) -> None:
        """Set the metrics of the worker in this slot since it started."""
        self._latest[slot] = snapshot
        self._routes |= snapshot.routes
        self._drop_series()

    def remove_worker(self, slot: int) -> None:
        """The worker in this slot has ended. Harmless if none has reported."""
        if (latest := self._latest.pop(slot, None)) is None:
            return
        carried = self._carried.setdefault(slot, {})
        for series in latest.series:
            if series.family.kind in ("counter", "histogram"):
                _merge(carried, series.family, series.values, "sum")

    def snapshot(self) -> Snapshot:
        """The metrics of all slots, merged."""
        merged: _Table = {}
        for slot in sorted(self._latest.keys() | self._carried.keys()):
            for family, values in self._of(slot).values():
                _merge(merged, family, values, family.merge)
        exemplars = self._exemplars()
        return Snapshot(
            tuple(
                Series(family, values, exemplars.get(family.name, {}))
                for family, values in merged.values()
            ),
            self._current_routes(),
        )

    def _exemplars(self) -> dict[str, dict[Labels, dict[int, Exemplar]]]:
        """The latest of running workers, by the metric's name, labels and bucket."""
        latest: dict[str, dict[Labels, dict[int, Exemplar]]] = {}
        for series in chain.from_iterable(each.series for each in self._latest.values()):
            for labels, exemplars in series.exemplars.items():
                known = latest.setdefault(series.family.name, {}).setdefault(labels, {})
                for bucket, exemplar in exemplars.items():
                    if bucket not in known or known[bucket].at_s < exemplar.at_s:
                        known[bucket] = exemplar
        return latest

    def _of(self, slot: int) -> _Table:
        """The metrics of one slot, including ended workers."""
        table: _Table = {}
        latest = self._latest.get(slot)
        for series in () if latest is None else latest.series:
            _merge(table, series.family, series.values, "sum")
        for family, values in self._carried.get(slot, {}).values():
            _merge(table, family, values, "sum")
        return table

    def _current_routes(self) -> frozenset[str]:
        return frozenset(chain.from_iterable(each.routes for each in self._latest.values()))

    def _drop_series(self) -> None:
        """Drop the series of routes that are no longer in the policy, for ended workers."""
        left = self._routes - self._current_routes()
        if not left:
            return
        self._routes -= left
        for family, values in chain.from_iterable(map(dict.values, self._carried.values())):
            if "route" in family.labels:
                at = family.labels.index("route")
                for key in [key for key in values if key[at] in left]:
                    del values[key]


def with_series(snapshot: Snapshot, more: Iterable[Series]) -> Snapshot:
    """The snapshot with more metrics. One that it has gets further values, with other labels."""
    merged = {series.family.name: series for series in snapshot.series}
    for series in more:
        name = series.family.name
        known = merged.get(name)
        merged[name] = series if known is None else _joined(known, series)
    return Snapshot(tuple(merged.values()), snapshot.routes)


def _joined(one: Series, other: Series) -> Series:
    values, exemplars = {**one.values, **other.values}, {**one.exemplars, **other.exemplars}
    return Series(one.family, values, exemplars)


def _merge(table: _Table, family: Family, values: Values, how: Merge) -> None:
    """Merge a set of values into the table."""
    _, known = table.setdefault(family.name, (family, {}))
    merge = _MERGES[how]
    for key, value in values.items():
        earlier = known.get(key)
        known[key] = value if earlier is None else tuple(map(merge, earlier, value))
