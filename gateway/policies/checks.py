"""Checks across the parts of a policy: names that do not exist, limits that cannot take effect.

Only certain errors are faults. An unusual limit may be intended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from gateway.domain.conflicts import conflicts, unreachable
from gateway.domain.limits import Limit
from gateway.domain.meets import limits_for
from gateway.domain.policy import AUTH_VERIFY, FAILED_AUTH, Plan
from gateway.domain.route import Route
from gateway.domain.routes import OWN_ROUTES, RouteTable, fold
from gateway.domain.upstreams import WEBHOOKS
from gateway.policies.faults import escaped, one_of, quoted, suggestion
from gateway.policies.limits import (
    PLAN_LIMIT,
    TOO_MANY_CONNECTIONS,
    PlanEntry,
    exceeds_connections,
)
from gateway.policies.routes import RouteEntry
from gateway.policies.values import Value

#: The names of the policy's own limits, which no other limit can have.
_TAKEN: Final = {
    FAILED_AUTH.name: "the limit on failed attempts has it",
    AUTH_VERIFY.name: "the limit on /v1/auth/verify has it",
}
#: A request is matched before it is authenticated, and up to six times if its path can be read in
#: several ways; a step takes 0.1 us. The thousand routes of GitHub's API take 15 steps.
MOST_STEPS: Final = 128
#: The most segments of all patterns with ** in the middle. They are matched at once, in at most a
#: step of 0.1 to 0.3 us for each segment of a path: with more, these steps would take longer.
MOST_GAPPED: Final = 2_048
#: The longest pattern that a fault suggests.
_MOST_SUGGESTED: Final = 200


def check_upstreams(routes: Sequence[RouteEntry], upstreams: Collection[str]) -> None:
    """Every route's upstream exists, and its canary's, which is another one."""
    known = [*upstreams, WEBHOOKS]
    for entry in routes:
        for at in (entry.given.get("upstream"), entry.canary_at):
            if at is not None and at.is_text and at.node.value not in known:
                name = str(at.node.value)
                at.add_fault(f"{one_of(known)}{suggestion(name, known)}")
        route, at = entry.route, entry.canary_at
        canary = None if route is None else route.canary
        if route and canary and at is not None and canary.upstream == route.upstream != "":
            at.add_fault("another upstream than the route's")


def check_overrides(plans: Sequence[PlanEntry], routes: Sequence[RouteEntry]) -> None:
    """Every override of a plan names a route that requires a key, or a limit of such a route.

    None has more connections than such a limit may have.
    """
    met = [limit for entry in routes if entry.route for limit in entry.route.limits]
    names: dict[str, None] = {}
    for entry in routes:
        if entry.route is None or entry.route.auth == "key":
            names.update(dict.fromkeys((entry.name, *_limit_names(entry))))
    names.pop(PLAN_LIMIT, None)
    renamed = {was: entry.name for entry in routes if entry.route for was in entry.route.was}
    for entry in routes:
        for limit in entry.route.every_limit if entry.route else ():
            renamed.update(dict.fromkeys(limit.was, limit.name))
    for plan in plans:
        for name, at in plan.overrides_at.items():
            if name in renamed:
                at.add_fault(f"{renamed[name]!r}, its name now", quoted(name))
            elif name not in names:
                at.add_fault(f"{one_of(names)}{suggestion(name, names)}", quoted(name))
            elif plan.plan is not None and name in plan.plan.overrides:
                values = plan.plan.overrides[name]
                if any(limit.name == name and exceeds_connections(limit, values) for limit in met):
                    at.add_fault(TOO_MANY_CONNECTIONS, f"{values.amount} connections")


def check_routes(routes: Sequence[RouteEntry]) -> None:
    """Every request has at most one most specific route, and every route matches a request."""
    entries = {entry.name: entry for entry in routes}
    readable = [entry.route for entry in routes if entry.route is not None]
    conflicting: set[str] = set()
    for first, second, example, third, same in conflicts(readable):
        if same and second.name in conflicting:
            continue  # of three equal routes, the third would have a fault for both others
        conflicting |= {first.name, second.name}
        rule = "another pattern" if same else "one of the two to be more specific"
        if third and len(third) <= _MOST_SUGGESTED:
            rule += f", or a third route {escaped(third)}"
        if same and first.segments != second.segments:
            rule += ", as letter case matters only if both are case_sensitive"
        host = next((f" on {host}" for host in second.hosts if host in first.hosts), "")
        entries[second.name].given["match"].add_fault(
            f"{rule}: routes.{first.name} ({first.where}) matches {escaped(example)}{host} too",
            quoted(f"{second.pattern}"),
        )
    for route in unreachable(readable):
        if route.name not in conflicting:
            entries[route.name].given["match"].add_fault(_why_unreachable(route))


def check_steps(routes: Value, tables: Collection[RouteTable]) -> None:
    """Matching a request does not take long.

    routes: the value of the key `routes`; tables: those of all hosts
    """
    steps = max(table.most_steps() for table in tables)
    gapped_segments = max(table.gapped_segments for table in tables)
    if steps > MOST_STEPS:
        routes.add_fault(
            f"at most {MOST_STEPS}: fewer places where one route has * and another a name",
            f"routes that need up to {steps} steps to match a request",
        )
    if gapped_segments > MOST_GAPPED:
        routes.add_fault(
            f"at most {MOST_GAPPED}",
            f"{gapped_segments} segments in all patterns with ** in the middle",
        )


def _why_unreachable(route: Route) -> str:
    own = OWN_ROUTES.get(tuple(map(fold, route.segments)))
    if own is not None:
        return f"another path: the gateway itself answers at /{'/'.join(own.segments)}"
    return "a pattern that more specific routes do not cover completely"


def check_limits(routes: Sequence[RouteEntry], plans: Sequence[PlanEntry]) -> None:
    """The limits of one request have different names, and each can take effect."""
    overridden = {name for plan in plans for name in plan.overrides_at}
    for entry in routes:
        if entry.route is not None:
            _check_names(entry, entry.route)
            _check_public(entry, entry.route)
            _check_cost(entry, entry.route, [one.plan for one in plans if one.plan is not None])
            _check_idle(entry, entry.route, overridden)


def check_plans(plans: Sequence[PlanEntry], routes: Sequence[RouteEntry]) -> None:
    """The names of a plan's limits are no other limit's, and no route's: keys override by name."""
    taken = {PLAN_LIMIT: "the plan's rate has it", **_TAKEN}
    for entry in routes:
        for name in _limit_names(entry):
            taken.setdefault(name, f"a limit of routes.{entry.name} has it")
        taken[entry.name] = f"routes.{entry.name} has it"
    for plan in plans:
        own: set[str] = set()
        for limit, at in plan.more:
            reason = taken.get(limit.name) or "another limit of this plan has it"
            if limit.name in taken or limit.name in own:
                at.add_fault(f"another name: {reason}", f"a limit named {limit.name!r}")
            own.add(limit.name)


