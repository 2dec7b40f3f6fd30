"""Tests of policies decide as the gateway does, at times of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.case_run import CaseResult, run_case
from gateway.cli.cases import read_cases
from gateway.domain.policy import Policy
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from tests.kit.policies import PLANS, ROUTES, write_policies

MORE = """
  mcp:     {match: "* /mcp/**", upstream: api, plan_limits: false,
            limits: [{name: daily, quota: 20/day}, {name: held, concurrency: 2}]}
  watched: {match: GET /watched, upstream: api,
            limits: [{name: watch, rate: 1/minute, mode: shadow}]}
  tenant:  {match: GET /tenant, upstream: api,
            limits: [{name: tenant, rate: 1/minute, per: "header:X-Tenant"}]}
  door:    {match: GET /door, upstream: api, auth: none,
            limits: [{name: door, rate: 2/minute, per: ip}]}
  ids:     {match: POST /ids, upstream: api, cost: {json: ids, max: 5}}
  billed:  {match: GET /billed, upstream: api,
            limits: [{name: billed, quota: 1/month, from: account}]}
  page:    {match: GET /page, upstream: api, cors: {origins: ["https://a.test"]}}
  closed:  {match: GET /closed, upstream: api,
            maintenance: {retry_after: 30m, allow: [198.51.100.0/28]}}
  office:  {match: GET /office, upstream: api, access: {allow: [198.51.100.0/28]}}
  small:   {match: POST /small, upstream: api, body: 100B}
  upload:  {match: POST /upload, upstream: api, body: 1MB}
  heavy:   {match: GET /heavy, upstream: api, cost: 7, limits: [{name: heavy, rate: 10/minute}]}
"""
KEYS = """
accounts:
  acme: {plan: free, services: [scm], limits: {plan: 5/minute}}
  billed: {plan: free, billing_day: 10}
keys:
  ci: {plan: free}
  other: {plan: free}
  one: {account: acme}
  billed: {account: billed}
  two: {account: acme, limits: {plan: 7/minute}}
  staging: {plan: free, environment: staging}
  clerk: {plan: free, permissions: {ticketing: [read, write]}}
  builder: {plan: free, services: [scm]}
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = tmp_path_factory.mktemp("policies")
    text = "trusted_proxies: [10.0.0.0/8]\nbounds: {body: 1KB}\n"
    # With two a second, a plan would never admit a cost of 7.
    plans = PLANS.replace("brisk:      {rate: 2/second}", "brisk: {rate: 9/second}")
    write_policies(folder, "http://127.0.0.1:9", routes=ROUTES + MORE, gateway=text, plans=plans)
    return load(folder)


def run(folder: Path, policy: Policy, *tests: str) -> list[CaseResult]:
    """The results of tests, each as the steps of one."""
    file = folder / "x.yaml"
    listed = "".join(f"  - {{name: t{at}, steps: [{steps}]}}\n" for at, steps in enumerate(tests))
    file.write_text(f"{KEYS}tests:\n{listed}")
    return [run_case(policy, case) for case in read_cases([file], policy)]


