"""Which limits a request meets, whose values apply, and which limits a key can meet at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.keys import Account
from gateway.domain.limits import LEASE_US, Limit
from gateway.domain.meets import all_limits, limits_for, plan_limit, reachable
from gateway.domain.policy import Plan, Policy
from gateway.domain.route import Route
from gateway.policies.fields import parse_rate
from gateway.policies.load import load
from tests.kit.policies import write_policies
from tests.suites.keys import plain_key

ROUTES = """
routes:
  search:  {match: GET /search, upstream: api, rate: 30/minute}
  read:    {match: GET /c, upstream: api, scopes: [c:read], limits: [{name: c, rate: 5/minute}]}
  write:   {match: POST /c, upstream: api, scopes: [c:write], limits: [{name: c, rate: 3/minute}]}
  area:    {match: GET /area, upstream: api, service: scm, limits: [{name: area, quota: 9/day}]}
  tickets: {match: GET /t, upstream: api, permission: "t:read", plan_limits: false,
            limits: [{name: t, concurrency: 2}]}
  caller:  {match: GET /ip, upstream: api, limits: [{name: one, rate: 1/minute, per: ip},
                                                    {name: two, rate: 1/minute, per: account}]}
  open:    {match: GET /open, upstream: api, auth: none,
            limits: [{name: o, rate: 1/day, per: ip}]}
  api:     {match: "* /**", upstream: api}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return load(write_policies(tmp_path, "http://127.0.0.1:9", routes=ROUTES))


def limits_met(
    policy: Policy,
    own: Mapping[str, Limit] | None = None,
    account: Account | None = None,
    **key: Any,
) -> list[tuple[str | None, str, int]]:
    """Route, name and amount of the limits that a key on the plan "free" can meet."""
    record = plain_key(plan="free", limits=own or {}, **key)
    met = all_limits(policy, policy.plans["free"], record.limits)
    found = reachable(met, record, account or Account("acme"))
    return [(route and route.name, limit.name, limit.amount) for route, limit in found]


PLAIN = [(None, "plan", 60), ("search", "search", 30), ("caller", "one", 1), ("caller", "two", 1)]


def test_a_plain_key(policy: Policy) -> None:
    """The plan's limit comes first, then those of the routes without requirements."""
    assert limits_met(policy) == PLAIN


@pytest.mark.parametrize(
    ("key", "account", "more"),
    [
        ({"scopes": ("c:read",)}, None, ("read", "c", 5)),
        ({"scopes": ("c:write",)}, None, ("write", "c", 3)),
        ({"scopes": ("c:write", "c:read")}, None, ("read", "c", 5)),
        ({"permissions": {"t": ("read",)}}, None, ("tickets", "t", 2)),
        ({}, Account("acme", ("scm",)), ("area", "area", 9)),
    ],
)
def test_only_what_the_key_can_reach(
    policy: Policy, key: dict[str, Any], account: Account | None, more: tuple[str, str, int]
) -> None:
    """A limit is listed with the first route that has it and that the key may use."""
    found = limits_met(policy, account=account, **key)
    assert [row for row in found if row not in PLAIN] == [more]
    assert len(found) == len(PLAIN) + 1


def test_values_of_the_key(policy: Policy) -> None:
    """The key's values replace the plan's and the routes'."""
    own = {name: parse_rate("7/second", name=name) for name in ("plan", "search", "api")}
    found = limits_met(policy, own)
    assert found[:2] == [(None, "plan", 7), ("search", "search", 7)]
    assert ("api", "api", 7) in found
    assert plan_limit(policy.plans["free"], own) == own["plan"]


def test_a_counter_is_listed_once(policy: Policy) -> None:
    """Even if several routes have it; the same name with another counter is another limit."""
    shared = Limit("shared", "rate", 5, 60_000_000)
    routes = {
        name: replace(policy.routes["api"], name=name, limits=(limit,))
        for name, limit in {
            "a": shared,
            "b": replace(shared, amount=9),
            "c": replace(shared, per="account"),
            "d": replace(shared, window_us=1_000_000),
        }.items()
    }
    found = limits_met(replace(policy, routes=routes))
    assert found == [(None, "plan", 60), *[(name, "shared", 5) for name in "acd"]]


# -- of one request -------------------------------------------------------------------------------

MINUTE = 60_000_000
DAY = 86_400_000_000


def rate(name: str, amount: int, burst: int | None = None, per: str = "key") -> Limit:
    return Limit(name, "rate", amount, MINUTE, burst, per)


def make(*limits: Limit, name: str = "search", plan_limits: bool = True) -> Route:
    return Route(name, "GET", ("s",), False, "api", limits=limits, plan_limits=plan_limits)


