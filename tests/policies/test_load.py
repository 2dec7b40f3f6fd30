"""Loading a folder as a policy, and every fault with its place and text."""

from __future__ import annotations

import os
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from gateway.domain import conflicts as conflicts_module
from gateway.domain.headers import TRUSTED_ONLY
from gateway.domain.limits import LEASE_US, MOST_LIMITS, PERIODS_US, Limit
from gateway.domain.meets import limits_for
from gateway.domain.policy import (
    AUTH_VERIFY,
    FAILED_AUTH,
    AdminProxy,
    AuditSettings,
    Bounds,
    Plan,
    StoreSettings,
    Timeouts,
    Tls,
)
from gateway.domain.route import Route
from gateway.domain.upstreams import Ejection, HealthCheck, Server, Upstream
from gateway.policies import faults as faults_module
from gateway.policies.faults import MAX_FAULTS, PolicyFaults
from gateway.policies.load import load
from tests.kit.certificates import make_certificate, write_pair
from tests.policies.folder import PLANS, ROUTES, UPSTREAMS, complaints, faults_of, write

MINUTE = 60_000_000
DAY = 86_400_000_000


def test_defaults(tmp_path: Path) -> None:
    """Plans, upstreams and routes are enough; all else has a default."""
    policy = load(write(tmp_path))
    assert policy.environment == "production"
    assert policy.trusted_proxies == ()
    assert policy.on_store_failure == "local"
    assert policy.store == StoreSettings()
    assert policy.timeouts == Timeouts()
    assert policy.bounds == Bounds()
    assert policy.failed_auth == FAILED_AUTH
    assert policy.auth_verify == AUTH_VERIFY
    assert policy.ietf_headers is False
    assert policy.fallback_header is False
    assert policy.hsts is None
    assert policy.error_docs is None
    assert policy.trusted_only == TRUSTED_ONLY
    assert policy.counted_headers == frozenset()
    assert policy.tls is None
    assert policy.admin_tls is None
    assert policy.admin_proxy == AdminProxy((), False)
    assert policy.proxy_protocol is False
    assert policy.ipv6_prefix == 64
    assert policy.files == ("plans.yaml", "routes.yaml", "upstreams.yaml")
    assert policy.routes == {"all": Route("all", "*", (), True, "api", where="routes.yaml:2")}
    assert policy.table.match("GET", ("x",)) is policy.routes["all"]


def test_every_setting(tmp_path: Path) -> None:
    """Each top-level key becomes its value."""
    text = """
environment: staging-2
trusted_proxies: [10.0.0.0/8, "::1"]
on_store_failure: closed
store: {timeout: 20ms, keep_keys: 0s}
audit: {keep: 1.5d, entries: 1000}
ipv6_prefix: 48
timeouts: {header: 1s, body: 5s, idle: 2m, connect: 50ms, response: 1.5s, write: 7s, tunnel: 9m,
           stream: 8m, drain: 1h}
bounds: {headers: 4096, header_count: 50, url: 2KB, body: 1GiB, connections: 9,
         connections_per_address: 3}
tls: {certificate: a.pem, key: a.key}
admin_tls: {certificate: b.pem, key: a.key}
admin_proxy: {trusted: [192.0.2.0/24, "::1"], tls: true}
failed_auth: {rate: 5/minute, burst: 8}
auth_verify: {rate: 7/hour, burst: 9}
error_docs: https://docs.example.com/errors?lang=en
headers: {ietf: true, hsts: "max-age=31536000; includeSubDomains", fallback: true,
          trusted_only: [X-Any, X-Some-*, X-Any]}
"""
    folder = write(tmp_path, anything=text)
    for name in ("a.pem", "b.pem"):
        write_pair(folder / name, folder / "a.key")
    policy = load(folder)
    assert policy.environment == "staging-2"
    assert policy.trusted_proxies == (ip_network("10.0.0.0/8"), ip_network("::1"))
    assert policy.on_store_failure == "closed"
    assert policy.ipv6_prefix == 48
    assert policy.store == StoreSettings(0.02, 0.0)
    assert policy.audit == AuditSettings(129_600.0, 1_000)
    assert policy.timeouts == Timeouts(1.0, 5.0, 120.0, 0.05, 1.5, 7.0, 540.0, 480.0, 3600.0)
    assert policy.bounds == Bounds(4096, 50, 2000, 1_073_741_824, 9, 3)
    assert policy.tls == Tls(str(folder / "a.pem"), str(folder / "a.key"))
    assert policy.admin_tls == Tls(str(folder / "b.pem"), str(folder / "a.key"))
    assert policy.admin_proxy == AdminProxy((ip_network("192.0.2.0/24"), ip_network("::1")), True)
    assert policy.failed_auth == Limit("failed_auth", "rate", 5, MINUTE, 8, "ip")
    assert policy.auth_verify == Limit("auth_verify", "rate", 7, 60 * MINUTE, 9)
    assert policy.ietf_headers is True
    assert policy.fallback_header is True
    assert policy.hsts == "max-age=31536000; includeSubDomains"
    assert policy.error_docs == "https://docs.example.com/errors?lang=en"
    assert policy.trusted_only == ("X-Any", "X-Some-*")


def test_empty_trusted_only(tmp_path: Path) -> None:
    """`trusted_only` may be empty."""
    assert load(write(tmp_path, x="headers: {trusted_only: []}")).trusted_only == ()


def test_proxy_protocol(tmp_path: Path) -> None:
    """PROXY protocol may be on if there are trusted proxies."""
    text = "trusted_proxies: [10.0.0.0/8]\nproxy_protocol: true"
    assert load(write(tmp_path, anything=text)).proxy_protocol is True


@pytest.mark.parametrize("word", ["local", "open", "closed"])
def test_store_failure(tmp_path: Path, word: str) -> None:
    """Each of the three fallback modes is read."""
    assert load(write(tmp_path, g=f"on_store_failure: {word}")).on_store_failure == word


def test_upstreams_and_plans(tmp_path: Path) -> None:
    """Servers are in order; a plan's values for a route have a short and a long form."""
    upstreams = 'upstreams: {api: {servers: ["http://h:1", "https://h"]}}'
    plans = """
plans:
  2024: {rate: 1_000/hour}
  custom_x:
    rate: 60/minute
    burst: 4_000
    routes: {all: 300/minute, a: {rate: 5/second, burst: 9}, b: {quota: 7/day},
      c: {concurrency: 20}}
"""
    routes = ROUTES + "  a: {match: GET /a, upstream: api}\n  b: {match: GET /b, upstream: api}\n"
    routes += "  c: {match: GET /c, upstream: api}\n"
    policy = load(write(tmp_path, upstreams=upstreams, plans=plans, routes=routes))
    servers = (Server("http", "h", 1), Server("https", "h", 443, asked="h"))
    assert policy.upstreams == {"api": Upstream("api", servers)}
    assert policy.plans == {
        "2024": Plan("2024", Limit("plan", "rate", 1000, 3_600_000_000)),
        "custom_x": Plan(
            "custom_x",
            Limit("plan", "rate", 60, MINUTE, 4000),
            {
                "all": Limit("all", "rate", 300, MINUTE),
                "a": Limit("a", "rate", 5, 1_000_000, 9),
                "b": Limit("b", "quota", 7, DAY),
                "c": Limit("c", "concurrency", 20, LEASE_US),
            },
        ),
    }


