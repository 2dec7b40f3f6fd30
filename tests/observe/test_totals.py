"""The totals of several workers, through restarts and reloads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.metrics import Metrics
from gateway.observe.registry import Exemplar, Family, Labels, Series, Snapshot
from gateway.observe.totals import Totals, with_series
from tests.kit.reach import reached, reaches


def a_worker(requests: int = 0, routes: tuple[str, ...] = ("api",)) -> Metrics:
    metrics = Metrics("1")
    metrics.policy_loaded("abc", 1_700_000_000.0, routes)
    for _ in range(requests):
        metrics.ended("api", "GET", 200, "upstream", 0.02, "backend", 0.01)
    return metrics


def value(totals: Totals, name: str, *labels: str | int) -> tuple[float, ...] | None:
    for series in totals.snapshot().series:
        if series.family.name == name:
            return series.values.get(labels)
    return None


def test_the_latest_exemplar_of_running_workers_is_shown() -> None:
    """Of each bucket one; those of ended workers are dropped."""
    totals = Totals()
    for slot, (trace, at_s) in enumerate([("a", 1.0), ("b", 3.0), ("c", 2.0)]):
        worker = a_worker(1)
        worker.exemplify("api", 0.02, "backend", 0.01, trace, at_s)
        totals.update(slot, worker.snapshot())

    def shown() -> dict[str, dict[int, Exemplar]]:
        series = totals.snapshot().series
        return {each.family.name: found for each in series for found in each.exemplars.values()}

    assert {name: list(found.values()) for name, found in shown().items()} == {
        "request_duration_seconds": [("b", 0.02, 3.0)],
        "upstream_duration_seconds": [("b", 0.01, 3.0)],
        "overhead_seconds": [("b", 0.01, 3.0)],
    }
    totals.remove_worker(1)
    assert [each.trace_id for each in shown()["overhead_seconds"].values()] == ["c"]


API = ("api", "GET", 200, "upstream")


def test_counters_and_histograms_add_up() -> None:
    """Counters, buckets and sums are added up."""
    totals = Totals()
    totals.update(0, a_worker(2).snapshot())
    totals.update(1, a_worker(3).snapshot())
    assert value(totals, "requests", *API) == (5,)
    durations = value(totals, "request_duration_seconds", "api")
    assert durations is not None
    assert sum(durations[:-1]) == 5
    assert durations[-1] == pytest.approx(0.1)


def test_counts_of_ended_workers_stay() -> None:
    """An ended worker's counters stay, its successor's are added; its gauges are removed."""
    totals = Totals()
    dying = a_worker(2)
    dying.inflight = 7
    totals.update(0, dying.snapshot())
    assert value(totals, "inflight_requests") == (7,)
    totals.remove_worker(0)
    assert value(totals, "requests", *API) == (2,)
    assert value(totals, "inflight_requests") is None
    totals.update(0, a_worker(1).snapshot())
    assert value(totals, "requests", *API) == (3,)
    totals.remove_worker(0)
    totals.remove_worker(0)
    totals.update(0, a_worker(1).snapshot())
    assert value(totals, "requests", *API) == (4,)
    assert value(totals, "inflight_requests") == (0,)


GAUGES = [
    # name, what two workers have, what is shown
    ("inflight_requests", "inflight", (3, 4), 7),
    ("store_up", "store_up", (True, False), 0),
    ("store_up", "store_up", (True, True), 1),
    ("store_fallback_active", "fallback_active", (False, True), 1),
    ("store_fallback_active", "fallback_active", (False, False), 0),
    ("store_evicts", "store_evicts", (False, True), 1),
    ("store_keys_lost", "store_keys_lost", (True, False), 1),
    ("access_log_dropped_lines", "access_log_dropped", (1, 2), 3),
]


@pytest.mark.parametrize(("name", "attribute", "each", "shown"), GAUGES)
def test_how_metrics_are_combined(
    name: str, attribute: str, each: tuple[int, int], shown: int
) -> None:
    """Amounts are added up; of states, the worst is shown."""
    totals = Totals()
    for slot, found in enumerate(each):
        metrics = a_worker()
        setattr(metrics, attribute, found)
        totals.update(slot, metrics.snapshot())
    assert value(totals, name) == (shown,)


def test_a_server_is_healthy_if_all_workers_say_so() -> None:
    """A server is unhealthy if one worker says so."""
    totals = Totals()
    for slot, healthy in enumerate((True, False)):
        metrics = a_worker()
        metrics.upstream_health("backend", "one:80", healthy)
        metrics.upstream_health("backend", "two:80", True)
        totals.update(slot, metrics.snapshot())
    assert value(totals, "upstream_healthy", "backend", "one:80") == (0,)
    assert value(totals, "upstream_healthy", "backend", "two:80") == (1,)


def test_a_reload_by_all_workers_counts_once() -> None:
    """A reload by all workers counts once; a load by a restarted worker counts again."""
    totals = Totals()
    workers = [a_worker(), a_worker()]
    for metrics in workers:
        metrics.policy_loaded("def", 1_700_000_001.0, ["api"])
    for slot, metrics in enumerate(workers):
        totals.update(slot, metrics.snapshot())
    assert value(totals, "policy_reload", "success") == (2,)
    assert value(totals, "policy_last_reload_success_timestamp_seconds") == (1_700_000_001.0,)
    totals.remove_worker(0)
    totals.update(0, a_worker().snapshot())
    assert value(totals, "policy_reload", "success") == (3,)
    assert value(totals, "policy", "abc") == value(totals, "policy", "def") == (1,)


def test_a_removed_route_of_ended_workers_is_removed() -> None:
    """A removed route is also removed from the totals of ended workers."""
    totals = Totals()
    totals.update(0, a_worker(2).snapshot())
    totals.remove_worker(0)
    totals.update(0, a_worker(0).snapshot())
    assert value(totals, "requests", *API) == (2,)
    changed = a_worker(0)
    changed.policy_loaded("def", 1_700_000_001.0, ["other"])
    totals.update(0, changed.snapshot())
    assert value(totals, "requests", *API) is None
    assert value(totals, "request_duration_seconds", "api") is None
    assert value(totals, "upstream_duration_seconds", "backend") is not None


def test_a_route_stays_while_one_worker_has_it() -> None:
    """A route's series stay until no worker has the route."""
    totals = Totals()
    for slot in (0, 1):
        totals.update(slot, a_worker(1).snapshot())
        totals.remove_worker(slot)
        totals.update(slot, a_worker(0).snapshot())
    totals.update(0, a_worker(0, routes=("other",)).snapshot())
    assert value(totals, "requests", *API) == (2,)
    totals.update(1, a_worker(0, routes=("other",)).snapshot())
    assert value(totals, "requests", *API) is None
    assert totals.snapshot().routes == {"other"}


