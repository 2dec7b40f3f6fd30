"""Which limits a key can meet: its plan's, and those of the routes that it may use.

For all keys of a plan without figures of their own the first step is the same, and a policy may
have hundreds of routes: whoever asks often keeps what `limits_met` gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.domain.admission import access_refusal
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Limit
from gateway.domain.plans import limits_for
from gateway.domain.policy import Plan, Policy, Route

#: A limit, and the route that it is met on; None: it is the plan's.
Met = tuple[Route | None, Limit]

#: What the plan alone asks of a request.
_NO_ROUTE = Route("", "*", (), True, "")


def plan_limit(plan: Plan, own: Mapping[str, Limit]) -> Limit:
    """The plan's limit, with the key's own figures where it has any."""
    return limits_for(plan, _NO_ROUTE, own)[0]


def limits_met(policy: Policy, plan: Plan, own: Mapping[str, Limit]) -> tuple[tuple[Met, ...], ...]:
    """Every limit that keys of the plan meet, the plan's first, each on all routes that have it.

    Two are one limit where they are one count, whatever figures they give.

    own: a key's own figures by limit name
    """
    first = plan_limit(plan, own)
    found: dict[tuple[str, str], list[Met]] = {(first.counter, first.per): [(None, first)]}
    for route in policy.routes.values():
        if route.auth == "key":
            for limit in limits_for(plan, route, own):
                found.setdefault((limit.counter, limit.per), []).append((route, limit))
    return tuple(map(tuple, found.values()))


def reachable(met: Iterable[tuple[Met, ...]], record: KeyRecord, account: Account) -> list[Met]:
    """Those of `limits_met` that this key can meet, each on the first route that it may use."""
    # Hundreds of routes have a few different rules of access.
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
