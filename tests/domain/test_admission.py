"""What a key may do on a route, and which limits its requests meet there."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gateway.domain.admission import failed_grant, grant, open_grant
from gateway.domain.costs import JsonCost
from gateway.domain.identity import MOST_ADDRESSES, Identity
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import LEASE_US, Limit
from gateway.domain.policy import Plan, Policy
from gateway.domain.route import Route
from gateway.domain.routes import RouteTable
from gateway.errors import INSUFFICIENT_SCOPE, PLAN_UNKNOWN

MINUTE_US = 60_000_000
PLAN = Limit("plan", "rate", 60, MINUTE_US, 100)
SEARCH = Limit("search", "rate", 30, MINUTE_US)
POLICY = Policy(
    environment="production",
    plans={"free": Plan("free", PLAN)},
    routes={},
    table=RouteTable(()),
    upstreams={},
)
RECORD = KeyRecord(
    id="k1",
    digest=b"",
    name="n",
    account="acme",
    plan="free",
    environment="production",
    lineage="k0",
    created_us=0,
    scopes=("a:read", "b:read"),
    permissions=MappingProxyType({"ticketing": ("read",)}),
)
ACCOUNT = Account("acme", ("scm",))


def no_header(_: str) -> str:
    return ""


def route(**fields: Any) -> Route:
    return replace(Route("r", "*", (), True, "api"), **fields)


def identity(**fields: Any) -> Identity:
    return Identity(replace(RECORD, **fields), ACCOUNT)


def test_a_route_that_the_key_may_not_use() -> None:
    """The grant has the refusal, and the limits that the answer reports."""
    granted = grant(POLICY, route(scopes=("x",)), identity())
    assert granted.refusal is INSUFFICIENT_SCOPE
    assert granted.limits == (PLAN,)


def test_limits_meet_in_order_under_the_lineage() -> None:
    """The plan's limit comes first, then the route's; both count under the key's lineage."""
    granted = grant(POLICY, route(limits=(SEARCH,), cost=2), identity())
    assert granted.limits == (PLAN, SEARCH)
    assert granted.check is not None
    assert granted.ask is not None
    assert (granted.check.cost, granted.ask.cost) == (2, 0)
    assert all("{acme}" in name and "k0" in name for name in granted.check.counters)
    assert granted.check_for("192.0.2.1", lambda _: "", 2) is granted.check
    assert granted.check_for("192.0.2.1", lambda _: "", 0) is granted.ask


def test_limits_by_address_have_separate_checks() -> None:
    """With a limit per address or header, each address and value has its own check."""
    limits = (replace(SEARCH, per="ip"), replace(SEARCH, name="t", per="header:x-tenant"))
    granted = grant(POLICY, route(limits=limits), identity())
    assert granted.check is None
    one = granted.check_for("192.0.2.1", lambda name: f"{name}=1", 1)
    other = granted.check_for("192.0.2.2", lambda name: f"{name}=2", 1)
    assert one.counters[0] == other.counters[0]
    assert one.counters[1] != other.counters[1]
    assert one.counters[2] != other.counters[2]


def test_leases() -> None:
    """A route with a concurrency limit says so; a leased check has the same limits and counters."""
    held = Limit("open", "concurrency", 5, LEASE_US)
    assert not grant(POLICY, route(limits=(SEARCH,)), identity()).leases
    assert open_grant(POLICY, route(auth="none", limits=(replace(held, per="ip"),))).leases
    granted = grant(POLICY, route(limits=(SEARCH, held), cost=2), identity())
    assert granted.leases
    assert granted.check is not None
    leased = granted.check.leased(7)
    assert (leased.limits, leased.counters) == (granted.limits, granted.check.counters)
    assert (leased.cost, leased.lease, leased.plain) == (2, 7, granted.check)
    assert leased.leases == (("gw:limit:{acme}:key:k0:open:concurrency:6000000", 7),)
    assert (granted.check.lease, leased.at_cost(0).lease) == (0, 0)


def test_a_route_without_limits_reports_the_plan() -> None:
    """If no limit applies, a request's answer reports the plan's limit, at no cost."""
    granted = grant(POLICY, route(plan_limits=False), identity())
    assert granted.check is not None
    assert (granted.check.limits, granted.check.cost) == ((PLAN,), 0)


