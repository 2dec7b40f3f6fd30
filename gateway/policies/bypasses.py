"""Warnings of requests that get around a route's access rules: what a wider route would admit.

A route guards the requests that its pattern matches, and servers serve more: other methods of a
path, what is below it, the same resource with another prefix, another transport of an MCP server.
What no route is written for falls to a wider one, such as `* /**`. Requests are not reported if
they have a route of their own, also one that needs nothing, or if no server of the guarded route
gets them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from gateway.domain.path_patterns import ANY, ONE, OTHER
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.domain.routes import RouteTable, is_own
from gateway.domain.upstreams import Server
from gateway.policies.faults import Fault, quoted
from gateway.policies.routes import RouteEntry

#: Methods that change something.
_WRITING: Final = ("POST", "PUT", "PATCH", "DELETE")
_METHODS: Final = ("GET", "HEAD", "OPTIONS", *_WRITING)
#: A segment that names a version of an API. Services that have two prefixes have it in both.
_VERSION: Final = re.compile(r"v[0-9]{1,4}", re.IGNORECASE | re.ASCII)
#: The most other routes that the warning of an MCP server names.
_MOST_NAMED: Final = 5

Segments = tuple[str, ...]


def unguarded_methods(routes: Sequence[RouteEntry], policy: Policy) -> Iterator[Fault]:
    """Access rules for one method, while a wider route admits writes to the same path without any.

    `GET /v1/connectors` needs a scope, and `DELETE /v1/connectors` is a request of `* /**`.
    """
    for entry, route in _guarded(routes):
        path = _sample(route)
        unguarded: dict[str, list[str]] = defaultdict(list)
        for table in policy.tables_of(route):
            matched = {method: table.match(method, path) for method in _METHODS}
            if not any(_is(other, route) for other in matched.values()):
                continue
            for method in _WRITING:
                other = matched[method]
                if (
                    isinstance(other, Route)
                    and _is_wider(other, route)
                    and _asks_less(other, route)
                ):
                    unguarded[other.name].append(method)
        for name, methods in unguarded.items():
            yield _unguarded(
                entry, policy.routes[name], methods, "of this path",
                f"a route for these methods too, such as {quoted(f'* {_path_of(route)}')}",
            )  # fmt: skip


def unguarded_paths(routes: Sequence[RouteEntry], policy: Policy) -> Iterator[Fault]:
    """Access rules of a path, while what is below it, or has its other prefix, needs none.

    `GET /v1/connectors` needs a scope, and `GET /v1/connectors/con_1` and `GET /api/v1/connectors`
    are requests of `* /**`.
    """
    prefixes = _prefixes(routes)
    for entry, route in _guarded(routes):
        path = _sample(route)
        if not route.rest:
            wider = f"{route.method} {_path_of(route)}/**"
            yield from _unguarded_path(
                entry, route, policy, (*path, OTHER), "of what is below this path",
                f"a pattern such as {quoted(wider)}, or a route for what is below it",
            )  # fmt: skip
        for sibling, text in _siblings(route, prefixes):
            wider = f"{route.method} {text}"
            yield from _unguarded_path(
                entry, route, policy, sibling, f"of {quoted(text)}",
                f"a route for this prefix too, such as {quoted(wider)}",
            )  # fmt: skip


def _unguarded_path(
    entry: RouteEntry, route: Route, policy: Policy, path: Segments, of: str, expected: str
) -> Iterator[Fault]:
    """The warnings of another path that a server of a route may serve as it serves the route's."""
    unguarded: dict[str, dict[str, None]] = defaultdict(dict)
    for table in policy.tables_of(route):
        for method in _own_methods(route, table):
            other = table.match(method, path)
            if (
                isinstance(other, Route)
                and not _is_written_for(other, path)
                and _asks_less(other, route)
                and _reaches(other, route, policy)
            ):
                unguarded[other.name][method] = None
    for name, methods in unguarded.items():
        yield _unguarded(entry, policy.routes[name], methods, of, expected)


def passed_mcp(routes: Sequence[RouteEntry], policy: Policy) -> Iterator[Fault]:
    """Routes without `mcp` that reach a server of a route with it: they call any of its tools.

    Messages are sent by POST, so other routes are left out.
    """
    plain = [route for route in policy.routes.values() if route.mcp is None and _posts(route)]
    for entry in routes:
        route = entry.route
        if route is None or route.mcp is None:
            continue
        past = [one.name for one in plain if _reaches(one, route, policy)]
        if past:
            names = ", ".join(f"routes.{name}" for name in past[:_MOST_NAMED])
            if len(past) > _MOST_NAMED:
                names += f" and {len(past) - _MOST_NAMED} more"
            yield entry.given["upstream"].warning(
                f"{quoted(route.upstream)}, whose server {names} can reach without mcp, and so "
                "without the permissions and limits of tools",
                "an upstream of its own, with a server that no other route has",
            )