def test_more_series_are_added() -> None:
    """The supervisor's own values are shown with the workers'."""
    own = Series(Family("gauge", "workers", "Workers."), {(): (2,)})
    snapshot = with_series(a_worker().snapshot(), [own])
    assert snapshot.series[-1] is own
    assert snapshot.routes == {"api"}


def test_a_metric_of_several_processes() -> None:
    """Values with other labels are of the same metric, which a scrape must show once."""
    family = Family("counter", "steps", "Steps.", ("where",))
    snapshot = a_worker().snapshot()
    for where in ("worker", "courier"):
        snapshot = with_series(snapshot, [Series(family, {(where,): (1,)})])
    (found,) = [series for series in snapshot.series if series.family is family]
    assert found.values == {("worker",): (1,), ("courier",): (1,)}


FAMILY = Family("counter", "c", "A count.", ("of",))
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["count", "die"]), st.integers(0, 3)), max_size=30
)


@reaches(0.3)
@given(STEPS)
def test_a_counter_never_decreases(
    steps: list[tuple[int, str, int]],
) -> None:
    """For any order of counts and ends of workers in three slots."""
    totals = Totals()
    living: dict[int, int] = {}
    expected = shown = 0.0
    for slot, what, count in steps:
        if what == "count":
            living[slot] = living.get(slot, 0) + count
            expected += count
            values: dict[Labels, tuple[float, ...]] = {("x",): (living[slot],)}
            totals.update(slot, Snapshot((Series(FAMILY, values),)))
        else:
            totals.remove_worker(slot)
            living.pop(slot, None)
        now = (value(totals, "c", "x") or (0.0,))[0]
        reached()
        assert now == expected >= shown
        shown = now
