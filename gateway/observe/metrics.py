"""All metrics of the gateway: names, labels and meaning.

The values of labels are from the policies or from fixed lists, never from what a client sends, so
the number of series is bounded.

To add a metric, define it in `Metrics.__init__`: `self.expired = registry.counter("leases_expired",
"Leases that expired.", "limit")` creates a dict to count in, `self.expired[("mcp",)] += 1`. For a
single number that is an attribute, or is computed, use `registry.number`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal, get_args

from gateway.observe.mcp_metrics import McpMetrics
from gateway.observe.registry import Exemplar, Family, Registry, Snapshot

Source = Literal["gateway", "upstream"]
Outcome = Literal["admitted", "near", "limited", "shadow", "local"]
Comparison = Literal["both_admit", "only_enforced_refuses", "only_candidate_refuses", "both_refuse"]
Side = Literal["downstream", "upstream"]

#: By two bits: 1, the limit refuses; 2, its candidate does.
COMPARISONS: Final[tuple[Comparison, ...]] = get_args(Comparison)

#: The name of the metric that compares limits with their candidates.
CANDIDATES: Final = "limit_candidate"
_METHODS: Final = frozenset(
    ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
)

# The highest value of each bucket, in seconds.
_EXCHANGE_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
# The gateway's own time is some tens of microseconds; 10 ms or more is a problem.
_OVERHEAD_S: Final = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)
_CHECK_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_BATCH: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class Metrics:
    """The metrics of one worker since it started.

    inflight:           requests in progress
    mcp:                counts messages to MCP servers
    store_up:           the store is available
    fallback_active:    decisions are made without the store
    store_evicts:       the store may evict keys and counters
    store_keys_lost:    the store had keys, and their index is missing
    access_log_dropped: lines of the access log that could not be written
    usage_dropped:      requests that are not in the usage, because its table was full
    traces_dropped:     returns the number of requests whose spans were not exported
    """

    def __init__(self, version: str) -> None:
        self.inflight = 0
        self.store_up = False
        self.fallback_active = False
        self.store_evicts = False
        self.store_keys_lost = False
        self.access_log_dropped = 0
        self.usage_dropped = 0
        self.traces_dropped: Callable[[], int] = lambda: 0
        self._shed = 0
        registry = self._registry = Registry()
        self._routes: frozenset[str] = frozenset()
        self._left: frozenset[str] = frozenset()
        self._policy_hash = ""
        self._policy_loaded_s = 0.0
        self._policy_faulty = False

        # -- traffic
        self._requests = registry.counter(
            "requests",
            "Requests, and whether the gateway or the upstream answered.",
            *("route", "method", "code", "source"),
        )
        self._durations = registry.histograms(
            "request_duration_seconds",
            "From the first byte of a request to the last byte of its response.",
            "route",
            _EXCHANGE_S,
        )
        self._upstreams = registry.histograms(
            "upstream_duration_seconds",
            "Time spent waiting for the upstream.",
            "upstream",
            _EXCHANGE_S,
        )
        self._canaries = registry.counter(
            "canary_requests",
            "Requests of routes with a canary, by the upstream that they were for.",
            *("route", "upstream", "code"),
        )
        self._overhead = registry.histogram(
            "overhead_seconds",
            "The gateway's own time: the duration of a request less that of the upstream.",
            _OVERHEAD_S,
        )
        registry.number(
            "gauge", "inflight_requests", "Requests in progress.", lambda: self.inflight
        )
        self._connections = registry.gauge("connections", "Open connections.", "side", "state")
        registry.number(
            "counter",
            "connections_shed",
            "Client connections that were closed because all together buffered too much.",
            lambda: self._shed,
        )
        self._retries = registry.counter(
            "retries", "Requests that were sent to an upstream again, by why.", "route", "cause"
        )
        self._refusals = registry.counter("refusals", "Refusals by the gateway.", "reason")
        self._auth_failures = registry.counter(
            "auth_failures", "Requests without a valid key.", "reason"
        )
        # -- limiting
        self._decisions = registry.counter(
            "ratelimit_decisions",
            "Decisions of limits: admitted, near (above 80 %), limited, shadow, or local.",
            *("limit", "plan", "decision"),
        )
        self._compared = registry.counter(
            CANDIDATES,
            "Requests by what a limit and its candidate decide.",
            *("limit", "outcome"),
        )
        self._checks = registry.histogram(
            "ratelimit_check_duration_seconds",
            "From sending a batch of checks to the store to its reply.",
            _CHECK_S,
        )
        self._batches = registry.histogram(
            "ratelimit_batch_size", "Checks sent to the store at once.", _BATCH
        )
        self._overadmitted = registry.counter(
            "ratelimit_overadmitted",
            "Units admitted in an outage by which counters exceed their limits.",
            "limit",
        )
        self._warnings = registry.counter(
            "limit_warnings",
            "Counters that are near their limit (level 80) or at it (100), once a window.",
            *("limit", "plan", "level"),
        )
        registry.number(
            "gauge",
            "store_up",
            "1 while the store is available.",
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
        registry.number(
            "gauge",
            "store_evicts",
            "1 while the store's settings let it evict keys and counters.",
            lambda: int(self.store_evicts),
            merge="max",
        )
        registry.number(
            "gauge",
            "store_keys_lost",
            "1 while the index of keys is missing that was there before.",
            lambda: int(self.store_keys_lost),
            merge="max",
        )
        self.mcp = McpMetrics(registry)
        # -- surroundings
        self._reloads = registry.counter(
            # Each worker reads the same files.
            "policy_reload",
            "Policies loaded (success), reloads that failed (refused), and that waited (waiting).",
            "result",
            merge="max",
        )
        # All exist from the start: for an alert, a new series with 1 is no increase.
        self._reloads.update({("success",): 0, ("refused",): 0, ("waiting",): 0})
        registry.number(
            "gauge",
            "policy_faulty",
            "1 while the policy files have faults, and the previous policy is in effect.",
            lambda: int(self._policy_faulty),
            merge="max",
        )
        registry.number(
            "gauge",
            "policy_last_reload_success_timestamp_seconds",
            "When the policy in effect was loaded, in Unix time.",
            lambda: self._policy_loaded_s or None,
            merge="max",
        )
        registry.add(
            Family("info", "policy", "The policy in effect.", ("hash",), "max"),
            lambda: {(self._policy_hash,): (1,)} if self._policy_hash else {},
        )
        self._health = registry.gauge(
            "upstream_healthy",
            "1 if the server of an upstream is healthy.",
            *("upstream", "server"),
            merge="min",
        )
        self._lookups = registry.counter(
            "upstream_lookups",
            "Look-ups of the names of servers, by result: success or failure.",
            *("server", "result"),
        )
        self._expiry = registry.gauge(
            "certificate_expiry_timestamp_seconds",
            "When a certificate of the gateway expires, in Unix time.",
            *("setting", "file"),
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
            "Requests that are missing in the usage, because too many different ones waited.",
            lambda: self.usage_dropped,
        )
        registry.number(
            "counter",
            "traces_dropped_requests",
            "Sampled requests whose spans were not exported to the collector.",
            lambda: self.traces_dropped(),  # noqa: PLW0108 - it is replaced later
        )
        registry.add(
            Family("info", "build", "The version of the gateway.", ("version",), "max"),
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
        """An exchange has ended.

        route:      "" if none matched
        source:     whether the gateway or the upstream answered
        upstream_s: the time spent waiting for the upstream; None if no request was sent to it
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
            # Both are measured separately, so the part may be longer than the whole.
            duration_s = duration_s - upstream_s if duration_s > upstream_s else 0.0
        histogram = self._overhead
        histogram.counts[bisect_left(histogram.bounds, duration_s)] += 1
        histogram.total += duration_s

    def canary_ended(self, route: str, upstream: str, status: int) -> None:
        """A request of a route with a canary has ended. upstream: which of the two it was for"""
        self._canaries[route, upstream, status] += 1

    def exemplify(
        self,
        route: str,
        duration_s: float,
        upstream: str | None,
        upstream_s: float | None,
        trace_id: str,
        at_s: float,
    ) -> None:
        """Make a sampled request that has ended the exemplar of its buckets; as for `ended`."""
        self._durations[route or "none"].exemplify(Exemplar(trace_id, duration_s, at_s))
        if upstream is not None and upstream_s is not None:
            self._upstreams[upstream].exemplify(Exemplar(trace_id, upstream_s, at_s))
            duration_s = max(duration_s - upstream_s, 0.0)
        self._overhead.exemplify(Exemplar(trace_id, duration_s, at_s))

    def decided(self, limit: str, plan: str, outcome: Outcome) -> None:
        """A limit took part in a decision. near: admitted, above 80 %; local: without the store"""
        self._decisions[limit, plan, outcome] += 1

    def compared(self, limit: str, outcome: Comparison) -> None:
        """A limit and its candidate took part in a decision."""
        self._compared[limit, outcome] += 1

    def checked(self, batch: int, duration_s: float) -> None:
        """The store decided a batch of this many checks."""
        self._batches.add(batch)
        self._checks.add(duration_s)

    def overadmitted(self, limit: str, units: int) -> None:
        """Units admitted in an outage made a counter exceed its limit by this many."""
        self._overadmitted[(limit,)] += units

    def limit_warned(self, limit: str, plan: str, level: int) -> None:
        """A counter is near its limit, or at it. level: 80 or 100, in percent"""
        self._warnings[limit, plan, level] += 1

    def retried(self, route: str, cause: str) -> None:
        """A request was sent to its upstream again. cause: a `forwarding.Cause`"""
        self._retries[route, cause] += 1

    def refused(self, reason: str) -> None:
        """The gateway refused a request. reason: that of the refusal"""
        self._refusals[(reason,)] += 1

    def auth_failed(self, reason: str) -> None:
        """A request had no valid key. reason: that of the refusal"""
        self._auth_failures[(reason,)] += 1

    def connections(self, side: Side, state: str, delta: int) -> None:
        """Change the number of connections in a state by `delta`."""
        self._connections[side, state] += delta

    def shed(self, connections: int) -> None:
        """Count client connections that were closed because of their buffers."""
        self._shed += connections

    # -- now and then ------------------------------------------------------------------------------

    def policy_loaded(self, policy_hash: str, now_s: float, routes: Collection[str]) -> None:
        """A policy was loaded. Routes that it no longer has lose their series."""
        self._reloads[("success",)] += 1
        self._policy_hash = policy_hash
        self._policy_loaded_s = now_s
        self._policy_faulty = False
        current = frozenset(routes)
        self._left = (self._left | self._routes) - current
        self._routes = current
        self._drop_series()

    def policy_reload_waits(self) -> None:
        """A policy lacks rules of the previous one, which stays in effect for some seconds."""
        self._reloads[("waiting",)] += 1

    def policy_reload_failed(self) -> None:
        """A policy has faults; the previous one stays in effect."""
        self._reloads[("refused",)] += 1
        self._policy_faulty = True

    def upstream_health(self, upstream: str, server: str, healthy: bool | None) -> None:
        """Set the health of a server; None: the upstream no longer has it, drop its series."""
        if healthy is None:
            self._health.pop((upstream, server), None)
        else:
            self._health[upstream, server] = int(healthy)

    def looked_up(self, server: str, result: Literal["success", "failure"]) -> None:
        """The name of a server was looked up."""
        self._lookups[server, result] += 1

    def lookups_ended(self, server: str) -> None:
        """The policy no longer has this server: drop its series."""
        for key in [key for key in self._lookups if key[0] == server]:
            del self._lookups[key]

    def certificates_expire(self, ends: Mapping[tuple[str, str], int]) -> None:
        """Set when each certificate expires, in Unix seconds, by setting and file; no others."""
        self._expiry.clear()
        for key, end_s in ends.items():
            self._expiry[key] = end_s

    # -- when metrics are read ---------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """All metrics as they are now; about a millisecond with 1,000 routes."""
        # A request that started under an earlier policy may have ended since the reload.
        self._drop_series()
        return self._registry.snapshot(self._routes)

    def _drop_series(self) -> None:
        for route in self._left & self._durations.keys():
            del self._durations[route]
        for series in (self._requests, self._retries, self._canaries):
            for key in [key for key in series if key[0] in self._left]:
                del series[key]
        if self._left:
            self.mcp.drop_series(self._left)
