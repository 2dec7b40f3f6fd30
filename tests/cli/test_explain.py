"""`gateway explain`: the rules for a request in words, and its decision without counting it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from tests.kit.policies import write_policies
from tests.kit.redis_server import RedisServer

ROUTES = """
routes:
  search:  {match: GET /api/search/*, upstream: api, rate: 2/minute, cost: 2}
  scoped:  {match: GET /v1/scoped, upstream: api, scopes: [a:read], permission: "t:write", service: s}
  public:  {match: GET /public/**, upstream: api, auth: none, limits: [{name: open, rate: 5/minute, per: ip, mode: shadow}]}
  daily:   {match: GET /daily, upstream: api, plan_limits: false, limits: [{name: d, quota: 9/day}]}
  mcp:     {match: "* /mcp/**", upstream: api, plan_limits: false, limits: [{name: open, concurrency: 2}]}
  rest:    {match: "* /**", upstream: api}
"""  # noqa: E501 - one line a route, as in a policy file
PLANS = """
plans:
  free: {rate: 60/minute, burst: 100, routes: {search: 8/minute}}
  pro:  {rate: 9/second}
"""


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    return write_policies(tmp_path / "p", "http://127.0.0.1:9000", routes=ROUTES, plans=PLANS)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *words])


def explained(policies: Path, *words: str) -> dict[str, Any]:
    result = run("--policies", str(policies), "--json", *words)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


def make_key(server: RedisServer, policies: Path, *words: str) -> tuple[str, str]:
    result = CliRunner().invoke(
        cli,
        ["keys", "create", "--name", "x", "--plan", "free", "--policies", str(policies)]
        + ["--store", server.url, "--json", *words],
    )
    assert result.exit_code == 0, result.output
    made = json.loads(result.output)
    return made["id"], made["key"]


@pytest.mark.parametrize(
    ("request_words", "part", "words"),
    [
        (("GET", "//api/./search/x"), "path", "/api/search/x"),
        (("GET", "/api/search/x"), "route", "search (GET /api/search/**, routes.yaml:3)"),
        (("GET", "/v1/scoped"), "access", "with the scopes a:read"),
        (("GET", "/v1/scoped"), "access", "with the permission t:write"),
        (("GET", "/v1/scoped"), "access", "has the service s"),
        (("GET", "/public/x"), "access", "without a key"),
        (("GET", "/public/x"), "now", "admitted"),
        (("GET", "/x"), "now", "401 INVALID_API_KEY"),
        (("GET", "/x"), "upstream", "http://127.0.0.1:9000"),
        (("GET", "/a%2fb"), "now", "400 BAD_PATH"),
        (("GET", "/API/Search/x"), "path", "/API/Search/x"),
        (("GET", "/API/Search/x"), "route", "search (GET /api/search/**, routes.yaml:3)"),
        (("GET", "/v1/scoped%3f"), "now", "400 BAD_PATH"),
        (("GET", "/v1/health"), "route", "gateway itself"),
        (("POST", "/v1/health"), "now", "405 METHOD_NOT_ALLOWED"),
    ],
)
def test_rules(policies: Path, request_words: tuple[str, ...], part: str, words: str) -> None:
    """Route, access and outcome are shown for a request, in its canonical form."""
    assert words in explained(policies, *request_words)[part]


def test_limits(policies: Path) -> None:
    """All limits of a route are shown: the plan's, the route's, and the plan's values for them."""
    assert explained(policies, "GET", "/api/search/x")["limits"] == {
        "plan free": "60/minute, burst 100, per key",
        "plan pro": "9/second, per key",
        "search": "2/minute, per key",
        "search on plan free": "8/minute, per key",
    }
    assert explained(policies, "GET", "/public/x")["limits"] == {
        "open": "5/minute, per ip, shadow: never refuses"
    }
    assert explained(policies, "GET", "/daily")["limits"] == {"d": "quota 9/day, per key"}


def test_leases(policies: Path, redis_server: RedisServer) -> None:
    """A concurrency limit is shown as such, with its remaining slots, and no lease is taken."""
    assert explained(policies, "GET", "/mcp/x")["limits"] == {
        "open": "2 concurrent requests, per key"
    }
    key_id, _ = make_key(redis_server, policies)
    asked = ("--store", redis_server.url, "--key", key_id, "GET", "/mcp/x")
    for _ in range(3):
        answer = explained(policies, *asked)
        assert answer["remaining"] == {"open": "2 of 2 remaining, each freed when its request ends"}
        assert answer["now"] == "admitted"
    name = f"gw:limit:{{{key_id}}}:key:{key_id}:open:concurrency:6000000"
    with redis_server.client() as client:
        client.zadd(name, {"1": 2**52, "2": 2**52})
    answer = explained(policies, *asked)
    assert answer["remaining"]["open"].startswith("0 of 2")
    assert answer["now"] == "refused: 429 by open, admitted when one of 2 requests ends"


def test_with_a_key(policies: Path, redis_server: RedisServer) -> None:
    """The key's counters are read, twice with the same result: nothing is counted."""
    key_id, key = make_key(redis_server, policies)
    for word in (key_id, key_id, key):
        answer = explained(
            policies, "--store", redis_server.url, "--key", word, "GET", "/api/search/x"
        )
        assert answer["now"] == "admitted"
        assert answer["remaining"]["search"].startswith("8 of 8")
        assert key_id in answer["key"]
        assert key not in json.dumps(answer)
    assert explained(policies, "--store", redis_server.url, "--key", key_id, "GET", "/public/x")


@pytest.mark.parametrize(
    ("made_with", "asked", "outcome"),
    [
        ((), ("GET", "/v1/scoped"), "403 INSUFFICIENT_SCOPE"),
        (("--ip", "10.0.0.0/8"), ("GET", "/x"), "403 IP_NOT_ALLOWED"),
        (("--ip", "10.0.0.0/8"), ("GET", "/x", "--ip", "10.1.2.3"), "admitted"),
        (("--environment", "staging"), ("GET", "/x"), "401 INVALID_API_KEY"),
    ],
)
def test_refusals(
    policies: Path,
    redis_server: RedisServer,
    made_with: tuple[str, ...],
    asked: tuple[str, ...],
    outcome: str,
) -> None:
    """A refusal has its status and code."""
    key_id, _ = make_key(redis_server, policies, *made_with)
    answer = explained(policies, "--store", redis_server.url, "--key", key_id, *asked)
    assert outcome in answer["now"]


def test_an_unknown_key(policies: Path, redis_server: RedisServer) -> None:
    """An unknown id gets the gateway's refusal."""
    answer = explained(policies, "--store", redis_server.url, "--key", "7h3k9m2p4q6r", "GET", "/x")
    assert "401 INVALID_API_KEY" in answer["now"]


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (("get", "/x"), 2, "METHOD: "),
        (("GET", "/ä"), 2, "ASCII"),
        (("--key", "secret-nonsense", "GET", "/x"), 2, "key's id"),
        (("--ip", "nowhere", "GET", "/x"), 2, "--ip"),
        (("--store", "redis://127.0.0.1:1/0", "--key", "7h3k9m2p4q6r", "GET", "/x"), 1, ""),
    ],
)
def test_bad_usage(policies: Path, words: tuple[str, ...], status: int, complaint: str) -> None:
    """Bad usage is an error, which never repeats what could be a secret."""
    result = run("--policies", str(policies), *words)
    assert result.exit_code == status
    assert complaint in result.output
    assert "secret-nonsense" not in result.output


def test_faulty_policies(tmp_path: Path) -> None:
    """With faulty policies nothing is explained."""
    folder = write_policies(tmp_path, "http://127.0.0.1:9000", routes="routes: {a: {match: x}}")
    result = run("--policies", str(folder), "GET", "/x")
    assert result.exit_code == 1
    assert "routes.yaml:1" in result.output


def test_for_people(policies: Path) -> None:
    """Without --json the output is lines of text."""
    result = run("--policies", str(policies), "GET", "/api/search/x")
    assert "  search: 2/minute, per key" in result.output.splitlines()


def test_hosts(tmp_path: Path) -> None:
    """With --host the routes of that host are used, and the answer names it."""
    routes = (
        "routes:\n"
        "  shop: {match: GET /**, upstream: api, hosts: [shop.example]}\n"
        "  all:  {match: GET /a, upstream: api}\n"
    )
    policies = write_policies(tmp_path / "hosts", "http://127.0.0.1:9000", routes=routes)
    shown = explained(policies, "--host", "Shop.example:80", "GET", "/a")
    assert (shown["route"].split()[0], shown["hosts"]) == ("shop", "shop.example")
    assert shown["host"] == "Shop.example:80"
    shown = explained(policies, "GET", "/a")
    assert (shown["route"].split()[0], shown["hosts"]) == ("all", "all")
    assert "404" in explained(policies, "--host", "x.example", "GET", "/b")["now"]
    shown = explained(policies, "GET", "http://shop.example/a")
    assert shown["route"].split()[0] == "shop"
    for wrong in ("a/b", "a b", "", "a\x1b[1m", "bücher.example"):
        result = run("--policies", str(policies), "--host", wrong, "GET", "/a")
        if wrong:
            assert result.exit_code == 2
            assert "--host: found" in result.output
            assert "\x1b" not in result.output


def test_another_path(tmp_path: Path) -> None:
    """Where the upstream gets another path, it is shown."""
    routes = 'routes:\n  a: {match: "GET /a/{id}", upstream: api, rewrite: "/b/{id}"}\n'
    policies = write_policies(tmp_path / "moved", "http://127.0.0.1:9000/v1", routes=routes)
    shown = explained(policies, "GET", "/a/x%20y?q")
    assert (shown["path"], shown["forwarded"]) == ("/a/x%20y", "/b/x%20y?q")
    assert "rewrite /b/{id}" in shown["route"]
    assert shown["upstream"] == "api (http://127.0.0.1:9000/v1)"
    lines = run("--policies", str(policies), "GET", "/a/x").output.splitlines()
    assert "forwarded: /b/x" in lines
    assert "upstream: api (http://127.0.0.1:9000/v1)" in lines
    assert "limits:" in lines


def test_the_clients_address_decides_during_maintenance(tmp_path: Path) -> None:
    """--ip is the address; the rules say who is served."""
    routes = ROUTES + "maintenance: {allow: [10.0.0.0/8]}\n"
    policies = write_policies(tmp_path / "p", "http://127.0.0.1:9000", routes=routes, plans=PLANS)
    inside = explained(policies, "--ip", "10.0.0.7", "GET", "/public/x")
    assert inside["maintenance"] == "all get 503, except for clients of 10.0.0.0/8"
    assert inside["now"].startswith("admitted")
    outside = explained(policies, "--ip", "192.0.2.7", "GET", "/public/x")
    assert outside["now"].startswith("refused: 503 MAINTENANCE: ")
