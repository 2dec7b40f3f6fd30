"""Which limits a request meets, whose values apply, and which limits a key can meet at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.calendar import Calendar
from gateway.domain.keys import Account
from gateway.domain.limits import LEASE_US, PERIODS_US, Limit
from gateway.domain.meets import all_limits, limits_for, plan_limits, reachable
from gateway.domain.policy import Plan, Policy, with_kept_plans
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
    assert plan_limits(policy.plans["free"], own) == (own["plan"],)


def test_values_leave_what_is_counted() -> None:
    """Whether a limit counts connections or messages is set where it is defined, like its mode."""
    connections = Limit("open", "connections", 5, LEASE_US)
    messages = Limit("all", "rate", 600, PERIODS_US["minute"], of="messages")
    route = Route("r", "*", (), True, "api", plan_limits=False, limits=(connections, messages))
    own = {
        "open": Limit("open", "concurrency", 20, LEASE_US),
        "all": Limit("all", "rate", 900, PERIODS_US["minute"]),
    }
    assert limits_for(None, route, own) == (
        replace(connections, amount=20),
        replace(messages, amount=900),
    )
    plain = replace(route, limits=(Limit("open", "concurrency", 5, LEASE_US),))
    assert limits_for(None, plain, {"open": replace(connections, amount=9)}) == (
        Limit("open", "concurrency", 9, LEASE_US),
    )


def test_candidates(tmp_path: Path) -> None:
    """Each follows its limit; not where the values of the limit are those of a plan or key."""
    plans = """
plans:
  free: {rate: 60/minute, burst: 100, candidate: {rate: 50/minute, burst: 80},
         limits: [{name: monthly, quota: 9/month, in: Asia/Kolkata, from: account,
                   candidate: {quota: 5/month}}]}
  pro:  {rate: 600/minute, routes: {search: 300/minute}}
"""
    routes = """
routes:
  search: {match: GET /search, upstream: api, rate: 30/minute, candidate: {rate: 20/minute}}
"""
    policy = load(write_policies(tmp_path, "http://127.0.0.1:9", routes=routes, plans=plans))
    free, search = policy.plans["free"], policy.routes["search"]

    def names(plan: Plan, own: Mapping[str, Limit]) -> list[str]:
        return [limit.name for limit in limits_for(plan, search, own)]

    every = ["plan", "plan:candidate", "monthly", "monthly:candidate"]
    assert names(free, {}) == [*every, "search", "search:candidate"]
    assert names(policy.plans["pro"], {}) == ["plan", "search"]
    assert names(free, {"search": parse_rate("7/second", name="search")}) == [*every, "search"]
    assert names(free, {"plan": parse_rate("7/second", name="plan")}) == [
        *("plan", "monthly", "monthly:candidate", "search", "search:candidate")
    ]
    _, rate, _, monthly, *_ = limits_for(free, search, {}, 31)
    assert (rate.amount, rate.burst, rate.shadow, rate.is_candidate) == (50, 80, True, True)
    assert (monthly.month_day, monthly.zone, monthly.counter) == (
        *(31, "Asia/Kolkata"),
        f"monthly:candidate:quota:{PERIODS_US['month']}:Asia/Kolkata:billing",
    )
    met = all_limits(policy, free, {})
    # The plan's limit: its own, and that of the route.
    assert [[limit.name for _, limit in each] for each in met] == [
        *(["plan"] * 2, ["monthly"] * 2, ["search"])
    ]


def test_further_limits_of_the_plan(tmp_path: Path) -> None:
    """They apply wherever the plan's rate does, with the key's values, from its billing day."""
    plans = """
plans:
  free:
    rate: 60/minute
    limits: [{name: monthly, quota: 9/month, in: Asia/Kolkata, from: account, per: account},
             {name: streams, concurrency: 2}]