def test_a_whole_upstream(tmp_path: Path) -> None:
    """Every key of an upstream is read; the authorities' file is relative to the policy folder."""
    text = """
upstreams:
  api:
    servers: ["https://a", "http://b"]
    connect: 50ms
    response: 1m
    inflight: 200
    ca: tls/ca.pem
    health: {path: "/healthz?full=1", interval: 1s, timeout: 500ms, rise: 1, fall: 9}
    ejection: {failures: 1, for: 2m, errors: 50%, latency: 1.5s, window: 1m, least: 7}
  plain:
    servers: ["http://b"]
    health: {path: /}
    ejection: {for: 1s}
"""
    folder = write(tmp_path, upstreams=text)
    (folder / "tls").mkdir()
    (folder / "tls/ca.pem").touch()
    assert load(folder).upstreams == {
        "api": Upstream(
            "api",
            (Server("https", "a", 443, asked="a"), Server("http", "b", 80)),
            connect_s=0.05,
            response_s=60.0,
            inflight=200,
            ca=str(folder / "tls/ca.pem"),
            health=HealthCheck("/healthz?full=1", 1.0, 0.5, 1, 9),
            ejection=Ejection(1, 120.0, 50, 1.5, 60.0, 7),
        ),
        "plain": Upstream(
            "plain",
            (Server("http", "b", 80),),
            health=HealthCheck("/"),
            ejection=Ejection(for_s=1.0),
        ),
    }


def test_a_client_certificate(tmp_path: Path) -> None:
    """Its files are relative to the policy folder; a pair that does not match is a fault."""
    folder = tmp_path / "policies"
    make_certificate(folder, ["gateway"], "client")
    make_certificate(folder, ["gateway"], "other")
    pair = "client_certificate: client.pem, client_key: %s"
    text = f"upstreams: {{api: {{servers: [https://h], {pair}}}}}\n"
    upstream = load(write(folder, upstreams=text % "client.key")).upstreams["api"]
    assert upstream.trust.files == (str(folder / "client.pem"), str(folder / "client.key"))
    (fault,) = complaints(write(folder, upstreams=text % "other.key"))
    assert fault == (
        "upstreams.yaml:1: upstreams.api.client_key: found 'other.key' (KEY_VALUES_MISMATCH), "
        "expected the key of client_certificate, both in PEM and not encrypted"
    )


def test_a_path_may_lead_anywhere(tmp_path: Path) -> None:
    """Absolute paths are used as they are, and links are followed."""
    (tmp_path / "policies").mkdir()
    write_pair(tmp_path / "a.pem", tmp_path / "a.key")
    folder = write(
        tmp_path / "policies",
        x=f"tls: {{certificate: {tmp_path}/a.pem, key: key}}",
    )
    (folder / "key").symlink_to("../a.key")
    assert load(folder).tls == Tls(str(tmp_path / "a.pem"), str(folder / "key"))


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the gateway may not open is a fault."""
    folder = write(tmp_path, x="tls: {certificate: a.pem, key: a.pem}")
    (folder / "a.pem").touch()
    kept = Path.open

    def denied(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.suffix == ".pem":
            raise PermissionError(13, "Permission denied")
        return kept(path, *arguments, **named)

    # Removing the permission would not stop a test that runs as root.
    monkeypatch.setattr(Path, "open", denied)
    assert complaints(folder) == [
        f"x.yaml:1: tls.{key}: found 'a.pem' (Permission denied at a.pem), "
        "expected a file that can be read"
        for key in ("certificate", "key")
    ]


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """A pipe is refused, as reading it would block."""
    os.mkfifo(tmp_path / "pipe")
    folder = write(tmp_path, x="tls: {certificate: pipe, key: pipe}")
    assert len(faults_of(folder)) == 2


def test_a_whole_route(tmp_path: Path) -> None:
    """Every key of a route is read; the limit of `rate` comes before those of `limits`."""
    routes = """
