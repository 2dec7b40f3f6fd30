"""Routing of request lines: their route, or the refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.domain.conflicts import conflicts
from gateway.domain.path_patterns import normal
from gateway.domain.policy import Plan, Policy
from gateway.domain.route import Route
from gateway.domain.routes import OWN_ROUTES, RouteTable, covers
from gateway.errors import (
    AMBIGUOUS_PATH,
    BAD_REQUEST_LINE,
    BAD_TARGET,
    KEY_IN_URL,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    TOO_MANY_SEGMENTS,
    URL_TOO_LONG,
)
from gateway.http1.paths import CanonicalPath, canonical
from gateway.policies.fields import parse_rate
from gateway.policies.load import load
from gateway.routing import Requested, find_route, read_request_line
from tests.http1.test_paths import SHAPES
from tests.kit.cost import cost
from tests.kit.reach import reached, reaches
from tests.kit.tiers import examples

KEY = b"gwk_production_7h3k9m2p4q6r_0123456789ABCDEFGHIJKLMNOPQRSTUV012345"
SEARCH = Route("search", "GET", ("api", "search"), True, "api")
SHIPPED = load(Path(__file__).parents[1] / "policies")
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
    """The route is that of the canonical path, which the upstream gets."""
    found = read(b"GET //api/./search/%78?a=%20b HTTP/1.0")
    assert (found.route, found.refusal, found.path) == (SEARCH, None, "/api/search/x")
    assert found.forward_line == b"GET /api/search/x?a=%20b HTTP/1.1\r\n"


def test_the_spelling_that_came_goes_on() -> None:
    """Letter case does not matter for the route, and is forwarded unchanged."""
    found = read(b"GET /API/Search/%58 HTTP/1.1")
    assert (found.route, found.path) == (SEARCH, "/API/Search/X")
    assert found.forward_line == b"GET /API/Search/X HTTP/1.1\r\n"


def test_own_paths_are_reserved() -> None:
    """Paths that the gateway answers itself are reserved, and cost nothing."""
    assert all(route.cost == 0 for route in OWN_ROUTES.values())
    assert read(b"HEAD /health HTTP/1.1").own
    assert read(b"GET /V1/Health HTTP/1.1").own
    found = read(b"POST /v1/health HTTP/1.1")
    assert (found.refusal, found.allow) == (METHOD_NOT_ALLOWED, ("GET", "HEAD"))


def test_refused_lines() -> None:
    """No route, another method or an ambiguous path is refused; an invalid line is unreadable."""
    assert read(b"GET /other HTTP/1.1").refusal is NOT_FOUND
    found = read(b"POST /api/search/x HTTP/1.1")
    assert found.refusal is METHOD_NOT_ALLOWED
    assert "GET" in found.allow
    assert read(b"GET /api;x/search HTTP/1.1").refusal is BAD_TARGET
    assert read(b"GET /api/x%2Fsearch HTTP/1.1").refusal is BAD_TARGET
    assert read(b"GET /api/search.. HTTP/1.1").refusal is NOT_FOUND
    assert read(b"GET /api/search/%2F HTTP/1.1").refusal is BAD_TARGET
    assert read(b"GET " + b"/a" * 200 + b" HTTP/1.1").refusal is TOO_MANY_SEGMENTS
    assert read(b"TRACE /api/search HTTP/1.1").refusal is METHOD_NOT_ALLOWED
    assert read_request_line(b"GET", POLICY) is BAD_REQUEST_LINE


def test_absolute_form() -> None:
    """The authority of an absolute-form target is kept, in each spelling that Host allows."""
    found = read(b"GET HTTP://A.Example:81/api/search?u=http://b/c HTTP/1.1")
    assert (found.authority[0], found.path) == (b"a.example:81", "/api/search")
    assert read(b"GET http:///api HTTP/1.1").refusal is BAD_TARGET


@pytest.mark.parametrize("shape", SHAPES)
def test_no_path_costs_much_more_than_a_plain_one(shape: bytes) -> None:
    """A hundred times as much would be an attack; the worst takes four or five times."""
    plain = partial(read_request_line, b"GET /%b HTTP/1.1" % (b"a" * 7_999), SHIPPED)
    for start in (b"/", b"/v1/connectors/", b"/%20"):
        line = b"GET %b%b HTTP/1.1" % (start, shape * (7_999 // len(shape)))
        assert cost(partial(read_request_line, line, SHIPPED), plain, 15) < 15


def test_a_path_is_within_its_bound_as_it_goes_on() -> None:
    """Encoding characters makes a path longer; the bound is on the result."""
    assert read(b"GET /api/search/" + b"|" * 2_700 + b" HTTP/1.1").refusal is None
    assert read(b"GET /api/search/" + b"|" * 2_800 + b" HTTP/1.1").refusal is URL_TOO_LONG
    assert read(b"GET /api/search/|?" + b"a" * 8_178 + b" HTTP/1.1").refusal is URL_TOO_LONG


def routes_of(*patterns: str) -> list[Route]:
    """Routes from patterns such as "GET /a/**", each with its flags: "cs", "keep", "open"."""
    found = []
    for pattern in patterns:
        *flags, method, path = pattern.split(" ")
        segments = normal(path.strip("/").split("/"))
        rest = segments[-1] == "**"
        found.append(
            Route(
                *(pattern, method, segments[:-1] if rest else segments, rest, "api"),
                auth="none" if "open" in flags else "key",
                case_sensitive="cs" in flags,
                keeps_slashes="keep" in flags,
            )
        )
    return found


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        # as GitLab and npm write names
        ("/projects/group%2Fname/issues", "keep GET /projects/*/issues"),
        ("/projects/group%2fsub%2Fname/issues", "keep GET /projects/*/issues"),
        ("/@scope%2Fname", "keep * /**"),
        # an upstream that decodes would read these as a more specific route's, or as none's
        ("/v1%2Fconnectors", AMBIGUOUS_PATH),
        ("/V1%2FConnectors%3Fx", AMBIGUOUS_PATH),
        ("/projects%2Fx/issues", AMBIGUOUS_PATH),
        ("/health%2F", AMBIGUOUS_PATH),
        # or as one's that requires a key
        ("/public/a", "keep open GET /public/*"),
        ("/public/a%2Fb", AMBIGUOUS_PATH),
        # which does not keep them
        ("/v1/a%2Fb", BAD_TARGET),
        ("/projects/x%2F..%2F..%2Fv1/issues", BAD_TARGET),
    ],
)
def test_encoded_slashes(target: str, expected: object) -> None:
    """Kept if the route says so, and no decoded reading leads to a stricter rule."""
    table = RouteTable(
        routes_of(
            *("keep GET /projects/*/issues", "GET /v1/connectors", "* /v1/**"),
            *("keep open GET /public/*", "keep * /**"),
        )
    )
    path = canonical(target.encode(), keeps_slashes=True)
    found = find_route(table, "GET", path) if isinstance(path, CanonicalPath) else path
    assert (found.name if isinstance(found, Route) else found) == expected


def readings(text: str, route: Route) -> Iterator[list[str]]:
    """A decoded path as read by servers that do some of these steps, in any order."""
    steps: list[Callable[[str], str]] = [
        lambda path: path.partition("?")[0],
        lambda path: path.partition("#")[0],
        lambda path: "/".join(one.rstrip(" .") for one in path.split("/")),
        lambda path: "/".join(one.rstrip(" ") for one in path.split("/")),
    ]
    if not route.case_sensitive:
        steps += [str.lower, str.upper]
    for count in range(4):
        for chosen in permutations(steps, count):
            path = text
            for step in chosen:
                path = step(path)
            yield [segment.replace("\0", "/") for segment in resolved(path)]


def resolved(path: str) -> list[str]:
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            kept[-1:] = []
        elif segment not in {"", "."}:
            kept.append(segment)
    return kept


@reaches(0.1)
@settings(deadline=None, max_examples=examples(300))
@given(
    st.lists(
        st.builds(
            lambda flags, method, path: " ".join((*flags, method, "/" + "/".join(path))),
            st.lists(st.sampled_from(["cs", "keep", "open"]), max_size=2, unique=True),
            st.sampled_from(["*", "GET"]),
            st.lists(st.sampled_from(["a", "A", "b", "*", "**"]), min_size=1, max_size=3),
        ),
        max_size=5,
    ),
    st.lists(st.sampled_from(["keep", "cs", "open"]), max_size=3, unique=True),
    st.lists(
        st.sampled_from(["/", "/", "a", "A", "b", ".", "..", "%20", "%3F", "%23", "%2F"]),
        max_size=9,
    ).map("".join),
)
@example(["GET /a/*", "keep GET /*/b"], ["keep"], "a%2F/b.%3F")
@example(["GET /a", "cs GET /A/b"], [], "A/b.%20")
@example(["* /*"], [], "%3F/%23")
@example(["GET /**/a", "open keep GET /a/**/b"], ["keep"], "a%2Fb/a%20/b")
def test_no_reading_leads_to_another_rule(patterns: list[str], flags: list[str], path: str) -> None:
    """No server reads the forwarded path of one route as a path of another."""
    kept: list[Route] = []
    for route in routes_of(*patterns, " ".join((*flags, "* /**"))):
        if not any(conflicts([*kept, route])):
            kept.append(route)
    table = RouteTable(kept)
    found = canonical(f"/{path}".encode(), keeps_slashes=True)
    route = find_route(table, "GET", found) if isinstance(found, CanonicalPath) else None
    if not isinstance(route, Route) or not isinstance(found, CanonicalPath):
        return
    reached()
    if not route.case_sensitive:  # its upstream may ignore letter case, whatever others do
        table = RouteTable([replace(one, case_sensitive=False) for one in kept])
    sent = found.path.decode()
    for segments in readings(unquote(sent.replace("%2F", "\0")), route):
        other = table.match("GET", segments)
        assert isinstance(other, Route)
        assert other.name == route.name
    for segments in readings(unquote(sent), route) if "%2F" in sent else ():
        other = table.match("GET", segments)
        assert isinstance(other, Route)
        assert covers(route, other) or other.name == route.name


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


ENCODED_KEYS = [KEY.replace(b"g", b"%67", 1), b"".join(b"%%%02X" % byte for byte in KEY)]


@pytest.mark.parametrize("place", [b"/api/search/%b", b"/api/search?k=%b", b"/%b", b"/health?%b"])
@pytest.mark.parametrize("key", [KEY, KEY.upper(), KEY.replace(b"_", b"%5f"), *ENCODED_KEYS])
def test_a_key_in_a_url(place: bytes, key: bytes) -> None:
    """Anywhere in the URL, it authenticates nothing and is not forwarded."""
    assert read(b"GET %b HTTP/1.1" % (place % key)).refusal is KEY_IN_URL


def test_a_key_that_is_encoded_twice() -> None:
    """In a path nothing may be; a query is decoded once more by what is behind the upstream."""
    key = KEY.replace(b"w", b"%2577", 1)
    assert read(b"GET /api/%b HTTP/1.1" % key).refusal is BAD_TARGET
    assert read(b"GET /api/x?%b HTTP/1.1" % key).refusal is KEY_IN_URL
