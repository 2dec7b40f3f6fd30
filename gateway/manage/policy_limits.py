"""The limits that differ between two policies, and whether they continue in the same counters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gateway.domain.limits import Limit
from gateway.domain.meets import all_limits, possible_limits
from gateway.domain.policy import Plan, Policy
from gateway.manage.policy_requests import renamed_routes


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A limit that differs; old or new is None where there is none.

    kept: it continues in counters that there were
    uses: where: the names of plans and (new) routes; the plan is None on routes without keys
    """

    old: Limit | None
    new: Limit | None
    kept: bool
    uses: list[tuple[str | None, str]] = field(default_factory=list)

    @property
    def plans(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(plan for plan, _ in self.uses if plan is not None))

    @property
    def routes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(route for _, route in self.uses))


def limit_changes(old: Policy, new: Policy) -> list[LimitChange]:
    """The limits that differ on routes and for plans which both policies have.

    Equal differences, as on several routes, are one.
    """
    renamed = renamed_routes(old, new)
    both = [
        (before, route)
        for route in new.routes.values()
        if (before := old.routes.get(renamed.get(route.name, route.name))) is not None
        and before.auth == route.auth
    ]
    found: dict[tuple[Limit | None, Limit | None, bool], LimitChange] = {}
    pairs: list[tuple[Plan | None, Plan | None]] = [(None, None), *plan_pairs(old, new)]
    for first, second in pairs:
        name = None if second is None else second.name
        known = _counters(old, first)
        for before, after in both:
            if (after.auth == "none") == (name is None):
                limits = (
                    possible_limits(first, before, {}),
                    possible_limits(second, after, {}),
                )
                for pair in differing(*limits):
                    kept = pair[1] is not None and (pair[1].counter, pair[1].per) in known
                    change = found.setdefault((*pair, kept), LimitChange(*pair, kept))
                    change.uses.append((name, after.name))
    for one, other in ((old.failed_auth, new.failed_auth), (old.auth_verify, new.auth_verify)):
        if one != other:
            kept = (one.counter, one.per) == (other.counter, other.per)
            found[one, other, kept] = LimitChange(one, other, kept)
    return list(found.values())


def plan_pairs(old: Policy, new: Policy) -> list[tuple[Plan, Plan]]:
    """Each plan that both policies have, before and after; it may have been renamed."""
    pairs: list[tuple[Plan, Plan]] = []
    for plan in new.plans.values():
        names = (plan.name, *reversed(plan.was))
        before = next((old.plans[name] for name in names if name in old.plans), None)
        if before is not None:
            pairs.append((before, plan))
    return pairs


def _counters(policy: Policy, plan: Plan | None) -> set[tuple[str, str]]:
    """The counters, and what they count per, of a plan's keys; None: of clients without a key."""
    wanted = "none" if plan is None else "key"
    return {
        (limit.counter, limit.per)
        for route in policy.routes.values()
        if route.auth == wanted
        for limit in possible_limits(plan, route, {})
    }


def differing(
    old: Iterable[Limit], new: Iterable[Limit]
) -> list[tuple[Limit | None, Limit | None]]:
    """The limits of a route that differ, before and after; None: there is none."""
    before, after = ({limit.name: limit for limit in limits} for limits in (old, new))
    for name, limit in after.items():
        earlier = next((was for was in limit.names[1:] if was in before), None)
        if earlier is not None and name not in before and earlier not in after:
            before[name] = before.pop(earlier)
    both = [(limit, after[name]) for name, limit in before.items() if name in after]
    gone = [limit for name, limit in before.items() if name not in after]
    added = [limit for name, limit in after.items() if name not in before]
    if len(gone) == len(added) == 1 and gone[0] == replace(added[0], name=gone[0].name):
        return [(gone[0], added[0])]  # it has another name, and no other difference
    return [
        *((limit, None) for limit in gone),
        *((None, limit) for limit in added),
        *(pair for pair in both if _differs(*pair)),
    ]


def _differs(old: Limit, new: Limit) -> bool:
    """Do two limits differ in more than earlier names that leave the counter as it is?"""
    # Nearly all are equal, and a copy takes twenty times as long as a comparison.
    return old != new and (old.counter != new.counter or old != replace(new, was=old.was))


def plan_limits(policy: Policy, plan: Plan) -> list[Limit]:
    """A plan's own limits, without those of routes."""
    groups = all_limits(replace(policy, routes={}), plan, {})
    return [limit for group in groups for _, limit in group]
