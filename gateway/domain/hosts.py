"""The hosts that routes serve, and the table of routes for the Host of a request.

A route serves the hosts that it names, or all hosts if it names none. A host is written as an exact
name, or as "*.example.com": all names below example.com, at any depth, and not example.com itself.
The routes of a request are looked for in this order, and the first table with one that matches its
method and path decides:

1. the routes that name its host;
2. those with the wildcard that has the most labels, then the next one;
3. those without hosts.

Within a table the most specific pattern is used: see `routes`. So a route conflicts only with
others that have an entry of `hosts` in common with it.

There is a table for each distinct set of routes, as the policy has them: clients cannot add to
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gateway.domain.route import Route
from gateway.domain.routes import RouteTable

_WILDCARD: Final = "*."


def host_name(host: bytes) -> bytes:
    """The name in a Host header, as tables have it: in lower case, without port and final dot.

    b"" for what no route can name: no Host, an IPv6 address, a name with an empty label.
    """
    name = host.lower().partition(b":")[0]
    if b".." in name or name.startswith((b".", b"[")):
        return b""
    return name.removesuffix(b".")


def serves(route: Route, host: str) -> bool:
    """Does a route serve this host? host: its name in lower case; "": one that no route names"""
    return not route.hosts or any(
        host.endswith(entry[1:]) if entry.startswith(_WILDCARD) else host == entry
        for entry in route.hosts
    )


def host_groups(routes: Sequence[Route]) -> Iterator[Sequence[Route]]:
    """The routes that have an entry of `hosts` in common; first, those without hosts.

    Groups of the same routes are returned once.
    """
    by_host: dict[str, list[Route]] = {"": []}
    for route in routes:
        for host in route.hosts or ("",):
            by_host.setdefault(host, []).append(route)
    seen = set[tuple[int, ...]]()
    for group in by_host.values():
        members = tuple(map(id, group))
        if members not in seen:
            seen.add(members)
            yield group


class HostTables:
    """The tables of routes by host. Immutable.

    default: the routes without hosts, for all hosts that no route names
    keeps_slashes: at least one route of any host has `keeps_slashes`
    """

    __slots__ = ("_by_name", "_most_labels", "_shared", "_wildcards", "default", "keeps_slashes")

    def __init__(self, routes: Iterable[Route]) -> None:
        by_host: dict[str, list[Route]] = {}
        default: list[Route] = []
        for route in routes:
            for host in route.hosts:
                by_host.setdefault(host, []).append(route)
            if not route.hosts:
                default.append(route)
        self.default = RouteTable(default)
        self._by_name: dict[bytes, RouteTable] = {}
        self._wildcards: dict[bytes, RouteTable] = {}
        self._most_labels = 0
        self._shared: dict[tuple[int, ...], RouteTable] = {}
        wildcards = [host for host in by_host if host.startswith(_WILDCARD)]
        # A wildcard falls back to those with fewer labels, which therefore come first.
        for host in sorted(wildcards, key=lambda each: each.count(".")):
            name = host.removeprefix(_WILDCARD).encode("ascii")
            table = self._table(by_host[host], self._wider(name))
            self._wildcards[name] = table
            self._most_labels = max(self._most_labels, host.count("."))
        for host in by_host.keys() - set(wildcards):
            name = host.encode("ascii")
            self._by_name[name] = self._table(by_host[host], self._wider(name))
        self.keeps_slashes = any(table.keeps_slashes for table in self.tables())

    def _table(self, routes: Sequence[Route], fallback: RouteTable) -> RouteTable:
        """The one table of these routes before a fallback."""
        key = (id(fallback), *map(id, routes))
        if key not in self._shared:
            self._shared[key] = RouteTable(routes, fallback)
        return self._shared[key]

    def table(self, host: bytes) -> RouteTable:
        """The table for a Host header; b"": there is none."""
        name = host_name(host)
        found = self._by_name.get(name)
        if found is not None:
            return found
        return self._wider(name) if self._wildcards else self.default

    def of(self, host: str) -> RouteTable:
        """The table of an entry of `hosts`; "": of hosts that no route names."""
        if not host:
            return self.default
        if host.startswith(_WILDCARD):
            return self._wildcards[host.removeprefix(_WILDCARD).encode("ascii")]
        return self._by_name[host.encode("ascii")]

    def tables(self) -> Iterator[RouteTable]:
        """All tables, each once."""
        yield self.default
        yield from self._shared.values()

    def _wider(self, name: bytes) -> RouteTable:
        """The table of the longest wildcard that a name matches."""
        # A name has up to 128 labels: only so many are tried as wildcards have.
        labels = name.split(b".")
        for at in range(max(len(labels) - self._most_labels, 1), len(labels)):
            found = self._wildcards.get(b".".join(labels[at:]))
            if found is not None:
                return found
        return self.default
