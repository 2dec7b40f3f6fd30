"""The rule of matching, literally, and routes to compare it with.

A set of requests is an integer, with a bit for each request of REQUESTS.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product

from hypothesis import settings
from hypothesis import strategies as st

from gateway.domain.conflicts import conflicts
from gateway.domain.path_patterns import ANY, ONE, normal
from gateway.domain.route import Route
from gateway.policies.fields import read_match

#: The machine may be busy with other tests.
no_deadline = settings(deadline=None)

Path = tuple[str, ...]

#: Requests for every case that short patterns over the words a, A and b distinguish: one further
#: word and one further method represent all others.
PATHS: list[Path] = [
    path
    for length in range(7)
    for path in product(
        ("a", "A", "b", "other") if length < 5 else ("a", "b", "other"), repeat=length
    )
]
METHODS = ("GET", "HEAD", "POST", "PUT", "OTHER")
REQUESTS = list(product(METHODS, PATHS))


def route(pattern: str, name: str = "") -> Route:
    """A route of a pattern such as "GET /a/*/b" or "* /a/**"; "cs GET /A" is case-sensitive."""
    match = read_match(pattern.removeprefix("cs "))
    return Route(
        *(name or pattern, match.method, match.segments, match.rest, "api"),
        case_sensitive=pattern.startswith("cs "),
        names=match.names,
    )


def at(path: str) -> Path:
    return tuple(part for part in path.split("/") if part)


def matches(pattern: Route, method: str, segments: Path, *, any_case: bool) -> bool:
    """The rule, literally. any_case: ignore the route's own setting for letter case."""
    return has_method(pattern, method) and has_path(pattern, segments, any_case=any_case)


def has_method(pattern: Route, method: str) -> bool:
    methods = pattern.method.split(",")
    return "*" in methods or method in methods or (method == "HEAD" and "GET" in methods)


def has_path(pattern: Route, segments: Path, *, any_case: bool) -> bool:
    ignores_case = any_case or not pattern.case_sensitive
    return path_of(pattern.path, ignores_case).fullmatch(as_text(segments)) is not None


def as_text(segments: Path) -> str:
    return "".join(f"/{segment}" for segment in segments)


@cache
def path_of(path: Path, ignores_case: bool) -> re.Pattern[str]:
    """A pattern of a path as a regular expression."""
    words = {ONE: "/[^/]+", ANY: "(?:/[^/]+)*"}
    text = "".join(words.get(word, "/" + re.escape(word)) for word in path)
    return re.compile(text, re.IGNORECASE if ignores_case else 0)


def taken_by(pattern: Route, *, any_case: bool) -> int:
    """The requests that a route matches. any_case: ignore its own setting for letter case."""
    paths = _paths_taken(pattern.path, any_case or not pattern.case_sensitive)
    methods = (index for index, one in enumerate(METHODS) if has_method(pattern, one))
    return sum(paths << index * len(PATHS) for index in methods)


@cache
def _paths_taken(path: Path, ignores_case: bool) -> int:
    pattern = path_of(path, ignores_case)
    return sum(1 << index for index, one in enumerate(PATHS) if pattern.fullmatch(as_text(one)))


def is_within(inner: Route, outer: Route) -> bool:
    """Letter case counts only if both are case-sensitive."""
    any_case = not (inner.case_sensitive and outer.case_sensitive)
    return not taken_by(inner, any_case=any_case) & ~taken_by(outer, any_case=any_case)


def undecided(first: Route, second: Route, all_routes: Sequence[Route]) -> int:
    """The requests at which two routes conflict."""
    by_spelling = first.case_sensitive and second.case_sensitive
    both = taken_by(first, any_case=not by_spelling) & taken_by(second, any_case=not by_spelling)
    one_way, other_way = is_within(first, second), is_within(second, first)
    if one_way or other_way:
        return both if one_way and other_way else 0
    for third in all_routes:
        # A case-sensitive route does not decide for other spellings of its path.
        decides = by_spelling or not third.case_sensitive
        if decides and is_within(third, first) and is_within(third, second):
            both &= ~taken_by(third, any_case=False)
    return both


def _route(method: str, words: Path, case_sensitive: bool) -> Route:
    path = normal(words)
    rest = path[-1:] == (ANY,)
    return Route(
        *("", method, path[:-1] if rest else path, rest, "api"), case_sensitive=case_sensitive
    )


routes = st.builds(
    _route,
    st.sampled_from(["*", "GET", "HEAD", "POST", "GET,POST", "PUT,POST", "HEAD,PUT", "HEAD,GET"]),
    st.one_of(
        st.lists(st.sampled_from(["a", "A", "b", "*"]), max_size=3),
        st.lists(st.sampled_from(["a", "b", "*"]), max_size=3).map(lambda words: [*words, ANY]),
        st.lists(st.sampled_from(["a", "b", "*", ANY]), max_size=4).filter(
            lambda words: words.count(ANY) <= 2 and len(words) - words.count(ANY) <= 2
        ),
    ).map(tuple),
    st.sampled_from([False, False, True]),
)


def named(found: list[Route]) -> list[Route]:
    return [replace(one, name=f"r{index}") for index, one in enumerate(found)]


def without_conflicts(patterns: list[Route]) -> list[Route]:
    """The routes without those that conflict with earlier ones, after thirds have been added."""
    kept = list(patterns)
    for _ in range(3):
        thirds = {found.third for found in conflicts(kept) if found.third}
        kept += [route(third) for third in sorted(thirds)]
    if not any(conflicts(kept)):
        return named(kept)
    kept = []
    for pattern in patterns:
        if not any(conflicts([*kept, pattern])):
            kept.append(pattern)
    return kept
