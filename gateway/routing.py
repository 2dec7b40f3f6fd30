"""Parses request lines, makes the path canonical, matches the route. Callers cache the result.

Where routes name hosts, a line is matched a second time when the Host is known: see `at_host`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from gateway.domain.answer_rules import AnswerRules, answer_rules
from gateway.domain.header_edits import EditRules, compiled
from gateway.domain.key_format import holds_key
from gateway.domain.limits import Limit
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.domain.routes import PING, VERIFY, RouteTable, covers, is_own
from gateway.errors import (
    AMBIGUOUS_PATH,
    BAD_TARGET,
    KEY_IN_URL,
    MAINTENANCE,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    URL_TOO_LONG,
    Refusal,
)
from gateway.http1.head import RequestLine, is_host, parse_request_line
from gateway.http1.paths import CanonicalPath, canonical

_ABSOLUTE = re.compile(rb"(?i:http(s?))://([^/?#]+)(.*)").fullmatch

#: Of a request that is refused before it has a route.
NO_ROUTE: Final = Route("", "*", (), True, "", auth="none", cost=0)


@dataclass(slots=True)
class Requested:
    """method, minor: of the request line; path: canonical, without the query: "/v1/connectors"
    route:        the matched route; NO_ROUTE if the request is refused
    forward_line: the request line for the upstream, CRLF included
    authority:    of an absolute-form target, in lower case, in each spelling that Host may have;
                  else ()
    refusal:      why it is refused for every client
    allow:        the methods for the Allow header of a 405
    own:          the gateway answers this itself
    target:       the path as it is matched, for `at_host`; None: the host makes no difference
    answers:      how its answers are changed; None: they are not
    edits:        how the upstream's request is changed; None: it is not
    """

    method: str
    minor: int
    path: str
    route: Route = NO_ROUTE
    forward_line: bytes = b""
    authority: tuple[bytes, ...] = ()
    refusal: Refusal | None = None
    allow: tuple[str, ...] = ()
    own: bool = False
    target: CanonicalPath | None = None
    answers: AnswerRules | None = None
    edits: EditRules | None = None


def refused(requested: Requested, refusal: Refusal) -> Requested:
    """The same request of the same route, refused for every client."""
    return Requested(
        requested.method,
        requested.minor,
        requested.path,
        route=requested.route,
        refusal=refusal,
        answers=requested.answers,
    )


def read_request(line: bytes, policy: Policy, host: bytes) -> Requested | Refusal:
    """Match a request line and a Host header to their route; as `read_request_line`.

    host: b"" if it is not known; then the authority of the target, if it has one
    """
    requested = read_request_line(line, policy)
    if isinstance(requested, Refusal):
        return requested
    known = host or b"".join(requested.authority[:1])
    return at_host(requested, policy, policy.table_at(known))


def at_host(requested: Requested, policy: Policy, table: RouteTable) -> Requested:
    """A request as it is routed on the hosts of a table."""
    target = requested.target
    if target is None or table is policy.table:
        return requested
    routed = Requested(
        requested.method,
        requested.minor,
        requested.path,
        authority=requested.authority,
        target=target,
    )
    _find(routed, target, policy, table)
    _set_answers(routed, policy)
    return routed


def read_request_line(line: bytes, policy: Policy) -> Requested | Refusal:
    """Match a request line to its route, on a host that no route names.

    A Refusal: the rest cannot be read as a request.
    """
    requested = _read(line, policy)
    if isinstance(requested, Requested):
        _set_answers(requested, policy)
    return requested


def _set_answers(requested: Requested, policy: Policy) -> None:
    if requested.answers is None:
        requested.answers = answer_rules(requested.route, policy.cors)


def _read(line: bytes, policy: Policy) -> Requested | Refusal:
    parsed = parse_request_line(line)
    if isinstance(parsed, Refusal):
        return parsed
    if len(parsed.target) > policy.bounds.url_bytes:
        return URL_TOO_LONG
    if parsed.method in {"CONNECT", "TRACE"}:
        # Never routed: CONNECT tunnels are not supported, and TRACE would echo our header fields.
        return _refused(parsed, METHOD_NOT_ALLOWED, allow=("GET", "HEAD", "POST", "OPTIONS"))
    if parsed.method == "OPTIONS" and parsed.target == b"*":
        # RFC 9110, 9.3.7: it applies to the server in general, "useful only as a "ping"".
        return Requested("OPTIONS", parsed.minor, "*", route=PING, own=True)
    target = parsed.target
    authority: tuple[bytes, ...] = ()
    if not target.startswith(b"/"):
        target, authority = _absolute(target)
    hosts = policy.hosts
    keeps_slashes = policy.table.keeps_slashes if hosts is None else hosts.keeps_slashes
    found = canonical(target, keeps_slashes=keeps_slashes)
    if isinstance(found, Refusal):
        return _refused(parsed, found)
    if len(found.path) + len(found.query) > policy.bounds.url_bytes:
        # Characters that should have been encoded now are, with three bytes each.
        return _refused(parsed, URL_TOO_LONG)
    if holds_key(found.path) or holds_key(found.query):
        return _refused(parsed, KEY_IN_URL)
    path = found.path.decode("ascii")
    requested = Requested(parsed.method, parsed.minor, path, authority=authority)
    if hosts is not None:
        requested.target = found
    _find(requested, found, policy, policy.table)
    return requested


def _find(requested: Requested, found: CanonicalPath, policy: Policy, table: RouteTable) -> None:
    """Set the route of a request, or why it has none."""
    method = requested.method
    route = find_route(table, method, found)
    if route is None:
        requested.allow = table.methods_at(found.segments)
        requested.refusal = METHOD_NOT_ALLOWED if requested.allow else NOT_FOUND
        if requested.allow:
            # Pages that may use the path with another method may read why this one is refused.
            other = find_route(table, requested.allow[0], found)
            if isinstance(other, Route):
                requested.answers = answer_rules(other, policy.cors)
    elif isinstance(route, Refusal):
        requested.refusal = route
    elif not is_own(route):
        requested.route = route
        if route.request_headers is not None:
            requested.edits = compiled(route.request_headers)
        requested.own = route.respond is not None
        if route.maintenance is not None:
            requested.refusal = MAINTENANCE
        path = found.path if route.rewrite is None else route.rewrite.sent.path(found.path)
        assert path is not None, "the route has matched it"
        requested.forward_line = b"%b %b%b HTTP/1.1\r\n" % (
            method.encode("ascii"),
            path,
            found.query,
        )
    elif method in {"GET", "HEAD"}:
        requested.own = True
        # Compared by name: a policy that another process has read has other route objects.
        is_verify = route.name == VERIFY.name
        requested.route = _verify_route(policy.auth_verify) if is_verify else route
    else:
        requested.refusal, requested.allow = METHOD_NOT_ALLOWED, ("GET", "HEAD")


def find_route(table: RouteTable, method: str, path: CanonicalPath) -> Route | Refusal | None:
    """The route of a path; a refusal if a server could read the path as one of another route."""
    route = table.match(method, path.segments)
    if route is None or isinstance(route, Refusal):
        return route
    if any(table.match(method, reading) is not route for reading in path.readings):
        return AMBIGUOUS_PATH
    if path.slash_readings:
        if not route.keeps_slashes:
            return BAD_TARGET
        others = [table.match(method, reading) for reading in path.slash_readings]
        if not all(isinstance(other, Route) and covers(route, other) for other in others):
            return AMBIGUOUS_PATH
    return route


@lru_cache(maxsize=16)
def _verify_route(limit: Limit) -> Route:
    """The route /v1/auth/verify with its own limit; the same object each time, as grants need."""
    return replace(VERIFY, limits=(limit,), plan_limits=False, cost=1)


def _refused(line: RequestLine, refusal: Refusal, allow: tuple[str, ...] = ()) -> Requested:
    return Requested(line.method, line.minor, "", refusal=refusal, allow=allow)


def _absolute(target: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """Split "http://host/path" (RFC 9112, 3.2.2); other forms give a target that is refused."""
    match = _ABSOLUTE(target)
    if match is None:
        return b"", ()
    tls, authority, rest = match.groups()
    # RFC 9110, 4.2.3: the scheme's default port is equivalent to no port.
    name, port = authority.lower(), b":443" if tls else b":80"
    bare = name.removesuffix(port)
    spellings = (bare, bare + port) if is_host(name) else (name,)
    return (rest if rest.startswith(b"/") else b"/" + rest), spellings
