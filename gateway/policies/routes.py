"""`routes`: reads one entry into a Route, with the lines of its parts for later checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final, TypeVar

from gateway.domain.cors import Cors
from gateway.domain.costs import Costing
from gateway.domain.limits import Limit
from gateway.domain.maintenance import Maintenance
from gateway.domain.patterns import NAME, SCOPE
from gateway.domain.route import Auth, Route
from gateway.domain.routes import fold
from gateway.policies import fields
from gateway.policies.access import read_access
from gateway.policies.canary import read_canary
from gateway.policies.cors import read_route_cors
from gateway.policies.costs import read_cost
from gateway.policies.forwarding import check_retries, read_forwarding
from gateway.policies.header_edits import read_request_edits, read_response_edits
from gateway.policies.hosts import read_hosts
from gateway.policies.limits import (
    NAME_EXPECTED,
    check_of,
    read_entries,
    read_short,
    read_was,
    with_earlier_names,
)
from gateway.policies.maintenance import read_maintenance
from gateway.policies.mcp import read_mcp
from gateway.policies.respond import read_respond
from gateway.policies.rewrites import read_rewrite
from gateway.policies.settings import read_permission
from gateway.policies.translation import read_translation
from gateway.policies.values import Fields, Value, setting

T = TypeVar("T")

ROUTE: Final = (
    *("was", "match", "upstream", "case_sensitive", "encoded_slash"),
    *("auth", "scopes", "permission", "service", "cost"),
    *("plan_limits", "rate", "burst", "candidate", "limits", "json_rpc", "canary"),
    *("timeouts", "retries", "body", "access"),
    *("hosts", "strip_prefix", "rewrite", "translate"),
    *("cors", "request_headers", "response_headers", "respond", "maintenance", "mcp"),
    "verify_signature",
)
MATCH_EXPECTED: Final = 'METHOD /path, in quotes: "GET /api/items/{id}"'
PATHS: Final = ("case_sensitive", "encoded_slash")

#: All are decided in one step, which blocks the store. Candidates are included, but for that of
#: the short form.
MOST_LIMITS: Final = 16


@dataclass(frozen=True, slots=True)
class PathRules:
    """How paths are matched, for routes that do not set it: see `Route`."""

    case_sensitive: bool = False
    keeps_slashes: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RouteEntry:
    """A route with its lines.

    route:     as far as it could be read; None if its pattern could not
    given:     its entries by key
    limits_at: its limits as written, in the same order
    canary_at: the name of its canary's upstream as written; None: it has no canary
    """

    name: str
    route: Route | None
    at: Value
    given: Fields
    limits_at: tuple[Value, ...]
    canary_at: Value | None = None


def read_paths(value: Value) -> PathRules | None:
    """`paths`: the defaults for routes that do not set it themselves."""
    given = value.fields(PATHS)
    if given is None:
        return None
    return _path_rules(given, PathRules())


def _path_rules(given: Fields, default: PathRules) -> PathRules:
    return PathRules(
        setting(given, "case_sensitive", Value.flag, default.case_sensitive),
        setting(given, "encoded_slash", _read_encoded_slash, default.keeps_slashes),
    )


def _read_encoded_slash(value: Value) -> bool | None:
    text = value.choice("refuse", "keep")
    return None if text is None else text == "keep"


def read_route(default: PathRules, name: str, at: Value) -> RouteEntry:
    """One entry. Even with a fault, plans may refer to its name."""
    given = at.fields(ROUTE, required=("match",))
    if given is None:
        return RouteEntry(name, None, at, {}, ())
    _check_answer(at, given)
    was = read_was(given, name)
    limits = _read_limits(name, was, given)
    match = _maybe(given, "match", lambda value: value.parsed(fields.read_match, MATCH_EXPECTED))
    upstream = _maybe(given, "upstream", _read_upstream) or ""
    auth: Auth = "none" if _maybe(given, "auth", _read_auth) == "none" else "key"
    scopes = _maybe(given, "scopes", _read_scopes) or ()
    permission = _maybe(given, "permission", read_permission)
    service = _maybe(given, "service", lambda value: value.matching(NAME, NAME_EXPECTED))
    plan_limits = _maybe(given, "plan_limits", Value.flag)
    cost: int | Costing = _maybe(given, "cost", read_cost) or 1
    json_rpc = _maybe(given, "json_rpc", Value.flag)
    paths = _path_rules(given, default)
    canary, canary_at = _maybe(given, "canary", read_canary) or (None, None)
    route = None
    if match is not None:
        route = Route(
            name=name,
            method=match.method,
            segments=match.segments,
            rest=match.rest,
            upstream=upstream,
            auth=auth,
            scopes=scopes,
            permission=permission,
            service=service,
            plan_limits=plan_limits is not False,
            limits=tuple(limit for limit, _ in limits),
            cost=cost if isinstance(cost, int) else cost.least,
            costing=None if isinstance(cost, int) else cost,
            json_rpc="mcp" in map(fold, match.segments) if json_rpc is None else json_rpc,
            case_sensitive=paths.case_sensitive,
            keeps_slashes=paths.keeps_slashes,
            was=was,
            where=f"{PurePath(at.file).name}:{at.line}",
            names=match.names,
        )
        route = _with_handling(replace(route, canary=canary), given)
        if "mcp" in given:
            route = _with_mcp(route, given)
    return RouteEntry(name, route, at, given, tuple(written for _, written in limits), canary_at)


def _with_handling(route: Route, given: Fields) -> Route:
    """The same, with what is done with its requests and answers."""
    forwarding = read_forwarding(given)
    rewrite = read_rewrite(given, route)
    handled = replace(
        route,
        hosts=_maybe(given, "hosts", read_hosts) or (),
        access=_maybe(given, "access", read_access),
        total_s=forwarding.total_s,
        response_s=forwarding.response_s,
        body_bytes=forwarding.body_bytes,
        retries=forwarding.retries,
        rewrite=rewrite,
        translate=_maybe(given, "translate", lambda value: read_translation(value, rewrite)),
        cors=_maybe(given, "cors", read_route_cors),
        request_headers=_maybe(given, "request_headers", read_request_edits),
        response_headers=_maybe(given, "response_headers", read_response_edits),
        respond=_maybe(given, "respond", read_respond),
        maintenance=_maybe(given, "maintenance", read_maintenance),
    )
    check_retries(handled, given)
    return handled


def _with_mcp(route: Route, given: Fields) -> Route:
    mcp = read_mcp(given, route)
    return route if mcp is None else replace(route, mcp=mcp, body_bytes=mcp.body_bytes)


def _check_answer(at: Value, given: Fields) -> None:
    """The route has an upstream, or an answer of the gateway."""
    if "respond" not in given:
        if "upstream" not in given:
            at.add_fault("the key 'upstream'", "a mapping without 'upstream'")
    elif "upstream" in given:
        given["respond"].add_fault("no upstream with it", "an upstream and respond")
    elif "request_headers" in given:
        expected = "no request_headers, as there is no upstream that gets them"
        given["request_headers"].add_fault(expected, "request_headers and respond")


def with_defaults(
    entry: RouteEntry, cors: Cors | None, maintenance: Maintenance | None
) -> RouteEntry:
    """The same with the policy's settings where the route does not have its own."""
    route = entry.route
    if route is None:
        return entry
    if cors is not None and "cors" not in entry.given:
        route = replace(route, cors=cors)
    if maintenance is not None and "maintenance" not in entry.given:
        route = replace(route, maintenance=maintenance)
    return entry if route is entry.route else replace(entry, route=route)


