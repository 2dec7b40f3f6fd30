"""Limits, access rules, upstreams and the state of limits in words."""

from __future__ import annotations

from gateway.domain.limits import Limit, Standing
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.domain.shown import reset_after_s
from gateway.errors import Refusal
from gateway.manage.views import rate_words


def limit_words(limit: Limit) -> str:
    """A limit on one line: "60/minute, burst 100, per key"."""
    shadow = ", shadow: never refuses" if limit.shadow else ""
    if limit.is_leased:
        return f"{limit.amount} concurrent requests, per {limit.per}{shadow}"
    words = rate_words(limit).replace(",burst=", ", burst ")
    return f"{f'{limit.rules.label} {words}'.lstrip()}, per {limit.per}{shadow}"


def access_words(route: Route) -> str:
    """What a route requires: "a key, with the scopes connectors:read"."""
    if route.auth == "none":
        return "anyone, without a key"
    words = ["a key"]
    if route.scopes:
        words.append(f"with the scopes {' '.join(route.scopes)}")
    if route.permission:
        words.append(f"with the permission {':'.join(route.permission)}")
    if route.service:
        words.append(f"whose account has the service {route.service}")
    return ", ".join(words)


def path_words(route: Route) -> str:
    """How a route reads paths, if not by default: "case-sensitive"; else ""."""
    words = []
    if route.case_sensitive:
        words.append("case-sensitive")
    if route.keeps_slashes:
        words.append("encoded slashes are part of a segment")
    return ", ".join(words)


def upstream_words(policy: Policy, route: Route) -> str:
    """The upstream of a route: "api (http://127.0.0.1:9000)"."""
    servers = policy.upstreams[route.upstream].servers
    listed = ", ".join(f"{server.scheme}://{server.authority}" for server in servers)
    return f"{route.upstream} ({listed})"


def standing_words(limit: Limit, standing: Standing) -> str:
    """The state of a limit: "59 of 60 remaining, reset after 60 s"."""
    remaining = f"{standing.remaining} of {limit.amount} remaining"
    if limit.is_leased:
        return f"{remaining}, each freed when its request ends"
    return f"{remaining}, reset after {reset_after_s(standing)} s"


def refusal_words(refusal: Refusal) -> str:
    """A refusal on one line: "refused: 401 INVALID_API_KEY: …"."""
    return f"refused: {refusal.status} {refusal.code}: {refusal.message}"
