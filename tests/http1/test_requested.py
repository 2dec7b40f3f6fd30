"""Request lines, judged: where they lead, or why they do not."""

from __future__ import annotations

from gateway.domain.policy import Plan, Policy, Route
from gateway.domain.routes import OWN_PATHS, RouteTable
from gateway.errors import BAD_REQUEST_LINE, BAD_TARGET, METHOD_NOT_ALLOWED, NOT_FOUND
from gateway.http1.requested import OWN_ROUTES, Requested, read_request_line
from gateway.policies.fields import parse_rate

SEARCH = Route("search", "GET", ("api", "search"), True, "api")
POLICY = Policy(
    environment="production",
    plans={"free": Plan("free", parse_rate("60/minute"))},
    routes={"search": SEARCH},
    table=RouteTable([SEARCH]),
    upstreams={},
)


def read(line: bytes) -> Requested:
    result = read_request_line(line, POLICY)
    assert isinstance(result, Requested)
    return result


def test_a_routed_request() -> None:
    """The route is the one of the canonical path, which is what the upstream gets."""
    found = read(b"GET //api/./search/%78?a=%20b HTTP/1.0")
    assert (found.route, found.refusal, found.path) == (SEARCH, None, "/api/search/x")
    assert found.forward_line == b"GET /api/search/x?a=%20b HTTP/1.1\r\n"


def test_own_paths_are_reserved() -> None:
    """What the gateway answers by itself is what no route may claim, and costs nothing."""
    assert set(OWN_ROUTES) == set(OWN_PATHS)
    assert all(route.cost == 0 for route in OWN_ROUTES.values())
    assert read(b"HEAD /health HTTP/1.1").own
    found = read(b"POST /v1/health HTTP/1.1")
    assert (found.refusal, found.allow) == (METHOD_NOT_ALLOWED, ("GET", "HEAD"))


def test_refused_lines() -> None:
    """No route, no such method, no plain path: refused whoever asks; no line at all: unreadable."""
    assert read(b"GET /other HTTP/1.1").refusal is NOT_FOUND
    found = read(b"POST /api/search/x HTTP/1.1")
    assert found.refusal is METHOD_NOT_ALLOWED
    assert "GET" in found.allow
    assert read(b"GET /api;x/search HTTP/1.1").refusal is BAD_TARGET
    assert read(b"TRACE /api/search HTTP/1.1").refusal is METHOD_NOT_ALLOWED
    assert read_request_line(b"GET", POLICY) is BAD_REQUEST_LINE


def test_absolute_form() -> None:
    """The authority of an absolute-form target is kept to be held against Host."""
    found = read(b"GET HTTP://A.Example:80/api/search?u=http://b/c HTTP/1.1")
    assert (found.authority, found.path) == (b"a.example:80", "/api/search")
    assert read(b"GET http:///api HTTP/1.1").refusal is BAD_TARGET
