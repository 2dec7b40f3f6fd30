"""The route of a request: the most specific pattern that matches, in any order of the routes.

A pattern is a set of requests. Of two patterns that match one request, the one that is a subset of
the other is more specific, and is used:

- a literal segment is within "*", and both are within a rest, which is all that follows, or
  nothing: "/mcp/**" matches "/mcp" and is less specific than "/mcp" and "/mcp/*/x";
- a method is within "*", and HEAD is within GET, as it requests the same response without the body.

If two patterns match a common request, but neither is within the other, it is not defined which one
is used: "GET /a/*/c" and "GET /a/b/**" at "/a/b/c", or "GET /**" and "* /a" at "GET /a". That is a
conflict (the rule of Go's ServeMux since 1.22), which `conflicts` finds and a policy must not have.

Without conflicts the patterns that match one request form a chain, each within the next. The
innermost one has a literal wherever the others have one, and the longest path before a rest. So a
search of a trie finds it first if it tries at each node the literal child, then "*", then the rest
that begins there, and backtracks where no route has the method. The search visits no route that
differs in a literal, however many there are. With backtracking it may still visit many nodes, each
at most once; `most_steps` is the maximum.

Letter case. Many servers ignore it in paths: Express and IIS do by default. One path of such a
server must not have two rules, so literals match in any case. A route with `case_sensitive` matches
its own spelling only, because its upstream distinguishes other spellings:

- Two case-sensitive routes are compared as they are spelled. Any other two are compared without
  letter case: "/a" and a case-sensitive "/A" conflict, as a server that ignores case would treat a
  request of the first as one of the second.
- A request that differs from a case-sensitive route in case only takes the next route that matches
  it, if that one is case-sensitive as well. Otherwise the upstream of the next route may ignore
  case, and the request is refused: it would bypass the rules of the more specific route.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final, NamedTuple

from gateway.domain.route import Route
from gateway.errors import AMBIGUOUS_PATH, Refusal

#: The gateway's liveness: /health, and OPTIONS *.
PING: Final = Route("gateway:ping", "GET", ("health",), False, "", auth="none", cost=0)
#: Shows a key its own record and limits. Requests to it have their own limit: see `routing`.
VERIFY: Final = Route("gateway:verify", "GET", ("v1", "auth", "verify"), False, "", cost=0)
#: Paths that the gateway answers itself, for any method: other routes of these paths are never
#: reached. With `plan_limits` the response reports the plan's limit.
OWN_ROUTES: Final = {
    ("health",): PING,
    ("v1", "health"): Route("gateway:health", "GET", ("v1", "health"), False, "", cost=0),
    ("v1", "auth", "verify"): VERIFY,
}


#: No route of a policy has a colon in its name.
_OWN_NAMES: Final = frozenset(route.name for route in OWN_ROUTES.values())


def fold(segment: str) -> str:
    """A segment without its letter case: equal for all spellings that any server treats as one.

    Two letters more than Unicode's folding: Java treats the dotted capital and the dotless small I
    as an i, in any locale.
    """
    if segment.isascii():
        return segment.lower()
    return segment.replace("\u0130", "i").replace("\u0131", "i").casefold()


def is_own(route: Route) -> bool:
    """Is this the route of a path that the gateway answers itself?"""
    return route.name in _OWN_NAMES


class Conflict(NamedTuple):
    """Two routes that match a common request, but neither is more specific; and such a request.

    same: they match exactly the same requests. example: "GET /a/b"
    """

    first: Route
    second: Route
    example: str
    same: bool


#: By a request's method: the methods of routes that match, most specific first. Default: (it, "*").
_METHODS: Final = {"HEAD": ("HEAD", "GET", "*")}


class _Node:
    """One node of the trie.

    literals: children by the segment without its letter case; longest: their longest segment
    exact, rest: routes by method that end here, or have a rest from here. Several routes of one
                 method differ in case, and are all case-sensitive
    own:      the gateway's own route that ends here
    """

    __slots__ = ("exact", "literals", "longest", "own", "rest", "star")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.longest = 0
        self.star: _Node | None = None
        self.exact: dict[str, list[Route]] = {}
        self.rest: dict[str, list[Route]] = {}
        self.own: Route | None = None

    def child(self, segment: str) -> _Node:
        """The node of a pattern's next segment, created if it does not exist."""
        if segment == "*":
            self.star = self.star or _Node()
            return self.star
        self.longest = max(self.longest, len(segment))
        return self.literals.setdefault(segment, _Node())


