"""Matching against a brute-force version of the rule: the matching route within all others."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.domain import routes as module
from gateway.domain.conflicts import conflicts
from gateway.domain.route import Route
from gateway.domain.routes import OWN_ROUTES, RouteTable, covers, fold, is_own
from gateway.errors import AMBIGUOUS_PATH
from tests.domain.route_rules import (
    PATHS,
    REQUESTS,
    at,
    is_within,
    matches,
    named,
    no_deadline,
    route,
    routes,
    taken_by,
    without_conflicts,
)


@no_deadline
@given(st.lists(routes, max_size=8).map(named))
@example(named([route("cs GET /a"), route("GET /*")]))
@example(named([route("cs GET /a"), route("cs GET /A"), route("cs GET /**")]))
def test_match_is_the_brute_force_choice(patterns: list[Route]) -> None:
    """Without conflicts, a request takes the one matching route that lies within all others.

    If its upstream may ignore letter case, a request that another route within that one would
    then take is refused.
    """
    kept = without_conflicts(patterns)
    table = RouteTable(kept)
    exact = [(one, taken_by(one, any_case=False)) for one in kept]
    any_case = [(one, taken_by(one, any_case=True)) for one in kept]
    for index, request in enumerate(REQUESTS):
        fitting = [one for one, taken in exact if taken >> index & 1]
        found = table.match(*request)
        if found is None:
            assert fitting == []
            continue
        (chosen,) = (one for one in fitting if all(is_within(one, other) for other in fitting))
        evaded = [
            one for one, taken in any_case if taken >> index & 1 and not is_within(chosen, one)
        ]
        assert found is (AMBIGUOUS_PATH if evaded and not chosen.case_sensitive else chosen)


@no_deadline
@given(st.lists(routes, max_size=6))
def test_methods_at_is_what_could_be_sent(patterns: list[Route]) -> None:
    """Allow has the methods that match a route at the path; it is empty if any method does."""
    table = RouteTable(patterns)
    for segments in PATHS:
        if table.match("OTHER", segments) is not None:
            assert table.methods_at(segments) == ()
        else:
            methods = ("GET", "HEAD", "POST", "PUT")
            expected = tuple(m for m in methods if table.match(m, segments) is not None)
            assert table.methods_at(segments) == expected


def steps_of(table: RouteTable, segments: tuple[str, ...]) -> int:
    """The number of nodes that a request without a match visits, so that no branch is omitted."""
    with mock.patch.object(module, "_find", wraps=module._find) as find:
        module._find(table._root, (), segments, 0, False)
    return find.call_count


@settings(no_deadline, max_examples=30)
@given(st.lists(routes, max_size=12))
def test_no_walk_takes_more_than_most_steps(patterns: list[Route]) -> None:
    """No request visits more nodes than the table reports."""
    table = RouteTable(patterns)
    assert max(steps_of(table, segments) for segments in PATHS[::3]) <= table.most_steps()


@pytest.mark.parametrize("depth", [3, 4, 6])
def test_where_every_place_branches_a_walk_takes_most_steps(depth: int) -> None:
    """The worst table doubles the steps with each segment, and one request needs all of them."""
    table = RouteTable(
        Route("", "GET", segments, False, "api") for segments in product(("v1", "*"), repeat=depth)
    )
    assert steps_of(table, ("v1",) * depth) == table.most_steps() == 2 ** (depth + 1) - 1


@pytest.mark.parametrize(
    ("request_line", "found"),
    [
        ("GET /v1/Files", "cs GET /v1/Files"),
        ("GET /v1/files", "cs GET /v1/files"),
        ("GET /V1/Files", None),  # a server that ignores case would serve /v1/Files
        ("GET /v1/FILES", None),
        ("GET /v1/FILES/x", "* /**"),
        ("GET /S3/Public/x", "cs GET /S3/Public/*"),
        ("GET /S3/public/x", "cs * /S3/**"),  # whose upstream distinguishes case, too
        ("GET /s3/Public/x", None),
        ("POST /s3/Public/x", None),
        ("GET /Docs", "GET /docs"),
        ("GET /docs", "GET /docs"),
    ],
)
def test_a_table_of_both_kinds(request_line: str, found: str | None) -> None:
    """A request in another case than a case-sensitive route takes another such route, or none."""
    patterns = [
        *("cs GET /v1/Files", "cs GET /v1/files", "cs GET /S3/Public/*", "cs * /S3/**"),
        *("GET /docs", "* /**"),
    ]
    kept = [route(pattern) for pattern in patterns]
    assert list(conflicts(kept)) == []
    method, path = request_line.split(" ")
    met = RouteTable(kept).match(method, at(path))
    assert met is AMBIGUOUS_PATH if found is None else getattr(met, "name", None) == found


def test_patterns_as_a_policy_has_them() -> None:
    """A route shows its pattern with the names, and so that reading it again gives the same."""
    for pattern in ("GET /a/{b}/*/{c}", "* /**/a/b", "GET,POST /{n}/**", "GET /", "* /**"):
        assert route(pattern).pattern == pattern
    for pattern in (("a", "*"), ("*",), ("**", "a", "*")):
        found = route(Route("", "GET", pattern, False, "").pattern)
        assert (found.segments, found.rest) == (pattern, False)


@pytest.mark.parametrize(
    ("path", "patterns"),
    [
        # the most specific first
        ("/a", ["GET /**/a", "GET /**/a/**", "* /**/a/**", "* /**"]),
        ("/a/b", ["GET /a/b/**", "GET /a/**/b/**", "GET /a/**"]),
        ("/a/b/b", ["GET /a/*/**/b", "GET /a/**/b", "* /**/b", "* /*/**"]),
        ("/a/x/b", ["GET /a/{n}/b", "GET,POST /a/{n}/b", "GET /a/**/b", "GET,POST /a/**/b"]),
        ("/v1/health", ["* /v1/**/health", "* /**/health"]),
    ],
)
def test_the_most_specific_of_several(path: str, patterns: list[str]) -> None:
    """It is used in any order of the routes; without it the next one is."""
    kept = [*map(route, patterns)]
    assert list(conflicts(kept)) == []
    while kept:
        for ordered in permutations(kept):
            found = RouteTable(ordered).match("GET", at(path))
            assert found is (OWN_ROUTES.get(at(path)) or kept[0])
        kept.pop(0)


@pytest.mark.parametrize("count", [0, 1, 20, 126])
def test_a_segment_between_two_gaps_is_found_anywhere(count: int) -> None:
    """A pattern with two ** matches its segment in the middle of a long path."""
    table = RouteTable([route("GET /**/b/**"), route("GET /**/c/d")])
    path = ("x",) * count + ("b",) + ("x",) * (126 - count)
    assert getattr(table.match("GET", path), "name", None) == "GET /**/b/**"
    assert table.match("GET", path[:count]) is None


@pytest.mark.parametrize("count", range(6))
@pytest.mark.parametrize("end", ["b/x/c", "b/c", "B/c", "b", "c/c"])
def test_a_long_path_of_routes_with_gaps(count: int, end: str) -> None:
    """The segments in the middle, at which no pattern with one ** looks, change nothing."""
    patterns = ["GET /a/**/b/*/c", "GET /a/**/c", "cs POST /a/**/B/c"]
    table = RouteTable(map(route, patterns))
    path = ("a", *("a", "b", "c")[: count % 4] * 40, *end.split("/"))
    for method in ("GET", "POST"):
        fitting = [one for one in patterns if matches(route(one), method, path, any_case=False)]
        found = table.match(method, path)
        assert (found.name if isinstance(found, Route) else None) == next(iter(fitting), None)


@pytest.mark.parametrize("server", [str.upper, str.lower, str.casefold, str.swapcase])
@given(text=st.text(max_size=8))
@example(text="\u212aeys")  # the Kelvin sign
@example(text="\u017fcope\u017f")  # a long s
@example(text="t\u0131ckets")
@example(text="t\u0130ckets")
def test_fold_is_as_wide_as_any_server_s(server, text: str) -> None:
    """Characters that a server takes for another's case fold to the same one; none is dropped."""
    for character in text:
        for other in (server(character), server(server(character))):
            # Java converts single characters, and so omits those that become two.
            if len(other) == 1:
                assert fold(other) == fold(character)
    assert len(fold(text)) >= len(text)
    assert fold(fold(text)) == fold(text)


