"""Metrics of webhooks: what couriers sum, what they do not, and no unbounded labels."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from gateway.observe.exposition import render
from gateway.observe.registry import Snapshot, Values
from gateway.observe.totals import Totals
from gateway.observe.webhook_metrics import CLASSES, RESULTS, WebhookMetrics
from tests.kit.needs import needs


@dataclass(frozen=True)
class Shard:
    """What the store tells of one shard."""

    waiting: int = 0
    due: int = 0
    in_flight: int = 0
    dead: int = 0
    bytes: int = 0
    oldest_due_s: float = 0.0
    breakers: int = 0


def values_of(metrics: WebhookMetrics) -> dict[str, Values]:
    return {
        series.family.name.removeprefix("webhook_"): series.values for series in metrics.series()
    }


def busy() -> WebhookMetrics:
    """A courier that has done some of everything."""
    metrics = WebhookMetrics()
    metrics.captured["github", "captured"] += 3
    metrics.captured["", "unknown"] += 1
    metrics.deliveries["delivered"] += 5
    metrics.attempted(204, 0.02)
    metrics.attempted(0, 15.0)
    metrics.age_s.add(0.1)
    metrics.leases_lost = 2
    metrics.watches_disabled = 1
    metrics.slots, metrics.slots_used = 256, 4
    metrics.spool_bytes, metrics.spooled, metrics.spool_replayed = 700, 3, 1
    metrics.bytes_budget = 1_000
    metrics.store_has([Shard(7, 5, 2, 1, 300, 1.5, 1), Shard(3, 1, 0, 4, 100, 60.0, 2)])
    return metrics


def test_what_a_courier_counts() -> None:
    """Each field is a metric; a webhook of no integration has the kind none."""
    values = values_of(busy())
    assert values["captured"] == {("github", "captured"): (3,), ("none", "unknown"): (1,)}
    assert values["deliveries"]["delivered",] == (5,)
    assert {label: n for (label,), (n,) in values["attempts"].items() if n} == {"2xx": 1, "none": 1}
    assert sum(values["attempt_duration_seconds"][()]) == 2 + 15.02
    assert sum(values["first_attempt_age_seconds"][()]) == 1 + 0.1
    for name, wanted in (
        *(("leases_lost", 2), ("watches_disabled", 1), ("slots", 256), ("slots_used", 4)),
        *(("spool_bytes", 700), ("spooled", 3), ("spool_replayed", 1)),
    ):
        assert values[name] == {(): (wanted,)}


def test_what_the_store_has() -> None:
    """Shards are summed; of what is due the oldest counts."""
    values = values_of(busy())
    assert values["queue_depth"] == {
        ("waiting",): (10,),
        ("due",): (6,),
        ("in_flight",): (2,),
    }
    assert values["oldest_due_seconds"] == {(): (60.0,)}
    assert values["breakers_open"] == {(): (3,)}
    assert values["dead_letters"] == {(): (5,)}
    assert values["bytes_used"] == {(): (400,)}
    assert values["bytes_budget"] == {(): (1_000,)}
    assert values["store_up"] == {(): (1,)}


def test_an_unavailable_store() -> None:
    """What the store had before it went away is not shown: nobody knows whether it still has it."""
    metrics = busy()
    metrics.store_has(None)
    values = values_of(metrics)
    names = ("queue_depth", "oldest_due_seconds", "breakers_open", "dead_letters", "bytes_used")
    assert {name: values[name] for name in names} == {name: {} for name in names}
    assert values["bytes_budget"] == {(): (1_000,)}
    assert values["store_up"] == {(): (0,)}


def test_an_empty_store() -> None:
    """Nothing is due, which is not the same as not known."""
    metrics = WebhookMetrics()
    metrics.store_has([])
    assert values_of(metrics)["oldest_due_seconds"] == {(): (0.0,)}


def test_answers_have_a_class() -> None:
    """An answer that is no final one, or beyond HTTP, is none: senders should not see it."""
    metrics = WebhookMetrics()
    for status in (200, 299, 302, 410, 599, 0, 100, 600):
        metrics.attempted(status, 0.0)
    assert metrics.attempts == {"2xx": 2, "3xx": 1, "4xx": 1, "5xx": 1, "none": 3}


def test_counts_exist_from_the_start() -> None:
    """For an alert, a new series with 1 is no increase."""
    values = values_of(WebhookMetrics())
    assert values["deliveries"] == {(result,): (0,) for result in RESULTS}
    assert values["attempts"] == {(each,): (0,) for each in CLASSES}


def test_several_couriers() -> None:
    """Their own counts are summed. What each reads from the store is not: the highest counts."""
    totals = Totals()
    for slot in range(2):
        totals.update(slot, Snapshot(tuple(busy().series())))
    cut_off = busy()
    cut_off.store_has(None)
    totals.update(2, Snapshot(tuple(cut_off.series())))
    merged = {series.family.name: series.values for series in totals.snapshot().series}
    assert merged["webhook_captured"]["github", "captured"] == (9,)
    assert merged["webhook_slots"] == {(): (768,)}
    assert merged["webhook_spool_bytes"] == {(): (2_100,)}
    assert merged["store_up"] == {(): (0,)}, "one has no store"
    assert merged["webhook_queue_depth"]["waiting",] == (10,)
    for name, wanted in (("oldest_due_seconds", 60.0), ("dead_letters", 5), ("bytes_used", 400)):
        assert merged[f"webhook_{name}"] == {(): (wanted,)}
    assert merged["webhook_bytes_budget"] == {(): (1_000,)}


def test_a_courier_that_ended() -> None:
    """Its counts stay; its slots, and what it read from the store, do not."""
    totals = Totals()
    totals.update(0, Snapshot(tuple(busy().series())))
    totals.remove_worker(0)
    totals.update(0, Snapshot(tuple(WebhookMetrics().series())))
    merged = {series.family.name: series.values for series in totals.snapshot().series}
    assert merged["webhook_leases_lost"] == {(): (2,)}
    assert merged["webhook_slots"] == {(): (0,)}
    assert merged["webhook_queue_depth"] == {}


@needs("promtool")
def test_prometheus_takes_their_names() -> None:
    """promtool finds no fault in names, units and descriptions."""
    text, _ = render(Snapshot(tuple(busy().series())), "", [])
    words = ["promtool", "check", "metrics"]
    done = subprocess.run(words, input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_labels_are_few() -> None:
    """No label has the name of a watch, an integration or an account."""
    labels = {label for series in busy().series() for label in series.family.labels}
    assert labels == {"kind", "result", "class", "state"}