class RouteTable:
    """All routes and the gateway's own, for matching. Immutable.

    Of routes that match the same requests, the first is kept.

    keeps_slashes: at least one route has `keeps_slashes`
    """

    __slots__ = ("_has_case_sensitive", "_root", "keeps_slashes")

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        self._has_case_sensitive = False
        self.keeps_slashes = False
        for own in OWN_ROUTES.values():
            self._node(own).own = own
        for route in routes:
            node = self._node(route)
            known = (node.rest if route.rest else node.exact).setdefault(route.method, [])
            if not any(_is_same(*_compared(route, other)) for other in known):
                known.append(route)
            self._has_case_sensitive |= route.case_sensitive
            self.keeps_slashes |= route.keeps_slashes

    def _node(self, route: Route) -> _Node:
        node = self._root
        for segment in route.segments:
            node = node.child(fold(segment))
        return node

    def match(self, method: str, segments: Sequence[str]) -> Route | Refusal | None:
        """The route of a request; a refusal if a server may treat it as a request of another route.

        segments: those of the path, decoded, without an empty one at the end: ("api", "search"); ()
                  for "/"
        """
        methods = _METHODS.get(method) or (method, "*")
        route = _find(self._root, methods, segments, 0, self._has_case_sensitive)
        if self._has_case_sensitive and route is not None and not route.case_sensitive:
            without_case = _find(self._root, methods, segments, 0, False)
            return route if without_case is route else AMBIGUOUS_PATH
        return route

    def methods_at(self, segments: Sequence[str]) -> tuple[str, ...]:
        """The methods that have a route at this path, sorted, for an Allow header.

        Empty if no route has the path, or if one has it for any method.
        """
        methods: set[str] = set()
        _gather(self._root, segments, 0, methods)
        if "*" in methods:
            return ()
        if "GET" in methods:
            methods.add("HEAD")
        return tuple(sorted(methods))

    def most_steps(self) -> int:
        """The most nodes that the search for one request visits."""
        return _most_steps(self._root)


def _find(
    node: _Node, methods: Sequence[str], segments: Sequence[str], at: int, match_case: bool
) -> Route | None:
    """The first route below this node that matches, the most specific path first.

    match_case: case-sensitive routes match their own spelling only
    """
    found = None
    if at == len(segments):
        found = node.own or _fitting(node.exact, methods, segments, match_case)
    else:
        literal = _literal(node, segments[at])
        if literal is not None:
            found = _find(literal, methods, segments, at + 1, match_case)
        if found is None and node.star is not None:
            found = _find(node.star, methods, segments, at + 1, match_case)
    if found is None and node.rest:
        found = _fitting(node.rest, methods, segments, match_case)
    return found


def _literal(node: _Node, segment: str) -> _Node | None:
    """The child of a segment, in any letter case."""
    # Folding never shortens a segment, so a very long one has no child and need not be folded.
    if len(segment) > node.longest:
        return None
    return node.literals.get(segment) or node.literals.get(fold(segment))


def _fitting(
    routes: Mapping[str, Sequence[Route]],
    methods: Sequence[str],
    segments: Sequence[str],
    match_case: bool,
) -> Route | None:
    for method in methods:
        for route in routes.get(method, ()):
            if not match_case or _is_spelled(route, segments):
                return route
    return None


def _is_spelled(route: Route, segments: Sequence[str]) -> bool:
    """Does a path that matches without letter case also match in the case that the route needs?"""
    return not route.case_sensitive or all(
        wanted in ("*", segment) for wanted, segment in zip(route.segments, segments, strict=False)
    )


def _gather(node: _Node, segments: Sequence[str], at: int, methods: set[str]) -> None:
    """Add the methods of all routes below this node whose path matches."""
    ends = at == len(segments)
    for routes in (node.rest, node.exact) if ends else (node.rest,):
        for method, of_method in routes.items():
            if any(_is_spelled(route, segments) for route in of_method):
                methods.add(method)
    if not ends:
        for child in (_literal(node, segments[at]), node.star):
            if child is not None:
                _gather(child, segments, at + 1, methods)


def _most_steps(node: _Node) -> int:
    literals = max(map(_most_steps, node.literals.values()), default=0)
    return 1 + literals + (_most_steps(node.star) if node.star else 0)


def conflicts(routes: Sequence[Route]) -> Iterator[Conflict]:
    """All pairs of routes that conflict, in the order of the routes.

    An iterator, since any pair of many routes may conflict.
    """
    trie = _Pairs()
    for index, route in enumerate(routes):
        for other in sorted(trie.sharing(route)):
            conflict = _conflict(routes[other], route)
            if conflict is not None:
                yield conflict
        trie.add(index, route)


