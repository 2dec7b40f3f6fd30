"""The schema for editors: it accepts what the loader accepts, and finds common mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from gateway.domain.error_pages import ErrorPages
from gateway.domain.upstreams import Ejection, HealthCheck, Server, Upstream
from gateway.policies.limits import ENTRY, PLAN, PLAN_LIMIT, VALUES
from gateway.policies.load import TOP_LEVEL, load
from gateway.policies.routes import PATHS, ROUTE
from gateway.policies.schema import schema
from gateway.policies.settings import ADMIN_PROXY, BOUNDS, HEADERS, STORE, TIMEOUTS
from gateway.policies.tls import CLIENT_CERTIFICATES, CLIENT_TLS, TLS
from gateway.policies.upstreams import EJECTION, HEALTH, UPSTREAM
from tests.kit.certificates import make_certificate, write_pair
from tests.kit.rows import each_row
from tests.policies.folder import faults_of, write

SHIPPED = Path(__file__).parents[2] / "policies"
VALIDATOR = jsonschema.Draft7Validator(schema())


def test_the_schema_is_one() -> None:
    """It is valid draft-07, and every key has a description."""
    jsonschema.Draft7Validator.check_schema(schema())
    for key, entry in schema()["properties"].items():
        assert entry.get("description"), key


def test_the_shipped_schema_is_this_one() -> None:
    """policies/policy.schema.json is what `gateway schema` prints."""
    assert json.loads((SHIPPED / "policy.schema.json").read_text("utf-8")) == schema()


@each_row("path", sorted(SHIPPED.glob("*.yaml")))
def test_shipped_files_fit_the_schema(path: Path) -> None:
    """Each shipped file names the schema on its first line, and is valid."""
    text = path.read_text("utf-8")
    assert text.startswith("# yaml-language-server: $schema=policy.schema.json\n")
    VALIDATOR.validate(yaml.safe_load(text))


def test_the_shipped_policy() -> None:
    """The service's plans and routes, with their values."""
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
        "integrations": [],
        "integrations-batch": [],
        "hooks": [("hooks", "rate", 6000)],
        "connectors": [],
        "connectors-write": [],
        "connectors-api": [],
        "connectors-api-write": [],
        "connectors-api-batch": [("batch", "rate", 10)],
        "mcp": [
            ("mcp", "rate", 100),
            ("mcp-daily", "quota", 10_000),
            ("mcp-connections", "connections", 5),
            ("mcp-in-flight", "concurrency", 25),
            ("mcp-control", "rate", 600),
        ],
        "api": [],
    }
    assert policy.routes["connectors"].scopes == ("connectors:read",)
    assert policy.routes["mcp"].json_rpc
    assert not policy.routes["mcp"].plan_limits
    upstreams = {
        "api": Upstream("api", (Server("http", "127.0.0.1", 9000),)),
        "mcp": Upstream("mcp", (Server("http", "127.0.0.1", 9100),)),
        "webhooks": Upstream("webhooks", ()),
    }
    assert policy.upstreams == upstreams
    assert policy.files == ("gateway.yaml", "plans.yaml", "routes.yaml", "upstreams.yaml")


def test_shipped_settings_are_the_defaults(tmp_path: Path) -> None:
    """gateway.yaml has all settings, with their default values."""
    shipped, bare = load(SHIPPED), load(write(tmp_path))
    for name in (
        "environment",
        "trusted_proxies",
        "on_store_failure",
        "failed_auth",
        "auth_verify",
        "hsts",
        "error_docs",
        "tls",
        "trusted_only",
        "admin_tls",
        "admin_proxy",
    ):
        assert getattr(shipped, name) == getattr(bare, name), name
    for name in ("store", "timeouts", "bounds", "ietf_headers", "proxy_protocol", "ipv6_prefix"):
        assert getattr(shipped, name) == getattr(bare, name), name
    assert [route.case_sensitive for route in bare.routes.values()] == [False]
    assert not any(route.case_sensitive for route in shipped.routes.values())
    assert bare.table.keeps_slashes is shipped.table.keeps_slashes is False
    told = yaml.safe_load((SHIPPED / "gateway.yaml").read_text("utf-8"))
    assert set(told) == set(TOP_LEVEL) - {
        *("upstreams", "plans", "routes", "tls", "admin_tls", "admin_proxy"),
        *("error_docs", "access", "cors", "maintenance", "error_pages", "tracing"),
        *("mcp_sessions", "signatures", "webhooks"),
    }
    assert set(told["store"]) == set(STORE)
    assert set(told["timeouts"]) == set(TIMEOUTS)
    assert set(told["bounds"]) == set(BOUNDS)
    assert set(told["paths"]) == set(PATHS)