def check_renames(plans: Sequence[PlanEntry], routes: Sequence[RouteEntry]) -> None:
    """An earlier name is that of one thing only, and nothing has it now."""
    plan_names = {plan.name: plan.plan.was if plan.plan else () for plan in plans}
    _check_earlier("plan", plan_names, {plan.name: plan.at for plan in plans})
    _check_earlier(
        "route",
        {entry.name: entry.route.was if entry.route else () for entry in routes},
        {entry.name: entry.at for entry in routes},
    )
    limits: dict[str, tuple[str, ...]] = dict.fromkeys((PLAN_LIMIT, *_TAKEN), ())
    places: dict[str, Value] = {}
    of_routes = [
        pair
        for entry in routes
        if entry.route is not None
        for pair in zip(entry.route.limits, entry.limits_at, strict=True)
    ]
    for limit, at in (*of_routes, *(pair for plan in plans for pair in plan.more)):
        if limits.setdefault(limit.name, limit.was) != limit.was:
            at.add_fault(
                f"the same `was` wherever a limit is named {limit.name!r}, as they share counters",
                f"was: {list(limit.was)}",
            )
        places.setdefault(limit.name, at)
    _check_earlier("limit", limits, places)


def _check_earlier(
    what: str, earlier: Mapping[str, Sequence[str]], places: Mapping[str, Value]
) -> None:
    """earlier: by name, the earlier names"""
    taken: dict[str, str] = {}
    for name, was in earlier.items():
        for old in was:
            if old in earlier:
                places[name].add_fault(
                    f"earlier names that no {what} has now", f"was: {old}, and a {what} {old!r}"
                )
            elif taken.setdefault(old, name) != name:
                places[name].add_fault(
                    f"earlier names of one {what}", f"was: {old}, as {taken[old]!r} has it"
                )


def _limit_names(entry: RouteEntry) -> list[str]:
    return [limit.name for limit in entry.route.every_limit] if entry.route else []