def unreachable(routes: Sequence[Route]) -> list[Route]:
    """Routes that no request takes: at the gateway's own paths, or covered by other routes.

    Several routes together can cover a pattern only if it ends in a rest: "/a/**" by "/a" and
    "/a/*/**". Otherwise a request whose words are in no route takes it, if any request does.
    Routes that match the same requests count as one here: see `conflicts`.
    """
    table = RouteTable(routes)
    deepest = max((len(route.segments) for route in routes), default=0)
    return [route for route in routes if not _is_reachable(route, table, deepest)]


def _is_reachable(route: Route, table: RouteTable, deepest: int) -> bool:
    # No route has these: a word with a slash is no segment, and a method with a space no token.
    method = " " if route.method == "*" else route.method
    words = tuple("/" if segment == "*" else segment for segment in route.segments)
    # Longer paths than the deepest pattern give the same result.
    more = range(deepest - len(words) + 2) if route.rest else range(1)
    requests = ((*words, *("/" for _ in range(count))) for count in more)
    met = (table.match(method, request) for request in requests)
    return any(
        isinstance(other, Route) and not is_own(other) and _is_same(*_compared(other, route))
        for other in met
    )


def _is_same(first: Route, second: Route) -> bool:
    return (first.method, first.segments, first.rest) == (
        second.method,
        second.segments,
        second.rest,
    )


def _compared(first: Route, second: Route) -> tuple[Route, Route]:
    """Two routes in the form to compare: by their spelling if both are case-sensitive."""
    if first.case_sensitive and second.case_sensitive:
        return first, second
    return _folded(first), _folded(second)


def _folded(route: Route) -> Route:
    segments = tuple(map(fold, route.segments))
    # Most patterns are in lower case, and creating a route takes 3 us.
    return route if segments == route.segments else replace(route, segments=segments)


def covers(route: Route, other: Route) -> bool:
    """May a request of a route be forwarded, if a server could treat it as one of the other route?

    True if both are the same, or if the other matches all requests of this one and requires no
    access that this one does not require. The request can then only bypass the other's limits.
    """
    if route is other:
        return True
    if other.case_sensitive and not route.case_sensitive:
        return False  # in another letter case it might be a request of a third route
    asks_no_more = other.auth == "none" or (
        route.auth == "key"
        and set(other.scopes) <= set(route.scopes)
        and other.permission in (None, route.permission)
        and other.service in (None, route.service)
    )
    return asks_no_more and _lies_within(*_compared(route, other))


def _conflict(first: Route, second: Route) -> Conflict | None:
    """The conflict of two routes that match a common path if letter case is ignored."""
    method = _shared_method(first.method, second.method)
    if method is None:
        return None
    one, other = _compared(first, second)
    if not _share_a_path(one, other):
        return None
    same = _is_same(one, other)
    if not same and (_lies_within(one, other) or _lies_within(other, one)):
        return None
    # With "*" in both, any method is an example.
    example = f"{'GET' if method == '*' else method} {_shared_path(first, second)}"
    return Conflict(first, second, example, same)


def _share_a_path(first: Route, second: Route) -> bool:
    """Do both match a common path? They do if letter case is ignored."""
    return all(
        one == other or "*" in (one, other)
        for one, other in zip(first.segments, second.segments, strict=False)
    )


def _shared_method(first: str, second: str) -> str | None:
    """The narrower of two methods; None if no request matches both."""
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
    # If inner is longer, its further segments are in outer's rest.
    pairs = zip(inner.segments, outer.segments, strict=False)
    return all(theirs in (ours, "*") for ours, theirs in pairs)


def _shared_path(first: Route, second: Route) -> str:
    """A path that both match, given that there is one; "x" where both match any word."""
    # If the spellings differ, both match that of the case-sensitive route.
    if second.case_sensitive:
        first, second = second, first
    words = []
    for one, other in zip_longest(first.segments, second.segments, fillvalue="*"):
        words.append(next((word for word in (one, other) if word != "*"), "x"))
    return "/" + "/".join(words)


class _Pairs:
    """A trie that finds the routes that match a common path with a given route, ignoring case.

    Routes are indexes into a list. Comparing a thousand routes with each other would take half a
    million comparisons.
    """

    __slots__ = ("children", "exact", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Pairs] = {}
        self.exact: list[int] = []
        self.rest: list[int] = []

    def add(self, index: int, route: Route) -> None:
        node = self
        for segment in route.segments:
            node = node.children.setdefault(fold(segment), _Pairs())
        (node.rest if route.rest else node.exact).append(index)

    def sharing(self, route: Route, at: int = 0) -> Iterator[int]:
        """The indexes of the routes below this node that match a common path with this route."""
        yield from self.rest
        if at == len(route.segments):
            if route.rest:
                yield from self._below()
            else:
                yield from self.exact
            return
        segment = fold(route.segments[at])
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