def uncommented(path: Path) -> str:
    """A shipped file with its examples, comments that begin with a key, uncommented."""
    example = re.compile(r"^( *)# (?=(?!true:) *\w+:( |$))", re.MULTILINE)
    return example.sub(r"\1", path.read_text("utf-8"))


def test_the_examples_hold(tmp_path: Path) -> None:
    """The examples in comments of gateway.yaml and upstreams.yaml load, and show every key."""
    files = {name: uncommented(SHIPPED / f"{name}.yaml") for name in ("gateway", "upstreams")}
    folder = write(tmp_path, **files)
    for name in ("tls", "other", "admin"):
        write_pair(folder / f"tls/{name}.crt", folder / f"tls/{name}.key")
    (folder / "internal-ca.pem").touch()
    (folder / "pages").mkdir()
    (folder / "pages" / "error.html").touch()
    (folder / "pages" / "error.json").write_text("{}")
    (folder / "mcp-secrets.txt").write_text("x" * 32)
    (folder / "webhook-secrets.txt").write_text("x" * 32)
    make_certificate(folder, ["gateway"], "client")
    policy = load(folder)
    assert policy.error_pages == ErrorPages(b"", b"{}")
    assert policy.cors is not None
    assert policy.maintenance is not None
    assert policy.tls is not None
    assert policy.admin_tls is not None
    assert policy.admin_proxy.tls
    assert set(yaml.safe_load(files["gateway"])["admin_proxy"]) == set(ADMIN_PROXY)
    assert policy.hsts == "max-age=31536000; includeSubDomains"
    assert policy.error_docs == "https://docs.example.com/errors"
    search = policy.upstreams["search"]
    assert search.health == HealthCheck("/healthz")
    assert search.ejection == Ejection(errors_percent=50, latency_s=2.0)
    assert set(yaml.safe_load(files["upstreams"])["upstreams"]["search"]) == set(UPSTREAM)


def test_the_same_keys_everywhere() -> None:
    """Loader and schema know the same keys of every mapping."""
    properties: dict[str, Any] = schema()["properties"]
    route = properties["routes"]["additionalProperties"]["properties"]
    plan = properties["plans"]["additionalProperties"]["properties"]
    override = plan["routes"]["additionalProperties"]["anyOf"][1]["properties"]
    assert set(properties) == set(TOP_LEVEL)
    assert set(properties["store"]["properties"]) == set(STORE)
    assert set(properties["admin_tls"]["properties"]) == set(TLS)
    assert set(properties["admin_proxy"]["properties"]) == set(ADMIN_PROXY)
    assert set(properties["timeouts"]["properties"]) == set(TIMEOUTS)
    assert set(properties["bounds"]["properties"]) == set(BOUNDS)
    assert set(properties["headers"]["properties"]) == set(HEADERS)
    assert set(properties["paths"]["properties"]) == set(PATHS)
    assert set(PATHS) <= set(ROUTE)
    assert set(properties["tls"]["properties"]) == set(CLIENT_TLS)
    asked = properties["tls"]["properties"]["client_certificates"]["properties"]
    assert set(asked) == set(CLIENT_CERTIFICATES)
    upstream = properties["upstreams"]["additionalProperties"]["properties"]
    assert set(upstream) == set(UPSTREAM)
    assert set(upstream["health"]["properties"]) == set(HEALTH)
    assert set(upstream["ejection"]["properties"]) == set(EJECTION)
    assert set(route) == set(ROUTE)
    assert set(plan) == set(PLAN)
    assert set(override) == set(VALUES)
    assert set(route["limits"]["items"]["properties"]) == set(ENTRY)
    assert PLAN_LIMIT == "plan"


