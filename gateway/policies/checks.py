"""Checks across the parts of a policy: names that do not exist, limits that cannot take effect.

Only certain errors are faults. An unusual limit may be intended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from gateway.domain.limits import Limit
from gateway.domain.policy import AUTH_VERIFY, FAILED_AUTH
from gateway.domain.route import Route
from gateway.domain.routes import OWN_ROUTES, RouteTable, conflicts, fold, unreachable
from gateway.policies.faults import one_of, quoted, suggestion
from gateway.policies.limits import PlanEntry
from gateway.policies.routes import RouteEntry
from gateway.policies.values import Value

PLAN_LIMIT: Final = "plan"
#: A request is matched before it is authenticated, and up to six times if its path can be read in
#: several ways; a step takes 0.1 us. The thousand routes of GitHub's API take 15 steps.
MOST_STEPS: Final = 128


def check_upstreams(routes: Sequence[RouteEntry], upstreams: Collection[str]) -> None:
    """Every route's upstream exists."""
    for entry in routes:
        at = entry.given.get("upstream")
        if at is not None and at.is_text and at.node.value not in upstreams:
            name = str(at.node.value)
            at.add_fault(f"{one_of(upstreams)}{suggestion(name, upstreams)}")


def check_overrides(plans: Sequence[PlanEntry], routes: Sequence[RouteEntry]) -> None:
    """Every override of a plan names a route that requires a key, or a limit of such a route."""
    names: dict[str, None] = {}
    for entry in routes:
        if entry.route is None or entry.route.auth == "key":
            names.update(dict.fromkeys((entry.name, *_limit_names(entry))))
    names.pop(PLAN_LIMIT, None)
    for plan in plans:
        for name, at in plan.overrides_at.items():
            if name not in names:
                at.add_fault(f"{one_of(names)}{suggestion(name, names)}", quoted(name))


def check_routes(routes: Sequence[RouteEntry]) -> None:
    """Every request has at most one most specific route, and every route matches a request."""
    entries = {entry.name: entry for entry in routes}
    readable = [entry.route for entry in routes if entry.route is not None]
    conflicting: set[str] = set()
    for first, second, example, same in conflicts(readable):
        if same and second.name in conflicting:
            continue  # of three equal routes, the third would have a fault for both others
        conflicting |= {first.name, second.name}
        rule = "another pattern" if same else "one of the two to be more specific"
        if same and first.segments != second.segments:
            rule += ", as letter case matters only if both are case_sensitive"
        entries[second.name].given["match"].add_fault(
            f"{rule}: routes.{first.name} ({first.where}) matches {example} too",
            quoted(f"{second.pattern}"),
        )
    for route in unreachable(readable):
        if route.name not in conflicting:
            entries[route.name].given["match"].add_fault(_why_unreachable(route))


def check_steps(routes: Value, table: RouteTable) -> None:
    """Matching a request does not take long.

    routes: the value of the key `routes`
    """
    steps = table.most_steps()
    if steps > MOST_STEPS:
        routes.add_fault(
            f"at most {MOST_STEPS}: fewer places where one route has * and another a name",
            f"routes that need up to {steps} steps to match a request",
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
            _check_cost(entry, entry.route)
            _check_idle(entry, entry.route, overridden)


def _limit_names(entry: RouteEntry) -> list[str]:
    return [limit.name for limit in entry.route.limits] if entry.route else []


def _check_names(entry: RouteEntry, route: Route) -> None:
    taken = {
        FAILED_AUTH.name: "the limit on failed attempts has it",
        AUTH_VERIFY.name: "the limit on /v1/auth/verify has it",
    }
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


def _check_cost(entry: RouteEntry, route: Route) -> None:
    for limit in route.limits:
        # One request is one lease, at any cost.
        if not limit.is_leased and route.cost > limit.peak:
            entry.given["cost"].add_fault(
                f"at most {limit.peak}: more is never admitted by its limit {limit.name!r}"
            )


def _check_idle(entry: RouteEntry, route: Route, overridden: Collection[str]) -> None:
    """No limit is without effect because another limit of the route always refuses first."""
    fixed = [
        (limit, at)
        for limit, at in zip(route.limits, entry.limits_at, strict=True)
        if limit.name not in overridden and not limit.is_leased
    ]
    for limit, at in fixed:
        for other, _ in fixed:
            if other is limit or other.shadow or other.per != limit.per:
                continue
            sliding = limit.rules.slotted
            # A rate counts its window and one more slot.
            width_us = limit.window_us + (limit.slot_us if sliding else 0)
            most = most_admitted(other, width_us, sliding=sliding)
            if limit.burst is None and most < limit.amount:
                at.add_fault(
                    f"at most {most}: the limit {other.name!r} never admits more in that time",
                    f"{limit.name!r} with {limit.amount}",
                )
                break


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