@pytest.mark.parametrize(
    "steps",
    [
        # routes, in all spellings
        "{send: GET /api/search/x, key: ci, expect: {route: search, limit: search}}",
        "{send: GET /nothing, key: ci, expect: {status: 404, code: NOT_FOUND, route: none}}",
        "{send: DELETE /public/x, expect: {status: 405, reason: method_not_allowed}}",
        "{send: GET /v1/../../x, key: ci, expect: {status: 400, reason: bad_target}}",
        "{send: GET /api/search%2Fx, key: ci, expect: {status: 400, reason: bad_target}}",
        "{send: GET /api/SEARCH//x, key: ci, expect: {route: search}}",
        "{send: GET /v1/connectors., key: ci, expect: {status: 400, reason: ambiguous_path}}",
        "{send: CONNECT /x, expect: {status: 405}}",
        # keys
        "{send: GET /v1/x, expect: {status: 401, reason: key_missing, limit: failed_auth}}",
        "{send: GET /v1/x, headers: {apiKey: gwk_x}, expect: {reason: key_malformed}}",
        "{send: GET /v1/x, key: ci, headers: {apiKey: x}, expect: {reason: key_conflicting}}",
        "{send: GET /v1/x, key: staging, expect: {reason: key_environment}}",
        "{send: GET /v1/x, key: {plan: free, status: revoked}, expect: {reason: key_revoked}}",
        # access
        "{send: GET /v1/connectors, key: ci, expect: {status: 403, code: INSUFFICIENT_SCOPE}}",
        "{send: GET /v1/tickets/1, key: ci, expect: {code: INSUFFICIENT_PERMISSION}}",
        "{send: GET /v1/tickets/1, key: clerk, expect: {status: admitted}}",
        "{send: GET /v1/scm/1, key: ci, expect: {code: SERVICE_NOT_ENABLED}}",
        "{send: GET /v1/scm/1, key: builder, expect: {status: admitted}}",
        "{send: GET /v1/scm/1, key: {plan: pro, services: [scm]}, expect: {status: admitted}}",
        "{send: GET /v1/scm/1, key: one, expect: {status: admitted}}",
        # preflights
        "{send: OPTIONS /page, headers: {Origin: 'https://a.test', "
        "Access-Control-Request-Method: GET}, "
        "expect: {status: admitted, route: 'gateway:preflight'}}",
        "{send: OPTIONS /page, headers: {Origin: 'https://b.test', "
        "Access-Control-Request-Method: GET}, expect: {code: ORIGIN_NOT_ALLOWED}}",
        # addresses, and maintenance
        "{send: GET /office, key: ci, expect: {status: 403, code: ADDRESS_DENIED, route: office}}",
        "{send: GET /office, key: ci, from: 198.51.100.7, expect: {status: admitted}}",
        "{send: GET /closed, key: ci, "
        "expect: {status: 503, code: MAINTENANCE, route: closed, retry_after: 1800}}",
        "{send: GET /closed, key: ci, from: 198.51.100.7, expect: {status: admitted}}",
        # what the head alone decides
        "{send: POST /small, key: ci, headers: {Content-Length: 101}, "
        "expect: {status: 413, route: small}}",
        "{send: POST /upload, key: ci, headers: {Content-Length: 1000000}, "
        "expect: {status: admitted}}",
        "{send: POST /v1/x, key: ci, headers: {Content-Length: 2000}, expect: {status: 413}}",
        "{send: GET /v1/x, key: ci, headers: {Host: 'a b'}, expect: {reason: bad_host}}",
        "{send: GET /tenant, key: ci, headers: {X-Tenant: [a, b]}, expect: {status: 400}}",
        "{send: GET /v1/x, key: ci, headers: {Expect: more}, expect: {status: 417}}",
        # the gateway's own paths
        "{send: GET /health, expect: {status: admitted, route: 'gateway:ping'}}",
        "{send: GET /v1/health, expect: {status: 401}}",
        # values of limits: the plan's, the account's, the key's
        "{send: GET /v1/x, key: ci, expect: {remaining: 59, reset_after: 61}}",
        "{send: GET /v1/x, key: one, times: 9, expect: {admitted: 5, retry_after: 61}}",
        "{send: GET /v1/x, key: two, times: 9, expect: {admitted: 7}}",
        "{send: GET /heavy, key: ci, times: 2, expect: {admitted: 1, retry_after: 61}}",
        "{send: GET /billed, key: billed},"
        "{wait: 8d, send: GET /billed, key: billed, expect: {limit: billed, retry_after: 86400}},"
        "{wait: 1d, send: GET /billed, key: billed, expect: {status: admitted}}",
        # a cost that the body says
        "{send: POST /ids, key: ci, body: {ids: [1, 2, 3]}, expect: {remaining: 57}}",
        "{send: POST /ids, key: ci, expect: {remaining: 59}}",
        "{send: POST /ids, key: ci, body: '{\"ids\": [1, 2]}',"
        " headers: {content-type: application/json}, expect: {remaining: 58}}",
        "{send: POST /ids, key: ci, body: '{\"ids\": [1]}', expect: {status: 415}}",
        "{send: POST /ids, key: ci, body: {ids: [1]}, headers: {Content-Type: text/plain},"
        " expect: {status: 415}}",
        "{send: POST /ids, key: ci, body: [1], expect: {status: 400, code: COST_UNREADABLE}}",
        "{send: POST /ids, key: ci, body: {ids: [1, 2, 3, 4, 5, 6]}, expect: {status: 413}}",
        "{send: POST /public, key: ci, body: [aaa, é, 'x'], expect: {status: 405}}",
        "{send: GET /watched, key: ci, times: 5, expect: {admitted: 5}}",
        # a limit per header, and per address, also behind a trusted proxy
        "{send: GET /tenant, key: ci, headers: {X-Tenant: a}, times: 2, expect: {admitted: 1}},"
        "{send: GET /tenant, key: ci, headers: {X-Tenant: b}, expect: {status: admitted}}",
        "{send: GET /door, times: 3, expect: {admitted: 2, limit: door}},"
        "{send: GET /door, from: 192.0.2.2, expect: {status: admitted}}",
        "{send: GET /door, times: 3, expect: {admitted: 2}},"
        "{send: GET /door, from: 10.0.0.1, headers: {X-Forwarded-For: 192.0.2.1},"
        " expect: {status: 429}}",
        "{send: GET /door, from: '2001:db8::1', times: 2},"
        "{send: GET /door, from: '2001:db8::2', expect: {status: 429}}",
        # keys of one account count apart
        "{send: GET /v1/x, key: ci, times: 101, expect: {admitted: 100}},"
        "{send: GET /v1/x, key: other, expect: {status: admitted, remaining: 59}}",
    ],
)  # fmt: skip
def test_decisions(policy: Policy, tmp_path: Path, steps: str) -> None:
    """The result is the one that is expected here."""
    (result,) = run(tmp_path, policy, steps)
    assert result.has_passed, result.differences