def test_any_case_of_an_own_path_is_own() -> None:
    """The gateway's own paths are matched in any letter case, for any method."""
    table = RouteTable([route("* /**")])
    for path in ("/health", "/Health", "/V1/HEALTH", "/v1/auth/Verify"):
        found = table.match("POST", at(path))
        assert found in OWN_ROUTES.values()
        assert isinstance(found, Route)
        assert is_own(found)


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        (route("GET /p/*/x"), route("* /**"), True),
        (route("* /**"), route("GET /p/*/x"), False),
        (route("GET /p/*/x"), route("GET /p/a/**"), False),
        (route("GET /P/*/x"), route("* /p/**"), True),
        (route("GET /p/**/x"), route("* /p/*"), True),
        (route("GET /p/a/x"), route("GET,POST /p/**/x"), True),
        (route("GET,POST /p/a/x"), route("GET /p/**/x"), False),
        (route("GET /p/**"), route("GET /p/**/x"), False),
        (replace(route("GET /p/*"), auth="none"), route("* /**"), False),
        (route("GET /p/*"), replace(route("* /**"), auth="none"), True),
        (route("GET /p/*"), replace(route("* /**"), scopes=("a",)), False),
        (
            replace(route("GET /p/*"), scopes=("a", "b")),
            replace(route("* /**"), scopes=("a",)),
            True,
        ),
        (route("GET /p/*"), replace(route("* /**"), permission=("a", "b")), False),
        (route("GET /p/*"), replace(route("* /**"), service="a"), False),
    ],
)
def test_covers(inner: Route, outer: Route, expected: bool) -> None:
    """The other route matches all requests of this one, and requires no more access."""
    assert covers(inner, outer) is expected
    assert covers(inner, inner)