routes:
  tickets:
    match: POST /v1/tickets/*
    upstream: api
    auth: key
    scopes: ["ticketing:write", a, a]
    permission: ticketing:write
    service: ticketing
    cost: 2
    plan_limits: false
    limits:
      - {name: per-tenant, rate: 5/second, per: "header:X-Tenant", mode: shadow}
      - {name: daily, quota: 1000/day, per: account, mode: enforce}
      - {name: streams, concurrency: 5, per: ip, mode: shadow}
    rate: 30/minute
    burst: 40
"""
    policy = load(write(tmp_path, routes=routes))
    assert policy.counted_headers == {"x-tenant"}
    assert policy.routes["tickets"] == Route(
        name="tickets",
        method="POST",
        segments=("v1", "tickets"),
        rest=True,
        upstream="api",
        scopes=("ticketing:write", "a"),
        permission=("ticketing", "write"),
        service="ticketing",
        plan_limits=False,
        limits=(
            Limit("tickets", "rate", 30, MINUTE, 40),
            Limit("per-tenant", "rate", 5, 1_000_000, None, "header:x-tenant", shadow=True),
            Limit("daily", "quota", 1000, DAY, None, "account"),
            Limit("streams", "concurrency", 5, LEASE_US, None, "ip", shadow=True),
        ),
        cost=2,
        where="routes.yaml:3",
    )


def test_a_whole_plan(tmp_path: Path) -> None:
    """A plan has a rate, further limits, and values for limits of routes."""
    plans = """
plans:
  free:
    rate: 60/minute
    burst: 100
    limits:
      - {name: hourly, quota: 500/hour, in: Asia/Kolkata}
      - {name: weekly, quota: 1000/week, per: account, mode: shadow}
      - {name: monthly, quota: 9000/month, in: Europe/Berlin, from: account, per: account}
      - {name: streams, concurrency: 5}
      - {name: peak, rate: 5/second, burst: 9}
    routes: {all: 3/minute}
"""
    found = load(write(tmp_path, plans=plans)).plans["free"]
    month_us = PERIODS_US["month"]
    assert found.limits == (
        Limit("plan", "rate", 60, MINUTE, 100),
        Limit("hourly", "quota", 500, 60 * MINUTE, zone="Asia/Kolkata"),
        Limit("weekly", "quota", 1000, 7 * DAY, per="account", shadow=True),
        Limit("monthly", "quota", 9000, month_us, None, "account", False, "Europe/Berlin", True),
        Limit("streams", "concurrency", 5, LEASE_US),
        Limit("peak", "rate", 5, 1_000_000, 9),
    )
    assert list(found.overrides) == ["all"]


def test_candidates(tmp_path: Path) -> None:
    """The same form beside the rate of a plan or route and the values of an entry of limits."""
    plans = "plans: {free: {rate: 60/minute, candidate: {rate: 9/second, burst: 20}}}"
    routes = """
routes:
  all:
    match: "* /**"
    upstream: api
    rate: 30/minute
    candidate: {rate: 20/hour}
    limits:
      - {name: open, concurrency: 5, per: ip, candidate: {concurrency: 3}}
      - {name: daily, quota: 9/day, in: Asia/Kolkata, per: account, candidate: {quota: 1/minute}}
      - {name: none, rate: 5/second}
"""
    policy = load(write(tmp_path, plans=plans, routes=routes))
    limits = *policy.plans["free"].limits, *policy.routes["all"].limits
    tried = {"shadow": True, "is_candidate": True}
    assert [limit.candidate for limit in limits] == [
        Limit("plan:candidate", "rate", 9, 1_000_000, 20, **tried),
        Limit("all:candidate", "rate", 20, 60 * MINUTE, **tried),
        Limit("open:candidate", "concurrency", 3, LEASE_US, per="ip", **tried),
        Limit("daily:candidate", "quota", 1, MINUTE, per="account", **tried),
        None,
    ]
    assert not any(limit.shadow or limit.is_candidate for limit in limits)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("candidate: 5/minute", "candidate: found '5/minute', expected a mapping"),
        ("candidate: {}", "candidate: found none of them, expected one of rate, quota and"),
        ("candidate: null", "candidate: found nothing, expected a mapping"),
        ("candidate: {quota: 5/day}", "candidate: found quota, expected rate, as of the limit"),
        ("candidate: {concurrency: 5}", "candidate: found concurrency, expected rate, as of the"),
        ("candidate: {rate: 5/minut}", "candidate.rate: found '5/minut', expected a rate such as"),
        (
            "candidate: {rate: 5/day, burst: 4}",
            "candidate.burst: found the number 4, expected a burst",
        ),
        ("candidate: {burst: 4}", "candidate: found none of them, expected one of rate, quota and"),
        (
            "candidate: {rate: 5/day, per: ip}",
            "candidate.per: found the key 'per', expected one of rate, quota, concurrency, burst",
        ),
        (
            "candidate: {rate: 5/day, candidate: {rate: 3/day}}",
            "candidate.candidate: found the key 'candidate', expected one of rate, quota,",
        ),
    ],
)
def test_faults_of_candidates(tmp_path: Path, entry: str, expected: str) -> None:
    """A candidate has the values of a limit of the same kind, and nothing else."""
    for at, given in {
        "plans.free": f"plans: {{free: {{rate: 9/day, {entry}}}}}",
        "routes.r": f"routes: {{r: {{match: GET /, upstream: api, rate: 9/day, {entry}}}}}",
        "routes.r.limits[0]": "routes: {r: {match: GET /, upstream: api, "
        f"limits: [{{name: q, rate: 9/day, {entry}}}]}}}}",
    }.items():
        folder = tmp_path / at
        folder.mkdir()
        with pytest.raises(PolicyFaults) as raised:
            load(write(folder, **{given[: given.index(":")]: given}))
        (fault,) = map(str, raised.value.faults)
        assert f"{at}.{expected}" in fault


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        ("candidate: {rate: 5/day}", "r.candidate: found a candidate without a rate, expected a"),
        (
            "limits: [{name: q, rate: 9/day, mode: shadow, candidate: {rate: 5/day}}]",
            "limits[0].candidate: found a candidate, expected no candidate with mode: shadow",
        ),
    ],
)
def test_faults_of_routes_with_candidates(tmp_path: Path, route: str, expected: str) -> None:
    """A candidate needs a limit that is enforced, and must be able to admit a request."""
    given = f"routes: {{r: {{match: GET /, upstream: api, {route}}}}}"
    with pytest.raises(PolicyFaults) as raised:
        load(write(tmp_path, routes=given))
    (fault,) = map(str, raised.value.faults)
    assert expected in fault


def test_the_most_limits_fit_into_a_check(tmp_path: Path) -> None:
    """Candidates count among a plan's and a route's limits, so that all of them fit."""

    def entries(name: str, count: int) -> str:
        candidate = "candidate: {quota: 5/day}"
        whole = f"{{name: %s%d, quota: 9/day, {candidate}}}"
        return f"[{', '.join(whole % (name, number) for number in range(count))}]"

    def texts(of_plan: int, of_route: int) -> dict[str, str]:
        both = "rate: 9/day, candidate: {rate: 5/day}"
        return {
            "plans": f"plans: {{free: {{{both}, limits: {entries('p', of_plan)}}}}}",
            "routes": f"routes: {{r: {{match: GET /, upstream: api, {both}, "
            f"limits: {entries('r', of_route)}}}}}",
        }

    policy = load(write(tmp_path, **texts(4, 8)))
    limits = limits_for(policy.plans["free"], policy.routes["r"], {})
    assert len(limits) == 28 <= MOST_LIMITS
    with pytest.raises(PolicyFaults) as raised:
        load(write(tmp_path, **texts(5, 9)))
    of_plan, of_route = map(str, raised.value.faults)
    assert "found 5 limits and 5 candidates, expected at most 8, candidates included" in of_plan
    assert "found 9 limits and 9 candidates, expected at most 16, candidates included" in of_route


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("quota: 1/month, in: Berlin", "in: found 'Berlin', expected a time zone such as Europe"),
        ("quota: 1/month, in: ../../etc", "in: found '../../etc', expected a time zone such as"),
        ("quota: 1/month, in: Europe", "in: found 'Europe', expected a time zone such as Europe"),
        ("quota: 1/month, in: localtime", "in: found 'localtime', expected a time zone such as"),
        ("quota: 1/minute, in: UTC", "in: found 'UTC', expected in only with a quota per hour"),
        ("rate: 1/minute, in: UTC", "in: found 'UTC', expected in only with a quota per hour"),
        ("quota: 1/week, from: account", "from: found 'account', expected from: account only with"),
        ("quota: 1/month, from: key", "from: found 'key', expected one of account"),
        (
            "quota: 1/month, from: account, per: ip",
            "from: found 'account', expected from: account only with per: key or per: account",
        ),
        ("concurrency: 1, from: account", "from: found 'account', expected from: account only"),
        (
            "concurrency: 5, from: account, candidate: {concurrency: 3}",
            "from: found 'account', expected from: account only",
        ),
    ],
)
def test_faults_of_periods(tmp_path: Path, entry: str, expected: str) -> None:
    """Time zones are those of the IANA database; settings of periods are for quotas only."""
    for where, folder in (("plans.free", "plan"), ("routes.r", "route")):
        limits = f"limits: [{{name: q, {entry}}}]"
        given = f"plans: {{free: {{rate: 1/day, {limits}}}}}"
        if folder == "route":
            given = f"routes: {{r: {{match: GET /, upstream: api, {limits}}}}}"
        (tmp_path / folder).mkdir()
        with pytest.raises(PolicyFaults) as raised:
            load(write(tmp_path / folder, **{f"{folder}s": given}))
        (fault,) = map(str, raised.value.faults)
        assert f"{where}.limits[0].{expected}" in fault


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("{name: plan, quota: 1/day}", "another name: the plan's rate has it"),
        ("{name: search, quota: 1/day}", "another name: routes.search has it"),
        ("{name: daily, quota: 1/day}", "another name: a limit of routes.search has it"),
        ("{name: failed_auth, quota: 1/day}", "another name: the limit on failed attempts has it"),
        ("{name: a, quota: 1/day}, {name: a, rate: 1/day}", "another limit of this plan has it"),
        (", ".join(f"{{name: a{n}, quota: 1/day}}" for n in range(9)), "at most 8"),
    ],
)
def test_faults_of_plans_limits(tmp_path: Path, limits: str, expected: str) -> None:
    """Keys override limits by name, so a name is that of one limit only."""
    routes = (
        "routes: {search: {match: GET /, upstream: api, limits: [{name: daily, quota: 1/day}]}}"
    )
    plans = f"plans: {{free: {{rate: 1/day, limits: [{limits}]}}}}"
    with pytest.raises(PolicyFaults) as raised:
        load(write(tmp_path, plans=plans, routes=routes))
    (fault,) = map(str, raised.value.faults)
    assert expected in fault


@pytest.mark.parametrize(
    ("match", "key", "expected"),
    [
        ("* /mcp/**", "", True),
        ("POST /v1/mcp", "", True),
        ("POST /v1/MCP", "", True),
        ("POST /v1/**/mcp/{id}", "", True),
        ("POST /{mcp}", "", False),
        ("POST /mcpx", "", False),
        ("POST /mcp", ", json_rpc: false", False),
        ("POST /rpc", ", json_rpc: true", True),
    ],
)
def test_json_rpc(tmp_path: Path, match: str, key: str, expected: bool) -> None:
    """Refusals are JSON-RPC if a segment is mcp, unless the route says otherwise."""
    routes = f'routes: {{r: {{match: "{match}", upstream: api{key}}}}}'
    assert load(write(tmp_path, routes=routes)).routes["r"].json_rpc is expected


