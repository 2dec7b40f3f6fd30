"""The kinds of metrics: counting, and snapshots."""

from __future__ import annotations

from gateway.observe.registry import Family, Labels, Registry, Values


def values_of(registry: Registry) -> dict[str, Values]:
    return {series.family.name: dict(series.values) for series in registry.snapshot().series}


def test_counts_by_label() -> None:
    """A label's value has a series from its first count until it is deleted."""
    registry = Registry()
    counter = registry.counter("lapsed", "Leases that ran out.", "limit")
    gauge = registry.gauge("open", "Open connections.", "side", "state", merge="min")
    assert values_of(registry) == {"lapsed": {}, "open": {}}
    counter["mcp",] += 2
    gauge["upstream", "idle"] -= 1
    assert values_of(registry) == {
        "lapsed": {("mcp",): (2,)},
        "open": {("upstream", "idle"): (-1,)},
    }
    del counter["mcp",]
    assert values_of(registry)["lapsed"] == {}


def test_a_number_is_looked_up() -> None:
    """A value is read when a snapshot is taken; None: it has no series."""
    known: list[float] = []
    registry = Registry()
    registry.number("gauge", "age", "Seconds.", lambda: known[-1] if known else None)
    assert values_of(registry) == {"age": {}}
    known.append(4.5)
    assert values_of(registry) == {"age": {(): (4.5,)}}


def test_histograms() -> None:
    """A value at a bound is in its bucket; one above all bounds is counted; the sum comes last."""
    registry = Registry()
    one = registry.histogram("wait", "Seconds.", (1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 3.0):
        one.add(value)
    many = registry.histograms("took", "Seconds.", "route", (1.0,))
    many["search"].add(2.0)
    assert values_of(registry) == {"wait": {(): (2, 1, 1, 6.0)}, "took": {("search",): (0, 1, 2.0)}}
    families = {series.family.name: series.family for series in registry.snapshot().series}
    assert families["took"] == Family("histogram", "took", "Seconds.", ("route",), "sum", (1.0,))


def test_a_snapshot_stays_as_it_was() -> None:
    """Later counts do not change it."""
    registry = Registry()
    counter = registry.counter("lapsed", "Leases that ran out.", "limit")
    key: Labels = ("mcp",)
    counter[key] += 1
    before = registry.snapshot(frozenset(("search",)))
    counter[key] += 1
    assert before.series[0].values == {key: (1,)}
    assert before.routes == {"search"}
