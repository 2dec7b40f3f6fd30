"""Every metric of the gateway: what is counted, under which name, with which labels.

A worker counts into plain dicts and lists, because it does so several times a request;
prometheus_client is called only when somebody scrapes. A label's values come from the policies or
from tables of ours, never from what a client sends, so the number of series stays bounded.
Everything here belongs to one event loop: no locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Literal

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

Source = Literal["gateway", "upstream"]
Outcome = Literal["admitted", "near", "limited", "shadow", "local"]
Side = Literal["downstream", "upstream"]

_METHODS: Final = frozenset(
    ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
)

# The highest value of each bucket, in seconds.
_EXCHANGE_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
# Our own part is some tens of microseconds; from 10 ms on, something is wrong.
_OVERHEAD_S: Final = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)
_CHECK_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_BATCH: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class _Histogram:
    """How many values fell into each bucket (the last: above all bounds), and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Bound and count of all that is not above it, as the exposition has it."""
        found: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            so_far += count
            found.append((str(bound), so_far))
        return found


def _exchange_histograms() -> defaultdict[str, _Histogram]:
    return defaultdict(lambda: _Histogram(_EXCHANGE_S))


class Metrics(Collector):
    """What one worker has counted since it started.

    inflight:        requests being served now
    store_up:        the store answered when it was last asked
    fallback_active: decisions are made in the worker, because the store cannot be asked
    """

    def __init__(self, version: str) -> None:
        self.inflight = 0
        self.store_up = False
        self.fallback_active = False
        self._version = version
        self._requests: defaultdict[tuple[str, str, int, str], int] = defaultdict(int)
        self._durations = _exchange_histograms()
        self._upstreams = _exchange_histograms()
        self._overhead = _Histogram(_OVERHEAD_S)
        self._decisions: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._checks = _Histogram(_CHECK_S)
        self._batches = _Histogram(_BATCH)
        self._refusals: defaultdict[tuple[str], int] = defaultdict(int)
        self._auth_failures: defaultdict[tuple[str], int] = defaultdict(int)
        self._connections: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._health: dict[tuple[str, str], int] = {}
        # Both exist from the start: an increase from nothing to 1 is none to an alert.
        self._reloads = {("success",): 0, ("refused",): 0}
        self._policy_hash = ""
        self._policy_loaded_s = 0.0
        self._routes: frozenset[str] = frozenset()
        self._left: frozenset[str] = frozenset()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    # -- at each request; 0.8 µs for `ended` -------------------------------------------------------

    def ended(
        self,
        route: str,
        method: str,
        status: int,
        source: Source,
        duration_s: float,
        upstream: str | None,
        upstream_s: float | None,
    ) -> None:
        """An exchange is over.

        route:      "" where none matched
        source:     who made the answer
        upstream_s: the time spent waiting for the upstream; None where it was not asked
        """
        route = route or "none"
        self._requests[route, method if method in _METHODS else "other", status, source] += 1
        self._durations[route].add(duration_s)
        if upstream is not None and upstream_s is not None:
            self._upstreams[upstream].add(upstream_s)
            # Measured apart, the part can come out longer than the whole.
            duration_s = max(duration_s - upstream_s, 0.0)
        self._overhead.add(duration_s)

    def decided(self, limit: str, plan: str, outcome: Outcome) -> None:
        """A limit took part in a decision. near: admitted, past 80 %; local: without the store."""
        self._decisions[limit, plan, outcome] += 1

    def checked(self, batch: int, duration_s: float) -> None:
        """The store answered this many checks at once."""
        self._batches.add(batch)
        self._checks.add(duration_s)

    def refused(self, reason: str) -> None:
        """The gateway's answer was a refusal. reason: that of the refusal."""
        self._refusals[(reason,)] += 1

    def auth_failed(self, reason: str) -> None:
        """Somebody did not show a good key. reason: that of the refusal."""
        self._auth_failures[(reason,)] += 1

    def connections(self, side: Side, state: str, delta: int) -> None:
        """So many connections entered the state; where `delta` is below 0, left it."""
        self._connections[side, state] += delta

    # -- now and then ------------------------------------------------------------------------------

    def policy_loaded(self, policy_hash: str, now_s: float, routes: Collection[str]) -> None:
        """A policy is in force. Routes that it no longer has lose their series."""
        self._reloads[("success",)] += 1
        self._policy_hash = policy_hash
        self._policy_loaded_s = now_s
        current = frozenset(routes)
        self._left = (self._left | self._routes) - current
        self._routes = current
        self._forget_routes()

    def policy_refused(self) -> None:
        """A policy was faulty; the last good one stays."""
        self._reloads[("refused",)] += 1

    def upstream_health(self, upstream: str, server: str, healthy: bool | None) -> None:
        """healthy: None where the upstream no longer has this server; its series goes."""
        if healthy is None:
            self._health.pop((upstream, server), None)
        else:
            self._health[upstream, server] = int(healthy)

    # -- at a scrape -------------------------------------------------------------------------------

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its content type, in the format that an Accept header asks for."""
        # A request that started under an earlier policy may have ended since the reload.
        self._forget_routes()
        try:
            encode, content_type = choose_encoder(accept)
        except (ValueError, TypeError):  # it compares a version that is none with numbers
            encode, content_type = choose_encoder("")
        return encode(self._registry), content_type

    def _forget_routes(self) -> None:
        for route in self._left & self._durations.keys():
            del self._durations[route]
        for key in [key for key in self._requests if key[0] in self._left]:
            del self._requests[key]

    def collect(self) -> Iterator[Metric]:
        """All of them in prometheus_client's terms."""
        yield from self._traffic()
        yield from self._limiting()
        yield from self._surroundings()

    def _traffic(self) -> Iterator[Metric]:
        yield _counter(
            "requests",
            "Requests answered, and who made the answer.",
            ("route", "method", "code", "source"),
            self._requests.items(),
        )
        yield _histogram(
            "request_duration_seconds",
            "From the first byte of a request to the last byte of its answer.",
            ("route",),
            self._durations.items(),
        )
        yield _histogram(
            "upstream_duration_seconds",
            "Time spent waiting for the upstream.",
            ("upstream",),
            self._upstreams.items(),
        )
        yield _histogram(
            "overhead_seconds",
            "The gateway's own time: the whole of an exchange less the upstream's part.",
            (),
            [("", self._overhead)],
        )
        yield _gauge("inflight_requests", "Requests being served.", (), [((), self.inflight)])
        yield _gauge(
            "connections", "Open connections.", ("side", "state"), self._connections.items()
        )
        yield _counter(
            "refusals", "Answers by which the gateway refused.", ("reason",), self._refusals.items()
        )
        yield _counter(
            "auth_failures",
            "Requests without a good key.",
            ("reason",),
            self._auth_failures.items(),
        )

    def _limiting(self) -> Iterator[Metric]:
        yield _counter(
            "ratelimit_decisions",
            "What limits decided: admitted, near (past 80 %), limited, shadow, or local.",
            ("limit", "plan", "decision"),
            self._decisions.items(),
        )
        yield _histogram(
            "ratelimit_check_duration_seconds",
            "From sending a batch of checks to the store to its answer.",
            (),
            [("", self._checks)],
        )
        yield _histogram(
            "ratelimit_batch_size", "Checks sent to the store at once.", (), [("", self._batches)]
        )
        yield _gauge("store_up", "1 while the store answers.", (), [((), int(self.store_up))])
        yield _gauge(
            "store_fallback_active",
            "1 while decisions are made without the store.",
            (),
            [((), int(self.fallback_active))],
        )

    def _surroundings(self) -> Iterator[Metric]:
        yield _counter(
            "policy_reload",
            "Policies read, by what became of them.",
            ("result",),
            self._reloads.items(),
        )
        if self._policy_hash:
            yield _gauge(
                "policy_last_reload_success_timestamp_seconds",
                "When the policy in force was read, in Unix time.",
                (),
                [((), self._policy_loaded_s)],
            )
            yield InfoMetricFamily(
                "gateway_policy", "The policy in force.", {"hash": self._policy_hash}
            )
        yield _gauge(
            "upstream_healthy",
            "1 where the server of an upstream can be used.",
            ("upstream", "server"),
            self._health.items(),
        )
        yield InfoMetricFamily("gateway_build", "What is running.", {"version": self._version})


def _counter(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[Sequence[str | int], int]]
) -> Metric:
    family = CounterMetricFamily(f"gateway_{name}", text, labels=labels)
    for key, value in values:
        family.add_metric([str(part) for part in key], value)
    return family


def _gauge(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    family = GaugeMetricFamily(f"gateway_{name}", text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _histogram(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[str, _Histogram]]
) -> Metric:
    """At most one label; without one, the only key is ""."""
    family = HistogramMetricFamily(f"gateway_{name}", text, labels=labels)
    for key, value in values:
        family.add_metric((key,) if labels else (), value.cumulative(), value.total)
    return family
