"""Conflicts and unreachable routes against a brute-force version of the rule."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain import conflicts as module
from gateway.domain.conflicts import conflicts, unreachable
from gateway.domain.route import Route
from gateway.domain.routes import OWN_ROUTES, RouteTable
from tests.domain.route_rules import (
    REQUESTS,
    at,
    is_within,
    matches,
    named,
    no_deadline,
    route,
    routes,
    undecided,
    without_conflicts,
)
from tests.kit.tiers import examples


@no_deadline
@given(routes, routes)
def test_a_conflict_is_an_overlap_without_order(first: Route, second: Route) -> None:
    """Two routes conflict exactly if they share a request and neither lies within the other.

    Letter case counts only if both are case-sensitive.
    """
    found = list(conflicts([first, second]))
    assert bool(found) is bool(undecided(first, second, ()))
    for conflict in found:
        method, path = conflict.example.split(" ")
        assert matches(first, method, at(path), any_case=False)
        assert matches(second, method, at(path), any_case=False)
        assert conflict.same is (is_within(first, second) and is_within(second, first))


@settings(no_deadline, max_examples=examples(300))
@given(st.lists(routes, max_size=4).map(named), st.integers(0, 3))
def test_conflicts_finds_every_pair(patterns: list[Route], rounds: int) -> None:
    """A pair conflicts exactly if no third route within both decides a request that both match."""
    for _ in range(rounds):
        thirds = {found.third for found in conflicts(patterns) if found.third}
        patterns = named([*patterns, *map(route, sorted(thirds))])[:12]
    expected = [
        (first.name, second.name)
        for index, second in enumerate(patterns)
        for first in patterns[:index]
        if undecided(first, second, patterns)
    ]
    found = [(conflict.first.name, conflict.second.name) for conflict in conflicts(patterns)]
    assert found == expected


@no_deadline
@given(st.lists(routes, max_size=6).map(named))
def test_unreachable_is_what_no_request_takes(patterns: list[Route]) -> None:
    """Of routes without conflicts, exactly those that no request takes."""
    kept = without_conflicts(patterns)
    table = RouteTable(kept)
    asked = {table.match(*request) for request in REQUESTS}
    assert unreachable(kept) == [pattern for pattern in kept if pattern not in asked]


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
        ("GET /a", "GET /A", "GET /a"),
        ("GET /a", "cs GET /A", "GET /A"),
        ("cs GET /a", "cs GET /A", None),
        ("cs GET /A/*/c", "GET /a/b/**", "GET /A/b/c"),
        ("cs GET /A/*/c", "cs GET /a/b/**", None),
        ("cs GET /A/*", "GET /a/b", None),
        ("POST /api/**/batch", "GET /api/search/*", None),
        ("POST /api/**/batch", "* /**", None),
        ("POST /api/**/batch", "* /mcp/**", None),
        ("POST /api/**/batch", "POST /api/items/batch", None),
        ("POST /api/**/batch", "POST /api/*", None),
        ("POST /api/**/batch", "POST /api/items/*", "POST /api/items/batch"),
        ("POST /api/**/batch", "POST /api/items/{id}", "POST /api/items/batch"),
        ("POST /api/**/batch", "POST /api/items/*/x", None),
        ("POST /a/**/b", "* /a/b/**", "POST /a/b"),
        ("cs GET /A/**/B", "cs GET /a/**", None),
        ("cs GET /A/**/B", "GET /*/b", "GET /A/B"),
        ("GET /x/**/a", "GET /*/*/**", None),  # has two segments, too
        ("GET /x/**/a", "GET /*/{n}/{m}", "GET /x/x2/a"),
        ("GET /**/x/y", "GET /*/x/**", "GET /x2/x/y"),
        ("GET,POST /a", "POST,PUT /a", "POST /a"),
        ("GET,POST /a", "HEAD,PUT /a", "HEAD /a"),
        ("GET,POST /a/*", "POST /a/*", None),
        ("GET,HEAD /a", "GET /a", "GET /a"),
        ("GET,PUT /a", "PUT,GET /a", "GET /a"),
        ("GET /**/health", "GET /v1/*/**", "GET /v1/x/health"),
        ("GET /*/health", "GET /v1/*/**", None),  # the gateway itself answers at /v1/health
    ],
)
def test_a_conflict_names_a_request(first: str, second: str, example: str | None) -> None:
    """The example is a request that both would match."""
    found = list(conflicts([route(first), route(second)]))
    assert [conflict.example for conflict in found] == ([example] if example else [])


@pytest.mark.parametrize(
    ("first", "second", "thirds", "left"),
    [
        ("GET /a/*/c", "GET /a/b/**", ["GET /a/b/c"], None),
        ("GET /a/*/c", "GET /a/b/**", ["* /a/b/c"], "GET /a/b/c"),
        ("GET /**", "* /a", ["GET /a"], None),
        ("POST /**/b", "POST /a/**", ["POST /a/**/b"], None),
        ("POST /**/b", "POST /a/**", ["POST /a/b", "POST /a/*/b"], "POST /a/x/x/b"),
        ("POST /**/b", "POST /a/**", ["POST /a/b", "POST /a/*/**/b"], None),
        ("POST /a/**/b", "POST /a/b/**", ["POST /a/b"], "POST /a/b/b"),
        ("POST /a/**/b", "POST /a/b/**", ["POST /a/b", "POST /a/b/**/b"], None),
        ("GET /**/a/**", "GET /**/b/**", ["GET /**/a/**/b", "GET /**/b/**/a"], "GET /a/b/x"),
        ("* /*/b", "* /a/*", ["* /a/b"], None),
        ("* /*/b", "* /a/{n}", ["* /a/b"], None),
        ("* /*/b", "* /a/{n}", ["GET,POST /a/b"], "GET /a/b"),
        ("GET,POST /*/b", "GET,POST /a/{n}", ["POST /a/b"], "GET /a/b"),
        ("GET,POST /*/b", "GET,POST /a/{n}", ["POST /a/b", "GET /a/b"], None),
        ("GET,POST /*/b", "GET,POST /a/{n}", ["HEAD,POST /a/b"], "GET /a/b"),
        ("GET /*/b", "GET /a/{n}", ["cs GET /a/b"], "GET /a/b"),  # /A/b is undecided
        ("cs GET /*/b", "cs GET /a/{n}", ["cs GET /A/b"], "GET /a/b"),
        ("cs GET /*/b", "cs GET /a/{n}", ["cs GET /a/b"], None),
    ],
)
def test_a_third_route_decides(
    first: str, second: str, thirds: list[str], left: str | None
) -> None:
    """Two routes do not conflict if others within both match all that both match."""
    found = [
        conflict.example
        for conflict in conflicts([*map(route, (first, second, *thirds))])
        if (conflict.first.name, conflict.second.name) == (first, second)
    ]
    assert found == ([] if left is None else [left])


def test_too_many_samples_are_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would take too long to decide is reported, rather than a request left undecided."""
    routes = [*map(route, ("POST /**/b", "POST /a/**", "POST /a/**/b"))]
    assert [*conflicts(routes)] == []
    monkeypatch.setattr(module, "_MOST_SAMPLES", 2)
    assert [conflict.example for conflict in conflicts(routes)] == ["POST /a/x/x/b"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["GET /a/**/b", "GET /a/b", "GET /a/*/**/b"], ["GET /a/**/b"]),
        (["GET /a/**/b", "GET /a/b", "GET /a/*/*/**/b"], []),
        (["GET /a/**", "GET /a", "GET /a/{n}", "GET /a/{n}/{m}"], []),
        (["GET,POST /a", "GET /a", "POST /a"], ["GET,POST /a"]),
        (["GET,POST /a", "GET /a"], []),
        (["GET /v1/**/health", "* /v1/*/**/health"], ["GET /v1/**/health"]),
        (["* /**/health", "GET /*/health"], []),
    ],
)
def test_routes_covered_by_others(patterns: list[str], expected: list[str]) -> None:
    """Several routes, and the gateway's own, may together cover one."""
    assert [found.name for found in unreachable([*map(route, patterns)])] == expected


@pytest.mark.parametrize("path", sorted("/" + "/".join(own) for own in OWN_ROUTES))
def test_own_paths_are_never_routed(path: str) -> None:
    """A route for one of the gateway's own paths is unreachable; one below it is not."""
    own = route(f"GET {path.title()}")
    assert unreachable([own, route(f"* {path}/**"), route("* /v1/**")]) == [own]


def test_a_rest_below_an_own_path_may_be_unreachable() -> None:
    """If /health is the gateway's and another route takes all below, /health/** has no request."""
    assert unreachable([route("* /health/**"), route("* /health/*/**")]) == [route("* /health/**")]
