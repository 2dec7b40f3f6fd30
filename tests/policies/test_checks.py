"""Faults between parts of a policy that are each valid."""

from __future__ import annotations

from itertools import accumulate, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.limits import Limit
from gateway.policies.checks import most_admitted
from tests.kit.reach import reached, reaches
from tests.policies.folder import complaints, write


def routes_of(*routes: str) -> str:
    lines = [f"  r{index}: {{upstream: api, {route}}}" for index, route in enumerate(routes)]
    return "routes:\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (
            ["match: GET /a/*/c", "match: GET /a/b/**"],
            [
                "routes.yaml:3: routes.r1.match: found 'GET /a/b/**', expected one of the two to "
                "be more specific, or a third route GET /a/b/c: routes.r0 (routes.yaml:2) matches "
                "GET /a/b/c too"
            ],
        ),
        (["match: GET /a/*/c", "match: GET /a/b/**", "match: GET /a/b/c"], []),
        (
            # a control character, as terminals read it
            ["match: GET /*/c", "match: 'GET /%C2%9Bm/{x}'"],
            [
                r"routes.yaml:3: routes.r1.match: found 'GET /\x9bm/{x}', expected one of the two "
                r"to be more specific, or a third route GET /\x9bm/c: routes.r0 (routes.yaml:2) "
                r"matches GET /\x9bm/c too"
            ],
        ),
        (
            ["match: POST /api/**/batch", "match: POST /api/items/*"],
            [
                "routes.yaml:3: routes.r1.match: found 'POST /api/items/**', expected one of the "
                "two to be more specific, or a third route POST /api/items/**/batch: routes.r0 "
                "(routes.yaml:2) matches POST /api/items/batch too"
            ],
        ),
        (
            [
                "match: POST /api/**/batch",
                "match: POST /api/items/*",
                "match: POST /api/items/**/batch",
                "match: '* /mcp/**'",
                "match: '* /**'",
                "match: GET /api/search/*",
            ],
            [],
        ),
        (
            # one that the first two need for GET alone
            ["match: 'GET,POST /a/*/c'", "match: 'GET,POST,PUT /a/b/*'", "match: POST /a/b/c"],
            [
                "routes.yaml:3: routes.r1.match: found 'GET,POST,PUT /a/b/**', expected one of the "
                "two to be more specific, or a third route GET /a/b/c: routes.r0 (routes.yaml:2) "
                "matches GET /a/b/c too"
            ],
        ),
        (
            ["match: 'GET,POST /a'", "match: 'POST,PUT /a'"],
            [
                "routes.yaml:3: routes.r1.match: found 'POST,PUT /a', expected one of the two to "
                "be more specific, or a third route POST /a: routes.r0 (routes.yaml:2) matches "
                "POST /a too"
            ],
        ),
        (
            ["match: 'GET,HEAD /a'", "match: GET /a"],
            [
                "routes.yaml:3: routes.r1.match: found 'GET /a', expected another pattern: "
                "routes.r0 (routes.yaml:2) matches GET /a too"
            ],
        ),
        (
            # the third pattern would have three **
            ["match: GET /**/a/**", "match: GET /**/b/**"],
            [
                "routes.yaml:3: routes.r1.match: found 'GET /**/b/**', expected one of the two to "
                "be more specific: routes.r0 (routes.yaml:2) matches GET /a/b too"
            ],
        ),
        (
            ["match: 'GET /{a}/b'", "match: 'GET /{c}/b'", "match: 'GET /a/{b}'"],
            [
                "routes.yaml:3: routes.r1.match: found 'GET /{c}/b', expected another pattern: "
                "routes.r0 (routes.yaml:2) matches GET /x/b too",
                "routes.yaml:4: routes.r2.match: found 'GET /a/{b}', expected one of the two to be "
                "more specific, or a third route GET /a/b: routes.r0 (routes.yaml:2) matches GET "
                "/a/b too",
                "routes.yaml:4: routes.r2.match: found 'GET /a/{b}', expected one of the two to be "
                "more specific, or a third route GET /a/b: routes.r1 (routes.yaml:3) matches GET "
                "/a/b too",
            ],
        ),
        (
            ["match: GET /a/*", "match: GET /a/**", "match: GET /a/*/"],
            [
                "routes.yaml:3: routes.r1.match: found 'GET /a/**', expected another pattern: "
                "routes.r0 (routes.yaml:2) matches GET /a too",
                "routes.yaml:4: routes.r2.match: found 'GET /a/**', expected another pattern: "
                "routes.r0 (routes.yaml:2) matches GET /a too",
            ],
        ),
        (
            ["match: '* /v1/health/'", "match: GET /v1/health/x"],
            [
                "routes.yaml:2: routes.r0.match: found '* /v1/health/', expected another path: the "
                "gateway itself answers at /v1/health"
            ],
        ),
        (
            ["match: GET /a/*", "match: GET /a", "match: GET /a/*/*"],
            [
                "routes.yaml:2: routes.r0.match: found 'GET /a/*', expected a pattern that more "
                "specific routes do not cover completely"
            ],
        ),
        (
            # the duplicate is reported, not that r0 and r1 cover r2
            ["match: GET /a", "match: GET /a/*/*", "match: GET /a/*", "match: GET /a/**"],
            [
                "routes.yaml:5: routes.r3.match: found 'GET /a/**', expected another pattern: "
                "routes.r2 (routes.yaml:4) matches GET /a too"
            ],
        ),
        (
            ["match: '* /a/**'", "match: '* /a'", "match: '* /a/*/b/**'"],
            [],
        ),
        (
            ["match: GET /Health", "match: GET /health/x"],
            [
                "routes.yaml:2: routes.r0.match: found 'GET /Health', expected another path: the "
                "gateway itself answers at /health"
            ],
        ),
        (
            # the other route's upstream may ignore letter case
            ["match: GET /a", "match: GET /A, case_sensitive: true"],
            [
                "routes.yaml:3: routes.r1.match: found 'GET /A', expected another pattern, as "
                "letter case matters only if both are case_sensitive: routes.r0 "
                "(routes.yaml:2) matches GET /A too"
            ],
        ),
        (
            ["match: GET /a, case_sensitive: true", "match: GET /A, case_sensitive: true"],
            [],
        ),
    ],
)
def test_routes_that_conflict(tmp_path: Path, routes: list[str], expected: list[str]) -> None:
    """Conflicts and routes without a request are faults that name an example."""
    assert complaints(write(tmp_path, routes=routes_of(*routes))) == expected


