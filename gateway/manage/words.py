"""What the policies say, in words for people: limits, access rules, upstreams, standings."""

from __future__ import annotations

from gateway.domain.limits import SECOND_US, Limit, Standing
from gateway.domain.policy import Policy, Route
from gateway.errors import Refusal
from gateway.manage.views import rate_words


def limit_words(limit: Limit) -> str:
    """A limit on one line: "60/minute, burst 100, per key"."""
    shadow = ", shadow: never refuses" if limit.shadow else ""
    if limit.kind == "concurrency":
        return f"{limit.amount} at once, per {limit.per}{shadow}"
    words = rate_words(limit).replace(",burst=", ", burst ")
    kind = "quota " if limit.kind == "quota" else ""
    return f"{kind}{words}, per {limit.per}{shadow}"


def access_words(route: Route) -> str:
    """Who may use a route: "a key, with the scopes connectors:read"."""
    if route.auth == "none":
        return "everybody, without a key"
    words = ["a key"]
    if route.scopes:
        words.append(f"with the scopes {' '.join(route.scopes)}")
    if route.permission:
        words.append(f"with the permission {':'.join(route.permission)}")
    if route.service:
        words.append(f"whose account has the service {route.service}")
    return ", ".join(words)


def path_words(route: Route) -> str:
    """How a route reads paths where that is not the usual way: "case-sensitive"; else ""."""
    words = []
    if route.case_sensitive:
        words.append("case-sensitive")
    if route.keeps_slashes:
        words.append("encoded slashes are part of a segment")
    return ", ".join(words)


def upstream_words(policy: Policy, route: Route) -> str:
    """Where a route leads: "api (http://127.0.0.1:9000)"."""
    servers = policy.upstreams[route.upstream].servers
    listed = ", ".join(f"{server.scheme}://{server.authority}" for server in servers)
    return f"{route.upstream} ({listed})"


def standing_words(limit: Limit, standing: Standing) -> str:
    """What is left of a limit: "59 of 60, all back in 60 s"."""
    left = f"{standing.remaining} of {limit.amount}"
    if limit.kind == "concurrency":
        return f"{left}, each back when its request ends"
    return f"{left}, all back in {standing.reset_us / SECOND_US:.0f} s"


def refusal_words(refusal: Refusal) -> str:
    """A refusal on one line: "refused: 401 INVALID_API_KEY: …"."""
    return f"refused: {refusal.status} {refusal.code}: {refusal.message}"
