"""Matching against a brute-force reading of the rule: all that match, the one within all others."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.policy import Route
from gateway.domain.routes import OWN_PATHS, RouteTable, conflicts, unreachable


def route(pattern: str, name: str = "") -> Route:
    """A route of a pattern such as "GET /a/*/b" or "* /a/**"."""
    method, path = pattern.split(" ")
    segments = tuple(path.strip("/").split("/")) if path != "/" else ()
    rest = bool(segments) and segments[-1] in {"*", "**"}
    return Route(name or pattern, method, segments[:-1] if rest else segments, rest, "api")


def at(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def matches(pattern: Route, method: str, segments: tuple[str, ...]) -> bool:
    """The rule, read aloud."""
    if pattern.method not in {"*", method} and (pattern.method, method) != ("GET", "HEAD"):
        return False
    if len(segments) < len(pattern.segments):
        return False
    if len(segments) > len(pattern.segments) and not pattern.rest:
        return False
    return all(
        want in {"*", have}
        for want, have in zip(pattern.segments, segments[: len(pattern.segments)], strict=True)
    )


#: Every request that patterns over the words a and b, up to three segments long, could tell apart:
#: a word and a method that none of them names stand for all others.
PATHS = [path for length in range(5) for path in product(("a", "b", "other"), repeat=length)]
REQUESTS = list(product(("GET", "HEAD", "POST", "OTHER"), PATHS))

routes = st.builds(
    lambda method, segments, rest: Route("", method, tuple(segments), rest, "api"),
    st.sampled_from(["*", "GET", "HEAD", "POST"]),
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=3),
    st.booleans(),
)


def taken_by(pattern: Route) -> frozenset[tuple[str, tuple[str, ...]]]:
    return frozenset(request for request in REQUESTS if matches(pattern, *request))


def named(found: list[Route]) -> list[Route]:
    return [
        Route(f"r{index}", r.method, r.segments, r.rest, r.upstream)
        for index, r in enumerate(found)
    ]


@given(st.lists(routes, max_size=8).map(named))
def test_match_is_the_brute_force_choice(patterns: list[Route]) -> None:
    """Without conflicts, a request takes the one route that lies within all others it meets."""
    kept: list[Route] = []
    for pattern in patterns:
        if not conflicts([*kept, pattern]):
            kept.append(pattern)
    table = RouteTable(kept)
    sets = {pattern.name: taken_by(pattern) for pattern in kept}
    for method, segments in REQUESTS:
        fitting = [pattern for pattern in kept if (method, segments) in sets[pattern.name]]
        found = table.match(method, segments)
        if found is None:
            assert fitting == []
        else:
            assert found in fitting
            assert all(sets[found.name] <= sets[other.name] for other in fitting)


@given(routes, routes)
def test_a_conflict_is_an_overlap_without_order(first: Route, second: Route) -> None:
    """Two routes conflict exactly where they share a request and neither lies within the other."""
    one, other = taken_by(first), taken_by(second)
    expected = bool(one & other) and (one == other or not (one <= other or other <= one))
    found = conflicts([first, second])
    assert bool(found) is expected
    for conflict in found:
        method, path = conflict.example.split(" ")
        assert matches(first, method, at(path))
        assert matches(second, method, at(path))
        assert conflict.same is (one == other)


@given(st.lists(routes, max_size=6).map(named))
def test_conflicts_finds_every_pair(patterns: list[Route]) -> None:
    """All pairs of many routes are found, those that two routes alone would have."""
    expected = {
        (first.name, second.name)
        for index, first in enumerate(patterns)
        for second in patterns[index + 1 :]
        if conflicts([first, second])
    }
    found = [(conflict.first.name, conflict.second.name) for conflict in conflicts(patterns)]
    assert len(found) == len(set(found))
    assert set(found) == expected


@given(st.lists(routes, max_size=6).map(named))
def test_unreachable_is_what_no_request_takes(patterns: list[Route]) -> None:
    """Of routes without conflicts, those that no request takes are named, and no others."""
    kept: list[Route] = []
    for pattern in patterns:
        if not conflicts([*kept, pattern]):
            kept.append(pattern)
    table = RouteTable(kept)
    asked = {table.match(*request) for request in REQUESTS}
    assert unreachable(kept) == [pattern for pattern in kept if pattern not in asked]


@given(st.lists(routes, max_size=6))
def test_methods_at_is_what_could_be_sent(patterns: list[Route]) -> None:
    """Allow lists the methods that would find a route at the path, unless any would."""
    table = RouteTable(patterns)
    for segments in PATHS:
        if table.match("OTHER", segments) is not None:
            assert table.methods_at(segments) == ()
        else:
            methods = ("GET", "HEAD", "POST")
            expected = tuple(m for m in methods if table.match(m, segments) is not None)
            assert table.methods_at(segments) == expected


SHIPPED = [
    *("GET /api/search/*", "POST /api/*/batch", "POST /api/webhooks/test"),
    *("GET /v1/connectors", "* /mcp/**", "* /**"),
]


@pytest.mark.parametrize(
    ("request_line", "pattern"),
    [
        ("GET /api/search/x", "GET /api/search/*"),
        ("GET /api/search", "GET /api/search/*"),
        ("GET /api/search/x/y", "GET /api/search/*"),
        ("HEAD /api/search/x", "GET /api/search/*"),
        ("POST /api/search/x", "* /**"),
        ("POST /api/search/batch", "POST /api/*/batch"),
        ("POST /api/batch", "* /**"),
        ("POST /api/x/y/batch", "* /**"),
        ("POST /api/webhooks/test", "POST /api/webhooks/test"),
        ("POST /api/webhooks/batch", "POST /api/*/batch"),
        ("GET /mcp", "* /mcp/**"),
        ("DELETE /mcp/a/b", "* /mcp/**"),
        ("GET /mcpx", "* /**"),
        ("GET /", "* /**"),
        ("GET /*", "* /**"),
    ],
)
def test_the_shipped_patterns(request_line: str, pattern: str) -> None:
    """The service's own routes take the requests they are meant for."""
    method, path = request_line.split(" ")
    found = RouteTable(map(route, SHIPPED)).match(method, at(path))
    assert found is not None
    assert found.name == pattern


