"""Requests that get around a route's access rules: what is reported, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.policies.folder import warnings_of

READ = "read: {match: GET /a, upstream: api, scopes: [a:read]}"
ALL = 'all: {match: "* /**", upstream: api}'
UPSTREAMS = """
upstreams:
  api: {servers: ["http://127.0.0.1:9000", "http://10.0.0.1:9000"]}
  same: {servers: ["http://10.0.0.1:9000"]}
  below: {servers: ["http://10.0.0.1:9000/tools"]}
  beside: {servers: ["http://10.0.0.1:9000/toolshed"]}
  other: {servers: ["http://10.0.0.1:9001"]}
"""


def access(folder: Path, routes: str) -> list[str]:
    """The warnings of access rules that something gets around."""
    found = warnings_of(folder, routes, upstreams=UPSTREAMS)
    return [each for each in found if "access rules for" in each]


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (f"{READ}\n{ALL}", "POST, PUT, PATCH, DELETE of this path are requests of routes.all"),
        (f'{READ}\nall: {{match: "* /{{id}}", upstream: api}}'.replace("{id}", "*"), "routes.all"),
        (f'{READ}\nw: {{match: POST /a, upstream: api}}\n{ALL}', "PUT, PATCH, DELETE of this path"),
        (f'p: {{match: POST /a, upstream: api, permission: "a:w"}}\n{ALL}', "PUT, PATCH"),
        (f"s: {{match: GET /a/*/b/*, upstream: api, service: scm}}\n{ALL}", "routes.all"),
        (f"{READ}\nopen: {{match: POST /**, upstream: api, auth: none}}",
         "POST of this path are requests of routes.open"),
    ],
)  # fmt: skip
def test_methods_that_get_around_access_rules(tmp_path: Path, routes: str, expected: str) -> None:
    """Writes to a guarded path that take a wider route without rules."""
    found = [each for each in warnings_of(tmp_path, routes) if "of this path are" in each]
    assert len(found) == 1
    assert expected in found[0]
    assert "a route for these methods too, such as '* /a" in found[0]


@pytest.mark.parametrize(
    "routes",
    [
        READ,
        f'{READ}\nrest: {{match: "* /a", upstream: api}}\n{ALL}',
        f'any: {{match: "* /a", upstream: api, scopes: [a]}}\n{ALL}',
        f"{READ}\nall: {{match: '* /**', upstream: api, scopes: [b]}}",
        f"{READ}\nall: {{match: GET /**, upstream: api}}",
        f"plain: {{match: GET /a, upstream: api, rate: 5/minute}}\n{ALL}",
        f'{READ}\nw: {{match: POST /a, upstream: api, scopes: [w]}}\n'
        f'rest: {{match: "* /a", upstream: api, scopes: [w]}}\n{ALL}',
    ],
)  # fmt: skip
def test_methods_that_do_not(tmp_path: Path, routes: str) -> None:
    """A route for the same path, one that needs something, none at all, no access rules."""
    found = warnings_of(tmp_path, routes)
    assert [each for each in found if "of this path are" in each] == []


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (f"{READ}\n{ALL}", "GET of what is below this path are requests of routes.all"),
        (f'{READ}\nw: {{match: "* /a", upstream: api, scopes: [w]}}\n{ALL}',
         "GET of what is below this path"),
        (f'w: {{match: "* /a", upstream: api, scopes: [w]}}\n{ALL}',
         "GET, POST, PUT, PATCH, DELETE of what is below this path"),
        (f'w: {{match: "PUT,PATCH /a", upstream: api, permission: "a:w"}}\n{ALL}',
         "PUT, PATCH of what is below this path"),
        (f"r: {{match: GET /a, upstream: api, service: scm}}\n{ALL}", "GET of what is below this"),
        (f"r: {{match: GET /a, upstream: api, access: {{allow: [10.0.0.0/8]}}}}\n{ALL}",
         "GET of what is below this path"),
        (f'r: {{match: "GET /a/{{id}}", upstream: api, scopes: [a]}}\n{ALL}',
         "such as 'GET /a/{id}/**'"),
        ("r: {match: GET /v/a, upstream: api, scopes: [a]}\n"
         "all: {match: GET /v/**, upstream: api}",
         "GET of what is below this path"),
        (f"{READ}\nall: {{match: GET /**, upstream: same}}", "GET of what is below this path"),
    ],
)  # fmt: skip
def test_what_is_below_a_guarded_path(tmp_path: Path, routes: str, expected: str) -> None:
    """A path with access rules, while what is below it falls to a wider route without them."""
    assert any(expected in each for each in access(tmp_path, routes))


@pytest.mark.parametrize(
    "routes",
    [
        READ,
        f'r: {{match: "* /a/**", upstream: api, scopes: [a]}}\n{ALL}',
        f'r: {{match: "* /a", upstream: api, scopes: [a]}}\n'
        f'b: {{match: "* /a/**", upstream: api}}\n{ALL}',
        f'r: {{match: "* /a", upstream: api, scopes: [a]}}\n'
        f'b: {{match: "* /a/*/**", upstream: api}}\n{ALL}',
        f"{READ}\nall: {{match: GET /**, upstream: api, scopes: [b]}}",
        f"{READ}\nall: {{match: GET /**, upstream: other}}",
        f"{READ}\nall: {{match: GET /**, respond: {{status: 404}}}}",
        f"r: {{match: GET /a, upstream: api, auth: none, access: {{allow: [10.0.0.0/8]}}}}\n{ALL}",
        f"plain: {{match: GET /a, upstream: api, rate: 5/minute}}\n{ALL}",
    ],
)  # fmt: skip
def test_what_is_below_and_has_a_route(tmp_path: Path, routes: str) -> None:
    """The pattern includes it, a route was written for it, needs something, or goes elsewhere."""
    assert access(tmp_path, routes) == []


V1 = 'v1: {match: "* /v1/c/**", upstream: api, scopes: [c]}'
API = "search: {match: GET /api/v1/search, upstream: api}"


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (f"{V1}\n{API}\n{ALL}", "GET, POST, PUT, PATCH, DELETE of '/api/v1/c/**' are requests of"),
        (f'{V1}\napi: {{match: "* /api/v1/**", upstream: api}}', "requests of routes.api"),
        (f"r: {{match: GET /api/V1/c, upstream: api, scopes: [c]}}\n"
         f"s: {{match: GET /v1/s, upstream: api}}\n{ALL}", "such as 'GET /V1/c'"),
    ],
)  # fmt: skip
def test_the_other_prefix_of_a_guarded_path(tmp_path: Path, routes: str, expected: str) -> None:
    """Routes have two prefixes of one version, and a guarded path has a route with one of them."""
    assert any(expected in each for each in access(tmp_path, routes))


@pytest.mark.parametrize(
    "routes",
    [
        f"{V1}\n{ALL}",
        f"{V1}\n{ALL}\nsearch: {{match: GET /api/v2/search, upstream: api}}",
        f'{V1}\n{API}\n{ALL}\ntwo: {{match: "* /api/v1/c/**", upstream: api, scopes: [c]}}',
        f'{V1}\n{API}\n{ALL}\ntwo: {{match: "* /api/v1/c/**", upstream: api}}',
        f'{V1}\n{API}\nall: {{match: "* /**", upstream: other}}',
        f"{V1}\n{API}",
    ],
)
def test_prefixes_that_are_no_way_around(tmp_path: Path, routes: str) -> None:
    """No route has another prefix of the version, or the path has a route there as well."""
    assert access(tmp_path, routes) == []


MCP = 'mcp: {match: "* /mcp/**", upstream: %s, mcp: {}}'


@pytest.mark.parametrize(
    ("upstream", "other", "expected"),
    [
        ("api", ALL, "'api', whose server routes.all can reach without mcp"),
        ("same", ALL, "routes.all can reach"),
        ("below", ALL, "routes.all can reach"),
        ("api", "old: {match: POST /messages, upstream: same}", "routes.old can reach"),
        ("same", "c: {match: POST /c, upstream: other, canary: {upstream: same, share: 5%}}",
         "routes.c can reach"),
        ("api", "\n".join(f"r{n}: {{match: POST /{n}, upstream: api}}" for n in range(7)),
         "routes.r4 and 2 more can reach"),
    ],
)  # fmt: skip
def test_ways_past_mcp(tmp_path: Path, upstream: str, other: str, expected: str) -> None:
    """A server of a route with mcp that another route reaches, where its tools need nothing."""
    (found,) = warnings_of(tmp_path, f"{MCP % upstream}\n{other}", upstreams=UPSTREAMS)
    assert expected in found
    assert "routes.yaml:2: routes.mcp.upstream: found" in found


@pytest.mark.parametrize(
    ("upstream", "other"),
    [
        ("other", ALL),
        ("beside", 'all: {match: "* /**", upstream: below}'),
        ("api", "get: {match: GET /.well-known/**, upstream: api}"),
        ("api", 'two: {match: "* /tools/**", upstream: api, mcp: {}}'),
        ("api", "no: {match: POST /x, respond: {status: 404}}"),
    ],
)
def test_no_way_past_mcp(tmp_path: Path, upstream: str, other: str) -> None:
    """Another server, another base path, no POST, mcp there as well, no server at all."""
    assert warnings_of(tmp_path, f"{MCP % upstream}\n{other}", upstreams=UPSTREAMS) == []
