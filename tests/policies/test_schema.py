"""The schema for editors: it takes what the loader takes, and sees the commoner mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gateway.policies.checks import PLAN_LIMIT
from gateway.policies.limits import ENTRY, FIGURES
from gateway.policies.load import TOP_LEVEL, load
from gateway.policies.plans import PLAN
from gateway.policies.routes import ROUTE
from gateway.policies.schema import schema
from gateway.policies.settings import BOUNDS, TIMEOUTS
from tests.policies.folder import faults_of, write

SHIPPED = Path(__file__).parents[2] / "policies"
VALIDATOR = jsonschema.Draft7Validator(schema())


def test_the_schema_is_one() -> None:
    """It keeps to draft-07, and every key in it says what it is for."""
    jsonschema.Draft7Validator.check_schema(schema())
    for key, entry in schema()["properties"].items():
        assert entry.get("description"), key


def test_the_shipped_schema_is_this_one() -> None:
    """policies/policy.schema.json is what `gateway schema` prints."""
    assert json.loads((SHIPPED / "policy.schema.json").read_text("utf-8")) == schema()


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_files_fit_the_schema(path: Path) -> None:
    """Each shipped file names the schema on its first line, and keeps to it."""
    text = path.read_text("utf-8")
    assert text.startswith("# yaml-language-server: $schema=policy.schema.json\n")
    VALIDATOR.validate(yaml.safe_load(text))


def test_the_shipped_policy() -> None:
    """The service's plans and routes, with its figures."""
    policy = load(SHIPPED)
    plans = {name: (plan.limit.amount, plan.limit.burst) for name, plan in policy.plans.items()}
    assert plans == {"free": (60, 100), "pro": (600, 1000), "enterprise": (6000, 10_000)}
    limits = {
        name: [(limit.name, limit.kind, limit.amount) for limit in route.limits]
        for name, route in policy.routes.items()
    }
    assert limits == {
        "search": [("search", "rate", 30)],
        "batch": [("batch", "rate", 10)],
        "webhook-test": [("webhook-test", "rate", 5)],
        "connectors": [],
        "mcp": [("mcp", "rate", 100), ("mcp-daily", "quota", 10_000)],
        "api": [],
    }
    assert policy.routes["connectors"].scopes == ("connectors:read",)
    assert policy.routes["mcp"].json_rpc
    assert not policy.routes["mcp"].plan_limits
    assert policy.files == ("gateway.yaml", "plans.yaml", "routes.yaml", "upstreams.yaml")


def test_the_same_keys_everywhere() -> None:
    """Loader and schema know the same keys of every mapping; concurrency is only explained."""
    properties: dict[str, Any] = schema()["properties"]
    route = properties["routes"]["additionalProperties"]["properties"]
    plan = properties["plans"]["additionalProperties"]["properties"]
    override = plan["routes"]["additionalProperties"]["anyOf"][1]["properties"]
    assert set(properties) == set(TOP_LEVEL)
    assert set(properties["timeouts"]["properties"]) == set(TIMEOUTS)
    assert set(properties["bounds"]["properties"]) == set(BOUNDS)
    assert set(route) == set(ROUTE)
    assert set(plan) == set(PLAN)
    assert set(override) == set(FIGURES)
    assert set(route["limits"]["items"]["properties"]) == set(ENTRY) - {"concurrency"}
    assert PLAN_LIMIT == "plan"


ROUTE_BEGIN = "routes: {all: {match: '* /**', upstream: api"
AGREED = {
    "environment: staging-2": True,
    "environment: Prod": False,
    "environment: 3": False,
    "trusted_proxies: [10.0.0.0/8]": True,
    "trusted_proxies: 10.0.0.0/8": False,
    "on_store_failure: open": True,
    "on_store_failure: ajar": False,
    "timeouts: {idle: 75s, connect: 50ms}": True,
    "timeouts: {idle: 75}": False,
    "timeouts: {wait: 75s}": False,
    "bounds: {url: 8KiB, body: 100, header_count: 10}": True,
    "bounds: {url: 8kib}": False,
    "bounds: {url: 0}": False,
    "bounds: {header_count: 10KiB}": False,
    "failed_auth: {rate: 60/minute, burst: 90}": True,
    "failed_auth: {burst: 90}": False,
    "headers: {ietf: true}": True,
    "headers: {ietf: 1}": False,
    "upstreams: {api: {servers: ['http://[::1]:80', https://h]}}": True,
    "upstreams: {api: {servers: ['http://h/path']}}": False,
    "upstreams: {api: {servers: []}}": False,
    "upstreams: {api: {}}": False,
    "upstreams: {}": False,
    "plans: {free: {rate: 60/minute, burst: 100, routes: {all: 3/day}}}": True,
    "plans: {free: {rate: 60/minute, routes: {all: {rate: 3/day, burst: 4}}}}": True,
    "plans: {free: {rate: 60/minute, routes: {all: {quota: 3/day}}}}": True,
    "plans: {free: {rate: 60/minute, routes: {}}}": True,
    "plans: {free: {rate: 60/minute, routes: {all: {quota: 3/day, rate: 3/day}}}}": False,
    "plans: {free: {rate: 60/minute, routes: {all: {burst: 3}}}}": False,
    "plans: {free: {rate: 60/min}}": False,
    "plans: {free: {rate: 60/minute, burst: 100.5}}": False,
    "plans: {free: {burst: 100}}": False,
    "plans: {-x: {rate: 60/minute}}": False,
    f"{ROUTE_BEGIN}, rate: 3/day, burst: 5, cost: 2, scopes: [a], service: s}}}}": True,
    f"{ROUTE_BEGIN}, auth: none, plan_limits: false, json_rpc: true}}}}": True,
    f"{ROUTE_BEGIN}, permission: 'a:b', limits: [{{name: a, quota: 3/day, per: ip}}]}}}}": True,
    f"{ROUTE_BEGIN}, limits: [{{name: a, rate: 3/day, burst: 4, per: 'header:X'}}]}}}}": True,
    f"{ROUTE_BEGIN}, limits: [{{name: a, rate: 3/day, mode: shadow}}]}}}}": True,
    f"{ROUTE_BEGIN}, limits: [{{name: a, concurrency: 3}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{rate: 3/day}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, rate: 3/day, quota: 3/day}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, quota: 3/day, burst: 4}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, rate: 3/day, per: me}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, rate: 3/day, mode: off}}]}}}}": False,
    f"{ROUTE_BEGIN}, permission: a}}}}": False,
    f"{ROUTE_BEGIN}, scopes: a}}}}": False,
    f"{ROUTE_BEGIN}, cost: 0}}}}": False,
    f"{ROUTE_BEGIN}, burst: 5}}}}": False,
    f"{ROUTE_BEGIN}, auth: maybe}}}}": False,
    f"{ROUTE_BEGIN}, rates: 3/day}}}}": False,
    "routes: {all: {match: get /, upstream: api}}": False,
    "routes: {all: {match: '* /**'}}": False,
    "routes: {}": False,
    "rotues: {}": False,
}


@pytest.mark.parametrize(("text", "good"), AGREED.items(), ids=AGREED)
def test_schema_and_loader_agree(tmp_path: Path, text: str, good: bool) -> None:
    """What one takes the other takes; what one refuses the other refuses."""
    name = text.partition(":")[0]
    faults = faults_of(write(tmp_path, **{name: text}))
    assert (not faults) is good, faults
    assert VALIDATOR.is_valid(yaml.safe_load(text)) is good