@pytest.mark.parametrize(
    ("first", "second", "example"),
    [
        ("GET /a/*/c", "GET /a/b/**", "GET /a/b/c"),
        ("GET /**", "* /a", "GET /a"),
        ("* /*/b/c", "* /a/**", "GET /a/b/c"),
        ("HEAD /a/*/c", "GET /*/b/c", "HEAD /a/b/c"),
        ("POST /*/x/a/b", "* /*/*/a/**", None),
        ("GET /a/*/**", "GET /*/b/**", "GET /a/b"),
        ("POST /a", "GET /a", None),
        ("GET /a", "GET /a/**", None),
        ("GET /*/a", "GET /x/**", "GET /x/a"),
        ("GET /a/*", "GET /a/**", "GET /a"),
    ],
)
def test_a_conflict_names_a_request(first: str, second: str, example: str | None) -> None:
    """The example is a request that both would take."""
    found = conflicts([route(first), route(second)])
    assert [conflict.example for conflict in found] == ([example] if example else [])


@pytest.mark.parametrize("path", sorted("/" + "/".join(own) for own in OWN_PATHS))
def test_own_paths_are_never_routed(path: str) -> None:
    """A route of a path that the gateway answers by itself is unreachable; one below it is not."""
    assert unreachable([route(f"GET {path}"), route(f"* {path}/**"), route("* /v1/**")]) == [
        route(f"GET {path}")
    ]


def test_a_rest_below_an_own_path_may_be_unreachable() -> None:
    """Nothing is left of /health/** where /health is the gateway's and all below is another's."""
    assert unreachable([route("* /health/**"), route("* /health/*/**")]) == [route("* /health/**")]


def test_nothing_matches_an_empty_table() -> None:
    """No routes: no route, and nothing to allow."""
    assert RouteTable([]).match("GET", ()) is None
    assert RouteTable([]).methods_at(("a",)) == ()


def test_a_match_looks_only_at_its_own_branch() -> None:
    """What a match visits does not grow with the number of routes."""

    class Counted(str):
        """A segment that counts how often it is compared."""

        asked = 0
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            Counted.asked += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    def comparisons(count: int) -> int:
        table = RouteTable(route(f"GET /api/v{n}/items/*") for n in range(count))
        Counted.asked = 0
        assert table.match("GET", [Counted(part) for part in ("api", "v7", "items", "1")])
        return Counted.asked

    # A dict compares a key once more where two hashes happen to share a slot.
    assert comparisons(1000) <= comparisons(10) + 8