ASKED = "tls: {certificate: a.pem, key: a.key, client_certificates: {ca: a.pem"
UPSTREAM_BEGIN = "upstreams: {api: {servers: [https://h]"
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
    "store: {timeout: 50ms, keep_keys: 5m}": True,
    "store: {timeout: 50}": False,
    "store: {url: redis}": False,
    "audit: {keep: 400d, entries: 20000}": True,
    "audit: {keep: 400}": False,
    "audit: {entries: 999}": False,
    "audit: {days: 400}": False,
    "timeouts: {wait: 75s}": False,
    "timeouts: {header: 1s, body: 1s, response: 1s, write: 1s, stream: 1m, drain: 1s}": True,
    "bounds: {connections: 20000, connections_per_address: 16000}": True,
    "bounds: {connections: 0}": False,
    "bounds: {connections_per_address: 3KiB}": False,
    "proxy_protocol: false": True,
    "proxy_protocol: v1": False,
    "ipv6_prefix: 32": True,
    "ipv6_prefix: 31": False,
    "ipv6_prefix: 129": False,
    "tls: {certificate: a.pem, key: a.key}": True,
    "tls: {certificate: a.pem}": False,
    "tls: {certificate: a.pem, key: ''}": False,
    "tls: {certificate: a.pem, key: 3}": False,
    "tls: [{certificate: a.pem, key: a.key}, {certificate: a.pem, key: a.key}]": True,
    "tls: []": False,
    "tls: {certificate: a.pem, key: a.key, min_version: '1.3', curves: [prime256v1]}": True,
    "tls: {certificate: a.pem, key: a.key, min_version: 1.2}": False,
    "tls: {certificate: a.pem, key: a.key, ciphers: ECDHE+AESGCM}": True,
    "tls: {certificate: a.pem, key: a.key, ciphers: ''}": False,
    "tls: {certificate: a.pem, key: a.key, ciphers: 'ALL@'}": False,
    "tls: {certificate: a.pem, key: a.key, curves: []}": False,
    "tls: {certificate: a.pem, key: a.key, client_certificates: {ca: a.pem}}": True,
    "tls: {certificate: a.pem, key: a.key, client_certificates: {required: true}}": False,
    f"{ASKED}, keys: {{'DNS:a': 7k2m9p4qwxyz}}}}}}": True,
    f"{ASKED}, keys: {{a: 7k2m9p4qwxyz}}}}}}": False,
    f"{ASKED}, keys: {{'DNS:a': 7}}}}}}": False,
    "admin_tls: {certificate: a.pem, key: a.key, client_certificates: {ca: a.pem}}": False,
    "tls: [{certificate: a.pem}]": False,
    "tls: {certificate: a.pem, key: a.key, certificates: [{certificate: a.pem, key: a.key}]}": True,
    "tls: {certificates: [{certificate: a.pem, key: a.key}]}": False,
    "bounds: {url: 8KiB, body: 100, header_count: 10}": True,
    "bounds: {url: 8kib}": False,
    "bounds: {url: 0}": False,
    "bounds: {header_count: 10KiB}": False,
    "failed_auth: {rate: 60/minute, burst: 90}": True,
    "failed_auth: {burst: 90}": False,
    "paths: {case_sensitive: true, encoded_slash: keep}": True,
    "paths: {case_sensitive: 1}": False,
    "paths: {encoded_slash: decode}": False,
    "paths: {encoded_slashes: keep}": False,
    "auth_verify: {rate: 60/minute}": True,
    "auth_verify: {rate: 60}": False,
    "error_docs: http://127.0.0.1:8000/errors": True,
    "error_docs: 'https://docs.example.com/errors#all'": False,
    "error_docs: docs.example.com/errors": False,
    "headers: {ietf: true}": True,
    "headers: {ietf: 1}": False,
    "headers: {hsts: 'max-age=1; includeSubDomains;preload'}": True,
    "headers: {hsts: 'max-age=1; '}": False,
    "headers: {hsts: includeSubDomains}": False,
    f"{UPSTREAM_BEGIN}, connect: 1s, response: 1s, inflight: 9}}}}": True,
    f"{UPSTREAM_BEGIN}, ca: plans.yaml}}}}": True,
    f"{UPSTREAM_BEGIN}, ca: 3}}}}": False,
    f"{UPSTREAM_BEGIN}, connect: 1}}}}": False,
    f"{UPSTREAM_BEGIN}, inflight: 0}}}}": False,
    f"{UPSTREAM_BEGIN}, weight: 1}}}}": False,
    f"{UPSTREAM_BEGIN}, health: {{path: '/a?b=%20'}}}}}}": True,
    f"{UPSTREAM_BEGIN}, health: {{path: /, interval: 1s, timeout: 1s, rise: 1, fall: 1}}}}}}": True,
    f"{UPSTREAM_BEGIN}, health: {{path: a}}}}}}": False,
    f"{UPSTREAM_BEGIN}, health: {{path: '/a#b'}}}}}}": False,
    f"{UPSTREAM_BEGIN}, health: {{path: '/%2'}}}}}}": False,
    f"{UPSTREAM_BEGIN}, health: {{rise: 1}}}}}}": False,
    f"{UPSTREAM_BEGIN}, ejection: {{failures: 3, for: 1s}}}}}}": True,
    f"{UPSTREAM_BEGIN}, ejection: {{failures: 0}}}}}}": False,
    f"{UPSTREAM_BEGIN}, ejection: {{for: 3}}}}}}": False,
    "upstreams: {api: {servers: ['http://[::1]:80', https://h]}}": True,
    "upstreams: {api: {servers: ['http://h/path']}}": True,
    "upstreams: {api: {servers: ['http://h/path?x']}}": False,
    "upstreams: {api: {servers: ['http://h/a b']}}": False,
    "upstreams: {api: {servers: [http://h], host: client}}": True,
    "upstreams: {api: {servers: [http://h], host: a.example:80}}": True,
    "upstreams: {api: {servers: [http://h], host: a b}}": False,
    "upstreams: {api: {servers: []}}": False,
    "upstreams: {api: {}}": False,
    "upstreams: {}": False,
    "plans: {free: {rate: 60/minute, burst: 100, routes: {all: 3/day}}}": True,
    "plans: {free: {rate: 60/minute, routes: {all: {rate: 3/day, burst: 4}}}}": True,
    "plans: {free: {rate: 60/minute, routes: {all: {quota: 3/day}}}}": True,
    "plans: {free: {rate: 60/minute, routes: {all: {concurrency: 3}}}}": True,
    "plans: {free: {rate: 60/minute, routes: {all: {concurrency: 3, rate: 3/day}}}}": False,
    "plans: {free: {rate: 60/minute, concurrency: 3}}": False,
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
    f"{ROUTE_BEGIN}, limits: [{{name: a, concurrency: 3, per: ip, mode: shadow}}]}}}}": True,
    f"{ROUTE_BEGIN}, rate: 3/day, candidate: {{rate: 2/day, burst: 4}}}}}}": True,
    f"{ROUTE_BEGIN}, candidate: {{rate: 2/day}}}}}}": False,
    f"{ROUTE_BEGIN}, rate: 3/day, candidate: {{quota: 2/day}}}}}}": False,
    f"{ROUTE_BEGIN}, rate: 3/day, candidate: 2/day}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, quota: 3/day, candidate: {{quota: 2/day}}}}]}}}}": True,
    f"{ROUTE_BEGIN}, limits: [{{name: a, quota: 3/day, candidate: {{per: ip}}}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, quota: 3/day, candidate: {{}}}}]}}}}": False,
    "plans: {free: {rate: 60/minute, candidate: {rate: 50/minute, burst: 80}}}": True,
    "plans: {free: {rate: 60/minute, candidate: {burst: 80}}}": False,
    "plans: {free: {rate: 60/minute, candidate: {concurrency: 80}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, concurrency: 0}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, concurrency: 100001}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, concurrency: 3/minute}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, concurrency: 3, rate: 3/day}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, concurrency: 3, quota: 3/day}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, concurrency: 3, burst: 3}}]}}}}": False,
    f"{ROUTE_BEGIN}, concurrency: 3}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{rate: 3/day}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, rate: 3/day, quota: 3/day}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, quota: 3/day, burst: 4}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, rate: 3/day, per: me}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, rate: 3/day, mode: off}}]}}}}": False,
    f"{ROUTE_BEGIN}, limits: [{{name: a, rate: 3/day, of: requests}}]}}}}": True,
    f"{ROUTE_BEGIN}, limits: [{{name: a, rate: 3/day, of: words}}]}}}}": False,
    f"{ROUTE_BEGIN}, case_sensitive: true, encoded_slash: refuse}}}}": True,
    f"{ROUTE_BEGIN}, case_sensitive: 'no'}}}}": False,
    f"{ROUTE_BEGIN}, encoded_slash: true}}}}": False,
    f"{ROUTE_BEGIN}, hosts: [a.example, '*.b.example']}}}}": True,
    f"{ROUTE_BEGIN}, hosts: []}}}}": False,
    f"{ROUTE_BEGIN}, hosts: ['*']}}}}": False,
    f"{ROUTE_BEGIN}, hosts: ['a.example:80']}}}}": False,
    f"{ROUTE_BEGIN}, hosts: a.example}}}}": False,
    f"{ROUTE_BEGIN}, rewrite: '/x/**'}}}}": True,
    f"{ROUTE_BEGIN}, rewrite: x}}}}": False,
    f"{ROUTE_BEGIN}, strip_prefix: x}}}}": False,
    f"{ROUTE_BEGIN}, translate: [cookies, location]}}}}": True,
    f"{ROUTE_BEGIN}, translate: []}}}}": False,
    f"{ROUTE_BEGIN}, translate: [links]}}}}": False,
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


@each_row(("text", "good"), AGREED.items())
def test_schema_and_loader_agree(tmp_path: Path, text: str, good: bool) -> None:
    """Schema and loader accept and refuse the same."""
    name = text.partition(":")[0]
    write_pair(tmp_path / "a.pem", tmp_path / "a.key")
    faults = faults_of(write(tmp_path, **{name: text}))
    assert (not faults) is good, faults
    assert VALIDATOR.is_valid(yaml.safe_load(text)) is good
