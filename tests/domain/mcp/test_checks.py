"""Checks of MCP messages: limits, counters, and what each of them counts."""

from __future__ import annotations

from dataclasses import replace

from gateway.domain.identity import Grant
from gateway.domain.limits import Check, Limit
from gateway.domain.mcp.checks import MOST_DEMANDS, check_of
from gateway.domain.mcp.demands import ENDING, Demand
from gateway.domain.mcp.settings import Mcp, Tool

MINUTE = 60_000_000
RATE = Limit("mcp", "rate", 100, MINUTE)
CONTROL = Limit("control", "rate", 600, MINUTE, of="messages")
SEARCH = Limit("mcp/search", "rate", 30, MINUTE)
MCP = Mcp(tools={"search": Tool(limit=SEARCH), "plain": Tool()})
CALL = Demand(5, 1, (("search", 1),), True)


def granted(*limits: Limit, cost: int = 1) -> Grant:
    found = limits or (RATE, CONTROL)
    return Grant(None, "free", found, cost, account="a", home="a", lineage="k", reads=True)


def built(grant: Grant, demand: Demand, subject: str = "192.0.2.1") -> Check:
    return check_of(grant, MCP, demand, lambda limit: limit, subject, lambda _: "")


def test_a_call() -> None:
    """The tool's limit joins those of the route; each counts its own."""
    check = built(granted(), CALL)
    assert check.limits == (RATE, CONTROL, SEARCH)
    assert (check.cost, check.costs) == (5, (5, 1, 1))
    assert check.counters[2] == "gw:limit:{a}:key:k:mcp/search:rate:60000000"
    assert built(granted(), Demand(1, 1, (("plain", 1),), True)).limits == (RATE, CONTROL)


def test_a_message_that_counts_nothing() -> None:
    """It is only counted as a message, also DELETE."""
    for demand in (Demand(0, 1), ENDING):
        check = built(granted(), demand)
        assert (check.cost, check.costs) == (1, (0, 1))


def test_where_no_limit_applies() -> None:
    """The plan's limits are only reported; a tool's limit applies."""
    check = built(granted(RATE, cost=0), CALL)
    assert check.costs == (0, 1)


def test_own_values() -> None:
    """A key's own values of a tool's limit are used."""
    grant = granted()
    check = check_of(grant, MCP, CALL, lambda one: replace(one, amount=99), "", lambda _: "")
    assert check.limits[2].amount == 99


def test_checks_are_cached() -> None:
    """By what is asked for, unless a counter depends on the request; within a bound."""
    grant = granted()
    assert built(grant, CALL) is built(grant, CALL)
    for units in range(2 * MOST_DEMANDS):
        built(grant, Demand(units, 1))
    assert 0 < len(grant.demanded or ()) <= MOST_DEMANDS
    grant = granted(replace(RATE, per="ip"))
    assert built(grant, CALL).counters != built(grant, CALL, "192.0.2.2").counters
    assert grant.demanded is None
