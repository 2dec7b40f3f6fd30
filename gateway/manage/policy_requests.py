"""Which requests another policy treats differently: each pair of routes that has a common request.

A request can only be affected if its route has changed, before or after. So requests are made from
the patterns of all routes that differ; and from those pairs of an old and a new pattern that have a
common request although neither is within the other.

Where routes name hosts, this is done for a host that none names, and for each host with a changed
route of its own. There, requests of all routes are made: a route without hosts may be hidden by the
changed one, although its pattern is more specific.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from gateway.domain.conflicts import overlaps
from gateway.domain.hosts import serves
from gateway.domain.path_patterns import OTHER, samples
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.domain.routes import RouteTable, fold, is_own

#: No service uses this method; it stands for all that no route names.
_OTHER_METHOD: Final = "OTHER"


@dataclass(frozen=True, slots=True)
class Moved:
    """A request whose route was, or is, a changed one.

    request:  an example: "GET /api/search/x"; on a host that a route names "GET a.example/search"
    old, new: its routes; None: it has none, and gets 404 or 405
    """

    request: str
    old: Route | None
    new: Route | None


def moved_requests(old: Policy, new: Policy) -> Iterator[Moved]:
    """Each pair of routes that a request had and has now, once, with an example."""
    changed = [
        [route for route in one.routes.values() if _rules(route) != _rules_of(other, route.name)]
        for one, other in ((old, new), (new, old))
    ]
    if not any(changed):
        return
    every = [*old.routes.values(), *new.routes.values()]
    requests = _Requests(every)
    seen: set[tuple[str | None, str | None]] = set()
    for host in _sample_hosts(old, new):
        here = [
            [route for route in routes if serves(route, host) and bool(route.hosts) == bool(host)]
            for routes in changed
        ]
        if not any(here):
            continue
        of_host = [each for each in every if serves(each, host)] if host else [*here[0], *here[1]]
        tables = [policy.table_at(host.encode("ascii")) for policy in (old, new)]
        for request in (
            *(request for route in of_host for request in requests.of(route)),
            *_shared(here[0], new, host),
            *_shared(here[1], old, host),
        ):
            before, after = (_match(table, request) for table in tables)
            names = None if before is None else before.name, None if after is None else after.name
            if names not in seen and not _is_unchanged(before, after):
                seen.add(names)
                if any(names) and not any(route and is_own(route) for route in (before, after)):
                    yield Moved(request.replace(" ", f" {host}", 1), before, after)


def _is_unchanged(before: Route | None, after: Route | None) -> bool:
    if before is None or after is None:
        return before is after
    return before.name == after.name and _rules(before) == _rules(after)


def _sample_hosts(old: Policy, new: Policy) -> list[str]:
    """A host for each pair of tables that requests have before and after; "": no route names it."""
    named = dict.fromkeys(
        host for policy in (old, new) for route in policy.routes.values() for host in route.hosts
    )
    other = next(word for word in map(_word, count()) if not any(word in host for host in named))
    samples = ["", *(host.replace("*", other) for host in named)]
    tables = {
        tuple(policy.table_at(host.encode("ascii")) for policy in (old, new)): host
        for host in reversed(samples)
    }
    return list(reversed(tables.values()))


def renamed_routes(old: Policy, new: Policy) -> Mapping[str, str]:
    """The old name of each route that has another name now.

    It says so (`was`), or matches the same requests.
    """
    gone = {_pattern(route): name for name, route in old.routes.items() if name not in new.routes}
    renamed: dict[str, str] = {}
    for name, route in new.routes.items():
        if name not in old.routes:
            earlier = next((was for was in reversed(route.was) if was in old.routes), None)
            earlier = earlier or gone.get(_pattern(route))
            if earlier is not None:
                renamed[name] = earlier
    return renamed


def _pattern(route: Route) -> tuple[object, ...]:
    return route.pattern, route.case_sensitive, frozenset(route.hosts)


def _rules(route: Route) -> tuple[object, ...]:
    """What decides which requests are a route's, and what they need."""
    return *_pattern(route), route.auth, frozenset(route.scopes), route.permission, route.service


def _rules_of(policy: Policy, name: str) -> tuple[object, ...] | None:
    route = policy.routes.get(name)
    return None if route is None else _rules(route)


def _shared(routes: Sequence[Route], other: Policy, host: str) -> Iterator[str]:
    """A request of each pair of these routes and one of the other policy, neither in the other."""
    if routes:
        others = [route for route in other.routes.values() if serves(route, host)]
        yield from overlaps([*routes, *others])


def _match(table: RouteTable, request: str) -> Route | None:
    method, _, path = request.partition(" ")
    words = path.strip("/").split("/") if path.strip("/") else []
    found = table.match(method, words)
    return found if isinstance(found, Route) else None


class _Requests:
    """Makes requests from patterns, with words and methods that no pattern of these routes has."""

    def __init__(self, routes: Sequence[Route]) -> None:
        patterns = [route.pattern.partition(" ") for route in routes]
        known = {fold(word) for _, _, path in patterns for word in path.split("/")}
        self._word = next(word for word in map(_word, count()) if word not in known)
        named = {method for methods, _, _ in patterns for method in methods.split(",")} - {"*"}
        self._methods = (*sorted(named), _OTHER_METHOD)
        self._longest = max((len(route.path) for route in routes), default=0)

    def of(self, route: Route) -> Iterator[str]:
        """Requests of a route, one at least of each kind that another pattern may distinguish."""
        methods = self._methods if route.method == "*" else route.method.split(",")
        for path in samples(route.path, self._longest + 1):
            words = "/".join(self._word if word == OTHER else word for word in path)
            for method in methods:
                yield f"{method} /{words}"


def _word(number: int) -> str:
    return f"x{number or ''}"
