"""`routes`: reads one entry into a Route, with the lines of its parts for later checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, TypeVar

from gateway.domain.limits import MAX_AMOUNT, Limit
from gateway.domain.patterns import NAME, SCOPE
from gateway.domain.route import Auth, Route
from gateway.domain.routes import fold
from gateway.policies import fields
from gateway.policies.fields import PERMISSION
from gateway.policies.limits import NAME_EXPECTED, read_entry, read_rate_and_burst
from gateway.policies.values import Fields, Value, setting

T = TypeVar("T")

ROUTE: Final = (
    *("match", "upstream", "case_sensitive", "encoded_slash"),
    *("auth", "scopes", "permission", "service", "cost"),
    *("plan_limits", "rate", "burst", "limits", "json_rpc"),
)
PATHS: Final = ("case_sensitive", "encoded_slash")

#: All are decided in one step, which blocks the store.
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
    """

    name: str
    route: Route | None
    at: Value
    given: Fields
    limits_at: tuple[Value, ...]


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
    given = at.fields(ROUTE, required=("match", "upstream"))
    if given is None:
        return RouteEntry(name, None, at, {}, ())
    limits = _read_limits(name, at, given)
    match = _maybe(given, "match", lambda value: value.parsed(fields.read_match))
    upstream = _maybe(given, "upstream", _read_upstream) or ""
    auth: Auth = "none" if _maybe(given, "auth", _read_auth) == "none" else "key"
    scopes = _maybe(given, "scopes", _read_scopes) or ()
    permission = _maybe(given, "permission", _read_permission)
    service = _maybe(given, "service", lambda value: value.matching(NAME, NAME_EXPECTED))
    plan_limits = _maybe(given, "plan_limits", Value.flag)
    cost = _maybe(given, "cost", lambda value: value.integer(1, MAX_AMOUNT)) or 1
    json_rpc = _maybe(given, "json_rpc", Value.flag)
    paths = _path_rules(given, default)
    route = None
    if match is not None:
        method, segments, rest = match
        route = Route(
            name=name,
            method=method,
            segments=segments,
            rest=rest,
            upstream=upstream,
            auth=auth,
            scopes=scopes,
            permission=permission,
            service=service,
            plan_limits=plan_limits is not False,
            limits=tuple(limit for limit, _ in limits),
            cost=cost,
            json_rpc="mcp" in map(fold, segments) if json_rpc is None else json_rpc,
            case_sensitive=paths.case_sensitive,
            keeps_slashes=paths.keeps_slashes,
            where=f"{PurePath(at.file).name}:{at.line}",
        )
    return RouteEntry(name, route, at, given, tuple(written for _, written in limits))


def _read_limits(name: str, at: Value, given: Fields) -> list[tuple[Limit, Value]]:
    """The limit of the short form, then those of the list, each as read and as written."""
    limits: list[tuple[Limit | None, Value]] = []
    if "rate" in given:
        limits.append((read_rate_and_burst(given, name), given["rate"]))
    elif "burst" in given:
        given["burst"].add_fault("a rate with it", "a burst without a rate")
    if "limits" in given:
        entries = given["limits"].items("a list of limits") or ()
        if len(entries) > MOST_LIMITS:
            given["limits"].add_fault(f"at most {MOST_LIMITS}", f"{len(entries)} limits")
        limits += [(read_entry(entry), entry) for entry in entries]
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


def _read_permission(value: Value) -> tuple[str, str] | None:
    text = value.matching(PERMISSION, "a service area and an action such as ticketing:write")
    if text is None:
        return None
    area, _, action = text.partition(":")
    return area, action
