"""Which limits a request meets: its plan's and its route's, with the figures that hold for its key.

Figures are a limit's kind, amount, window and burst. What it is counted per and whether it only
watches are the route's to say, whoever sets the figures.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.domain.limits import Limit
from gateway.domain.policy import Plan, Route


def limits_for(plan: Plan | None, route: Route, own: Mapping[str, Limit]) -> tuple[Limit, ...]:
    """The limits of one decision, in order: the plan's, then the route's as written.

    plan: None where no key is asked for; own: the key's own figures by limit name, which go
    before the plan's, which go before the route's. Figures under the route's name, where the
    route has no such limit, are one limit more at the end.
    """
    limits = [_with_figures(limit, _figures(limit.name, plan, own)) for limit in route.limits]
    if plan is not None and route.plan_limits:
        limits.insert(0, _with_figures(plan.limit, own.get(plan.limit.name)))
    added = _figures(route.name, plan, own)
    if added is not None and all(limit.name != route.name for limit in limits):
        limits.append(_rebuilt(added, route.name, "key", False))
    return tuple(limits)


def _figures(name: str, plan: Plan | None, own: Mapping[str, Limit]) -> Limit | None:
    found = own.get(name)
    if found is None and plan is not None:
        found = plan.overrides.get(name)
    return found


def _with_figures(limit: Limit, figures: Limit | None) -> Limit:
    if figures is None:
        return limit
    return _rebuilt(figures, limit.name, limit.per, limit.shadow)


def _rebuilt(figures: Limit, name: str, per: str, shadow: bool) -> Limit:
    return Limit(name, figures.kind, figures.amount, figures.window_us, figures.burst, per, shadow)
