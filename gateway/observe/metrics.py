"""Every metric of the gateway: what is counted, under which name, with which labels.

A label's values come from the policies or from tables of ours, never from what a client sends, so
the number of series stays bounded.

To add a metric, name it in `Metrics.__init__`: `self.lapsed = registry.counter("leases_lapsed",
"Leases that ran out.", "limit")` makes a dict to count in, `self.lapsed[("mcp",)] += 1`. A single
number that is an attribute, or is looked up, is named by `registry.number`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from typing import Final, Literal

from gateway.observe.registry import Family, Registry, Snapshot

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


class Metrics:
    """What one worker has counted since it started.

    inflight:           requests being served now
    store_up:           the store answered when it was last asked
    fallback_active:    decisions are made in the worker, because the store cannot be asked
    access_log_dropped: lines of the access log that could not be written
    usage_dropped:      requests that usage had no room for
    """

    def __init__(self, version: str) -> None:
        self.inflight = 0
        self.store_up = False
        self.fallback_active = False
        self.access_log_dropped = 0
        self.usage_dropped = 0
        self._shed = 0
        registry = self._registry = Registry()
        self._routes: frozenset[str] = frozenset()
        self._left: frozenset[str] = frozenset()
        self._policy_hash = ""
        self._policy_loaded_s = 0.0

        # -- traffic
        self._requests = registry.counter(
            "requests",
            "Requests answered, and who made the answer.",
            *("route", "method", "code", "source"),
        )
        self._durations = registry.histograms(
            "request_duration_seconds",
            "From the first byte of a request to the last byte of its answer.",
            "route",
            _EXCHANGE_S,
        )
        self._upstreams = registry.histograms(
            "upstream_duration_seconds",
            "Time spent waiting for the upstream.",
            "upstream",
            _EXCHANGE_S,
        )
        self._overhead = registry.histogram(
            "overhead_seconds",
            "The gateway's own time: the whole of an exchange less the upstream's part.",
            _OVERHEAD_S,
        )
        registry.number(
            "gauge", "inflight_requests", "Requests being served.", lambda: self.inflight
        )
        self._connections = registry.gauge("connections", "Open connections.", "side", "state")
        registry.number(
            "counter",
            "connections_shed",
            "Client connections that were cut off because all together held too much memory.",
            lambda: self._shed,
        )
        self._refusals = registry.counter(
            "refusals", "Answers by which the gateway refused.", "reason"
        )
        self._auth_failures = registry.counter(
            "auth_failures", "Requests without a good key.", "reason"
        )
        # -- limiting
        self._decisions = registry.counter(
            "ratelimit_decisions",
            "What limits decided: admitted, near (past 80 %), limited, shadow, or local.",
            *("limit", "plan", "decision"),
        )
        self._checks = registry.histogram(
            "ratelimit_check_duration_seconds",
            "From sending a batch of checks to the store to its answer.",
            _CHECK_S,
        )
        self._batches = registry.histogram(
            "ratelimit_batch_size", "Checks sent to the store at once.", _BATCH
        )
        self._overadmitted = registry.counter(
            "ratelimit_overadmitted",
            "Units admitted without the store by which its counts went beyond their limits.",
            "limit",
        )
        self._warnings = registry.counter(
            "limit_warnings",
            "Counts that came close to their limit (level 80) or to it (100), once a window.",
            *("limit", "plan", "level"),
        )
        registry.number(
            "gauge",
            "store_up",
            "1 while the store answers.",
            lambda: int(self.store_up),
            merge="min",
        )
        registry.number(
            "gauge",
            "store_fallback_active",
            "1 while decisions are made without the store.",
            lambda: int(self.fallback_active),
            merge="max",
        )
        # -- surroundings
        self._reloads = registry.counter(
            # Each worker reads the same files.
            "policy_reload",
            "Policies read, by what became of them.",
            "result",
            merge="max",
        )
        # Both exist from the start: an increase from nothing to 1 is none to an alert.
        self._reloads.update({("success",): 0, ("refused",): 0})
        registry.number(
            "gauge",
            "policy_last_reload_success_timestamp_seconds",
            "When the policy in force was read, in Unix time.",
            lambda: self._policy_loaded_s or None,
            merge="max",
        )
        registry.add(
            Family("info", "policy", "The policy in force.", ("hash",), "max"),
            lambda: {(self._policy_hash,): (1,)} if self._policy_hash else {},
        )
        self._health = registry.gauge(
            "upstream_healthy",
            "1 where the server of an upstream can be used.",
            *("upstream", "server"),
            merge="min",
        )
        registry.number(
            "counter",
            "access_log_dropped_lines",
            "Lines of the access log that could not be written.",
            lambda: self.access_log_dropped,
        )
        registry.number(
            "counter",
            "usage_dropped_requests",
            "Requests that are missing from the usage figures, because too many different waited.",
            lambda: self.usage_dropped,
        )
        registry.add(
            Family("info", "build", "What is running.", ("version",), "max"),
            lambda: {(version,): (1,)},
        )

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
        histogram = self._durations[route]
        histogram.counts[bisect_left(histogram.bounds, duration_s)] += 1
        histogram.total += duration_s
        if upstream is not None and upstream_s is not None:
            histogram = self._upstreams[upstream]
            histogram.counts[bisect_left(histogram.bounds, upstream_s)] += 1
            histogram.total += upstream_s
            # Measured apart, the part can come out longer than the whole.
            duration_s = duration_s - upstream_s if duration_s > upstream_s else 0.0
        histogram = self._overhead
        histogram.counts[bisect_left(histogram.bounds, duration_s)] += 1
        histogram.total += duration_s

    def decided(self, limit: str, plan: str, outcome: Outcome) -> None:
        """A limit took part in a decision. near: admitted, past 80 %; local: without the store."""
        self._decisions[limit, plan, outcome] += 1

    def checked(self, batch: int, duration_s: float) -> None:
        """The store answered this many checks at once."""
        self._batches.add(batch)
        self._checks.add(duration_s)

    def overadmitted(self, limit: str, units: int) -> None:
        """So much was admitted without the store that its count went beyond the limit by it."""
        self._overadmitted[(limit,)] += units

    def limit_warned(self, limit: str, plan: str, level: int) -> None:
        """A count came close to its limit. level: 80 or 100, in percent."""
        self._warnings[limit, plan, level] += 1

    def refused(self, reason: str) -> None:
        """The gateway's answer was a refusal. reason: that of the refusal."""
        self._refusals[(reason,)] += 1

    def auth_failed(self, reason: str) -> None:
        """Somebody did not show a good key. reason: that of the refusal."""
        self._auth_failures[(reason,)] += 1

    def connections(self, side: Side, state: str, delta: int) -> None:
        """So many connections entered the state; where `delta` is below 0, left it."""
        self._connections[side, state] += delta

    def shed(self, connections: int) -> None:
        """So many client connections were cut off for what they held."""
        self._shed += connections

    # -- now and then ------------------------------------------------------------------------------

    def policy_loaded(self, policy_hash: str, now_s: float, routes: Collection[str]) -> None:
        """A policy is in force. Routes that it no longer has lose their series."""
        self._reloads[("success",)] += 1
        self._policy_hash = policy_hash
        self._policy_loaded_s = now_s
        current = frozenset(routes)
        self._left = (self._left | self._routes) - current
        self._routes = current
        self._drop_series()

    def policy_reload_failed(self) -> None:
        """A policy has faults; the previous one stays."""
        self._reloads[("refused",)] += 1

    def upstream_health(self, upstream: str, server: str, healthy: bool | None) -> None:
        """healthy: None where the upstream no longer has this server; its series goes."""
        if healthy is None:
            self._health.pop((upstream, server), None)
        else:
            self._health[upstream, server] = int(healthy)

    # -- when somebody looks -----------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """All of it as it is now; about a millisecond with 1,000 routes."""
        # A request that started under an earlier policy may have ended since the reload.
        self._drop_series()
        return self._registry.snapshot(self._routes)

    def _drop_series(self) -> None:
        for route in self._left & self._durations.keys():
            del self._durations[route]
        for key in [key for key in self._requests if key[0] in self._left]:
            del self._requests[key]
