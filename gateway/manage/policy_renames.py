"""Names of limits, routes and plans that a policy no longer has, and what is lost with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from gateway.domain.limits import Limit
from gateway.domain.policy import Policy
from gateway.domain.ports import KeyFilter, KeyStore
from gateway.manage.policy_changes import listed
from gateway.manage.policy_requests import renamed_routes
from gateway.policies.faults import Fault

#: At most this many keys are counted.
MOST_COUNTED: Final = 1_000


def lost_names(old: Policy, new: Policy, folder: str) -> Iterator[Fault]:
    """What a rename without `was` would lose.

    A limit or route that is only removed is not one: another with the same values, or the same
    requests, must be there instead. A plan always is one, as keys may have it.

    folder: of the new policy
    """
    yield from _lost_plans(old, new, folder)
    routes = renamed_routes(old, new)
    for name, earlier in routes.items():
        if earlier not in new.routes[name].was:
            expected = f"was: {earlier}, or keys lose the values that they have for it"
            yield Fault(folder, 0, f"routes.{name}", f"the requests of {earlier!r}", expected)
    before, after = _limits(old), _limits(new)
    known = {was for limit in after.values() for was in limit.names}
    added = {name: limit for name, limit in after.items() if name not in before}
    for name, limit in before.items():
        if name in known:
            continue
        likely = [each for each, other in added.items() if _is_alike(limit, other)]
        if likely:
            found = f"no limit {name!r} any more, but the new {listed(likely)} with its window"
            expected = f"was: {name} if it was renamed, or its counters begin anew"
            yield Fault(folder, 0, "", found, expected)


def _lost_plans(old: Policy, new: Policy, folder: str) -> Iterator[Fault]:
    for name in old.plans:
        if new.plan(name) is None or name in new.kept_plans:
            added = [each for each in new.plans if each not in old.plans]
            where = f" in {listed(added)}" if added else ""
            found = f"no plan {name!r} any more"
            expected = f"was: {name}{where} if it was renamed, or its keys get 503 after a restart"
            yield Fault(folder, 0, "plans", found, expected)


def _limits(policy: Policy) -> Mapping[str, Limit]:
    """The limits of routes and plans by name; the first of each name."""
    limits: dict[str, Limit] = {}
    of_routes = (route.every_limit for route in policy.routes.values())
    of_plans = (plan.limits for plan in policy.plans.values())
    for limit in chain.from_iterable((*of_routes, *of_plans)):
        limits.setdefault(limit.name, limit)
    return limits


def _is_alike(one: Limit, other: Limit) -> bool:
    return (one.kind, one.window_us, one.per) == (other.kind, other.window_us, other.per)


async def keys_of_missing_plans(
    keys: KeyStore, policy: Policy, now_us: int
) -> tuple[Counter[str], bool]:
    """How many valid keys of the environment have each plan that is not in the files.

    Keys without a plan are left out. False: there may be more, beyond `MOST_COUNTED`. Raises
    StoreDown.
    """
    known = {name for plan in policy.plans.values() for name in (plan.name, *plan.was)}
    wanted = KeyFilter(
        status="valid",
        other_plans=frozenset({"", *known}),
        environment=policy.environment,
        now_us=now_us,
    )
    found = await keys.page(wanted, count=MOST_COUNTED)
    owners = sorted({record.account for record in found if not record.plan})
    of_account = {one.name: one.plan for one in await keys.accounts_named(owners)}
    plans = (record.plan or of_account.get(record.account, "") for record in found)
    return Counter(filter(None, plans)), len(found) < MOST_COUNTED