SHIPPED = [
    *("GET /api/search/*", "POST /api/**/batch", "POST /api/webhooks/test"),
    *("GET /v1/connectors", "* /mcp/**", "* /**"),
]


@pytest.mark.parametrize(
    ("request_line", "pattern"),
    [
        ("GET /api/search/x", "GET /api/search/*"),
        ("GET /api/search", "GET /api/search/*"),
        ("GET /api/search/x/y", "GET /api/search/*"),
        ("GET /api/Search/x", "GET /api/search/*"),
        ("GET /V1/CONNECTORS", "GET /v1/connectors"),
        ("HEAD /api/search/x", "GET /api/search/*"),
        ("POST /api/search/x", "* /**"),
        ("POST /api/search/batch", "POST /api/**/batch"),
        ("POST /api/batch", "POST /api/**/batch"),
        ("POST /api/a/batch", "POST /api/**/batch"),
        ("POST /api/v1/items/batch", "POST /api/**/batch"),
        ("POST /API/v1/items/Batch", "POST /api/**/batch"),
        ("POST /api/a/batch/batch", "POST /api/**/batch"),
        ("GET /api/v1/items/batch", "* /**"),
        ("POST /api/batch/x", "* /**"),
        ("POST /api/batches", "* /**"),
        ("POST /x/api/a/batch", "* /**"),
        ("POST /mcp/api/batch", "* /mcp/**"),
        ("POST /api/webhooks/test", "POST /api/webhooks/test"),
        ("POST /api/webhooks/batch", "POST /api/**/batch"),
        ("GET /mcp", "* /mcp/**"),
        ("DELETE /mcp/a/b", "* /mcp/**"),
        ("GET /mcpx", "* /**"),
        ("GET /", "* /**"),
        ("GET /*", "* /**"),
    ],
)
def test_the_shipped_patterns(request_line: str, pattern: str) -> None:
    """The service's routes take the requests that they are for."""
    method, path = request_line.split(" ")
    found = RouteTable(map(route, SHIPPED)).match(method, at(path))
    assert isinstance(found, Route)
    assert found.name == pattern


def test_nothing_matches_an_empty_table() -> None:
    """No match, and no allowed methods."""
    assert RouteTable([]).match("GET", ()) is None
    assert RouteTable([]).methods_at(("a",)) == ()


def test_a_match_looks_only_at_its_own_branch() -> None:
    """The number of comparisons does not grow with the number of routes."""

    class Counted(str):
        """A segment that counts its comparisons."""

        asked = 0
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            Counted.asked += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

        def isascii(self) -> bool:
            raise AssertionError("a segment that is met as it is spelled need not be folded")

    def comparisons(count: int) -> int:
        table = RouteTable(route(f"GET /api/v{n}/items/*") for n in range(count))
        Counted.asked = 0
        assert table.match("GET", [Counted(part) for part in ("api", "v7", "items", "1")])
        return Counted.asked

    # A dict compares a key once more if two hashes share a slot.
    assert comparisons(1000) <= comparisons(10) + 8
