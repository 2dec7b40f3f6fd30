"""Descriptions of the loaded policies and of those on disk."""

from __future__ import annotations

import json

from gateway.manage.policies import Loaded, Policies
from gateway.policies.load import load
from tests.kit.policies import write_policies

NOW = 1_800_000_000_000_000
ROUTES = """
routes:
  scoped: {match: GET /v1/scoped, upstream: api, scopes: [a:read], permission: "t:write", service: s, cost: 2}
  mcp:    {match: "* /mcp/**", upstream: api, plan_limits: false, limits: [{name: daily, quota: 9/day, per: account}, {name: open, concurrency: 2}]}
  public: {match: GET /public/**, hosts: [www.example.com], upstream: api, case_sensitive: true, encoded_slash: keep, auth: none, limits: [{name: open-ip, rate: 5/minute, per: ip, mode: shadow}]}
"""  # noqa: E501 - one line a route, as in a policy file
PLANS = """
plans:
  free: {rate: 60/minute, burst: 100, routes: {daily: {quota: 20/day}}}
  pro:
    rate: 9/second
    limits:
      - {name: monthly, quota: 1000/month, in: Europe/Berlin, from: account, per: account}
      - {name: held, concurrency: 20}
"""


def test_what_is_loaded(tmp_path):
    """Plans, routes and their files are described, as JSON."""
    folder = write_policies(tmp_path, "http://127.0.0.1:9000", routes=ROUTES, plans=PLANS)
    policy = load(folder)
    shown = Policies(lambda: Loaded(policy, NOW, folder)).shown()
    assert json.loads(json.dumps(shown)) == shown
    routes = shown.pop("routes")
    assert shown == {
        "hash": policy.hash,
        "loaded": "2027-01-15T08:00:00Z",
        "folder": str(folder),
        "files": [
            "auth_verify.yaml",
            "gateway.yaml",
            "plans.yaml",
            "routes.yaml",
            "store.yaml",
            "upstreams.yaml",
        ],
        "environment": "production",
        "on_store_failure": "local",
        "plans": [
            {
                "name": "free",
                "limit": "60/minute, burst 100, per key",
                "limits": [],
                "routes": {"daily": "quota 20/day, per key"},
            },
            {
                "name": "pro",
                "limit": "9/second, per key",
                "limits": [
                    "monthly: quota 1000/month in Europe/Berlin, from the account's billing day, "
                    "per account",
                    "held: 20 concurrent requests, per key",
                ],
                "routes": {},
            },
        ],
        "disk": {"hash": policy.hash, "faults": []},
    }
    assert routes == [
        {
            "name": "scoped",
            "match": "GET /v1/scoped",
            "case_sensitive": False,
            "encoded_slash": "refuse",
            "hosts": [],
            "where": "routes.yaml:3",
            "upstream": "api (http://127.0.0.1:9000)",
            "access": "a key, with the scopes a:read, with the permission t:write, "
            "whose account has the service s",
            "cost": "2",
            "plan_limits": True,
            "limits": [],
        },
        {
            "name": "mcp",
            "match": "* /mcp/**",
            "case_sensitive": False,
            "encoded_slash": "refuse",
            "hosts": [],
            "where": "routes.yaml:4",
            "upstream": "api (http://127.0.0.1:9000)",
            "access": "a key",
            "cost": "1",
            "plan_limits": False,
            "limits": ["daily: quota 9/day, per account", "open: 2 concurrent requests, per key"],
        },
        {
            "name": "public",
            "match": "GET /public/**",
            "case_sensitive": True,
            "encoded_slash": "keep",
            "hosts": ["www.example.com"],
            "where": "routes.yaml:5",
            "upstream": "api (http://127.0.0.1:9000)",
            "access": "anyone, without a key",
            "cost": "1",
            "plan_limits": False,
            "limits": ["open-ip: 5/minute, per ip, shadow: never refuses"],
        },
    ]


def test_what_is_on_disk(tmp_path):
    """Changed files are shown by their hash, faulty ones by their faults."""
    folder = write_policies(tmp_path, "http://127.0.0.1:9000")
    loaded = Loaded(load(folder), NOW, folder)
    policies = Policies(lambda: loaded)
    write_policies(folder, "http://127.0.0.1:9001")
    disk = policies.shown()["disk"]
    assert disk == {"hash": load(folder).hash, "faults": []}
    assert disk["hash"] != loaded.policy.hash
    (folder / "plans.yaml").write_text("plans: {free: {rate: 1/minut}}")
    disk = policies.shown()["disk"]
    assert disk["hash"] is None
    assert any("plans.free.rate" in fault for fault in disk["faults"])
    assert policies.shown()["hash"] == loaded.policy.hash
