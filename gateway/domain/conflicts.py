"""Routes that cannot be used together: conflicts, and routes that no request takes.

`domain/routes.py` defines which of two routes is more specific. Two routes conflict if they match a
common request, neither is within the other, and no third route decides it: one that matches the
request and is within both. "GET /a/*/c" and "GET /a/b/**" conflict at "/a/b/c", unless there is a
route "GET /a/b/c" as well. Only routes with an entry of `hosts` in common are compared: between all
others, the host of a request decides.

Without conflicts, one of the routes that match a request is within all others. (Of these routes,
take one that no other one is within. If it were not within another one, a third route within both
would decide the request, and that one would be within the first.)

Samples answer whether there are such routes (see `path_patterns`): third routes decide all paths of
a pattern if they decide its samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, count, islice
from typing import Final, NamedTuple

from gateway.domain.hosts import host_groups
from gateway.domain.path_patterns import (
    ANY,
    MOST_ANY,
    ONE,
    OTHER,
    Matcher,
    Pattern,
    normal,
    samples,
    shared,
)
from gateway.domain.route import Route, written
from gateway.domain.routes import (
    OWN_ROUTES,
    RouteTable,
    compared,
    fold,
    is_own,
    is_same,
    lies_within,
)

#: The most samples for one pair of routes; usual ones have less than a hundred. A pair with more
#: counts as a conflict.
_MOST_SAMPLES: Final = 5_000


class Conflict(NamedTuple):
    """Two routes that match a common request, but neither is more specific; and such a request.

    example: "GET /a/b/c". third: the pattern of a route that would decide it and others: "GET
    /a/b/{any}"; "" if none can be written. same: they match exactly the same requests
    """

    first: Route
    second: Route
    example: str
    third: str
    same: bool


def conflicts(routes: Sequence[Route]) -> Iterator[Conflict]:
    """All pairs of routes that conflict, in the order of the routes; first those without hosts.

    An iterator, since any pair of many routes may conflict.
    """
    seen = set[tuple[int, int]]()
    for group in host_groups(routes):
        for conflict in _conflicts(group):
            pair = id(conflict.first), id(conflict.second)
            if pair not in seen:
                seen.add(pair)
                yield conflict


def _conflicts(routes: Sequence[Route]) -> Iterator[Conflict]:
    """Those of routes that serve a common host."""
    overlaps = _Overlaps(routes)
    for index, route in enumerate(routes):
        for other in overlaps.before(index):
            conflict = _conflict(routes[other], route, overlaps)
            if conflict is not None:
                yield conflict


def overlaps(routes: Sequence[Route]) -> Iterator[str]:
    """Requests that two routes match, neither of which is within the other: "GET /a/b/c".

    One of each kind that other routes of these may decide between them.
    """
    found = _Overlaps(routes)
    for index, second in enumerate(routes):
        for first in (routes[other] for other in found.before(index)):
            one, other = compared(first, second)
            if lies_within(one, other) or lies_within(other, one):
                continue
            for pattern in map(normal, shared(one.path, other.path, fold)):
                for path in islice(samples(pattern, found.longest + 1), _MOST_SAMPLES):
                    words = "/".join(found.example(path))
                    for method in _shared_methods(first, second):
                        yield f"{'GET' if method == '*' else method} /{words}"


def unreachable(routes: Sequence[Route]) -> list[Route]:
    """Routes that no request takes: at the gateway's own paths, or covered by other routes.

    Several routes together can cover a pattern: "/a/**" by "/a" and "/a/*/**". Routes that match
    the same requests count as one here: see `conflicts`. A route is reached if it is on one of its
    hosts.
    """
    reached = set[int]()
    for group in host_groups(routes):
        table = RouteTable(group)
        longest = max((len(route.path) for route in group), default=0)
        reached |= {id(route) for route in group if _is_reachable(route, table, longest)}
    return [route for route in routes if id(route) not in reached]


def _is_reachable(route: Route, table: RouteTable, longest: int) -> bool:
    # No route has this method: a space is in no token.
    methods = [" " if method == "*" else method for method in route.method.split(",")]
    met = (
        table.match(method, path) for path in samples(route.path, longest + 1) for method in methods
    )
    return any(
        isinstance(other, Route) and not is_own(other) and is_same(*compared(other, route))
        for other in met
    )


def _conflict(first: Route, second: Route, overlaps: _Overlaps) -> Conflict | None:
    """The conflict of two routes that match a common path if letter case is ignored."""
    methods = _shared_methods(first, second)
    if not methods:
        return None
    one, other = compared(first, second)
    same = is_same(one, other)
    if not same and (lies_within(one, other) or lies_within(other, one)):
        return None
    thirds = None if same else _Thirds(first, second, overlaps)
    found = _undecided(first, second, methods, thirds, overlaps.longest)
    if found is None:
        return None
    undecided, path, pattern = found
    # With "*" in both, any method is an example.
    method = "GET" if undecided[0] == "*" else undecided[0]
    example = f"{method} /{'/'.join(overlaps.example(path))}"
    third = written(",".join(undecided), pattern) if pattern.count(ANY) <= MOST_ANY else ""
    return Conflict(first, second, example, "" if same else third, same)


def _undecided(
    first: Route, second: Route, methods: Sequence[str], thirds: _Thirds | None, longest: int
) -> tuple[list[str], Pattern, Pattern] | None:
    """Methods and a path that both routes match, without a third route that decides between them.

    Also the pattern of the path, which both match completely. None if there is no such path.
    """
    # If the spellings differ, both match that of the case-sensitive route.
    pair = (second, first) if second.case_sensitive else (first, second)
    by_spelling = first.case_sensitive and second.case_sensitive
    patterns = map(normal, shared(pair[0].path, pair[1].path, str if by_spelling else fold))
    left = _MOST_SAMPLES
    for pattern in patterns:
        for path in samples(pattern, longest + 1):
            decided = thirds.methods(path) if thirds else frozenset()
            undecided = [] if "*" in decided else [one for one in methods if one not in decided]
            left -= 1
            if undecided or left < 0:
                return undecided or list(methods), path, pattern
    return None


def _shared_methods(first: Route, second: Route) -> list[str]:
    """The methods that both match, without HEAD if GET is among them; ["*"] for any."""
    if "*" in first.methods:
        shared_methods = second.methods
    elif "*" in second.methods:
        shared_methods = first.methods
    else:
        shared_methods = first.methods & second.methods
    # Whatever decides for GET decides for HEAD.
    return sorted(shared_methods - {"HEAD"} if "GET" in shared_methods else shared_methods)


class _Thirds:
    """The routes that are within two others, and so decide between them."""

    def __init__(self, first: Route, second: Route, overlaps: _Overlaps) -> None:
        self._pair = (first, second)
        self._overlaps = overlaps
        self._by_spelling = first.case_sensitive and second.case_sensitive
        self._within: dict[int, bool] = {}

    def methods(self, path: Pattern) -> frozenset[str]:
        """The methods for which one of them matches a path; with "*": for any."""
        folded = tuple(map(fold, path))
        if folded in OWN_ROUTES:
            return frozenset("*")  # the gateway answers itself
        thirds = [
            self._overlaps.routes[index]
            for index in self._overlaps.matching(folded)
            if self._is_within(index)
        ]
        return frozenset().union(*(one.methods for one in thirds if self._is_spelled(one, path)))

    def _is_within(self, index: int) -> bool:
        if index not in self._within:
            third = self._overlaps.routes[index]
            self._within[index] = all(lies_within(*compared(third, one)) for one in self._pair)
        return self._within[index]

    def _is_spelled(self, third: Route, path: Pattern) -> bool:
        """Does it match the path in every letter case in which the two do?"""
        if not third.case_sensitive:
            return True
        return self._by_spelling and bool(Matcher((third.path,)).matching(path))


class _Overlaps:
    """Finds the routes that match a common path with one of them, ignoring case.

    Routes are indexes into `routes`. Comparing a thousand routes with each other would take half a
    million comparisons.

    longest: the most words of a pattern
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        self._paths = [tuple(map(fold, route.path)) for route in routes]
        self.longest = max(map(len, self._paths), default=0)
        self._gapped = [index for index, path in enumerate(self._paths) if ANY in path[:-1]]
        self._matcher = Matcher([self._paths[index] for index in self._gapped])
        self._trie = _Node()
        for index, path in enumerate(self._paths):
            if ANY not in path[:-1]:
                self._trie.add(index, path)

    def before(self, index: int) -> list[int]:
        """The routes before one that share a path with it, in order."""
        path = self._paths[index]
        if ANY in path[:-1]:
            end = self._matcher.ends[self._gapped.index(index)]
            return [other for other in range(index) if self._sharing_gapped[other] & end]
        found = [other for other in self._trie.sharing(path) if other < index]
        if self._gapped:
            found += (
                other
                for other, end in zip(self._gapped, self._matcher.ends, strict=True)
                if other < index and self._sharing_gapped[index] & end
            )
        return sorted(found)

    @cached_property
    def _sharing_gapped(self) -> list[int]:
        """Of each route: the ends of the patterns with a gap that share a path with it."""
        return [self._matcher.sharing(path) for path in self._paths]

    def matching(self, path: Pattern) -> Iterator[int]:
        """The routes that match a path."""
        yield from self._trie.sharing(path)
        for found in self._matcher.matching(path):
            yield self._gapped[found]

    def example(self, path: Pattern) -> Pattern:
        """A sample as a path to show, with a segment that no pattern has for the others."""
        names = chain(("x",), (f"x{number}" for number in count(2)))
        other = next(name for name in names if name not in self._literals)
        return tuple(other if segment == OTHER else segment for segment in path)

    @cached_property
    def _literals(self) -> frozenset[str]:
        return frozenset(word for path in self._paths for word in path)


class _Node:
    """A node of a trie of patterns without "**" in the middle."""

    __slots__ = ("children", "exact", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.exact: list[int] = []
        self.rest: list[int] = []

    def add(self, index: int, path: Pattern) -> None:
        node = self
        for word in path:
            if word == ANY:
                node.rest.append(index)
                return
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node()
            node = child
        node.exact.append(index)

    def sharing(self, path: Pattern, at: int = 0) -> Iterator[int]:
        """The indexes of the patterns below this node that share a path with a pattern."""
        yield from self.rest
        if at == len(path):
            yield from self.exact
            return
        word = path[at]
        if word == ANY:
            yield from self._below()
            return
        if word == ONE:
            nodes = list(self.children.values())
        else:
            nodes = [self.children[key] for key in (word, ONE) if key in self.children]
        for node in nodes:
            yield from node.sharing(path, at + 1)

    def _below(self) -> Iterator[int]:
        yield from self.exact
        for node in self.children.values():
            yield from node.rest
            yield from node._below()