"""
    policy = load(write_policies(tmp_path, "http://127.0.0.1:9", routes=ROUTES, plans=plans))
    plan = policy.plans["free"]
    own = {
        "monthly": Limit("x", "quota", 20, PERIODS_US["month"]),
        "streams": Limit("x", "concurrency", 7, LEASE_US),
    }
    _, monthly, streams, *rest = limits_for(plan, policy.routes["search"], own, 31)
    assert (monthly.amount, monthly.per, monthly.zone) == (20, "account", "Asia/Kolkata")
    assert monthly.calendar == Calendar("month", "Asia/Kolkata", 31)
    assert monthly.counter == plan.more[0].counter
    assert (streams.amount, streams.name) == (7, "streams")
    assert [limit.name for limit in rest] == ["search"]
    assert limits_for(plan, policy.routes["tickets"], own) == policy.routes["tickets"].limits
    assert plan_limits(plan, {}) == plan.limits
    own["monthly"] = Limit("x", "rate", 3, MINUTE)
    _, monthly, _ = plan_limits(plan, own, 31)
    assert (monthly.counter, monthly.calendar) == ("monthly:rate:60000000", None)
    assert [row[:2] for row in limits_met(policy)][:3] == [
        *((None, "plan"), (None, "monthly"), (None, "streams")),
    ]


def test_renamed_limits(tmp_path: Path) -> None:
    """A renamed limit keeps its counter, and the values that keys and plans set by its old name."""
    routes = """
routes:
  find: {match: GET /search, upstream: api, rate: 30/minute, was: [look, search],
         limits: [{name: per-day, quota: 900/day, was: daily}]}
  all: {match: "* /**", upstream: api, was: rest}
"""
    policy = load(write_policies(tmp_path, "http://127.0.0.1:9", routes=routes))
    route, rest = policy.routes["find"], policy.routes["all"]
    limits = limits_for(None, route, {})
    assert [limit.counter for limit in limits] == [
        *("look:rate:60000000", "daily:quota:86400000000"),
    ]
    own = {name: parse_rate("7/minute", name=name) for name in ("search", "find", "daily", "rest")}
    assert [limit.amount for limit in limits_for(None, route, own)] == [7, 7]
    own["find"] = parse_rate("8/minute", name="find")
    assert [limit.amount for limit in limits_for(None, route, own)] == [8, 7]
    (added,) = limits_for(None, rest, own)
    assert (added.name, added.amount, added.counter) == ("all", 7, "rest:rate:60000000")


def test_renamed_plans(tmp_path: Path) -> None:
    """A key with the old name of a plan has the plan; one whose plan is gone keeps that plan."""
    plans = "plans: {basic: {rate: 5/minute, was: [free, starter]}}"
    policy = load(write_policies(tmp_path, "http://127.0.0.1:9", routes=ROUTES, plans=plans))
    basic = policy.plans["basic"]
    assert [policy.plan(name) for name in ("basic", "free", "starter", "x")] == [basic] * 3 + [None]
    gone = Plan("gone", rate("plan", 1))
    before = replace(policy, plans={"free": rate_plan("free"), "gone": gone}, kept_plans={})
    kept = with_kept_plans(policy, before)
    assert (kept.plan("gone"), kept.plan("free")) == (gone, basic)
    assert list(kept.kept_plans) == ["gone"]
    assert list(with_kept_plans(policy, kept).kept_plans) == ["gone"]
    assert with_kept_plans(before, kept).kept_plans == {"basic": basic}
    assert with_kept_plans(policy, policy) is policy
    # A renamed plan that is gone stays under its earlier names, too.
    later = with_kept_plans(replace(policy, plans={"other": rate_plan("other")}), policy)
    assert [later.plan(name) for name in ("basic", "starter")] == [basic, basic]


def rate_plan(name: str) -> Plan:
    return Plan(name, rate("plan", 9))


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


def test_limits_of_tools(tmp_path: Path) -> None:
    """A call meets the one of its tool: those of all tools can be met, with the key's values."""
    routes = (
        'routes:\n  mcp: {match: "* /mcp", upstream: api, rate: 9/minute,\n'
        "        mcp: {tools: {a/b: {rate: 5/minute}, c: {rate: 6/minute}, d: allow,\n"
        "        e: {permission: 't:e', rate: 1/minute}}}}\n"
    )
    plans = "plans:\n  free: {rate: 60/minute, routes: {mcp/c: 7/minute}}\n"
    policy = load(write_policies(tmp_path, "http://127.0.0.1:9", routes=routes, plans=plans))
    own = {"mcp/a/b": Limit("mcp/a/b", "rate", 8, MINUTE)}
    assert limits_met(policy, own) == [
        (None, "plan", 60),
        ("mcp", "mcp", 9),
        ("mcp", "mcp/a/b", 8),
        ("mcp", "mcp/c", 7),
    ]
    assert ("mcp", "mcp/e", 1) in limits_met(policy, permissions={"t": ("e",)})
    route = policy.routes["mcp"]
    assert [limit.name for limit in limits_for(policy.plans["free"], route, own)] == ["plan", "mcp"]


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