@pytest.mark.parametrize(
    ("plans", "routes", "expected"),
    [
        ("{a: {rate: 1/day, was: [c, b]}}", "was: x", None),
        ("{a: {rate: 1/day, was: b}, b: {rate: 1/day}}", "was: x", "was: b, and a plan 'b'"),
        ("{a: {rate: 1/day, was: c}, b: {rate: 1/day, was: c}}", "was: x", "as 'a' has it"),
        ("{a: {rate: 1/day, was: a}}", "was: x", "found 'a', expected an earlier name"),
        ("{a: {rate: 1/day, was: 5}}", "was: x", "found the number 5, expected a name, or a list"),
        ("{a: {rate: 1/day}}", "was: other", "was: other, and a route 'other'"),
        ("{a: {rate: 1/day}}", "rate: 1/day, was: l", "was: l, and a limit 'l'"),
        ("{a: {rate: 1/day}}", "rate: 1/day, was: plan", "was: plan, and a limit 'plan'"),
        ("{a: {rate: 1/day}}", "limits: [{name: l, rate: 1/day}]", "the same `was` wherever"),
        ("{a: {rate: 1/day}}", "limits: [{name: m, rate: 1/day, was: old}]", "as 'm' has it"),
        ("{a: {rate: 1/day, routes: {x: 1/day}}}", "was: x", "found 'x', expected 'r', its name"),
        ("{a: {rate: 1/day, routes: {old: 1/day}}}", "was: x", "expected 'l', its name now"),
    ],
)
def test_earlier_names(tmp_path: Path, plans: str, routes: str, expected: str | None) -> None:
    """An earlier name is of one thing that was renamed, and nothing else has it now."""
    other = "other: {match: GET /o, upstream: api, limits: [{name: l, rate: 1/day, was: old}]}"
    folder = write(
        tmp_path,
        plans=f"plans: {plans}",
        routes=f"routes: {{r: {{match: GET /r, upstream: api, {routes}}}, {other}}}",
    )
    found = complaints(folder)
    assert expected is None or any(expected in one for one in found), found
    assert (expected is None) == (not found)


