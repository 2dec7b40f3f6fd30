"""Which route a request takes: the most specific pattern that matches, whatever the order.

A pattern stands for a set of requests. Of two patterns that match one request, the one whose set
lies within the other's is more specific, and wins:

- a literal segment lies within "*", and either within a rest, which is all that follows,
  nothing included: "/mcp/**" matches "/mcp" and is less specific than "/mcp" and "/mcp/*/x";
- a method lies within "*", and HEAD lies within GET, whose answer it asks for without the body.

Two patterns that share a request while neither lies within the other leave it open who wins:
"GET /a/*/c" and "GET /a/b/**" at "/a/b/c", or "GET /**" and "* /a" at "GET /a". That is a
conflict (the rule of Go's ServeMux since 1.22), which `conflicts` finds and a policy must not have.

Without conflicts the patterns that match one request form a chain, each within the next. Its
innermost has a literal wherever the others have one, and the longest path before a rest. So a walk
down a trie that tries the literal child first, then "*", then the rest of where it stands, and that
turns back where no method fits, meets it first. The walk looks at no route that differs in a
literal, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from gateway.domain.policy import Route

#: What the gateway answers by itself, whatever the method: a route of such a path is never asked.
OWN_PATHS: Final = frozenset({("health",), ("v1", "health"), ("v1", "auth", "verify")})


class Conflict(NamedTuple):
    """Two routes that share a request without an order between them, and such a request.

    same: they match the very same requests. example: "GET /a/b"
    """

    first: Route
    second: Route
    example: str
    same: bool


class _Node:
    """One place in the trie. exact, rest: routes by method that end here, or go on with a rest."""

    __slots__ = ("exact", "literals", "rest", "star")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.star: _Node | None = None
        self.exact: dict[str, Route] = {}
        self.rest: dict[str, Route] = {}


class RouteTable:
    """All routes, ready to be matched. Not changed once made.

    Of routes that match the same requests, the first is kept.
    """

    __slots__ = ("_root",)

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.segments:
                if segment == "*":
                    node.star = node.star or _Node()
                    node = node.star
                else:
                    node = node.literals.setdefault(segment, _Node())
            (node.rest if route.rest else node.exact).setdefault(route.method, route)

    def match(self, method: str, segments: Sequence[str]) -> Route | None:
        """The route of a request.

        segments: the path's, decoded, no empty one at the end: ("api", "search"); () for "/"
        """
        return _find(self._root, method, segments, 0)

    def methods_at(self, segments: Sequence[str]) -> tuple[str, ...]:
        """What an Allow header lists: the methods that have a route at this path, sorted.

        Empty where no route has the path, and where one takes any method: nothing to name.
        """
        methods: set[str] = set()
        _gather(self._root, segments, 0, methods)
        if "*" in methods:
            return ()
        if "GET" in methods:
            methods.add("HEAD")
        return tuple(sorted(methods))


def _find(node: _Node, method: str, segments: Sequence[str], at: int) -> Route | None:
    """The first route below here that fits, the most specific path first."""
    found = None
    if at == len(segments):
        if node.exact:
            found = _of_method(node.exact, method)
    else:
        literal = node.literals.get(segments[at])
        if literal is not None:
            found = _find(literal, method, segments, at + 1)
        if found is None and node.star is not None:
            found = _find(node.star, method, segments, at + 1)
    if found is None and node.rest:
        found = _of_method(node.rest, method)
    return found


def _of_method(routes: dict[str, Route], method: str) -> Route | None:
    found = routes.get(method)
    if found is None and method == "HEAD":
        found = routes.get("GET")
    return routes.get("*") if found is None else found


def _gather(node: _Node, segments: Sequence[str], at: int, methods: set[str]) -> None:
    """Add the methods of every route below here whose path matches."""
    methods.update(node.rest)
    if at == len(segments):
        methods.update(node.exact)
        return
    for child in (node.literals.get(segments[at]), node.star):
        if child is not None:
            _gather(child, segments, at + 1, methods)


def conflicts(routes: Sequence[Route]) -> list[Conflict]:
    """Every pair that shares a request without an order, in the order of the routes."""
    trie = _Pairs()
    found = []
    for index, route in enumerate(routes):
        for other in sorted(trie.sharing(route)):
            conflict = _conflict(routes[other], route)
            if conflict is not None:
                found.append(conflict)
        trie.add(index, route)
    return found


def unreachable(routes: Sequence[Route]) -> list[Route]:
    """Routes that no request takes: at the gateway's own paths, or matched whole by others.

    Others together match a pattern whole only where it ends in a rest: "/a/**" by "/a" and
    "/a/*/**". Elsewhere a request with words that no route names takes it, if any does.
    Routes that match the same are not told apart here: see `conflicts`.
    """
    table = RouteTable(routes)
    deepest = max((len(route.segments) for route in routes), default=0)
    return [route for route in routes if not _is_reachable(route, table, deepest)]


def _is_reachable(route: Route, table: RouteTable, deepest: int) -> bool:
    # A word with a slash is no segment, and a method with a space no token: no route names either.
    method = " " if route.method == "*" else route.method
    words = tuple("/" if segment == "*" else segment for segment in route.segments)
    # Beyond the deepest pattern nothing changes any more.
    more = range(deepest - len(words) + 2) if route.rest else range(1)
    requests = ((*words, *("/" for _ in range(count))) for count in more)
    met = (table.match(method, request) for request in requests if request not in OWN_PATHS)
    return any(other is not None and _is_same(other, route) for other in met)


def _is_same(first: Route, second: Route) -> bool:
    return (first.method, first.segments, first.rest) == (
        second.method,
        second.segments,
        second.rest,
    )


def _conflict(first: Route, second: Route) -> Conflict | None:
    """What is wrong between two routes whose paths share a path."""
    method = _shared_method(first.method, second.method)
    if method is None:
        return None
    same = _is_same(first, second)
    if not same and (_lies_within(first, second) or _lies_within(second, first)):
        return None
    # "*" in both leaves the method open; GET says it as well as any.
    example = f"{'GET' if method == '*' else method} {_shared_path(first, second)}"
    return Conflict(first, second, example, same)


def _shared_method(first: str, second: str) -> str | None:
    """The narrower of two methods, None where no request has both."""
    if _method_within(first, second):
        return first
    return second if _method_within(second, first) else None


def _method_within(inner: str, outer: str) -> bool:
    return outer in (inner, "*") or (inner, outer) == ("HEAD", "GET")


def _lies_within(inner: Route, outer: Route) -> bool:
    """Does outer match every request that inner matches?"""
    if not _method_within(inner.method, outer.method):
        return False
    if outer.rest:
        if len(inner.segments) < len(outer.segments):
            return False
    elif inner.rest or len(inner.segments) != len(outer.segments):
        return False
    # Where inner is the longer, what it has beyond outer's end is in outer's rest.
    pairs = zip(inner.segments, outer.segments, strict=False)
    return all(theirs in (ours, "*") for ours, theirs in pairs)


def _shared_path(first: Route, second: Route) -> str:
    """A path that both match, given that there is one; "x" where either would take any word."""
    longer, shorter = first.segments, second.segments
    if len(longer) < len(shorter):
        longer, shorter = shorter, longer
    words = [
        next((word for word in (one, other) if word != "*"), "x")
        for one, other in zip(longer, (*shorter, *longer[len(shorter) :]), strict=True)
    ]
    return "/" + "/".join(words)


class _Pairs:
    """A trie of routes' places in a list, asked which routes' paths share a path with a given one.

    Comparing each route with each would take a thousand routes half a million comparisons.
    """

    __slots__ = ("children", "exact", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Pairs] = {}
        self.exact: list[int] = []
        self.rest: list[int] = []

    def add(self, index: int, route: Route) -> None:
        node = self
        for segment in route.segments:
            node = node.children.setdefault(segment, _Pairs())
        (node.rest if route.rest else node.exact).append(index)

    def sharing(self, route: Route, at: int = 0) -> Iterator[int]:
        """The places of the routes below here that share a path with this one."""
        yield from self.rest
        if at == len(route.segments):
            if route.rest:
                yield from self._below()
            else:
                yield from self.exact
            return
        segment = route.segments[at]
        if segment == "*":
            nodes = list(self.children.values())
        else:
            nodes = [self.children[key] for key in (segment, "*") if key in self.children]
        for node in nodes:
            yield from node.sharing(route, at + 1)

    def _below(self) -> Iterator[int]:
        yield from self.exact
        for node in self.children.values():
            yield from node.rest
            yield from node._below()
