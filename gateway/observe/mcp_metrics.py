"""Metrics of routes in front of MCP servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final, Literal

from gateway.observe.registry import Registry

Outcome = Literal["admitted", "limited", "refused"]

#: The methods that have series of their own; all others are OTHER.
METHODS: Final = frozenset(
    ("initialize", "server/discover", "ping", "tools/list", "tools/call", "prompts/list")
    + ("prompts/get", "resources/list", "resources/templates/list", "resources/read")
    + ("resources/subscribe", "resources/unsubscribe", "subscriptions/listen")
    + ("completion/complete", "logging/setLevel", "tasks/get", "tasks/update", "tasks/result")
    + ("tasks/list", "tasks/cancel", "notifications/initialized", "notifications/cancelled")
    + ("notifications/progress", "notifications/roots/list_changed", "response", "GET", "DELETE")
)
#: A tool that the policy does not name, or another method.
OTHER: Final = "other"


class McpMetrics:
    """Counts messages and connections of one worker."""

    def __init__(self, registry: Registry) -> None:
        self._requests = registry.counter(
            "mcp_requests",
            "Messages to MCP servers; tools that no policy names are other.",
            *("route", "method", "tool", "outcome"),
        )
        self._refused = registry.counter(
            "mcp_refused", "Messages to MCP servers that were refused, by why.", "route", "reason"
        )
        self._connections = registry.gauge(
            "mcp_connections", "Sessions of MCP clients that have anything open.", "route"
        )
        self._unfiltered = 0
        registry.number(
            "counter",
            "mcp_lists_unfiltered",
            "Lists of tools that could not be filtered.",
            lambda: self._unfiltered,
        )
        #: The number of exchanges of each connection, and the id of the key that opened it.
        self._open: dict[tuple[str, int], tuple[int, str]] = {}
        #: How many connections each key has open, by its id.
        self.connected: Counter[str] = Counter()

    def ended(self, route: str, method: str, tool: str, outcome: Outcome) -> None:
        """A message was answered. tool: that a policy names, "other", or "" if none is called"""
        self._requests[route, method if method in METHODS else OTHER, tool, outcome] += 1

    def refused(self, route: str, reason: str) -> None:
        """A request was refused."""
        self._refused[route, reason] += 1

    def unfiltered(self) -> None:
        """A list could not be filtered."""
        self._unfiltered += 1

    def opened(self, route: str, connection: int, key_id: str = "") -> None:
        """An exchange of this connection was admitted. key_id: "": there is no key"""
        exchanges, opener = self._open.get((route, connection), (0, key_id))
        self._open[route, connection] = exchanges + 1, opener
        if not exchanges:
            self._connections[(route,)] += 1
            if opener:
                self.connected[opener] = self.connected.get(opener, 0) + 1

    def closed(self, route: str, connection: int) -> None:
        """It has ended."""
        exchanges, opener = self._open.pop((route, connection))
        if exchanges > 1:
            self._open[route, connection] = exchanges - 1, opener
            return
        if (route,) in self._connections:  # else the route left the policy
            self._connections[(route,)] -= 1
        if opener and (others := self.connected.pop(opener) - 1):
            self.connected[opener] = others

    def drop_series(self, routes: Collection[str]) -> None:
        """Drop the series of routes that left the policy."""
        for series in (self._requests, self._refused, self._connections):
            for key in [key for key in series if key[0] in routes]:
                del series[key]
