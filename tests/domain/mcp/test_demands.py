"""What messages count, in limits of each kind."""

from __future__ import annotations

import pytest

from gateway.domain.limits import LEASE_US, Limit
from gateway.domain.mcp.demands import ENDING, FREE, LISTEN, LISTENING, Demand, demand_of
from gateway.domain.mcp.messages import Body, Message
from gateway.domain.mcp.settings import Mcp, Tool

MINUTE = 60_000_000
OWN = Limit("mcp/search", "rate", 10, MINUTE)
MCP = Mcp(tools={"search": Tool(cost=5, limit=OWN), "plain": Tool()}, others=Tool(cost=2))
NOTE = Message("notification", b"", "notifications/cancelled")
ANSWER = Message("response", b"1")


def call(name: str) -> Message:
    return Message("request", b"1", "tools/call", name)


def asked(method: str) -> Message:
    return Message("request", b"1", method, "search")


@pytest.mark.parametrize(
    ("messages", "demand"),
    [
        ([call("search")], Demand(5, 1, (("search", 1),), True)),
        ([call("plain")], Demand(2, 1, (), True)),
        ([call("unknown")], Demand(2, 1, (), True)),
        ([asked("prompts/get")], Demand(3, 1, (), True)),
        ([asked(LISTEN)], Demand(0, 1, (), True)),
        ([asked(LISTEN), asked("prompts/get")], Demand(3, 2, (), True)),
        ([NOTE], Demand(0, 1)),
        ([ANSWER], Demand(0, 1)),
        *(([asked(method)], Demand(0, 1)) for method in sorted(FREE)),
        (
            [call("search"), call("plain"), call("search"), NOTE, asked("ping")],
            Demand(12, 5, (("search", 2),), True),
        ),
    ],
)
def test_demands(messages: list[Message], demand: Demand) -> None:
    """A call counts its tool's units, another request the route's, and the rest nothing."""
    mcp = Mcp(tools={**MCP.tools, "plain": Tool(cost=2)}, others=MCP.others)
    assert demand_of(Body(tuple(messages)), mcp, 3) == demand


def test_a_tool_without_a_cost() -> None:
    """It counts as any other request of the route."""
    assert demand_of(Body((call("plain"),)), MCP, 3).units == 3


RATE = Limit("mcp", "rate", 10, MINUTE)
MESSAGES = Limit("control", "rate", 10, MINUTE, of="messages")
FLIGHT = Limit("flight", "concurrency", 5, LEASE_US)
CONNECTIONS = Limit("connections", "connections", 5, LEASE_US)


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        (Demand(5, 1, (("search", 1),), True), (5, 1, 1, 1)),
        (Demand(7, 3, (), True), (7, 3, 1, 1)),
        (Demand(0, 1), (0, 1, 0, 0)),
        (LISTENING, (0, 1, 1, 1)),
        (ENDING, (0, 1, 0, 0)),
    ],
)
def test_each_limit_counts_its_own(demand: Demand, expected: tuple[int, ...]) -> None:
    """Units, messages, requests that wait, and connections."""
    limits = RATE, MESSAGES, FLIGHT, CONNECTIONS
    assert tuple(demand.units_of(limit) for limit in limits) == expected
    assert demand.units_of(RATE, calls=2) == 2
