"""Warnings: parts of a valid policy that are probably a mistake.

A warning has the form of a fault, and does not prevent loading; `gateway validate --strict` fails
because of one. Each can be resolved by writing the intention out. What may well be intended is not
reported: a limit that acts on one plan only, a read that needs no scope where a write needs one, a
gateway without any keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from gateway.domain.limits import Limit
from gateway.domain.meets import limits_for
from gateway.domain.policy import Plan, Policy
from gateway.domain.route import Route
from gateway.policies.bypasses import passed_mcp, unguarded_methods, unguarded_paths
from gateway.policies.checks import most_in_window
from gateway.policies.faults import Fault, quoted
from gateway.policies.limits import PlanEntry, written_kind
from gateway.policies.routes import RouteEntry
from gateway.policies.values import Value

#: The most warnings of one policy.
MOST_WARNINGS: Final = 100


def find_warnings(
    routes: Sequence[RouteEntry], plans: Sequence[PlanEntry], policy: Policy
) -> tuple[Fault, ...]:
    """The warnings of a policy without faults, by file and line; MOST_WARNINGS at most."""
    found = [
        *islice(unguarded_methods(routes, policy), MOST_WARNINGS),
        *islice(unguarded_paths(routes, policy), MOST_WARNINGS),
        *islice(passed_mcp(routes, policy), MOST_WARNINGS),
        *islice(_open_routes(routes), MOST_WARNINGS),
        *islice(_idle_limits(routes, plans, policy), MOST_WARNINGS),
        *islice(_changed_kinds(routes, plans), MOST_WARNINGS),
    ]
    return tuple(sorted(found, key=lambda each: (each.file, each.line)))[:MOST_WARNINGS]


# -- access ----------------------------------------------------------------------------------------


def _open_routes(routes: Sequence[RouteEntry]) -> Iterator[Fault]:
    """What anyone can use: everything that no other route has; counters in Redis."""
    has_keys = any(entry.route is not None and entry.route.auth == "key" for entry in routes)
    for entry in routes:
        route = entry.route
        if route is None or route.auth == "key":
            continue
        if has_keys and route.rest and not route.segments and not route.hosts:
            yield entry.given["match"].warning(
                f"{quoted(route.pattern)} with auth: none, which admits every path without a route "
                "of its own to anyone",
                "auth: key, or narrower patterns",
            )
        for limit, at in zip(route.limits, entry.limits_at, strict=True):
            if limit.per.startswith("header:"):
                yield at.warning(
                    f"the limit {limit.name!r} per {limit.per} with auth: none, which lets anyone "
                    "create any number of counters in Redis",
                    "per: ip",
                )


# -- limits ----------------------------------------------------------------------------------------


def _idle_limits(
    routes: Sequence[RouteEntry], plans: Sequence[PlanEntry], policy: Policy
) -> Iterator[Fault]:
    """Limits that never refuse on any plan, as another limit of the same requests does first.

    And the same of overrides, on their plan.
    """
    #: By plan and name: what bounds the limit on each route that has it.
    overrides: dict[tuple[str, str], list[tuple[str, int] | None]] = defaultdict(list)
    for entry in routes:
        route = entry.route
        if route is None or route.auth != "key":
            continue
        bounds: dict[str, list[tuple[str, int] | None]] = defaultdict(list)
        names = {route.name, *(limit.name for limit in route.every_limit)}
        for plan in policy.plans.values():
            acts = all(None in bounds[limit.name] for limit in route.limits)
            if acts and plan.overrides.keys().isdisjoint(names):
                continue
            limits = limits_for(plan, route, {})
            for limit in limits:
                bound = _bound(limit, limits)
                if limit.name in plan.overrides:
                    overrides[plan.name, limit.name].append(bound)
                else:
                    bounds[limit.name].append(bound)
        for limit, at in zip(route.limits, entry.limits_at, strict=True):
            known = [each for each in bounds[limit.name] if each is not None]
            if known and len(known) == len(bounds[limit.name]):
                other, most = max(known, key=lambda each: each[1])
                yield _idle(at, limit.name, limit.amount, other, most, ", on any plan")
    for plan_entry in plans:
        if plan_entry.plan is not None:
            yield from _idle_overrides(plan_entry.plan, plan_entry, overrides)


def _idle_overrides(
    plan: Plan,
    entry: PlanEntry,
    overrides: dict[tuple[str, str], list[tuple[str, int] | None]],
) -> Iterator[Fault]:
    for name, at in entry.overrides_at.items():
        bounds = overrides.get((plan.name, name), [])
        known = [each for each in bounds if each is not None]
        if known and len(known) == len(bounds):
            other, most = max(known, key=lambda each: each[1])
            yield _idle(at, name, plan.overrides[name].amount, other, most)


def _idle(at: Value, name: str, amount: int, other: str, most: int, where: str = "") -> Fault:
    return at.warning(
        f"{name!r} with {amount}, which never refuses",
        f"at most {most}: the limit {other!r} never admits more in that time{where}",
    )


def _bound(limit: Limit, limits: Sequence[Limit]) -> tuple[str, int] | None:
    """The limit that always refuses before this one, and the most that it admits in its window."""
    if limit.is_leased or limit.shadow:
        return None
    for other in limits:
        if other is limit or other.shadow or other.is_leased or not _includes(other, limit):
            continue
        most = most_in_window(other, limit)
        # The bucket of a burst must not be emptied in the long term either.
        is_slower = other.amount * limit.window_us <= limit.amount * other.window_us
        if most < limit.peak and (limit.burst is None or is_slower):
            return other.name, most
    return None


def _includes(other: Limit, limit: Limit) -> bool:
    """Does the other count all that this one counts? An account includes each of its keys."""
    is_within = other.per == limit.per or (other.per, limit.per) == ("account", "key")
    return is_within and other.of == limit.of


def _changed_kinds(routes: Sequence[RouteEntry], plans: Sequence[PlanEntry]) -> Iterator[Fault]:
    """Overrides that turn a limit of a route into another kind: a rate into a quota."""
    written: dict[str, tuple[Limit, Route]] = {}
    for entry in routes:
        for limit in entry.route.limits if entry.route is not None else ():
            if entry.route is not None:
                written.setdefault(limit.name, (limit, entry.route))
    for plan in plans:
        for name, at in plan.overrides_at.items():
            values = None if plan.plan is None else plan.plan.overrides.get(name)
            if values is None or name not in written:
                continue
            limit, route = written[name]
            kinds = written_kind(values), written_kind(limit)
            if kinds[0] != kinds[1]:
                yield at.warning(
                    f"{kinds[0]} for the limit {name!r}",
                    f"{kinds[1]}, as routes.{route.name} ({route.where}) has it",
                )