FREE = Plan("free", rate("plan", 60, 100))
CUSTOM = Plan("custom", rate("plan", 6000), {"search": rate("search", 300, 500)})
SHADOW = Limit("search", "rate", 30, MINUTE, None, "ip", shadow=True)
QUOTA = Limit("daily", "quota", 1000, DAY, None, "account")

CASES = {
    "plan first, then the route's as written": (
        FREE, make(rate("search", 30), QUOTA), {},
        [rate("plan", 60, 100), rate("search", 30), QUOTA],
    ),
    "plan_limits: false leaves the plan's out": (
        FREE, make(rate("search", 30), plan_limits=False), {}, [rate("search", 30)],
    ),
    "no plan, no plan's limit": (None, make(rate("search", 30, per="ip")), {},
        [rate("search", 30, per="ip")]),
    "nothing at all": (None, make(), {}, []),
    "the plan's values precede the route's": (
        CUSTOM, make(rate("search", 30), QUOTA), {},
        [rate("plan", 6000), rate("search", 300, 500), QUOTA],
    ),
    "values leave the route's per and mode unchanged": (
        CUSTOM, make(SHADOW), {},
        [rate("plan", 6000), Limit("search", "rate", 300, MINUTE, 500, "ip", shadow=True)],
    ),
    "values may be of another kind": (
        FREE, make(QUOTA), {"daily": rate("daily", 5)},
        [rate("plan", 60, 100), rate("daily", 5, per="account")],
    ),
    "values of a concurrency limit, by its name": (
        Plan("c", rate("plan", 6), {"open": Limit("open", "concurrency", 20, LEASE_US)}),
        make(Limit("open", "concurrency", 5, LEASE_US, None, "account")), {},
        [rate("plan", 6), Limit("open", "concurrency", 20, LEASE_US, None, "account")],
    ),
    "the plan's value for a route without such a limit adds a limit": (
        CUSTOM, make(QUOTA), {}, [rate("plan", 6000), QUOTA, rate("search", 300, 500)],
    ),
    "the plan's value applies where its limit is left out": (
        CUSTOM, make(plan_limits=False), {}, [rate("search", 300, 500)],
    ),
    "the key's values precede the plan's": (
        CUSTOM, make(rate("search", 30)),
        {"search": Limit("x", "quota", 7, DAY, per="ip", shadow=True), "plan": rate("x", 9)},
        [rate("plan", 9), Limit("search", "quota", 7, DAY)],
    ),
    "the key's value for a route without such a limit adds a limit": (
        FREE, make(), {"search": rate("search", 3)}, [rate("plan", 60, 100), rate("search", 3)],
    ),
    "the key's values for other routes have no effect": (
        FREE, make(), {"batch": rate("batch", 3)}, [rate("plan", 60, 100)],
    ),
    "a key's own plan limit is not added where the plan's is left out": (
        FREE, make(plan_limits=False), {"plan": rate("plan", 3)}, [],
    ),
    "a route named plan does not get the plan's limit twice": (
        FREE, make(name="plan"), {"plan": rate("plan", 3)}, [rate("plan", 3)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("plan", "route", "own", "expected"), CASES.values(), ids=CASES)
def test_limits_for(
    plan: Plan | None, route: Route, own: Mapping[str, Limit], expected: list[Limit]
) -> None:
    """Each case is named by what it shows."""
    assert list(limits_for(plan, route, own)) == expected


names = st.sampled_from(["plan", "search", "daily"])
limits = st.builds(
    Limit,
    names,
    st.sampled_from(["rate", "quota"]),
    st.integers(1, 9),
    st.just(MINUTE),
    per=st.sampled_from(["key", "ip"]),
    shadow=st.booleans(),
)


@given(
    st.lists(limits, max_size=3, unique_by=lambda limit: limit.name),
    st.dictionaries(names, limits),
    st.dictionaries(names, limits),
    st.booleans(),
)
def test_a_route_keeps_what_it_counts_per(
    own_limits: list[Limit], overrides: dict[str, Limit], own: dict[str, Limit], plan_limits: bool
) -> None:
    """Whatever sets the values, the route's limits keep their name, per and mode."""
    route = make(*own_limits, plan_limits=plan_limits)
    found = limits_for(Plan("p", rate("plan", 5), overrides), route, own)
    start = 1 if plan_limits else 0
    kept = found[start : start + len(own_limits)]
    assert [(x.name, x.per, x.shadow) for x in kept] == [
        (x.name, x.per, x.shadow) for x in own_limits
    ]
    assert len(found) - start - len(own_limits) in {0, 1}