def test_an_unknown_plan_is_refused() -> None:
    """A key whose plan is no longer in the policy is refused; the answer reports failed_auth."""
    granted = grant(POLICY, route(), identity(plan="gone"))
    assert granted.refusal is PLAN_UNKNOWN
    assert granted.limits == (POLICY.failed_auth,)


def test_open_routes() -> None:
    """An open route counts its own limits, or reports failed_auth."""
    limited = open_grant(POLICY, route(auth="none", limits=(replace(SEARCH, per="ip"),)))
    assert (limited.check_for("192.0.2.1", lambda _: "", limited.cost)).cost == 1
    free = open_grant(POLICY, route(auth="none"))
    assert (free.limits, free.cost, free.identity) == ((POLICY.failed_auth,), 0, b"")


def test_addresses_do_not_share() -> None:
    """Failed attempts count per address."""
    failed = failed_grant(POLICY)
    one, other = (failed.check_for(ip, no_header, 1) for ip in ("192.0.2.1", "2001:db8::1"))
    assert one.counters != other.counters
    assert one.limits == (POLICY.failed_auth,)


def test_identity_lines() -> None:
    """The upstream gets the key's id, account, plan and scopes."""
    granted = grant(POLICY, route(), identity())
    assert granted.identity == (
        b"X-Gateway-Key-Id: k1\r\nX-Gateway-Account: acme\r\n"
        b"X-Gateway-Plan: free\r\nX-Gateway-Scopes: a:read b:read\r\n"
    )


def test_routes_with_the_same_limits_share_a_check() -> None:
    """Routes with the same limits and cost share one check of a key."""
    caller = identity()
    for name in ("one", "two"):
        caller.grants[name] = grant(POLICY, route(name=name), caller)
    own = grant(POLICY, route(name="own", limits=(Limit("own", "rate", 1, 60_000_000),)), caller)
    dear = grant(POLICY, route(name="dear", cost=2), caller)
    one, two = caller.grants.values()
    assert one.check is not None
    assert (one.check, one.ask, one.identity) == (two.check, two.ask, two.identity)
    assert one.check not in (own.check, dear.check)
    assert dear.check is not None
    assert dear.check.cost == 2


def test_a_cost_that_depends_on_the_request() -> None:
    """No check is ready, as each cost needs its own; without limits nothing is counted."""
    caller, costing = identity(), JsonCost(("ids",), 9)
    for name, cost in (("plain", None), ("one", costing), ("two", costing)):
        caller.grants[name] = grant(POLICY, route(name=name, costing=cost), caller)
    plain, one, two = caller.grants.values()
    assert plain.check is not None
    assert (one.check, two.check, two.costing) == (None, None, costing)
    assert one.ask is two.ask
    asked = [one.check_for("192.0.2.1", no_header, cost) for cost in (0, 1, 7)]
    assert [check.cost for check in asked] == [0, 1, 7]
    assert {check.counters for check in asked} == {plain.check.counters}
    free = grant(POLICY, route(costing=costing, plan_limits=False), identity())
    assert (free.cost, free.check, free.costing) == (0, None, costing)
    assert open_grant(POLICY, route(auth="none", costing=costing)).costing is costing


def test_an_address_has_one_check() -> None:
    """Checks that differ only in the address are cached, in bounded number."""
    failed = failed_grant(POLICY)
    first = failed.check_for("192.0.2.1", no_header, 1)
    assert failed.check_for("192.0.2.1", no_header, 1) is first
    assert failed.check_for("192.0.2.1", no_header, 0).cost == 0
    for number in range(MOST_ADDRESSES):
        failed.check_for(f"2001:db8::{number:x}", no_header, 1)
    again = failed.check_for("192.0.2.1", no_header, 1)
    assert again is not first
    assert again.counters == first.counters

    limits = (Limit("by-tenant", "rate", 5, 60_000_000, per="header:x-tenant"),)
    by_header = open_grant(POLICY, route(auth="none", limits=limits))
    one, other = (by_header.check_for("192.0.2.1", lambda _, x=x: x, 1) for x in ("a", "b"))
    assert one.counters != other.counters
