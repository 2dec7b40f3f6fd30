"""Matching against a brute-force version of the rule: the matching route within all others."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.domain import routes as module
from gateway.domain.route import Route
from gateway.domain.routes import (
    OWN_ROUTES,
    RouteTable,
    conflicts,
    covers,
    fold,
    is_own,
    unreachable,
)
from gateway.errors import AMBIGUOUS_PATH

#: The machine may be busy with other tests.
no_deadline = settings(deadline=None)


def route(pattern: str, name: str = "") -> Route:
    """A route of a pattern such as "GET /a/*/b" or "* /a/**"; "cs GET /A" is case-sensitive."""
    words = pattern.split(" ")
    method, path = words[-2:]
    segments = tuple(path.strip("/").split("/")) if path != "/" else ()
    rest = bool(segments) and segments[-1] in {"*", "**"}
    return Route(
        name or pattern,
        method,
        segments[:-1] if rest else segments,
        rest,
        "api",
        case_sensitive=words[0] == "cs",
    )


def at(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def matches(pattern: Route, method: str, segments: tuple[str, ...], *, any_case: bool) -> bool:
    """The rule, literally. any_case: ignore the route's own setting for letter case."""
    if pattern.method not in {"*", method} and (pattern.method, method) != ("GET", "HEAD"):
        return False
    if len(segments) < len(pattern.segments):
        return False
    if len(segments) > len(pattern.segments) and not pattern.rest:
        return False
    words, wanted = segments, pattern.segments
    if any_case or not pattern.case_sensitive:
        words, wanted = tuple(map(str.lower, words)), tuple(map(str.lower, wanted))
    return all(want in {"*", have} for want, have in zip(wanted, words[: len(wanted)], strict=True))


#: Requests for every case that patterns over the words a, A and b, up to three segments long,
#: distinguish: one further word and one further method represent all others.
PATHS = [path for length in range(5) for path in product(("a", "A", "b", "other"), repeat=length)]
REQUESTS = list(product(("GET", "HEAD", "POST", "OTHER"), PATHS))

routes = st.builds(
    lambda method, segments, rest, case_sensitive: Route(
        "", method, tuple(segments), rest, "api", case_sensitive=case_sensitive
    ),
    st.sampled_from(["*", "GET", "HEAD", "POST"]),
    st.lists(st.sampled_from(["a", "A", "b", "*"]), max_size=3),
    st.booleans(),
    st.booleans(),
)


def taken_by(pattern: Route, *, any_case: bool) -> frozenset[tuple[str, tuple[str, ...]]]:
    return frozenset(one for one in REQUESTS if matches(pattern, *one, any_case=any_case))


def named(found: list[Route]) -> list[Route]:
    return [replace(one, name=f"r{index}") for index, one in enumerate(found)]


def without_conflicts(patterns: list[Route]) -> list[Route]:
    kept: list[Route] = []
    for pattern in patterns:
        if not any(conflicts([*kept, pattern])):
            kept.append(pattern)
    return kept


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
    exact = {pattern.name: taken_by(pattern, any_case=False) for pattern in kept}
    any_case = {pattern.name: taken_by(pattern, any_case=True) for pattern in kept}
    for request in REQUESTS:
        fitting = [pattern for pattern in kept if request in exact[pattern.name]]
        found = table.match(*request)
        if found is None:
            assert fitting == []
            continue
        (chosen,) = (
            one
            for one in fitting
            if all(any_case[one.name] <= any_case[other.name] for other in fitting)
        )
        evaded = [
            pattern
            for pattern in kept
            if request in any_case[pattern.name]
            and not any_case[chosen.name] <= any_case[pattern.name]
        ]
        assert found is (AMBIGUOUS_PATH if evaded and not chosen.case_sensitive else chosen)


@no_deadline
@given(routes, routes)
def test_a_conflict_is_an_overlap_without_order(first: Route, second: Route) -> None:
    """Two routes conflict exactly if they share a request and neither lies within the other.

    Letter case counts only if both are case-sensitive.
    """
    any_case = not (first.case_sensitive and second.case_sensitive)
    one, other = taken_by(first, any_case=any_case), taken_by(second, any_case=any_case)
    expected = bool(one & other) and (one == other or not (one <= other or other <= one))
    found = list(conflicts([first, second]))
    assert bool(found) is expected
    for conflict in found:
        method, path = conflict.example.split(" ")
        assert matches(first, method, at(path), any_case=False)
        assert matches(second, method, at(path), any_case=False)
        assert conflict.same is (one == other)


@no_deadline
@given(st.lists(routes, max_size=6).map(named))
def test_conflicts_finds_every_pair(patterns: list[Route]) -> None:
    """It finds the same pairs as separate calls for each two routes."""
    expected = {
        (first.name, second.name)
        for index, first in enumerate(patterns)
        for second in patterns[index + 1 :]
        if any(conflicts([first, second]))
    }
    found = [(conflict.first.name, conflict.second.name) for conflict in conflicts(patterns)]
    assert len(found) == len(set(found))
    assert set(found) == expected


@no_deadline
@given(st.lists(routes, max_size=6).map(named))
def test_unreachable_is_what_no_request_takes(patterns: list[Route]) -> None:
    """Of routes without conflicts, exactly those that no request takes."""
    kept = without_conflicts(patterns)
    table = RouteTable(kept)
    asked = {table.match(*request) for request in REQUESTS}
    assert unreachable(kept) == [pattern for pattern in kept if pattern not in asked]


@no_deadline
@given(st.lists(routes, max_size=6))
def test_methods_at_is_what_could_be_sent(patterns: list[Route]) -> None:
    """Allow has the methods that match a route at the path; it is empty if any method does."""
    table = RouteTable(patterns)
    for segments in PATHS:
        if table.match("OTHER", segments) is not None:
            assert table.methods_at(segments) == ()
        else:
            methods = ("GET", "HEAD", "POST")
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
    *("GET /api/search/*", "POST /api/*/batch", "POST /api/webhooks/test"),
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
    """The service's routes take the requests that they are for."""
    method, path = request_line.split(" ")
    found = RouteTable(map(route, SHIPPED)).match(method, at(path))
    assert isinstance(found, Route)
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
        ("GET /a", "GET /A", "GET /a"),
        ("GET /a", "cs GET /A", "GET /A"),
        ("cs GET /a", "cs GET /A", None),
        ("cs GET /A/*/c", "GET /a/b/**", "GET /A/b/c"),
        ("cs GET /A/*/c", "cs GET /a/b/**", None),
        ("cs GET /A/*", "GET /a/b", None),
    ],
)
def test_a_conflict_names_a_request(first: str, second: str, example: str | None) -> None:
    """The example is a request that both would match."""
    found = list(conflicts([route(first), route(second)]))
    assert [conflict.example for conflict in found] == ([example] if example else [])


@pytest.mark.parametrize("path", sorted("/" + "/".join(own) for own in OWN_ROUTES))
def test_own_paths_are_never_routed(path: str) -> None:
    """A route for one of the gateway's own paths is unreachable; one below it is not."""
    own = route(f"GET {path.title()}")
    assert unreachable([own, route(f"* {path}/**"), route("* /v1/**")]) == [own]


def test_a_rest_below_an_own_path_may_be_unreachable() -> None:
    """If /health is the gateway's and another route takes all below, /health/** has no request."""
    assert unreachable([route("* /health/**"), route("* /health/*/**")]) == [route("* /health/**")]


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
