"""Metrics of MCP: bounded labels, and connections that are counted once."""

from __future__ import annotations

from gateway.observe.mcp_metrics import McpMetrics
from gateway.observe.registry import Registry
from tests.observe.test_registry import values_of


def test_messages() -> None:
    """A method that clients made up has no series of its own."""
    registry = Registry()
    metrics = McpMetrics(registry)
    metrics.ended("mcp", "tools/call", "search", "admitted")
    metrics.ended("mcp", "made/up", "", "limited")
    metrics.refused("mcp", "rate_limited")
    metrics.unfiltered()
    values = values_of(registry)
    assert values["mcp_requests"] == {
        ("mcp", "tools/call", "search", "admitted"): (1,),
        ("mcp", "other", "", "limited"): (1,),
    }
    assert values["mcp_refused"] == {("mcp", "rate_limited"): (1,)}
    assert values["mcp_lists_unfiltered"] == {(): (1,)}


def test_connections() -> None:
    """A session counts once, from its first exchange to the end of its last."""
    registry = Registry()
    metrics = McpMetrics(registry)
    seen = []
    for change, connection in (
        (metrics.opened, 1),
        (metrics.opened, 1),
        (metrics.opened, 2),
        (metrics.closed, 1),
        (metrics.closed, 1),
        (metrics.closed, 2),
    ):
        change("mcp", connection)
        seen.append(values_of(registry)["mcp_connections"]["mcp",])
    assert seen == [(1,), (1,), (2,), (2,), (1,), (0,)]
    assert metrics._open == {}


def test_connections_of_keys() -> None:
    """Each connection counts for the key that opened it; without a key, for none."""
    metrics = McpMetrics(Registry())
    for route, connection, key_id in (
        *(("mcp", 1, "a"), ("mcp", 1, "a"), ("mcp", 2, "b")),
        *(("mcp", 3, "a"), ("other", 1, "b"), ("open", 9, "")),
    ):
        metrics.opened(route, connection, key_id)
    assert metrics.connected == {"a": 2, "b": 2}
    metrics.closed("mcp", 1)
    assert metrics.connected == {"a": 2, "b": 2}
    metrics.closed("mcp", 1)
    metrics.closed("mcp", 3)
    metrics.closed("open", 9)
    assert metrics.connected == {"b": 2}
