"""Request lines, judged: where they lead, or why they do not."""

from __future__ import annotations

import pytest

from gateway.domain.policy import Plan, Policy, Route
from gateway.domain.routes import OWN_PATHS, RouteTable
from gateway.errors import (
    BAD_REQUEST_LINE,
    BAD_TARGET,
    KEY_IN_URL,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
)
from gateway.http1.requested import OWN_ROUTES, Requested, read_request_line
from gateway.policies.fields import parse_rate

KEY = b"gwk_production_7h3k9m2p4q6r_0123456789ABCDEFGHIJKLMNOPQRSTUV012345"
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
    """The authority of an absolute-form target is kept, in each spelling that Host may have."""
    found = read(b"GET HTTP://A.Example:81/api/search?u=http://b/c HTTP/1.1")
    assert (found.authority[0], found.path) == (b"a.example:81", "/api/search")
    assert read(b"GET http:///api HTTP/1.1").refusal is BAD_TARGET


@pytest.mark.parametrize(
    ("target", "host", "is_same"),
    [
        (b"http://x:80/", b"x", True),
        (b"http://x/", b"x:80", True),
        (b"http://x:80/", b"x:80", True),
        (b"https://x:443/", b"x", True),
        (b"https://x/", b"x:443", True),
        (b"http://[::1]:80/", b"[::1]", True),
        (b"http://x:443/", b"x", False),
        (b"https://x:80/", b"x", False),
        (b"http://x:81/", b"x", False),
        (b"http://x:080/", b"x", False),
        (b"http://x:/", b"x", False),
        (b"http://x:80:80/", b"x:80", False),
        (b"http://:80/", b"", False),
        (b"http://u@x:80/", b"x", False),
    ],
)
def test_a_default_port_is_the_same_as_none(target: bytes, host: bytes, is_same: bool) -> None:
    """RFC 9110, 4.2.3: of two authorities, only the scheme's own port may be left out."""
    assert (host in read(b"GET %b HTTP/1.1" % target).authority) is is_same


def test_options_of_the_server() -> None:
    """`OPTIONS *` is of the gateway itself; no other method has such a target."""
    found = read(b"OPTIONS * HTTP/1.1")
    assert (found.own, found.refusal, found.route.cost, found.path) == (True, None, 0, "*")
    for line in (b"GET * HTTP/1.1", b"OPTIONS ** HTTP/1.1", b"OPTIONS *?x HTTP/1.1"):
        assert read(line).refusal is BAD_TARGET


@pytest.mark.parametrize("place", [b"/api/search/%b", b"/api/search?k=%b", b"/%b", b"/health?%b"])
@pytest.mark.parametrize("key", [KEY, KEY.upper(), KEY.replace(b"_", b"%5f")])
def test_a_key_in_a_url(place: bytes, key: bytes) -> None:
    """Wherever it stands in the URL, it identifies nobody and does not go on."""
    assert read(b"GET %b HTTP/1.1" % (place % key)).refusal is KEY_IN_URL
