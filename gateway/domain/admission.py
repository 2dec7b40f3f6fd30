"""What a key may do on a route: decided once, and cached as a `Grant` for all its requests there.

Nothing here depends on time: `judge` decides whether a key is valid now, and the limiter what
remains of its limits.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from gateway.domain.counters import counter_names
from gateway.domain.identity import Grant, Identity
from gateway.domain.judge import route_refusal
from gateway.domain.keys import KeyRecord
from gateway.domain.limits import Check, Limit
from gateway.domain.meets import limits_for, plan_limits
from gateway.domain.policy import Policy
from gateway.domain.route import Route

#: How many grants are searched for one with the same limits. Most routes have only the plan's
#: limit, so a thousand routes would otherwise have a thousand equal checks.
MOST_LIKE: Final = 8


def grant(policy: Policy, route: Route, identity: Identity) -> Grant:
    """What the key may do on the route, and its limits there.

    If no limit applies, the check is for the plan's limits at cost 0, for the response's headers.
    """
    record = identity.record
    plan = policy.plan(record.plan)
    plan_name = record.plan if plan is None else plan.name
    own = record.limits, record.billing_day
    limits = limits_for(plan, route, *own)
    cost = route.cost
    if not limits:
        limits = plan_limits(plan, *own) if plan else (policy.failed_auth,)
        cost = 0
    for other in islice(identity.grants.values(), MOST_LIKE):
        if other.reads or other.verifies or route.mcp is not None:
            continue
        if (other.limits, other.cost, other.costing) == (limits, cost, route.costing):
            limits, check, ask = other.limits, other.check, other.ask
            break
    else:
        check, ask = _checks(record, limits, cost)
        if route.costing is not None or route.mcp is not None:
            check = None
    if route.verification is not None:
        check = None  # the signature comes first
    lines = next((other.identity for other in identity.grants.values()), None)
    return Grant(
        refusal=route_refusal(policy, route, record, identity.account),
        plan=plan_name,
        limits=limits,
        cost=cost,
        costing=route.costing,
        account=record.account,
        home=record.home,
        lineage=record.lineage,
        identity=lines or _identity_lines(record, plan_name),
        check=check,
        ask=ask,
        reads=route.mcp is not None,
        verifies=route.verification is not None,
    )


def _checks(
    record: KeyRecord, limits: tuple[Limit, ...], cost: int
) -> tuple[Check | None, Check | None]:
    """The checks at the route's cost and at 0; None where each request needs another."""
    if any(limit.per not in {"key", "account"} for limit in limits):
        return None, None
    names = counter_names(
        limits,
        account=record.account,
        home=record.home,
        lineage=record.lineage,
        ip="",
        header=_no_header,
    )
    return Check(limits, names, cost), Check(limits, names, 0)


def open_grant(policy: Policy, route: Route) -> Grant:
    """The grant of a route with `auth: none`: the route's own limits, per address or header.

    If it has none, the check is for the limit on the address's failed attempts, at cost 0.
    """
    limits = limits_for(None, route, {})
    return Grant(
        refusal=None,
        plan="",
        limits=limits or (policy.failed_auth,),
        cost=route.cost if limits else 0,
        costing=route.costing,
        reads=route.mcp is not None,
    )


def failed_grant(policy: Policy) -> Grant:
    """The grant of unidentified clients: the limit on their address's failed attempts."""
    return Grant(refusal=None, plan="", limits=(policy.failed_auth,), cost=1, ahead=True)


def _identity_lines(record: KeyRecord, plan: str) -> bytes:
    return (
        f"X-Gateway-Key-Id: {record.id}\r\nX-Gateway-Account: {record.account}\r\n"
        f"X-Gateway-Plan: {plan}\r\nX-Gateway-Scopes: {' '.join(record.scopes)}\r\n"
    ).encode("ascii")


def _no_header(_name: str) -> str:
    return ""
