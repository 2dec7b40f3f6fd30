"""Metrics of webhooks: what a courier did, and what the store has.

Every courier reads the same figures of the store, so those are not summed: the highest one counts,
of the couriers of one gateway here (`merge="max"`), and of several gateways in queries. All others
belong to one courier, and are summed as those of workers are.

No label has the name of a watch, an integration or an account: there may be any number of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, Protocol

from gateway.observe.registry import Family, Histogram, Registry, Series, Values

#: Workers report it as well, which counts in a gateway that has any.
STORE_UP: Final = "store_up"
#: How deliveries end, or fail and are tried again.
RESULTS: Final = ("delivered", "failed", "dead")
#: Of the answers to attempts; none: there was no answer.
CLASSES: Final = ("2xx", "3xx", "4xx", "5xx", "none")

_RESULT: Final = ("result",)
_CLASS: Final = ("class",)

#: Of one courier: kind, field and name, description.
_OWN: Final[tuple[tuple[Literal["counter", "gauge"], str, str], ...]] = (
    ("counter", "leases_lost", "Deliveries whose lease ended early: they may be made twice."),
    ("counter", "watches_disabled", "Watches that were disabled for their failures."),
    ("counter", "spooled", "Webhooks kept in a file while the store was unavailable."),
    ("counter", "spool_replayed", "Webhooks that the store has got from that file."),
    ("gauge", "spool_bytes", "Webhooks in that file, which wait for the store."),
    ("gauge", "slots", "Deliveries that may be in flight at once."),
    ("gauge", "slots_used", "Deliveries in flight."),
)
#: Of the store: field and name, description.
_OF_STORE: Final = (
    ("oldest_due_seconds", "How long the oldest delivery that is due has been waiting."),
    ("breakers_open", "Watches that only get a probe now and then, after failures."),
    ("dead_letters", "Deliveries that were given up, and can be sent again."),
    ("bytes_used", "Memory of the store that events and deliveries take."),
    ("bytes_budget", "The most that they may take."),
)

# The highest value of each bucket, in seconds. An attempt ends after 15 s at the latest.
_ATTEMPT_S: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0)
_AGE_S: Final = (0.05, 0.25, 1.0, 5.0, 30.0, 300.0, 3_600.0)


class ShardFigures(Protocol):
    """What the store tells of one shard: `ShardStats` of `stores.webhooks`."""

    @property
    def waiting(self) -> int: ...
    @property
    def due(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def dead(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def oldest_due_s(self) -> float: ...
    @property
    def breakers(self) -> int: ...


class WebhookMetrics:
    """The metrics of one courier since it started: counted in its fields, read by `series`.

    captured:           webhooks that were received, by kind and result; "": of no integration
    deliveries:         by `RESULTS`
    attempts:           by `CLASSES`
    attempt_s:          how long attempts took
    age_s:              the age of an event at the first attempt of each delivery
    leases_lost:        deliveries that another courier may have made as well
    watches_disabled:   for their failures
    slots, slots_used:  deliveries that may be in flight at once, and those that are
    spool_bytes:        webhooks in the spool, which wait for the store
    spooled:            webhooks that were put there
    spool_replayed:     webhooks of it that the store has got since
    bytes_budget:       what events and deliveries may take in the store

    store_up:           the store is available

    The others are the store's, over all shards; None: not known, as the store is unavailable.
    """

    def __init__(self) -> None:
        self.captured: Counter[tuple[str, str]] = Counter()
        # They exist from the start: for an alert, a new series with 1 is no increase.
        self.deliveries: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self.attempts: Counter[str] = Counter(dict.fromkeys(CLASSES, 0))
        self.leases_lost = 0
        self.watches_disabled = 0
        self.slots = 0
        self.slots_used = 0
        self.spool_bytes = 0
        self.spooled = 0
        self.spool_replayed = 0
        self.store_up = False
        self.bytes_budget: int | None = None
        self.queue_depth: Mapping[str, int] = {}
        self.oldest_due_seconds: float | None = None
        self.breakers_open: int | None = None
        self.bytes_used: int | None = None
        self.dead_letters: int | None = None
        self._registry = Registry()
        self.attempt_s, self.age_s = self._add_work()
        self._add_store()

    def attempted(self, status: int, duration_s: float) -> None:
        """An attempt has ended. status: 0: there was no answer"""
        self.attempts[f"{status // 100}xx" if 200 <= status <= 599 else "none"] += 1
        self.attempt_s.add(duration_s)

    def store_has(self, shards: Iterable[ShardFigures] | None) -> None:
        """Set what the store has, in all its shards; None: it is unavailable."""
        known = None if shards is None else tuple(shards)
        self.store_up = known is not None
        if known is None:
            self.queue_depth = {}
            self.oldest_due_seconds = None
            self.breakers_open = self.bytes_used = self.dead_letters = None
            return
        self.queue_depth = {
            "waiting": sum(shard.waiting for shard in known),
            "due": sum(shard.due for shard in known),
            "in_flight": sum(shard.in_flight for shard in known),
        }
        self.oldest_due_seconds = max((shard.oldest_due_s for shard in known), default=0.0)
        self.breakers_open = sum(shard.breakers for shard in known)
        self.bytes_used = sum(shard.bytes for shard in known)
        self.dead_letters = sum(shard.dead for shard in known)

    def series(self) -> Sequence[Series]:
        """All of them as they are now."""
        return self._registry.snapshot().series

    # -- the families ------------------------------------------------------------------------------

    def _add_work(self) -> tuple[Histogram, Histogram]:
        """What one courier did; the histograms of attempts and of ages."""
        registry = self._registry
        registry.add(
            Family(
                "counter",
                "webhook_captured",
                "Webhooks received, by the kind of their provider and what became of them.",
                ("kind", "result"),
            ),
            lambda: {(kind or "none", how): (n,) for (kind, how), n in self.captured.items()},
        )
        registry.add(
            Family("counter", "webhook_deliveries", "Deliveries that ended or failed.", _RESULT),
            lambda: _by_label(self.deliveries),
        )
        registry.add(
            Family("counter", "webhook_attempts", "Attempts, by class of the answer.", _CLASS),
            lambda: _by_label(self.attempts),
        )
        attempt_s = registry.histogram(
            "webhook_attempt_duration_seconds", "How long attempts took.", _ATTEMPT_S
        )
        age_s = registry.histogram(
            "webhook_first_attempt_age_seconds",
            "The age of an event at the first attempt of each delivery.",
            _AGE_S,
        )
        for kind, field, text in _OWN:
            registry.number(kind, f"webhook_{field}", text, partial(getattr, self, field))
        return attempt_s, age_s

    def _add_store(self) -> None:
        """What the store has, which every courier reports."""
        self._registry.number(
            "gauge",
            STORE_UP,
            "1 while the store is available.",
            lambda: int(self.store_up),
            merge="min",
        )
        self._registry.add(
            Family(
                "gauge",
                "webhook_queue_depth",
                "Deliveries in the store that wait, could be sent now, or are in flight.",
                ("state",),
                "max",
            ),
            lambda: _by_label(self.queue_depth),
        )
        for field, text in _OF_STORE:
            read = partial(getattr, self, field)
            self._registry.number("gauge", f"webhook_{field}", text, read, merge="max")


def _by_label(counts: Mapping[str, int]) -> Values:
    return {(label,): (count,) for label, count in counts.items()}