def test_braces_need_no_quotes_on_a_line_of_their_own(tmp_path: Path) -> None:
    """Outside { } a pattern with braces or a comma is a text to YAML; explain shows it again."""
    routes = """
routes:
  r:
    match: GET,PUT /v1/{kind}/x/{id}
    upstream: api
"""
    route = load(write(tmp_path, routes=routes)).routes["r"]
    assert (route.method, route.segments) == ("GET,PUT", ("v1", "*", "x", "*"))
    assert route.pattern == "GET,PUT /v1/{kind}/x/{id}"


def test_how_paths_are_read(tmp_path: Path) -> None:
    """`paths` is the default for routes without these settings."""
    routes = """
routes:
  a: {match: GET /a, upstream: api}
  b: {match: GET /b, upstream: api, case_sensitive: false, encoded_slash: refuse}
"""
    paths = "paths: {case_sensitive: true, encoded_slash: keep}"
    policy = load(write(tmp_path, routes=routes, paths=paths))
    a, b = policy.routes["a"], policy.routes["b"]
    assert (a.case_sensitive, a.keeps_slashes) == (True, True)
    assert (b.case_sensitive, b.keeps_slashes) == (False, False)
    assert policy.table.match("GET", ("A",)) is None
    assert policy.table.match("GET", ("B",)) is b


def test_a_public_route(tmp_path: Path) -> None:
    """Without a key, limits count per address or header."""
    limits = "limits: [{name: ip, rate: 5/second, per: ip}]"
    routes = f"routes: {{r: {{match: GET /, upstream: api, auth: none, {limits}}}}}"
    route = load(write(tmp_path, routes=routes)).routes["r"]
    assert route.auth == "none"
    assert route.limits == (Limit("ip", "rate", 5, 1_000_000, None, "ip"),)


def test_anchors_and_merges(tmp_path: Path) -> None:
    """An alias is replaced by its value; "<<" adds missing keys, the first one wins."""
    routes = """
routes:
  a: &a {match: GET /a, upstream: api, rate: 3/minute}
  b: {<<: *a, match: GET /b}
  c: {match: GET /c, <<: [{cost: 2}, *a, {cost: 3, rate: 9/minute}]}
"""
    policy = load(write(tmp_path, routes=routes))
    assert policy.routes["b"].segments == ("b",)
    assert policy.routes["b"].limits == (Limit("b", "rate", 3, MINUTE),)
    assert policy.routes["c"].limits == (Limit("c", "rate", 3, MINUTE),)
    assert policy.routes["c"].cost == 2