def test_routes_that_take_long_to_match(tmp_path: Path) -> None:
    """With too many combinations of names and *, matching a request would delay all others."""
    folder = write(tmp_path, routes=branching(5))
    assert complaints(folder) == []
    assert complaints(write(tmp_path, routes=branching(6))) == [
        "routes.yaml:1: routes: found routes that need up to 191 steps to match a request, "
        "expected at most 128: fewer places where one route has * and another a name"
    ]


def test_many_long_patterns_with_gaps(tmp_path: Path) -> None:
    """Patterns with ** in the middle are matched together, so their sum is bounded."""
    routes = [f"match: GET /a{index}/**/b/c/d/e/f/g" for index in range(256)]
    assert complaints(write(tmp_path, routes=routes_of(*routes))) == []
    assert complaints(write(tmp_path, routes=routes_of(*routes, "match: GET /z/**/b"))) == [
        "routes.yaml:1: routes: found 2051 segments in all patterns with ** in the middle, "
        "expected at most 2048"
    ]


def branching(depth: int) -> str:
    """Routes of all paths with a name or * in each place, and a distinct last segment."""
    paths = ("/".join(words) for words in product(("a", "*"), repeat=depth))
    return routes_of(*(f"match: GET /{path}/x{index}" for index, path in enumerate(paths)))


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        # names
        ("rate: 3/day, limits: [{name: r0, quota: 3/day}]", "limits[0]: found a limit named 'r0'"),
        (
            "limits: [{name: plan, rate: 3/day}]",
            "limits[0]: found a limit named 'plan', expected another name: the plan's own limit",
        ),
        ("limits: [{name: plan, rate: 3/day}], plan_limits: false", None),
        ("limits: [{name: failed_auth, rate: 3/day, per: ip}]", "limits[0]: found a limit named"),
        ("limits: [{name: auth_verify, rate: 3/day}]", "limits[0]: found a limit named"),
        # no key to count by
        ("auth: none, rate: 3/day", "rate: found a limit per key, expected an entry of limits"),
        (
            "auth: none, limits: [{name: a, rate: 3/day, per: account}]",
            "limits[0]: found a limit per account",
        ),
        ("auth: none, limits: [{name: plan, rate: 3/day, per: ip}]", None),
        ("auth: none, service: a", "service: found 'a', expected no service, as auth: none"),
        # a cost that is never admitted
        ("cost: 4, rate: 3/day", "cost: found the number 4, expected at most 3"),
        ("cost: 4, rate: 3/day, burst: 4", None),
        ("cost: 4, limits: [{name: c, concurrency: 1}]", None),  # a request is one lease
        # a quota that cannot be reached because of a rate: 24 * 10 a day
        (
            "rate: 10/hour, limits: [{name: d, quota: 241/day}]",
            "limits[0]: found 'd' with 241, expected at most 240: the limit 'r0' never admits more",
        ),
        ("rate: 10/hour, limits: [{name: d, quota: 240/day}]", None),
        ("rate: 10/hour, burst: 20, limits: [{name: d, quota: 260/day}]", None),
        ("rate: 10/hour, burst: 20, limits: [{name: d, quota: 261/day}]", "limits[0]: found 'd'"),
        ("rate: 10/hour, limits: [{name: d, quota: 241/day, per: ip}]", None),
        ("rate: 10/hour, limits: [{name: d, quota: 241/day, mode: shadow}]", "limits[0]: found"),
        ("limits: [{name: s, rate: 1/day, mode: shadow}, {name: d, quota: 9/day}]", None),
        # a rate that cannot be reached because of another, over a window and one slot more
        ("rate: 5/minute, limits: [{name: s, rate: 6/second}]", "limits[0]: found 's' with 6"),
        ("rate: 5/minute, limits: [{name: s, rate: 6/second, burst: 6}]", None),
        ("rate: 1/second, limits: [{name: m, rate: 61/minute}]", None),
        ("rate: 1/second, limits: [{name: m, rate: 62/minute}]", "limits[0]: found 'm' with 62"),
        ("limits: [{name: q, quota: 1/day}, {name: m, rate: 2/minute}]", None),
        # any 3660 s may touch 3661 calendar seconds
        ("limits: [{name: q, quota: 1/second}, {name: h, rate: 3661/hour}]", None),
        ("limits: [{name: q, quota: 1/day}, {name: m, rate: 3/minute}]", "limits[1]: found 'm'"),
        # a few requests may last for long, and many be short
        ("rate: 1/day, limits: [{name: c, concurrency: 9}, {name: d, concurrency: 7}]", None),
        ("limits: [{name: c, concurrency: 1}, {name: q, quota: 99/second}]", None),
        # many messages may be few requests
        ("mcp: {}, rate: 5/minute, limits: [{name: m, rate: 20/minute, of: messages}]", None),
        (
            "mcp: {}, limits: [{name: q, quota: 1/day, of: messages}, "
            "{name: m, rate: 3/minute, of: messages}]",
            "limits[1]: found 'm' with 3",
        ),
    ],
)
def test_limits_that_cannot_work(tmp_path: Path, route: str, expected: str | None) -> None:
    """Only certain faults are reported: a duplicate name, no subject, a limit never reached."""
    found = complaints(write(tmp_path, routes=routes_of(f"match: '* /', {route}")))
    if expected is None:
        assert found == []
    else:
        assert len(found) == 1, found
        assert found[0].startswith(f"routes.yaml:2: routes.r0.{expected}")