def _read_limits(name: str, was: tuple[str, ...], given: Fields) -> list[tuple[Limit, Value]]:
    """The limit of the short form, then those of the list, each as read and as written."""
    limits: list[tuple[Limit | None, Value]] = []
    if "rate" in given:
        limits.append((with_earlier_names(read_short(given, name), was), given["rate"]))
    else:
        for key in {"burst", "candidate"} & given.keys():
            given[key].add_fault("a rate with it", f"a {key} without a rate")
    if "limits" in given:
        read = read_entries(given["limits"], MOST_LIMITS)
        check_of(read, is_mcp="mcp" in given)
        limits += read
    return [(limit, written) for limit, written in limits if limit is not None]


def _maybe(given: Fields, key: str, read: Callable[[Value], T | None]) -> T | None:
    return read(given[key]) if key in given else None


def _read_upstream(value: Value) -> str | None:
    return value.text("the name of an upstream")


def _read_auth(value: Value) -> str | None:
    return value.choice("key", "none")


def _read_scopes(value: Value) -> tuple[str, ...] | None:
    items = value.items('a list of scopes such as ["connectors:read"]')
    if items is None:
        return None
    read = [item.matching(SCOPE, "a scope such as connectors:read") for item in items]
    return tuple(dict.fromkeys(scope for scope in read if scope is not None))
