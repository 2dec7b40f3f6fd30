"""Builds the check of MCP messages: each limit counts its own part of what they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.domain.counters import counter_names
from gateway.domain.identity import Grant
from gateway.domain.limits import Check, Limit
from gateway.domain.mcp.demands import Demand
from gateway.domain.mcp.settings import Mcp

#: The most checks that a grant caches. Beyond it, the cache is emptied.
MOST_DEMANDS: Final = 256


def check_of(
    granted: Grant,
    mcp: Mcp,
    demand: Demand,
    with_own: Callable[[Limit], Limit],
    subject: str,
    header: Callable[[str], str],
) -> Check:
    """The check for this demand.

    with_own: returns the limit of a tool with the key's own values; subject: of the client's
    address; header: the value of a header by its lower-case name
    """
    cached = granted.demanded
    if cached is not None and (check := cached.get(demand)) is not None:
        return check
    limits = list(granted.limits)
    costs = [demand.units_of(limit) for limit in limits] if granted.cost else [0] * len(limits)
    for name, calls in demand.tools:
        limit = mcp.tool(name).limit
        if limit is not None:
            limits.append(with_own(limit))
            costs.append(calls)
    names = counter_names(
        limits,
        account=granted.account,
        home=granted.home,
        lineage=granted.lineage,
        ip=subject,
        header=header,
    )
    check = Check(tuple(limits), names, max(costs), costs=tuple(costs))
    if all(limit.per in {"key", "account"} for limit in limits):
        if cached is None or len(cached) >= MOST_DEMANDS:
            granted.demanded = cached = {}
        cached[demand] = check
    return check
