"""The route of a request: the most specific pattern that matches, in any order of the routes.

A pattern is a set of requests. Of two patterns that match one request, the one that is a subset of
the other is more specific, and is used:

- a literal segment is within "*", and both are within "**", which is any number of segments, or
  none, and at the end of a pattern is called a rest: "/mcp/**" matches "/mcp" and is less specific
  than "/mcp" and "/mcp/*/x";
- a set of methods is within a larger one and within "*", and HEAD is within GET, as it requests the
  same response without the body.

If two patterns match a common request, but neither is within the other, nor is a third one that
matches it within both, it is not defined which one is used: "GET /a/*/c" and "GET /a/b/**" at
"/a/b/c", or "GET /**" and "* /a" at "GET /a". That is a conflict, which `domain/conflicts.py` finds
and a policy must not have. (Go's ServeMux since 1.22 has this rule, without third patterns.)

Without conflicts, of all patterns that match one request one is within all others. If they have no
"**" before their end, it has a literal wherever another one has a literal, and the longest path
before a rest. So a search of a trie finds it first if it tries at each node the literal child, then
"*", then the rest that begins there, and backtracks where no route has the method. The search
visits no route that differs in a literal, however many there are. With backtracking it may still
visit many nodes, each at most once; `most_steps` is the maximum.

Patterns with a gap, a "**" before their end, are not in the trie: trying each length for a gap
would multiply the steps. A `Matcher` finds all of them that match, in one step for each segment. Of
its first one and the trie's the more specific one is used, by `specificity`. A policy without gaps,
or a method without routes that have gaps, skips this.

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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gateway.domain import path_patterns
from gateway.domain.path_patterns import ANY, ONE, Matcher
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


#: Preflights of routes with `cors`, whatever their path: see `proxy.cross_origin`.
CORS_PREFLIGHT: Final = Route("gateway:preflight", "OPTIONS", (), True, "", auth="none", cost=0)

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


def _folded_all(segments: Sequence[str]) -> list[str]:
    """The segments without their letter case, faster than one by one."""
    # No path has control characters.
    return fold("\0".join(segments)).split("\0") if segments else []


def is_own(route: Route) -> bool:
    """Is this the route of a path that the gateway answers itself?"""
    return route.name in _OWN_NAMES


class _Node:
    """One node of the trie.

    literals: children by the segment without its letter case; longest: their longest segment
    exact, rest: routes by method that end here, or have a rest from here. Of several routes of one
                 method the most specific is the first; some may differ in case, and are all
                 case-sensitive
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
        node = self.literals.get(segment)
        if node is None:
            node = self.literals[segment] = _Node()
            self.longest = max(self.longest, len(segment))
        return node


class RouteTable:
    """All routes and the gateway's own, for matching. Immutable.

    Of routes that match the same requests, the first is kept.

    fallback:      the table for requests that no route of this one matches
    keeps_slashes: at least one route, also of the fallback, has `keeps_slashes`
    """

    __slots__ = ("_fallback", "_gapped", "_has_case_sensitive", "_root", "keeps_slashes")

    def __init__(self, routes: Iterable[Route], fallback: RouteTable | None = None) -> None:
        self._root = _Node()
        self._fallback = fallback
        self._has_case_sensitive: bool = fallback is not None and fallback._has_case_sensitive
        self.keeps_slashes: bool = fallback is not None and fallback.keeps_slashes
        for own in OWN_ROUTES.values():
            self._node(own).own = own
        gapped = []
        for route in sorted(routes, key=specificity):
            if ANY in route.segments:
                gapped.append(route)
            else:
                self._add(route)
            self._has_case_sensitive |= route.case_sensitive
            self.keeps_slashes |= route.keeps_slashes
        self._gapped = _GappedRoutes(gapped) if gapped else None

    def _add(self, route: Route) -> None:
        node = self._node(route)
        for method in route.methods:
            known = (node.rest if route.rest else node.exact).setdefault(method, [])
            if not any(is_same(*compared(route, other)) for other in known):
                known.append(route)

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
        route = self._found(method, segments, self._has_case_sensitive)
        if self._has_case_sensitive and route is not None and not route.case_sensitive:
            without_case = self._found(method, segments, False)
            return route if without_case is route else AMBIGUOUS_PATH
        return route

    def _found(self, method: str, segments: Sequence[str], match_case: bool) -> Route | None:
        """The most specific route that matches. match_case: as for `_find`"""
        route = _find(self._root, (method, "*"), segments, 0, match_case)
        if self._gapped is not None:
            route = self._gapped.more_specific(route, method, segments, match_case)
        if route is None and self._fallback is not None:
            return self._fallback._found(method, segments, match_case)
        return route

    def methods_at(self, segments: Sequence[str]) -> tuple[str, ...]:
        """The methods that have a route at this path, sorted, for an Allow header.

        Empty if no route has the path, or if one has it for any method.
        """
        methods = self._methods_at(segments)
        return () if "*" in methods else tuple(sorted(methods))

    def _methods_at(self, segments: Sequence[str]) -> set[str]:
        methods: set[str] = set()
        _gather(self._root, segments, 0, methods)
        if self._gapped is not None:
            methods |= self._gapped.methods_at(segments)
        if self._fallback is not None:
            methods |= self._fallback._methods_at(segments)
        return methods

    def most_steps(self) -> int:
        """The most nodes that the search for one request visits, those of the fallback included."""
        return _most_steps(self._root) + (self._fallback.most_steps() if self._fallback else 0)

    @property
    def gapped_segments(self) -> int:
        """The segments of all patterns with a "**" in the middle, with those of the fallback."""
        own = self._gapped.segments if self._gapped is not None else 0
        return own + (self._fallback.gapped_segments if self._fallback else 0)