def test_values_that_a_plan_replaces_are_not_checked(tmp_path: Path) -> None:
    """If a plan has its own values for a limit, the route's are not checked alone."""
    routes = routes_of("match: GET /, rate: 10/hour, limits: [{name: d, quota: 241/day}]")
    plans = "plans: {a: {rate: 1/day, routes: {r0: 20/hour}}}"
    assert complaints(write(tmp_path, routes=routes, plans=plans)) == []


def test_a_plan_may_name_a_limit_of_a_route(tmp_path: Path) -> None:
    """Values are set by the name of a route or a limit, of routes that require a key."""
    routes = routes_of(
        "match: GET /, limits: [{name: daily, quota: 5/day}]",
        "match: GET /p, auth: none, limits: [{name: open, rate: 5/day, per: ip}]",
    )
    plans = "plans: {a: {rate: 1/day, routes: {daily: 1/day, open: 1/day, r1: 1/day}}}"
    assert complaints(write(tmp_path, routes=routes, plans=plans)) == [
        "plans.yaml:1: plans.a.routes.open: found 'open', expected one of r0, daily",
        "plans.yaml:1: plans.a.routes.r1: found 'r1', expected one of r0, daily",
    ]


def test_many_names_are_not_all_listed(tmp_path: Path) -> None:
    """An expectation stays readable if there are hundreds of names."""
    routes = routes_of(*(f"match: GET /{index}" for index in range(100)))
    plans = "plans: {a: {rate: 1/day, routes: {zzz: 1/day}}}"
    (complaint,) = complaints(write(tmp_path, routes=routes, plans=plans))
    assert complaint.endswith("r18, r19 and 80 more")


@reaches(0.5)
@given(
    st.builds(
        Limit,
        st.just("x"),
        st.sampled_from(["rate", "quota"]),
        st.integers(1, 5),
        st.integers(1, 12),
        st.none(),
    ),
    st.lists(st.integers(0, 4), min_size=1, max_size=30),
    st.integers(1, 30),
)
def test_most_admitted_is_never_exceeded(limit: Limit, gaps: list[int], width: int) -> None:
    """No span of time, wherever it begins, admits more than computed (counted one by one)."""
    admitted: list[int] = []
    for now in accumulate(gaps):
        if limit.kind == "rate":
            counted = [moment for moment in admitted if now - moment < limit.window_us]
        else:
            period = now // limit.window_us
            counted = [moment for moment in admitted if moment // limit.window_us == period]
        if len(counted) < limit.amount:
            admitted.append(now)
    most = most_admitted(limit, width, sliding=True)
    for start in admitted:
        reached()
        assert len([moment for moment in admitted if start <= moment < start + width]) <= most
    most = most_admitted(limit, width, sliding=False)
    for start in range(0, 130, width):
        assert len([moment for moment in admitted if start <= moment < start + width]) <= most
