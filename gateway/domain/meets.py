"""The limits of a request, and the limits that a key can reach on all routes that it may use.

The values of a limit are its kind, amount, window and burst. They may be set by the key or its
account, by the plan and by the route, in this order of precedence. What a limit is counted per,
whether it is in shadow mode and in which time zone its periods are is set where the limit is
defined, by the plan or the route. Values may be set by an earlier name of a limit.

A limit's candidate follows it directly. Where a key, an account or a plan has its own values for
the limit, there is none: those values would stay if the candidate replaced the ones as written.
Whether a concurrency limit counts requests or connections is set there as well.

`all_limits` is the same for all keys of a plan without overrides, and a policy may have hundreds
of routes: callers cache the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gateway.domain.judge import access_refusal
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Limit
from gateway.domain.policy import Plan, Policy
from gateway.domain.route import Route

#: A limit, and the route that has it; None: it is the plan's.
RouteLimit = tuple[Route | None, Limit]

#: A route for the plan's limits only.
_NO_ROUTE = Route("", "*", (), True, "")


def limits_for(
    plan: Plan | None, route: Route, own: Mapping[str, Limit], billing_day: int = 1
) -> tuple[Limit, ...]:
    """The limits of one decision, in order: the plan's, then the route's as written.

    Each is followed by its candidate, if it has one.

    plan: None where no key is required
    own:  the key's own values by limit name
    billing_day: the account's

    Values under the route's name add a limit at the end, if the route has no limit of that name.
    """
    limits: list[Limit] = []
    if plan is not None and route.plan_limits:
        limits += [_with_values(limit, _of_name(limit.names, own)) for limit in plan.limits]
    limits += [_with_values(limit, _values(limit.names, plan, own)) for limit in route.limits]
    added = _values((route.name, *reversed(route.was)), plan, own)
    if added is not None and all(limit.name != route.name for limit in limits):
        limits.append(replace(added, name=route.name, per="key", shadow=False, was=route.was))
    return tuple(
        _from_day(one, billing_day)
        for limit in limits
        for one in (limit, limit.candidate)
        if one is not None
    )


def with_own(
    limit: Limit, plan: Plan | None, own: Mapping[str, Limit], billing_day: int = 1
) -> Limit:
    """A limit that is no part of `limits_for`, with the values of the key or the plan."""
    values = _values(limit.names, plan, own)
    return _from_day(_with_values(limit, values), billing_day)


def plan_limits(plan: Plan, own: Mapping[str, Limit], billing_day: int = 1) -> tuple[Limit, ...]:
    """The plan's limits, with the key's own values where it has any; the first is the rate.

    Each is followed by its candidate, if it has one.
    """
    return limits_for(plan, _NO_ROUTE, own, billing_day)


def possible_limits(
    plan: Plan | None, route: Route, own: Mapping[str, Limit], billing_day: int = 1
) -> tuple[Limit, ...]:
    """`limits_for`, and the limits of all tools of the route, of which a call meets one."""
    limits = limits_for(plan, route, own, billing_day)
    tools = () if route.mcp is None else route.mcp.limits
    return *limits, *(with_own(limit, plan, own, billing_day) for limit in tools)


def all_limits(
    policy: Policy, plan: Plan | None, own: Mapping[str, Limit], billing_day: int = 1
) -> tuple[tuple[RouteLimit, ...], ...]:
    """Every limit that keys of the plan can have, the plan's first, each with all its routes.

    Those of tools are among them.

    Without candidates: a limit has its own in `Limit.candidate`.

    Limits with the same counter are one limit, even if their values differ.

    plan: None where the policies do not have the key's plan
    own:  a key's own values by limit name
    """
    found: dict[tuple[str, str], list[RouteLimit]] = {}
    if plan is not None:
        for limit in plan_limits(plan, own, billing_day):
            if not limit.is_candidate:
                found[limit.counter, limit.per] = [(None, limit)]
    for route in policy.routes.values():
        if route.auth == "key":
            for limit in possible_limits(plan, route, own, billing_day):
                if not limit.is_candidate:
                    found.setdefault((limit.counter, limit.per), []).append((route, limit))
    return tuple(map(tuple, found.values()))


def reachable(
    met: Iterable[tuple[RouteLimit, ...]], record: KeyRecord, account: Account
) -> list[RouteLimit]:
    """The entries of `all_limits` that this key can reach, each on the first route it may use.

    Those of tools, ROUTE/TOOL, only if it has the tool's permission.
    """
    # Hundreds of routes have only a few different access rules.
    may_use: dict[object, bool] = {}

    def is_open(route: Route | None, limit: Limit) -> bool:
        if route is None:
            return True
        _, slash, tool = limit.name.partition("/")
        if slash and route.mcp is not None and not route.mcp.tool(tool).is_permitted(record):
            return False
        rules = route.scopes, route.permission, route.service
        if rules not in may_use:
            may_use[rules] = access_refusal(route, record, account) is None
        return may_use[rules]

    first = (next((one for one in each if is_open(*one)), None) for each in met)
    return [one for one in first if one is not None]


def _from_day(limit: Limit, billing_day: int) -> Limit:
    """The limit for an account with this billing day."""
    if not limit.billing or limit.month_day == billing_day:
        return limit
    return replace(limit, month_day=billing_day)


def _values(names: Iterable[str], plan: Plan | None, own: Mapping[str, Limit]) -> Limit | None:
    """The values for a limit that has, or had, these names."""
    found = _of_name(names, own)
    return _of_name(names, plan.overrides) if found is None and plan is not None else found


def _of_name(names: Iterable[str], values: Mapping[str, Limit]) -> Limit | None:
    return next((values[name] for name in names if name in values), None)


def _with_values(limit: Limit, values: Limit | None) -> Limit:
    if values is None:
        return limit
    return replace(
        limit,
        kind=limit.kind if limit.is_leased and values.is_leased else values.kind,
        amount=values.amount,
        window_us=values.window_us,
        burst=values.burst,
        candidate=None,
    )
