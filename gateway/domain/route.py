"""A route: one entry of the policy's `routes`. `domain/routes.py` matches requests to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Literal

from gateway.domain.address_lists import AccessList
from gateway.domain.canary import Canary
from gateway.domain.cors import Cors
from gateway.domain.costs import Costing
from gateway.domain.forwarding import Retries
from gateway.domain.header_edits import HeaderEdits
from gateway.domain.limits import Limit
from gateway.domain.maintenance import Maintenance
from gateway.domain.mcp.settings import Mcp
from gateway.domain.path_patterns import ANY, ONE, Pattern
from gateway.domain.rewrites import Rewrite
from gateway.domain.static_answer import StaticAnswer
from gateway.domain.translation import Translation
from gateway.domain.webhooks.signatures import Verification

Auth = Literal["key", "none"]


@dataclass(frozen=True, slots=True)
class Route:
    """One entry of `routes`.

    method:   "GET"; "GET,POST" for several; "*" for any
    segments: the pattern's path, decoded, split at slashes: ("api", "*", "batch"); "*" is one
              segment, "**" any number; in the normal form of `path_patterns`, without a "**" at its
              end
    rest:     the pattern ends in /* or /**: it matches any further segments, or none
    limits:   its own, in the order of the policy file
    cost:     how many units one request counts; with `costing`, if nothing else is known of it
    costing:  how the cost depends on the request; None: it does not
    json_rpc: a 429's body is a JSON-RPC error, as clients of an MCP route expect
    case_sensitive: its upstream distinguishes paths that differ in letter case only
    keeps_slashes: its upstream treats an encoded slash as a part of its segment
    was:      its earlier names, the oldest first
    where:    "routes.yaml:3", for messages
    names:    of segments written as {name}, for messages: ("", "id") for /items/{id}
    total_s:  the longest time from a request's head to the end of its answer; None: any
    response_s, body_bytes: replace its upstream's timeout and the policy's bound; None: they do not
    access:   which addresses may send requests, in addition to the policy's list; None: all
    retries:  when requests are sent again; None: never, but for a connection that was idle before
    hosts:    that it serves, in lower case: "api.example.com", "*.example.com"; (): all
    rewrite:  makes the path that its upstream gets; None: that of the client
    cors:     pages of other origins that may use it, its own or the policy's; None: none
    request_headers:  what is changed in the upstream's requests
    response_headers: what is changed in all answers
    translate: which places in answers become the client's; None: none
    respond:  the answer of the gateway, which then has no upstream (""); None: the upstream's
    maintenance: its requests are refused for now, by its own setting or the policy's
    canary:   which of its requests go to another upstream; None: none
    mcp:      it is in front of an MCP server, whose messages are read; None: it is not
    verification: how the webhooks that it receives are verified; None: they are not
    """

    name: str
    method: str
    segments: tuple[str, ...]
    rest: bool
    upstream: str
    auth: Auth = "key"
    scopes: tuple[str, ...] = ()
    permission: tuple[str, str] | None = None
    service: str | None = None
    plan_limits: bool = True
    limits: tuple[Limit, ...] = ()
    cost: int = 1
    costing: Costing | None = None
    json_rpc: bool = False
    case_sensitive: bool = False
    keeps_slashes: bool = False
    was: tuple[str, ...] = ()
    where: str = ""
    names: tuple[str, ...] = ()
    total_s: float | None = None
    response_s: float | None = None
    body_bytes: int | None = None
    retries: Retries | None = None
    access: AccessList | None = None
    hosts: tuple[str, ...] = ()
    rewrite: Rewrite | None = None
    cors: Cors | None = None
    request_headers: HeaderEdits | None = None
    response_headers: HeaderEdits | None = None
    translate: Translation | None = None
    respond: StaticAnswer | None = None
    maintenance: Maintenance | None = None
    canary: Canary | None = None
    mcp: Mcp | None = None
    verification: Verification | None = None

    @property
    def most_cost(self) -> int:
        """The most units that a request may count."""
        return self.cost if self.costing is None else self.costing.most

    @property
    def every_limit(self) -> tuple[Limit, ...]:
        """Its limits, and those of its tools."""
        return self.limits if self.mcp is None else (*self.limits, *self.mcp.limits)

    @property
    def pattern(self) -> str:
        """As it is written in a policy file: "GET /api/search/**"."""
        return written(self.method, self.path, self.names)

    @property
    def path(self) -> Pattern:
        """The segments, and "**" for a rest."""
        return (*self.segments, ANY) if self.rest else self.segments

    @property
    def methods(self) -> frozenset[str]:
        """The methods that it matches; {"*"} for any."""
        return _methods(self.method)


@lru_cache(maxsize=1024)
def _methods(method: str) -> frozenset[str]:
    methods = frozenset(method.split(","))
    # HEAD requests the same response as GET, without the body (RFC 9110, 9.3.2).
    return methods | {"HEAD"} if "GET" in methods else methods


def written(method: str, path: Pattern, names: tuple[str, ...] = ()) -> str:
    """A pattern as a policy file may have it: "GET /api/**/batch".

    names: of segments that are written as {name}
    """
    words = [f"{{{name}}}" if name else word for word, name in zip_longest(path, names)]
    if words[-1:] == [ONE]:
        words[-1] = "{any}"  # a final * would match all that follows
    return f"{method} /{'/'.join(words)}"
