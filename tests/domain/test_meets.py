"""Which limits a key can meet, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.keys import Account
from gateway.domain.limits import Limit
from gateway.domain.meets import limits_met, plan_limit, reachable
from gateway.domain.policy import Policy
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


def told(
    policy: Policy,
    own: Mapping[str, Limit] | None = None,
    account: Account | None = None,
    **key: Any,
) -> list[tuple[str | None, str, int]]:
    """Route, name and amount of what a key on the plan "free" can meet."""
    record = plain_key(plan="free", limits=own or {}, **key)
    met = limits_met(policy, policy.plans["free"], record.limits)
    found = reachable(met, record, account or Account("acme"))
    return [(route and route.name, limit.name, limit.amount) for route, limit in found]


PLAIN = [(None, "plan", 60), ("search", "search", 30), ("caller", "one", 1), ("caller", "two", 1)]


def test_a_plain_key(policy: Policy) -> None:
    """The plan's limit comes first, then those of the routes that ask for nothing more."""
    assert told(policy) == PLAIN


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
    """A limit is met on the first route that has it and that the key may use."""
    found = told(policy, account=account, **key)
    assert [row for row in found if row not in PLAIN] == [more]
    assert len(found) == len(PLAIN) + 1


def test_figures_of_the_key(policy: Policy) -> None:
    """Its own figures hold in place of the plan's and the routes'."""
    own = {name: parse_rate("7/second", name=name) for name in ("plan", "search", "api")}
    found = told(policy, own)
    assert found[:2] == [(None, "plan", 7), ("search", "search", 7)]
    assert ("api", "api", 7) in found
    assert plan_limit(policy.plans["free"], own) == own["plan"]


def test_a_count_is_told_once(policy: Policy) -> None:
    """However many routes have it; the same name counted otherwise is another limit."""
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
    found = told(replace(policy, routes=routes))
    assert found == [(None, "plan", 60), *[(name, "shared", 5) for name in "acd"]]
