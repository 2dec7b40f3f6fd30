"""Requests that another policy treats differently, and routes with another name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.conflicts import conflicts
from gateway.domain.hosts import HostTables
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.domain.routes import RouteTable
from gateway.manage.policy_requests import moved_requests, renamed_routes
from tests.kit.reach import reached, reaches

T = TypeVar("T")


def route(name: str, pattern: str, scope: str = "") -> Route:
    method, _, path = pattern.partition(" ")
    words = tuple(word for word in path.split("/") if word)
    rest = words[-1:] == ("**",)
    scopes = (scope,) if scope else ()
    return Route(name, method, words[:-1] if rest else words, rest, "api", scopes=scopes)


def policy(routes: Mapping[str, str]) -> Policy:
    """Routes by name; a scope may follow the pattern: "GET /a x"."""
    made = {}
    for name, text in routes.items():
        method, path, *scope = text.split(" ")
        made[name] = route(name, f"{method} {path}", *scope)
    return Policy("production", {}, made, RouteTable(made.values()), {})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": "GET /a"}, {"a": "GET /a"}, set()),
        ({"a": "GET /a"}, {"a": "GET /a x"}, {("a", "a")}),
        ({"a": "GET /a"}, {}, {("a", None)}),
        ({}, {"a": "GET /a"}, {(None, "a")}),
        ({"a": "GET /a", "all": "* /**"}, {"all": "* /**"}, {("a", "all")}),
        ({"a": "GET /a/**"}, {"a": "GET /a"}, {("a", "a"), ("a", None)}),
        ({"a": "* /a"}, {"a": "GET /a"}, {("a", "a"), ("a", None)}),
        # The base of a rest, and what is below it, may be of different routes.
        (
            {"a": "GET /a/**", "all": "GET /**"},
            {"base": "GET /a", "all": "GET /**"},
            {("a", "base"), ("a", "all")},
        ),
        # Neither is within the other.
        ({"a": "GET /a/*/c x"}, {"b": "GET /a/b/**"}, {("a", "b"), ("a", None), (None, "b")}),
        ({"a": "* /a x"}, {"b": "GET /**"}, {("a", "b"), ("a", None), (None, "b")}),
        # The gateway's own paths are never a route's.
        ({"a": "GET /**"}, {}, {("a", None)}),
    ],
)
def test_pairs(
    old: Mapping[str, str], new: Mapping[str, str], expected: set[tuple[str | None, str | None]]
) -> None:
    """Each pair of routes that has a common request is found, and no others."""
    found = moved_requests(policy(old), policy(new))
    assert {(each.old and each.old.name, each.new and each.new.name) for each in found} == expected


def valid(make: Callable[[dict[str, T]], Policy], routes: Mapping[str, T]) -> Policy:
    """A policy of those routes that conflict with none before them."""
    kept: dict[str, T] = {}
    for name, each in routes.items():
        if not any(conflicts(list(make({**kept, name: each}).routes.values()))):
            kept[name] = each
    return make(kept)


WORDS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.builds(
    lambda method, words, rest: f"{method} /{'/'.join([*words, *rest])}",
    st.sampled_from(["GET", "POST", "*"]),
    st.lists(WORDS, max_size=3),
    st.sampled_from([[], ["**"]]),
)
POLICIES = st.dictionaries(
    st.sampled_from("pqrs"),
    st.tuples(PATTERNS, st.sampled_from(["", " x"])).map("".join),
    min_size=1,
)
REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "PUT"]), st.lists(st.sampled_from(["a", "b", "z"]), max_size=4)
)


@reaches(0.05)
@given(POLICIES, POLICIES, st.lists(REQUESTS, min_size=10, max_size=30))
def test_no_request_is_missed(
    old: dict[str, str], new: dict[str, str], requests: list[tuple[str, list[str]]]
) -> None:
    """If the routes of a request before and after differ in any rule, their pair is found."""
    policies = [valid(policy, old), valid(policy, new)]
    found = {(each.old, each.new) for each in moved_requests(*policies)}
    for method, words in requests:
        before, after = (each.table.match(method, words) for each in policies)
        if before != after:
            reached()
            assert (before, after) in found, (method, words)


def test_another_name() -> None:
    """A route with another name is the same one if it matches the same requests."""
    old = policy({"a": "GET /a", "b": "GET /b", "c": "GET /c"})
    new = policy({"x": "GET /a x", "b": "GET /b", "y": "GET /y"})
    assert renamed_routes(old, new) == {"x": "a"}


def hosted(routes: Mapping[str, tuple[str, str]]) -> Policy:
    """Routes by name: pattern, and the hosts, separated by spaces."""
    made = {
        name: replace(route(name, pattern), hosts=tuple(hosts.split()))
        for name, (pattern, hosts) in routes.items()
    }
    tables = HostTables(made.values())
    return Policy("production", {}, made, tables.default, {}, hosts=tables)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            {"a": ("GET /a", "x.example"), "all": ("GET /**", "")},
            {"all": ("GET /**", "")},
            {("GET x.example/a", "a", "all")},
        ),
        (
            {"a": ("GET /a", "x.example")},
            {"a": ("GET /a", "*.example")},
            {("GET x.example/a", "a", "a"), ("GET x1.example/a", None, "a")},
        ),
        (
            {"a": ("GET /a", "x.example y.example")},
            {"a": ("GET /a", "x.example")},
            {("GET x.example/a", "a", "a"), ("GET y.example/a", "a", None)},
        ),
        ({"a": ("GET /a", "x y")}, {"a": ("GET /a", "y x")}, set()),
        (
            {"a": ("GET /a", ""), "b": ("GET /**", "x")},
            {"b": ("GET /**", "x")},
            {("GET /a", "a", None)},
        ),
        # What was hidden by a less specific route of the host.
        (
            {"r": ("GET /a/**", "x"), "d": ("GET /a/b", ""), "e": ("GET /**", "")},
            {"d": ("GET /a/b", ""), "e": ("GET /**", "")},
            {("GET x/a", "r", "e"), ("GET x/a/b", "r", "d")},
        ),
    ],
)
def test_hosts(
    old: Mapping[str, tuple[str, str]],
    new: Mapping[str, tuple[str, str]],
    expected: set[tuple[str, str | None, str | None]],
) -> None:
    """A route that serves other hosts is a changed one; the example names the host."""
    found = {
        (each.request, each.old and each.old.name, each.new and each.new.name)
        for each in moved_requests(hosted(old), hosted(new))
    }
    assert found == expected


HOSTED = st.dictionaries(
    st.sampled_from("pqrs"),
    st.tuples(PATTERNS, st.sampled_from(["", "", "a.x", "*.x", "a.x *.x", "b.x"])),
    min_size=1,
    max_size=3,
)


@reaches(0.05)
@given(
    HOSTED,
    HOSTED,
    st.lists(st.tuples(REQUESTS, st.sampled_from(["", "a.x", "c.x", "b.x"])), min_size=10),
)
def test_no_request_on_a_host_is_missed(
    old: dict[str, tuple[str, str]],
    new: dict[str, tuple[str, str]],
    requests: list[tuple[tuple[str, list[str]], str]],
) -> None:
    """The same where routes name hosts."""
    policies = [valid(hosted, old), valid(hosted, new)]
    found = {(each.old, each.new) for each in moved_requests(*policies)}
    for (method, words), host in requests:
        before, after = (each.table_at(host.encode()).match(method, words) for each in policies)
        if before != after:
            reached()
            assert (before, after) in found, (method, words, host)