def test_the_hash_is_of_names_and_contents(tmp_path: Path) -> None:
    """The hash depends on each name and each byte of the files."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = write(tmp_path / "one"), write(tmp_path / "two")
    first = load(one).hash
    assert len(first) == 16
    assert load(two).hash == first
    (two / "plans.yaml").rename(two / "tiers.yaml")
    renamed = load(two).hash
    (two / "tiers.yaml").write_text(PLANS + "# a remark\n")
    assert len({first, renamed, load(two).hash}) == 3


def test_a_fault_says_file_line_path_found_and_expected(tmp_path: Path) -> None:
    """A fault has parts, and is printed as one line."""
    routes = ROUTES + "  search: {match: GET /s, upstream: api,\n    rate: 30/minut}\n"
    (fault,) = faults_of(write(tmp_path, routes=routes))
    assert fault.file == str(tmp_path / "routes.yaml")
    assert (fault.line, fault.path, fault.found) == (4, "routes.search.rate", "'30/minut'")
    assert str(fault) == (
        f"{tmp_path}/routes.yaml:4: routes.search.rate: found '30/minut', "
        "expected a rate such as 30/minute (units: second, minute, hour, day)"
    )


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    """All faults of all files are reported in order, even if a file is not YAML."""
    folder = write(
        tmp_path,
        a="environment: Prod\nbounds: {url: 3XB}\n",
        b="timeouts: {idle: [\n",
        plans="plans:\n  free: {rate: 60}\n",
        routes="routes:\n  r: {match: GET r, upstream: apo, limits: [{rate: 3/day, per: me}]}\n",
    )
    places = [complaint.split(": found")[0] for complaint in complaints(folder)]
    assert places == [
        "a.yaml:1: environment",
        "a.yaml:2: bounds.url",
        "b.yaml:2",
        "plans.yaml:2: plans.free.rate",
        "routes.yaml:2: routes.r.limits[0]",
        "routes.yaml:2: routes.r.limits[0].per",
        "routes.yaml:2: routes.r.match",
        "routes.yaml:2: routes.r.upstream",
    ]


#: File name without .yaml, its text, and complaints: where, and the words that follow.
FAULTS: dict[str, tuple[str, str, list[str]]] = {
    "unknown top-level key": (
        "x",
        "plan: {}",
        ["x.yaml:1: plan: found the key 'plan', expected one of upstreams, plans, routes, "],
    ),
    "a key in two files": (
        "x",
        UPSTREAMS,
        ["x.yaml:1: upstreams: found the key 'upstreams' again, expected it once"],
    ),
    "a key twice in a file": (
        "plans",
        PLANS + "plans: {}",
        ["plans.yaml:3: plans: found the key 'plans' again, expected it once (first on line 1)"],
    ),
    "a key twice further down": (
        "plans",
        "plans:\n  a: {rate: 1/day,\n    rate: 2/day}",
        ["plans.yaml:3: plans.a.rate: found the key 'rate' again, expected it once"],
    ),
    "not a mapping": ("x", "[environment]", ["x.yaml:1: found a list, expected a mapping with"]),
    "a key that is no name": ("x", "? [a]\n: b", ["x.yaml:1: ?: found a list, expected a name"]),
    "a key that would break the line": (
        "x",
        '"a\\nb": 1',
        ["x.yaml:1: 'a\\nb': found the key 'a\\nb', expected one of"],
    ),
    "nothing": ("plans", "plans:", ["plans.yaml:1: plans: found nothing, expected a mapping"]),
    "no plans": (
        "plans",
        "plans: {}",
        ["plans.yaml:1: plans: found an empty mapping, expected at least a plan"],
    ),
    "a name": (
        "plans",
        "plans: {-a: {rate: 1/day}, b: {rate: 1/day}}",
        ["plans.yaml:1: plans.-a: found the key '-a', expected a name for a plan: up to 64"],
    ),
    "environment": (
        "x",
        "environment: yes",
        ["x.yaml:1: environment: found yes (a YAML boolean), expected up to 32 lower-case"],
    ),
    "environment, spelling": ("x", "environment: Prod", ["x.yaml:1: environment: found 'Prod'"]),
    "trusted_proxies": (
        "x",
        "trusted_proxies: [10.0.0.1/8, 3]",
        [
            "x.yaml:1: trusted_proxies[0]: found '10.0.0.1/8', expected an address or a CIDR range",
            "x.yaml:1: trusted_proxies[1]: found the number 3, expected an address or a CIDR",
        ],
    ),
    "trusted_proxies, no list": (
        "x",
        "trusted_proxies: 10.0.0.0/8",
        ["x.yaml:1: trusted_proxies: found '10.0.0.0/8', expected a list"],
    ),
    "on_store_failure": (
        "x",
        "on_store_failure: close",
        [
            "x.yaml:1: on_store_failure: found 'close', expected one of local, open, closed "
            "(did you mean 'closed'?)"
        ],
    ),
    "on_store_failure, type": (
        "x",
        "on_store_failure: []",
        ["x.yaml:1: on_store_failure: found a list, expected one of local, open, closed"],
    ),
    "timeouts": (
        "x",
        "timeouts: {idle: 0s, header: 2d, connect: 3, drian: 1s}",
        [
            "x.yaml:1: timeouts.drian: found the key 'drian', expected one of header, body, "
            "idle, connect, response, write, tunnel, stream, drain (did you mean 'drain'?)",
            "x.yaml:1: timeouts.idle: found '0s', expected a duration above 0s and up to 1d",
            "x.yaml:1: timeouts.header: found '2d', expected a duration above 0s",
            "x.yaml:1: timeouts.connect: found the number 3 without a unit, expected a",
        ],
    ),
    "durations without a unit": (
        "x",
        "timeouts: {idle: 1.5, header: '50', connect: -3, body: 0x10}",
        [
            "x.yaml:1: timeouts.idle: found the number 1.5 without a unit, expected a duration "
            "such as 1.5ms or 1.5s (units: ms, s, m, h, d)",
            "x.yaml:1: timeouts.header: found the number 50 without a unit",
            "x.yaml:1: timeouts.connect: found the number -3, expected a duration such as 10s",
            "x.yaml:1: timeouts.body: found the number 0x10, expected a duration such as 10s",
        ],
    ),
    "timeouts, type": ("x", "timeouts: 10s", ["x.yaml:1: timeouts: found '10s', expected a map"]),
    "store": (
        "x",
        "store: {timeout: 0s, keep_keys: 8d, url: redis}",
        [
            "x.yaml:1: store.url: found the key 'url', expected one of timeout, keep_keys",
            "x.yaml:1: store.timeout: found '0s', expected a duration from 1ms to 10s",
            "x.yaml:1: store.keep_keys: found '8d', expected a duration up to 7d",
        ],
    ),
    "store, a long timeout": ("x", "store: {timeout: 11s}", ["x.yaml:1: store.timeout: found"]),
    "audit": (
        "x",
        "audit: {keep: 23h, entries: 999, size: 1}",
        [
            "x.yaml:1: audit.size: found the key 'size', expected one of keep, entries",
            "x.yaml:1: audit.keep: found '23h', expected a duration from 1d to 36500d",
            "x.yaml:1: audit.entries: found the number 999, expected a whole number from 1000 to",
        ],
    ),
    "audit, for ever": ("x", "audit: {keep: 36501d}", ["x.yaml:1: audit.keep: found '36501d'"]),
    "audit, type": ("x", "audit: 400d", ["x.yaml:1: audit: found '400d', expected a mapping"]),
    "store, type": ("x", "store: redis", ["x.yaml:1: store: found 'redis', expected a mapping"]),
    "bounds": (
        "x",
        "bounds: {url: 0, body: 0KB, headers: -1, header_count: 1.5}",
        [
            "x.yaml:1: bounds.url: found the number 0, expected a whole number from 1",
            "x.yaml:1: bounds.body: found '0KB', expected at least one byte",
            "x.yaml:1: bounds.headers: found the number -1, expected a whole number",
            "x.yaml:1: bounds.header_count: found the number 1.5, expected a whole number",
        ],
    ),
    "bounds, numbers of YAML 1.1": (
        "x",
        "bounds: {url: 010, body: 0x10, headers: 1:30}",
        [
            "x.yaml:1: bounds.url: found the number 010",
            "x.yaml:1: bounds.body: found the number 0x10",
            "x.yaml:1: bounds.headers: found the number 1:30",
        ],
    ),
    "bounds, type": ("x", "bounds: []", ["x.yaml:1: bounds: found a list, expected a mapping"]),
    "failed_auth": (
        "x",
        "failed_auth: {burst: 3}",
        ["x.yaml:1: failed_auth: found a mapping without 'rate', expected the key 'rate'"],
    ),
    "auth_verify": (
        "x",
        "auth_verify: {rate: 3/minute, burst: 2}",
        ["x.yaml:1: auth_verify.burst: found the number 2, expected a burst of at least"],
    ),
    "failed_auth, rate": (
        "x",
        "failed_auth: {rate: 3}",
        ["x.yaml:1: failed_auth.rate: found the number 3, expected a rate such as"],
    ),
    "headers": (
        "x",
        "headers: {ietf: 1}",
        ["x.yaml:1: headers.ietf: found the number 1, expected true or false"],
    ),
    "headers, trusted_only": (
        "x",
        "headers: {trusted_only: [X-Ok, X_Any, 'X*', Host, X-Gateway-*, 3]}",
        [
            "x.yaml:1: headers.trusted_only[1]: found 'X_Any', expected a header's name such as",
            "x.yaml:1: headers.trusted_only[2]: found 'X*', expected a header's name such as",
            "x.yaml:1: headers.trusted_only[3]: found 'Host', expected a header that is for",
            "x.yaml:1: headers.trusted_only[4]: found 'X-Gateway-*', expected a header that is",
            "x.yaml:1: headers.trusted_only[5]: found the number 3, expected the name of a header",
        ],
    ),
    "headers, trusted_only, type": (
        "x",
        "headers: {trusted_only: X-Any}",
        ["x.yaml:1: headers.trusted_only: found 'X-Any', expected a list of header names"],
    ),
    "headers, hsts": (
        "x",
        'headers: {hsts: "31536000"}',
        ["x.yaml:1: headers.hsts: found '31536000', expected a value such as \"max-age=31536000"],
    ),
    "headers, hsts that would be two headers": (
        "x",
        'headers: {hsts: "max-age=1\\r\\nX: y"}',
        ["x.yaml:1: headers.hsts: found 'max-age=1\\r\\nX: y', expected a value such as"],
    ),
    "bounds, connections": (
        "x",
        "bounds: {connections: 0, connections_per_address: 3KiB}",
        [
            "x.yaml:1: bounds.connections: found the number 0, expected a whole number from 1",
            "x.yaml:1: bounds.connections_per_address: found '3KiB', expected a whole number",
        ],
    ),
    "proxy_protocol": (
        "x",
        "proxy_protocol: v2",
        ["x.yaml:1: proxy_protocol: found 'v2', expected true or false"],
    ),
    "proxy_protocol without proxies": (
        "x",
        "proxy_protocol: true",
        [
            "x.yaml:1: proxy_protocol: found true (a YAML boolean), expected trusted_proxies "
            "with the proxies that send it"
        ],
    ),
    "proxy_protocol before TLS": (
        "x",
        "trusted_proxies: [10.0.0.0/8]\nproxy_protocol: true\ntls: {certificate: x, key: x}",
        [
            "x.yaml:3: tls.certificate: found 'x'",
            "x.yaml:3: tls.key: found 'x'",
        ],
    ),
    "proxy_protocol of an empty list": (
        "x",
        "trusted_proxies: []\nproxy_protocol: true",
        ["x.yaml:2: proxy_protocol: found true (a YAML boolean), expected trusted_proxies"],
    ),
    "proxy_protocol of a list with a fault": (
        "x",
        "trusted_proxies: [10.0.0.1/8]\nproxy_protocol: true",
        ["x.yaml:1: trusted_proxies[0]: found '10.0.0.1/8', expected an address"],
    ),
    "error_docs with a fragment": (
        "x",
        "error_docs: 'https://docs.example.com/errors#all'",
        ["x.yaml:1: error_docs: found 'https://docs.example.com/errors#all', expected an http or"],
    ),
    "error_docs, another scheme": (
        "x",
        "error_docs: ftp://docs.example.com/errors",
        ["x.yaml:1: error_docs: found 'ftp://docs.example.com/errors', expected an http or https"],
    ),
    "error_docs that would need escaping": (
        "x",
        "error_docs: 'https://docs.example.com/\"'",
        ["x.yaml:1: error_docs: found 'https://docs.example.com/\"', expected an http or https"],
    ),
    "ipv6_prefix": (
        "x",
        "ipv6_prefix: 129",
        ["x.yaml:1: ipv6_prefix: found the number 129, expected a whole number from 32 to 128"],
    ),
    "ipv6_prefix, too short": ("x", "ipv6_prefix: 31", ["x.yaml:1: ipv6_prefix: found the num"]),
    "tls": (
        "x",
        "tls: {certificate: none.pem, keys: 3}",
        [
            "x.yaml:1: tls.keys: found the key 'keys', expected one of certificate, key, ",
            "x.yaml:1: tls: found a mapping without 'key', expected the key 'key'",
            "x.yaml:1: tls.certificate: found 'none.pem' (no file at none.pem), expected a file",
        ],
    ),
    "tls, types": (
        "x",
        "tls: {certificate: 3, key: ''}",
        [
            "x.yaml:1: tls.certificate: found the number 3, expected the path of a file, in quotes",
            "x.yaml:1: tls.key: found '' (no file at ",
        ],
    ),
    "admin_tls": (
        "x",
        "admin_tls: {certificate: none.pem}",
        [
            "x.yaml:1: admin_tls: found a mapping without 'key', expected the key 'key'",
            "x.yaml:1: admin_tls.certificate: found 'none.pem' (no file at none.pem)",
        ],
    ),
    "admin_proxy": (
        "x",
        "admin_proxy: {trusted: [10.0.0.1/8, x], tls: maybe, proto: https}",
        [
            "x.yaml:1: admin_proxy.proto: found the key 'proto', expected one of trusted, tls",
            "x.yaml:1: admin_proxy.trusted[0]: found '10.0.0.1/8', expected an address",
            "x.yaml:1: admin_proxy.trusted[1]: found 'x', expected an address",
            "x.yaml:1: admin_proxy.tls: found 'maybe', expected true or false",
        ],
    ),
    "admin_proxy, none": (
        "x",
        "admin_proxy: {trusted: [], tls: true}",
        ["x.yaml:1: admin_proxy.trusted: found an empty list, expected at least one address"],
    ),
    "admin_proxy, not said": (
        "x",
        "admin_proxy: {tls: true}",
        ["x.yaml:1: admin_proxy: found a mapping without 'trusted', expected the key 'trusted'"],
    ),
    "tls, type": ("x", "tls: true", ["x.yaml:1: tls: found true (a YAML boolean), expected a map"]),
    "upstream, unknown key": (
        "upstreams",
        "upstreams: {api: {servers: [http://h], timeout: 3s}}",
        [
            "upstreams.yaml:1: upstreams.api.timeout: found the key 'timeout', expected one of "
            "servers, connect, response, inflight, ca, health, ejection"
        ],
    ),
    "upstream, its figures": (
        "upstreams",
        "upstreams: {api: {servers: [http://h], connect: 0s, response: 3, inflight: 0}}",
        [
            "upstreams.yaml:1: upstreams.api.connect: found '0s', expected a duration above 0s",
            "upstreams.yaml:1: upstreams.api.response: found the number 3 without a unit, expected",
            "upstreams.yaml:1: upstreams.api.inflight: found the number 0, expected a whole number",
        ],
    ),
    "upstream, authorities": (
        "upstreams",
        "upstreams: {api: {servers: [http://h], ca: upstreams.yaml}, b: {servers: [https://h], "
        "ca: none.pem}}",
        [
            "upstreams.yaml:1: upstreams.api.ca: found 'upstreams.yaml', expected no ca, as none "
            "of the servers is https",
            "upstreams.yaml:1: upstreams.b.ca: found 'none.pem' (no file at none.pem), expected a",
        ],
    ),
    "upstream, client certificate": (
        "upstreams",
        "upstreams: {api: {servers: [http://h], client_certificate: upstreams.yaml}, b: {servers: "
        "[https://h], client_certificate: upstreams.yaml, client_key: upstreams.yaml}, c: "
        "{servers: [https://h], client_key: none.key}, d: {servers: [http://h], client_key: "
        "upstreams.yaml, client_certificate: upstreams.yaml}}",
        [
            "upstreams.yaml:1: upstreams.api.client_certificate: found client_certificate without",
            "upstreams.yaml:1: upstreams.b.client_key: found 'upstreams.yaml' (",
            "upstreams.yaml:1: upstreams.c.client_key: found 'none.key' (no file at none.key), ex",
            "upstreams.yaml:1: upstreams.c.client_key: found client_key without client_certificat",
            "upstreams.yaml:1: upstreams.d.client_certificate: found 'upstreams.yaml', expected n",
            "upstreams.yaml:1: upstreams.d.client_key: found 'upstreams.yaml', expected no client",
            "upstreams.yaml:1: upstreams.d.client_key: found 'upstreams.yaml' (",
        ],
    ),
    "upstream, health": (
        "upstreams",
        "upstreams: {a: {servers: [http://h], health: {path: healthz, rise: 0, fall: 1001, "
        "interval: 1, timeout: 0s}}, api: {servers: [http://h], health: {}}, c: {servers: "
        "[http://h], health: /healthz}}",
        [
            "upstreams.yaml:1: upstreams.a.health.path: found 'healthz', expected a path such as",
            "upstreams.yaml:1: upstreams.a.health.interval: found the number 1 without a unit",
            "upstreams.yaml:1: upstreams.a.health.timeout: found '0s', expected a duration above",
            "upstreams.yaml:1: upstreams.a.health.rise: found the number 0, expected a whole numb",
            "upstreams.yaml:1: upstreams.a.health.fall: found the number 1001, expected a whole",
            "upstreams.yaml:1: upstreams.api.health: found a mapping without 'path', expected the",
            "upstreams.yaml:1: upstreams.c.health: found '/healthz', expected a mapping",
        ],
    ),
    "upstream, ejection": (
        "upstreams",
        "upstreams: {api: {servers: [http://h], ejection: {failures: -1, for: x, after: 1}}, b: "
        "{servers: [http://h], ejection: 3}}",
        [
            "upstreams.yaml:1: upstreams.api.ejection.after: found the key 'after', expected one",
            "upstreams.yaml:1: upstreams.api.ejection.failures: found the number -1, expected a",
            "upstreams.yaml:1: upstreams.api.ejection.for: found 'x', expected a duration",
            "upstreams.yaml:1: upstreams.b.ejection: found the number 3, expected a mapping",
        ],
    ),
    "upstream, ejection by answers": (
        "upstreams",
        "upstreams: {api: {servers: [http://h], ejection: {errors: 0%, latency: 0s, window: 5, "
        "least: 0}}, b: {servers: [http://h], ejection: {errors: 50, least: 1}}, c: {servers: "
        "[http://h], ejection: {window: 5s}}}",
        [
            "upstreams.yaml:1: upstreams.api.ejection.errors: found '0%', expected a percentage",
            "upstreams.yaml:1: upstreams.api.ejection.latency: found '0s', expected a duration a",
            "upstreams.yaml:1: upstreams.api.ejection.window: found the number 5 without a unit",
            "upstreams.yaml:1: upstreams.api.ejection.least: found the number 0, expected a whole",
            "upstreams.yaml:1: upstreams.b.ejection.errors: found the number 50, expected a perce",
            "upstreams.yaml:1: upstreams.c.ejection.window: found window without them, expected e",
        ],
    ),
    "headers, type": ("x", "headers: yes", ["x.yaml:1: headers: found yes"]),
    "upstream without servers": (
        "upstreams",
        "upstreams:\n  api: {}",
        ["upstreams.yaml:2: upstreams.api: found a mapping without 'servers', expected the key"],
    ),
    "upstream, type": (
        "upstreams",
        "upstreams: {api: http://h}",
        ["upstreams.yaml:1: upstreams.api: found 'http://h', expected a mapping with one of serv"],
    ),
    "upstream, no server": (
        "upstreams",
        "upstreams: {api: {servers: []}}",
        ["upstreams.yaml:1: upstreams.api.servers: found an empty list, expected at least one"],
    ),
    "upstream, servers' type": (
        "upstreams",
        "upstreams: {api: {servers: http://h}}",
        ["upstreams.yaml:1: upstreams.api.servers: found 'http://h', expected a list"],
    ),
    "upstream, servers": (
        "upstreams",
        "upstreams: {api: {servers: [http://h/../x, http://h, 'http://h:80']}}",
        [
            "upstreams.yaml:1: upstreams.api.servers[0]: found 'http://h/../x', expected a path",
            "upstreams.yaml:1: upstreams.api.servers[2]: found 'http://h:80' again, expected each",
        ],
    ),
    "plan": (
        "plans",
        "plans: {free: {burst: 3, quota: 3/day}, b: 3/day}",
        [
            "plans.yaml:1: plans.free.quota: found the key 'quota', expected one of was, "
            "rate, burst",
            "plans.yaml:1: plans.free: found a mapping without 'rate', expected the key 'rate'",
            "plans.yaml:1: plans.b: found '3/day', expected a mapping",
        ],
    ),
    "plan, figures": (
        "plans",
        (
            "plans: {a: {rate: 60/minute, burst: 50}, b: {rate: 1/minute, burst: true}, "
            "c: {rate: 1/day, burst: 4294967295}, d: {rate: 1/minutes, burst: "
            "4294967296}}"
        ),
        [
            "plans.yaml:1: plans.a.burst: found the number 50, expected a burst of at least",
            "plans.yaml:1: plans.b.burst: found true (a YAML boolean), expected a whole",
            "plans.yaml:1: plans.c.burst: found the number 4294967295, expected a burst up to",
            "plans.yaml:1: plans.d.rate: found '1/minutes', expected a rate such as",
            "plans.yaml:1: plans.d.burst: found the number 4294967296, expected a whole number",
        ],
    ),
    "plan, figures for a route": (
        "plans",
        (
            "plans: {a: {rate: 6/minute, routes: {al: 1/day, all: 3/min}}, b: {rate: "
            "6/day, routes: {all: {burst: 3}}}, c: {rate: 6/day, routes: {all: [], '': "
            "3}}, d: {rate: 6/day, routes: []}}"
        ),
        [
            "plans.yaml:1: plans.a.routes.all: found '3/min', expected a rate such as",
            "plans.yaml:1: plans.b.routes.all: found none of them, expected one of rate, quota and",
            "plans.yaml:1: plans.c.routes.: found the key '', expected a name for a route",
            "plans.yaml:1: plans.c.routes.all: found a list, expected a mapping",
            "plans.yaml:1: plans.d.routes: found a list, expected a mapping",
            "plans.yaml:1: plans.a.routes.al: found 'al', expected one of all (did you mean",
        ],
    ),
    "plan, its own name among the routes": (
        "plans",
        "plans: {a: {rate: 6/minute, routes: {plan: 1/day}}}",
        ["plans.yaml:1: plans.a.routes.plan: found 'plan', expected one of all"],
    ),
    "route, type": ("routes", "routes: {r: GET /}", ["routes.yaml:1: routes.r: found 'GET /'"]),
    "route, what must be there": (
        "routes",
        "routes:\n  r: {}\n",
        [
            "routes.yaml:2: routes.r: found a mapping without 'match', expected the key 'match'",
            "routes.yaml:2: routes.r: found a mapping without 'upstream', expected the key",
        ],
    ),
    "route, access": (
        "routes",
        (
            "routes: {r: {match: GET /, upstream: 3, auth: keys, scopes: [a b, 3], "
            "permission: x, service: -}}"
        ),
        [
            "routes.yaml:1: routes.r.upstream: found the number 3, expected the name of an",
            "routes.yaml:1: routes.r.auth: found 'keys', expected one of key, none (did you mean",
            "routes.yaml:1: routes.r.scopes[0]: found 'a b', expected a scope such as",
            "routes.yaml:1: routes.r.scopes[1]: found the number 3, expected a scope such as",
            "routes.yaml:1: routes.r.permission: found 'x', expected a service area and an action",
            "routes.yaml:1: routes.r.service: found '-', expected a name",
        ],
    ),
    "route, types": (
        "routes",
        (
            "routes: {r: {match: 3, upstream: api, scopes: a, cost: 0, plan_limits: "
            "nope, json_rpc: 0, limits: {}}}"
        ),
        [
            "routes.yaml:1: routes.r.limits: found a mapping, expected a list of limits",
            "routes.yaml:1: routes.r.match: found the number 3, expected a method and a path such",
            "routes.yaml:1: routes.r.scopes: found 'a', expected a list of scopes",
            "routes.yaml:1: routes.r.plan_limits: found 'nope', expected true or false",
            "routes.yaml:1: routes.r.cost: found the number 0, expected a whole number from 1",
            "routes.yaml:1: routes.r.json_rpc: found the number 0, expected true or false",
        ],
    ),
    "route, a rate without a unit": (
        "routes",
        "routes: {r: {match: GET /, upstream: api, rate: 30}}",
        ["routes.yaml:1: routes.r.rate: found the number 30, expected a rate such as 30/minute (u"],
    ),
    "route, a quota of another unit": (
        "routes",
        "routes: {r: {match: GET /, upstream: api, limits: [{name: q, quota: 1/year}]}}",
        [
            "routes.yaml:1: routes.r.limits[0].quota: found '1/year', expected a quota such as "
            "10000/day (units: second, minute, hour, day, week, month)"
        ],
    ),
    "a tab": (
        "x",
        "timeouts:\n\theader: 3s\n",
        ["x.yaml:2: found invalid YAML (a tab before a value or a key)"],
    ),
    "route, braces without quotes": (
        "routes",
        "routes: {r: {match: GET /v1/invoices/{id}, upstream: api}}",
        [
            "routes.yaml:1: found invalid YAML (did not find expected ',' or '}'), expected valid "
            'YAML (a value with braces needs quotes, as in "GET /items/{id}")'
        ],
    ),
    "route, a comma without quotes": (
        "routes",
        "routes: {r: {match: GET,POST /v1, upstream: api}}",
        [
            "routes.yaml:1: routes.r.POST /v1: found the key 'POST /v1', expected one of was, "
            "match",
            "routes.yaml:1: routes.r.match: found 'GET', expected a method and a path such as GET "
            "/api/search/*, and quotes around it if it has a comma or braces: ",
        ],
    ),
    "route, a mapping as match": (
        "routes",
        "routes: {r: {match: {GET /v1: x}, upstream: api}}",
        ["routes.yaml:1: routes.r.match: found a mapping, expected METHOD /path, in quotes: "],
    ),
    "route, a burst alone": (
        "routes",
        "routes: {r: {match: GET /, upstream: api, burst: 3}}",
        ["routes.yaml:1: routes.r.burst: found a burst without a rate, expected a rate with it"],
    ),
    "route, unknown upstream": (
        "routes",
        "routes: {r: {match: GET /, upstream: apii}}",
        ["routes.yaml:1: routes.r.upstream: found 'apii', expected one of api, webhooks"],
    ),
    "limits": (
        "routes",
        (
            "routes: {r: {match: GET /, upstream: api, limits: [x, {name: a}, {name: b, "
            "rate: 1/day, quota: 1/day}, {name: c, quota: 3/day, burst: 5}, {name: d, "
            "concurrency: 5/day, burst: 6}, {name: -, rate: 1/week}, {name: e, rate: 1/day, "
            "per: 3, mode: shade}]}}"
        ),
        [
            "routes.yaml:1: routes.r.limits[0]: found 'x', expected a mapping",
            "routes.yaml:1: routes.r.limits[1]: found none of them, expected one of rate, quota",
            "routes.yaml:1: routes.r.limits[2]: found rate and quota, expected one of rate, quota",
            "routes.yaml:1: routes.r.limits[3].burst: found the number 5, expected no burst",
            "routes.yaml:1: routes.r.limits[4].burst: found the number 6, expected no burst with",
            "routes.yaml:1: routes.r.limits[4].concurrency: found '5/day', expected a whole number",
            "routes.yaml:1: routes.r.limits[5].name: found '-', expected a name",
            "routes.yaml:1: routes.r.limits[5].rate: found '1/week', expected a rate per second",
            "routes.yaml:1: routes.r.limits[6].per: found the number 3, expected key, account, ip",
            "routes.yaml:1: routes.r.limits[6].mode: found 'shade', expected one of enforce,",
        ],
    ),
    "a merge of no mapping": (
        "routes",
        "routes: {r: {match: GET /, upstream: api, <<: 3}}",
        ["routes.yaml:1: routes.r.<<: found the number 3, expected a mapping to merge"],
    ),
    "a value of another type": (
        "routes",
        "routes: {r: {match: GET /, upstream: !x api}}",
        ["routes.yaml:1: routes.r.upstream: found 'api' (YAML type !x), expected the name"],
    ),
    "a long value": (
        "x",
        f"environment: {'x' * 500}",
        [f"x.yaml:1: environment: found '{'x' * 59}…', expected up to 32"],
    ),
}


@pytest.mark.parametrize(("name", "text", "expected"), FAULTS.values(), ids=FAULTS)
def test_faults(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    """Each mistake causes its faults, and no others."""
    found = complaints(write(tmp_path, **{name: text}))
    assert len(found) == len(expected), found
    for complaint, beginning in zip(found, expected, strict=True):
        assert complaint.startswith(beginning)
        assert "\n" not in complaint


def test_required_keys(tmp_path: Path) -> None:
    """A policy has plans, upstreams and routes; missing ones are reported once, for the folder."""
    (tmp_path / "a.yaml").write_text("environment: production\n")
    (tmp_path / "empty.yaml").write_text("# nothing yet\n")
    assert [fault.found for fault in faults_of(tmp_path)] == [
        "no 'upstreams' in any file",
        "no 'plans' in any file",
        "no 'routes' in any file",
    ]


def test_a_broken_file_is_not_taken_for_missing_names(tmp_path: Path) -> None:
    """If the upstreams cannot be read, routes that name them are no faults."""
    found = complaints(write(tmp_path, upstreams="upstreams: [", routes=ROUTES))
    assert len(found) == 1
    assert found[0].startswith("upstreams.yaml:")


def test_too_many_limits(tmp_path: Path) -> None:
    """A route has a bounded number of limits, as each request is checked by all of them."""
    entries = ", ".join(f"{{name: l{index}, rate: 9/minute}}" for index in range(17))
    text = f'routes:\n  all: {{match: "* /**", upstream: api, limits: [{entries}]}}\n'
    assert complaints(write(tmp_path, routes=text)) == [
        "routes.yaml:2: routes.all.limits: found 17 limits, expected at most 16"
    ]


# -- bounds ----------------------------------------------------------------------------------------


def test_a_file_of_junk_has_a_thousand_faults(tmp_path: Path) -> None:
    """Finding all faults could take minutes; the last line says that there are more."""
    junk = "".join(f"  r{number}: {{match: GET /{number}}}\n" for number in range(2_000))
    found = faults_of(write(tmp_path, routes=f"routes:\n{junk}"))
    assert len(found) == MAX_FAULTS + 1
    assert {fault.found for fault in found[:-1]} == {"a mapping without 'upstream'"}
    assert str(found[-1]) == (
        f"{tmp_path}: found 1000 faults or more, expected these to be fixed first"
    )


def test_many_conflicts_are_not_all_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four thousand routes can have four million conflicts; finding all takes half a minute."""
    compared = 0
    is_conflict = conflicts_module._conflict

    def counted(first: Route, second: Route, overlaps: Any) -> Any:
        nonlocal compared
        compared += 1
        return is_conflict(first, second, overlaps)

    monkeypatch.setattr(conflicts_module, "_conflict", counted)
    routes = "".join(
        f'  r{number}: {{match: "GET /{number}/*/**", upstream: api}}\n'
        f'  s{number}: {{match: "GET /*/{number}/**", upstream: api}}\n'
        for number in range(100)
    )
    found = faults_of(write(tmp_path, routes=f"routes:\n{routes}"))
    assert len(found) == MAX_FAULTS + 1
    assert compared == MAX_FAULTS