def _guarded(routes: Iterable[RouteEntry]) -> Iterator[tuple[RouteEntry, Route]]:
    for entry in routes:
        if entry.route is not None and _has_rules(entry.route):
            yield entry, entry.route


def _unguarded(
    entry: RouteEntry, other: Route, methods: Iterable[str], of: str, expected: str
) -> Fault:
    route = entry.route
    assert route is not None
    words = ", ".join(dict.fromkeys(methods))
    return entry.given["match"].warning(
        f"access rules for {quoted(route.pattern)} only: {words} {of} are requests of "
        f"routes.{other.name} ({other.where}), which has none",
        expected,
    )


def _sample(route: Route) -> Segments:
    """A path of a route: a word with a slash is no segment of another one."""
    path = tuple(OTHER if segment == ONE else segment for segment in route.segments)
    return (*path, OTHER) if route.rest else path


def _own_methods(route: Route, table: RouteTable) -> list[str]:
    """The methods for which a route serves its path; those that only ask about it are left out."""
    path = _sample(route)
    return [method for method in ("GET", *_WRITING) if _is(table.match(method, path), route)]


def _has_rules(route: Route) -> bool:
    return bool(route.scopes or route.permission or route.service) or route.access is not None


def _asks_less(other: Route, route: Route) -> bool:
    """Has another route no access rules? One that needs a key asks for more than one without."""
    return not _has_rules(other) and not (route.auth == "none" and other.auth == "key")


def _is(other: object, route: Route) -> bool:
    return isinstance(other, Route) and other.name == route.name


def _is_wider(other: Route, route: Route) -> bool:
    """Is it another pattern of paths? A route of the same paths was written for them."""
    same = (other.segments, other.rest) == (route.segments, route.rest)
    return not same and not is_own(other)


def _is_written_for(other: Route, path: Segments) -> bool:
    """Was a route that matches a path written for it? One that names fewer segments is wider."""
    if is_own(other) or not (other.rest or ANY in other.segments):
        return True
    named = sum(segment not in (ONE, ANY) for segment in other.segments)
    return named >= sum(segment != OTHER for segment in path)


def _prefixes(routes: Iterable[RouteEntry]) -> Mapping[str, set[Segments]]:
    """By the version after them, the prefixes that routes have: {"v1": {(), ("api",)}}."""
    found: dict[str, set[Segments]] = defaultdict(set)
    for entry in routes:
        prefix = _versioned(entry.route.segments) if entry.route is not None else None
        if prefix is not None:
            found[prefix[-1].lower()].add(prefix[:-1])
    return found


def _versioned(segments: Segments) -> Segments | None:
    """The first segments of a path to its version, if it is among the first two: ("api", "v1")."""
    for end in (1, 2):
        if len(segments) >= end and _VERSION.fullmatch(segments[end - 1]):
            return segments[:end]
    return None


def _siblings(
    route: Route, prefixes: Mapping[str, set[Segments]]
) -> Iterator[tuple[Segments, str]]:
    """A route's path with the other prefixes of its version, as a sample and as it is written."""
    own = _versioned(route.segments)
    if own is not None:
        version = own[-1]
        rest = _path_of(route).removeprefix(f"/{'/'.join(own)}")
        for prefix in sorted(prefixes[version.lower()] - {own[:-1]}):
            path = (*prefix, version, *_sample(route)[len(own) :])
            yield path, f"/{'/'.join((*prefix, version))}{rest}"


def _posts(route: Route) -> bool:
    return "*" in route.methods or "POST" in route.methods


def _reaches(route: Route, other: Route, policy: Policy) -> bool:
    """May requests of a route be forwarded to a server of the other, with that one's paths?

    The base path of its server has to include that of the other's.
    """
    names, others = _upstreams(route), _upstreams(other)
    if not names.isdisjoint(others):
        return True
    return any(
        (one.host.lower(), one.port, one.srv) == (two.host.lower(), two.port, two.srv)
        and f"{two.path}/".startswith(f"{one.path}/")
        for one in _servers(names, policy)
        for two in _servers(others, policy)
    )


def _upstreams(route: Route) -> set[str]:
    """The names of the upstreams that a route's requests are forwarded to."""
    canary = {route.canary.upstream} if route.canary else set[str]()
    return {route.upstream, *canary} - {""}


def _servers(upstreams: Iterable[str], policy: Policy) -> list[Server]:
    return [server for name in upstreams for server in policy.upstreams[name].servers]


def _path_of(route: Route) -> str:
    return route.pattern.partition(" ")[2]