def _check_names(entry: RouteEntry, route: Route) -> None:
    taken = dict(_TAKEN)
    if route.plan_limits and route.auth == "key":
        taken[PLAN_LIMIT] = "the plan's own limit has it"
    for limit, at in zip(route.limits, entry.limits_at, strict=True):
        if limit.name in taken:
            at.add_fault(f"another name: {taken[limit.name]}", f"a limit named {limit.name!r}")
        taken.setdefault(limit.name, "another limit of this route has it")


def _check_public(entry: RouteEntry, route: Route) -> None:
    """A route without keys has no limits per key or account, and no access rules."""
    if route.auth == "key":
        return
    for limit, at in zip(route.limits, entry.limits_at, strict=True):
        if limit.per in {"key", "account"}:
            at.add_fault(
                "an entry of limits with per: ip or per: header:NAME, as auth: none uses no key",
                f"a limit per {limit.per}",
            )
    for key in ("scopes", "permission", "service"):
        if key in entry.given:
            entry.given[key].add_fault(f"no {key}, as auth: none uses no key")


def _check_cost(entry: RouteEntry, route: Route, plans: Sequence[Plan]) -> None:
    """No limit of a request is below what the request may cost: it would refuse it for ever."""
    for name, tool in ({} if route.mcp is None else route.mcp.rules).items():
        for peak, whose in _too_small(route, plans, tool.cost or 0):
            expected = f"at most {peak}: more is never admitted by {whose}"
            entry.given["mcp"].add_fault(expected, f"tools.{name}.cost: {tool.cost}")
    at = entry.given.get("cost")
    if at is None:
        return
    found = None if route.costing is None else f"max: {route.most_cost}"
    for peak, whose in _too_small(route, plans, route.most_cost):
        at.add_fault(f"at most {peak}: more is never admitted by {whose}", found)


def _too_small(route: Route, plans: Sequence[Plan], cost: int) -> list[tuple[int, str]]:
    """The limits of requests that never admit one of this cost: the most that each does, and whose
    it is.
    """
    own = {limit.name: limit for limit in route.limits}
    met: dict[tuple[str, int], str] = {}
    if route.auth == "key" and plans:
        for plan in plans:
            for limit in _refusing(limits_for(plan, route, {}), cost):
                of_route = own.get(limit.name)
                is_own = of_route is not None and of_route.peak == limit.peak
                whose = "its limit" if is_own else f"plan {plan.name}'s limit"
                met.setdefault((limit.name, limit.peak), f"{whose} {limit.name!r}")
    else:
        for limit in _refusing(route.limits, cost):
            met[limit.name, limit.peak] = f"its limit {limit.name!r}"
    return [(peak, whose) for (_, peak), whose in met.items()]


def _refusing(limits: Iterable[Limit], cost: int) -> list[Limit]:
    """Those that never admit a request of this cost."""
    asked = (one for one in limits if not one.shadow and one.of == "requests")
    return [one for one in asked if not one.ever_admits(cost)]


def _check_idle(entry: RouteEntry, route: Route, overridden: Collection[str]) -> None:
    """No limit is without effect because another limit of the route always refuses first."""
    fixed = [
        (limit, at)
        for limit, at in zip(route.limits, entry.limits_at, strict=True)
        if limit.name not in overridden and not limit.is_leased
    ]
    for limit, at in fixed:
        for other, _ in fixed:
            if other is limit or other.shadow or (other.per, other.of) != (limit.per, limit.of):
                continue
            most = most_in_window(other, limit)
            if limit.burst is None and most < limit.amount:
                at.add_fault(
                    f"at most {most}: the limit {other.name!r} never admits more in that time",
                    f"{limit.name!r} with {limit.amount}",
                )
                break


def most_in_window(other: Limit, limit: Limit) -> int:
    """The most that the other limit admits in the time in which this one counts."""
    sliding = limit.rules.slotted
    # A rate counts its window and one more slot.
    width_us = limit.window_us + (limit.slot_us if sliding else 0)
    return most_admitted(other, width_us, sliding=sliding)


def most_admitted(limit: Limit, width_us: int, *, sliding: bool) -> int:
    """The most that a limit admits in any span of this width.

    sliding: a span may begin at any time, not only with a calendar period of this width
    """
    windows = -(-width_us // limit.window_us)
    if limit.rules.calendar and (sliding or width_us % limit.window_us):
        windows += 1  # a span that does not begin with a period may overlap one more
    most = windows * limit.peak
    if limit.burst is not None:
        most = min(most, limit.peak + -(-width_us // limit.unit_us))
    return most
