"""The limits of a request, and the limits that a key can reach on all routes that it may use.

The values of a limit are its kind, amount, window and burst. They may be set by the key or its
account, by the plan and by the route, in this order of precedence. What a limit is counted per and
whether it is in shadow mode are set by the route alone.

`all_limits` is the same for all keys of a plan without overrides, and a policy may have hundreds
of routes: callers cache the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.domain.judge import access_refusal
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Limit
from gateway.domain.policy import Plan, Policy
from gateway.domain.route import Route

#: A limit, and the route that has it; None: it is the plan's.
RouteLimit = tuple[Route | None, Limit]

#: A route for the plan's limit only.
_NO_ROUTE = Route("", "*", (), True, "")


def limits_for(plan: Plan | None, route: Route, own: Mapping[str, Limit]) -> tuple[Limit, ...]:
    """The limits of one decision, in order: the plan's, then the route's as written.

    plan: None where no key is required
    own:  the key's own values by limit name

    Values under the route's name add a limit at the end, if the route has no limit of that name.
    """
    limits = [_with_values(limit, _values(limit.name, plan, own)) for limit in route.limits]
    if plan is not None and route.plan_limits:
        limits.insert(0, _with_values(plan.limit, own.get(plan.limit.name)))
    added = _values(route.name, plan, own)
    if added is not None and all(limit.name != route.name for limit in limits):
        limits.append(_rebuilt(added, route.name, "key", False))
    return tuple(limits)


def plan_limit(plan: Plan, own: Mapping[str, Limit]) -> Limit:
    """The plan's limit, with the key's own values where it has any."""
    return limits_for(plan, _NO_ROUTE, own)[0]


def all_limits(
    policy: Policy, plan: Plan | None, own: Mapping[str, Limit]
) -> tuple[tuple[RouteLimit, ...], ...]:
    """Every limit that keys of the plan can have, the plan's first, each with all its routes.

    Limits with the same counter are one limit, even if their values differ.

    plan: None where the policies do not have the key's plan
    own:  a key's own values by limit name
    """
    found: dict[tuple[str, str], list[RouteLimit]] = {}
    if plan is not None:
        first = plan_limit(plan, own)
        found[first.counter, first.per] = [(None, first)]
    for route in policy.routes.values():
        if route.auth == "key":
            for limit in limits_for(plan, route, own):
                found.setdefault((limit.counter, limit.per), []).append((route, limit))
    return tuple(map(tuple, found.values()))


def reachable(
    met: Iterable[tuple[RouteLimit, ...]], record: KeyRecord, account: Account
) -> list[RouteLimit]:
    """The entries of `all_limits` that this key can reach, each on the first route it may use."""
    # Hundreds of routes have only a few different access rules.
    may_use: dict[object, bool] = {}

    def is_open(route: Route | None) -> bool:
        if route is None:
            return True
        rules = route.scopes, route.permission, route.service
        if rules not in may_use:
            may_use[rules] = access_refusal(route, record, account) is None
        return may_use[rules]

    first = (next((one for one in each if is_open(one[0])), None) for each in met)
    return [one for one in first if one is not None]


def _values(name: str, plan: Plan | None, own: Mapping[str, Limit]) -> Limit | None:
    found = own.get(name)
    if found is None and plan is not None:
        found = plan.overrides.get(name)
    return found


def _with_values(limit: Limit, values: Limit | None) -> Limit:
    if values is None:
        return limit
    return _rebuilt(values, limit.name, limit.per, limit.shadow)


def _rebuilt(values: Limit, name: str, per: str, shadow: bool) -> Limit:
    return Limit(name, values.kind, values.amount, values.window_us, values.burst, per, shadow)