class _GappedRoutes:
    """The routes with a "**" in the middle, for matching: all at once, in one pass of the path.

    If all have one "**" only, the pass is of the first and last segments of a path, as many as any
    of them has there.

    routes: the most specific first. segments: the number of all segments of their patterns
    """

    __slots__ = ("_ends", "_matcher", "_of_any", "_of_method", "_routes", "_spelled", "segments")

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes
        paths = [tuple(map(fold, route.path)) for route in routes]
        self.segments = sum(map(len, paths))
        self._ends: tuple[int, int] | None = None
        if all(path.count(ANY) == 1 for path in paths):
            head = max(path.index(ANY) for path in paths)
            self._ends = head, max(len(path) - path.index(ANY) - 1 for path in paths)
        self._matcher = Matcher(paths)
        self._spelled = [Matcher((one.path,)) if one.case_sensitive else None for one in routes]
        #: By method: the starts of its routes, with those of routes for any method.
        self._of_method: dict[str, int] = {}
        for route, start in zip(routes, self._matcher.starts, strict=True):
            for method in route.methods:
                self._of_method[method] = self._of_method.get(method, 0) | start
        self._of_any = self._of_method.pop("*", 0)
        for method in self._of_method:
            self._of_method[method] |= self._of_any

    def more_specific(
        self, found: Route | None, method: str, segments: Sequence[str], match_case: bool
    ) -> Route | None:
        """The route of a request, of these and of the one that was found among all others."""
        starts = self._of_method.get(method, self._of_any)
        if starts:
            segments = self._shortened(segments)
            for index in self._matcher.matching(_folded_all(segments), starts):
                if not match_case or self._is_spelled(index, segments):
                    route = self._routes[index]
                    return route if found is None else min(found, route, key=specificity)
        return found

    def methods_at(self, segments: Sequence[str]) -> set[str]:
        """The methods of the routes whose path matches."""
        segments = self._shortened(segments)
        return {
            method
            for index in self._matcher.matching(_folded_all(segments))
            if self._is_spelled(index, segments)
            for method in self._routes[index].methods
        }

    def _shortened(self, segments: Sequence[str]) -> Sequence[str]:
        """The segments that the routes look at."""
        if self._ends is None or len(segments) <= sum(self._ends):
            return segments
        head, tail = self._ends
        return (*segments[:head], *segments[len(segments) - tail :])

    def _is_spelled(self, index: int, segments: Sequence[str]) -> bool:
        """Does a path that matches without letter case also match in the case that it needs?"""
        matcher = self._spelled[index]
        return matcher is None or bool(matcher.matching(segments))


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


def specificity(route: Route) -> tuple[int, ...]:
    """A value that is smaller for a route than for all others that it lies within.

    A pattern within another one has at least as many literals and segments. If it has no more of
    either, it has fewer "**", or else it is for fewer methods.
    """
    wild = sum(segment in (ONE, ANY) for segment in route.segments)
    gaps = route.segments.count(ANY)
    return (
        wild - len(route.segments),
        gaps - len(route.segments),
        gaps + route.rest,
        route.method == "*",
        len(route.methods),
    )


def is_same(first: Route, second: Route) -> bool:
    """Do both match the same requests? They are given in the form to compare."""
    return first.path == second.path and first.methods == second.methods


def compared(first: Route, second: Route) -> tuple[Route, Route]:
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
    return asks_no_more and lies_within(*compared(route, other))


def lies_within(inner: Route, outer: Route) -> bool:
    """Does outer match every request that inner matches? They are given in the form to compare."""
    if not ("*" in outer.methods or inner.methods <= outer.methods):
        return False
    return path_patterns.lies_within(inner.path, outer.path)