def test_requests_are_evenly_spaced(policy: Policy, tmp_path: Path) -> None:
    """Of `over`, each request is followed by its part; the next step begins after all of it."""
    (result,) = run(
        tmp_path,
        policy,
        "{send: GET /v1/x, key: ci, times: 60, over: 60s, expect: {admitted: 60}},"
        "{wait: 5s},"
        "{send: GET /v1/x, key: ci, expect: {status: admitted}}",
    )
    assert result.has_passed
    assert [step.at_us // 1_000_000 for step in result.steps] == [0, 65, 65]


@given(sent=st.integers(101, 130), early=st.booleans())
def test_retry_after_is_when_it_is_admitted(
    policy: Policy, tmp_path_factory: pytest.TempPathFactory, sent: int, early: bool
) -> None:
    """After the announced wait a request is admitted, and not two seconds before it."""
    wait = 59 if early else 61
    status = "429" if early else "admitted"
    (result,) = run(
        tmp_path_factory.mktemp("x"),
        policy,
        f"{{send: GET /v1/x, key: ci, times: {sent}, expect: {{retry_after: 61}}}},"
        f"{{wait: {wait}s, send: GET /v1/x, key: ci, expect: {{status: {status}}}}}",
    )
    assert result.has_passed, result.differences


def test_a_quota_begins_again_with_its_day(policy: Policy, tmp_path: Path) -> None:
    """`at` sets the time of the day."""
    file = tmp_path / "x.yaml"
    file.write_text(
        f"{KEYS}tests:\n  - name: x\n    at: 2027-01-31T23:59:00Z\n    key: ci\n    steps:\n"
        "    - {send: GET /mcp, times: 30, expect: {admitted: 20, limit: daily, retry_after: 60}}\n"
        "    - {wait: 59s, send: GET /mcp, expect: {status: 429}}\n"
        "    - {wait: 1s, send: GET /mcp, expect: {status: admitted, remaining: 19}}\n"
    )
    (case,) = read_cases([file], policy)
    assert run_case(policy, case).has_passed


def test_requests_in_progress_hold_their_leases(policy: Policy, tmp_path: Path) -> None:
    """A request holds its lease for as long as it lasts, also for longer than one is granted."""
    (result,) = run(
        tmp_path,
        policy,
        "{send: GET /mcp, key: ci, times: 3, lasts: 60s, expect: {admitted: 2, limit: held}},"
        "{wait: 59s, send: GET /mcp, key: ci, expect: {status: 429, limit: held, retry_after: 1}},"
        "{wait: 1s, send: GET /mcp, key: ci, times: 5, expect: {admitted: 5}}",
    )
    assert result.has_passed, result.differences


def test_each_test_begins_anew(policy: Policy, tmp_path: Path) -> None:
    """Counters of one test do not count in the next."""
    step = "{send: GET /v1/x, key: ci, times: 100, expect: {admitted: 100}}"
    assert [result.has_passed for result in run(tmp_path, policy, step, step)] == [True, True]


def test_a_key_expires(policy: Policy, tmp_path: Path) -> None:
    """Relative to the beginning of its test."""
    key = "key: {plan: free, expires: 1h}"
    (result,) = run(
        tmp_path,
        policy,
        f"{{send: GET /v1/x, {key}, expect: {{status: admitted}}}},"
        f"{{wait: 1h, send: GET /v1/x, {key}, expect: {{reason: key_expired}}}}",
    )
    assert result.has_passed


def test_it_ends_at_the_first_difference(policy: Policy, tmp_path: Path) -> None:
    """Later steps depend on it. Each field that differs is reported with its line."""
    (result,) = run(
        tmp_path,
        policy,
        "{send: GET /v1/x, key: ci, times: 101,"
        " expect: {admitted: 99, status: admitted, limit: plan}},"
        "{send: GET /v1/x, expect: {status: 404}}",
    )
    assert len(result.steps) == 1
    found = [(each.field, each.found, each.expected) for each in result.differences]
    assert found == [("admitted", "100", "99"), ("status", "429", "admitted")]
    assert result.steps[0].refused_at == 101


def test_hosts(tmp_path: Path) -> None:
    """A test and each of its steps may name the host."""
    routes = (
        "routes:\n"
        "  shop: {match: GET /a, upstream: api, hosts: [shop.example], auth: none}\n"
        "  all:  {match: GET /a, upstream: api, auth: none}\n"
    )
    policy = load(write_policies(tmp_path / "policies", "http://127.0.0.1:9", routes=routes))
    file = tmp_path / "x.yaml"
    file.write_text(
        "tests:\n"
        "  - name: a\n"
        "    host: shop.example\n"
        "    steps:\n"
        "      - {send: GET /a, expect: {route: shop}}\n"
        "      - {send: GET /a, host: Other.example, expect: {route: all}}\n"
        "      - {send: GET http://shop.example/a, expect: {route: shop, status: admitted}}\n"
        "  - {name: b, send: GET /a, expect: {route: all}}\n"
    )
    assert all(run_case(policy, case).has_passed for case in read_cases([file], policy))
    file.write_text("tests: [{name: a, send: GET /a, host: 'a b'}]\n")
    with pytest.raises(PolicyFaults, match=r"tests\[0\]\.host: found 'a b', expected a host such"):
        read_cases([file], policy)