def test_suggestions_are_looked_for_in_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing each of many wrong names with each of many right ones would take minutes."""
    compared = []

    def counted(word: str, known: list[str], n: int) -> list[str]:
        compared.append(len(known))
        return known[:n]

    monkeypatch.setattr(faults_module, "get_close_matches", counted)
    many = range(300)
    servers = '{servers: ["http://127.0.0.1:9000"]}'
    upstreams = "".join(f"  api-{number}: {servers}\n" for number in many)
    routes = "".join(f"  r{n}: {{match: GET /{n}, upstream: apy-{n}}}\n" for n in many)
    write(tmp_path, upstreams=f"upstreams:\n{upstreams}", routes=f"routes:\n{routes}")
    assert len(faults_of(tmp_path)) == 300
    assert len(compared) == 300
    assert max(compared) == 200


def test_many_servers_are_not_compared_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty thousand would take a quarter of a minute; a duplicate is still reported."""
    compared = 0
    equals = Server.__eq__

    def counted(one: Server, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equals(one, other)

    monkeypatch.setattr(Server, "__eq__", counted)
    servers = [f'"http://10.0.0.{number}:80"' for number in (*range(250), 7)]
    write(tmp_path, upstreams=f"upstreams: {{api: {{servers: [{', '.join(servers)}]}}}}")
    (fault,) = faults_of(tmp_path)
    assert fault.path == "upstreams.api.servers[250]"
    assert compared < 250


@pytest.mark.parametrize(
    ("setting", "http", "https"),
    [
        ("", "", "b.example:8443"),
        (", host: upstream", "a.example", "b.example:8443"),
        (", host: client", "", ""),
        (", host: API.internal", "api.internal", "api.internal"),
        (", host: 'api.internal:8443'", "api.internal:8443", "api.internal:8443"),
    ],
)
def test_the_host_of_servers(tmp_path: Path, setting: str, http: str, https: str) -> None:
    """Which Host the servers of an upstream get; "" is the client's."""
    servers = "servers: ['http://a.example', 'https://b.example:8443/v1']"
    text = f"upstreams: {{api: {{{servers}{setting}}}}}\n"
    policy = load(write(tmp_path, upstreams=text))
    assert [server.asked for server in policy.upstreams["api"].servers] == [http, https]


@pytest.mark.parametrize(
    "host", ["''", "a b", "'a:0'", "'a:70000'", "http://a", "'*.a'", "a/b", "[a]", "'a\\r\\nX: y'"]
)
def test_a_faulty_host_of_servers(tmp_path: Path, host: str) -> None:
    """It is written to the head of each request, so it can only be a name."""
    text = f"upstreams: {{api: {{servers: [http://a], host: {host}}}}}\n"
    (fault,) = faults_of(write(tmp_path, upstreams=text))
    assert fault.path == "upstreams.api.host"
    assert fault.expected.startswith("upstream, client, or a host such as")
