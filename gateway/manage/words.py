"""Limits, access rules, upstreams and the state of limits in words."""

from __future__ import annotations

from gateway.domain.limits import Limit, Standing
from gateway.domain.maintenance import Maintenance
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.domain.shown import reset_after_s
from gateway.domain.upstreams import WEBHOOKS
from gateway.errors import Refusal
from gateway.manage.views import rate_words


def limit_words(limit: Limit) -> str:
    """A limit on one line: "60/minute, burst 100, per key; candidate 50/minute"."""
    counted = f" of {limit.of}" if limit.of != "requests" else ""
    shadow = ", shadow: never refuses" if limit.shadow else ""
    candidate = f"; candidate {values_words(limit.candidate)}" if limit.candidate else ""
    return f"{values_words(limit)}{counted}, per {limit.per}{shadow}{candidate}"


def values_words(limit: Limit) -> str:
    """The values of a limit: "60/minute, burst 100", "5 concurrent requests"."""
    if limit.is_leased:
        return f"{limit.amount} {limit.rules.unit_words}"
    words = rate_words(limit).replace(",burst=", ", burst ")
    return f"{f'{limit.rules.label} {words}'.lstrip()}{period_words(limit)}"


def period_words(limit: Limit) -> str:
    """Which periods a quota has: " in Europe/Berlin, from the account's billing day"; else ""."""
    zone = f" in {limit.zone}" if limit.calendar and limit.zone != "UTC" else ""
    return f"{zone}, from the account's billing day" if limit.billing else zone


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


def host_words(route: Route) -> str:
    """The hosts that a route serves: "api.example.com, *.example.com", or "all"."""
    return ", ".join(route.hosts) or "all"


def cost_words(route: Route) -> str:
    """What a request counts: "5", or "1 for each element of ids in the JSON body, at most 100"."""
    return str(route.cost) if route.costing is None else route.costing.words


def path_words(route: Route) -> str:
    """How a route reads and changes paths, if not by default: "case-sensitive"; else ""."""
    words = []
    if route.case_sensitive:
        words.append("case-sensitive")
    if route.keeps_slashes:
        words.append("encoded slashes are part of a segment")
    if route.rewrite is not None:
        words.append(route.rewrite.text)
    return ", ".join(words)


def upstream_words(policy: Policy, route: Route) -> str:
    """The upstream of a route: "api (http://127.0.0.1:9000)", its canary; or that there is none."""
    if route.respond is not None:
        return f"none; the gateway answers with {route.respond.status}"
    servers = policy.upstreams[route.upstream].servers
    listed = ", ".join(server.url for server in servers)
    if route.upstream == WEBHOOKS:
        listed = "the gateway's couriers"
    canary = "" if route.canary is None else f"; canary: {route.canary.words}"
    return f"{route.upstream} ({listed}){canary}"


def standing_words(limit: Limit, standing: Standing) -> str:
    """The state of a limit: "59 of 60 remaining, reset after 60 s"."""
    remaining = f"{standing.remaining} of {limit.amount} remaining"
    if limit.is_leased:
        ends = "connection" if limit.rules.shared else "request"
        return f"{remaining}, each freed when its {ends} ends"
    return f"{remaining}, reset after {reset_after_s(standing)} s"


def maintenance_words(maintenance: Maintenance) -> str:
    """Who is refused, and who is not: "all get 503, except for clients of 10.0.0.0/8"."""
    served = ", ".join(map(str, maintenance.allow))
    return "all get 503" + (f", except for clients of {served}" if served else "")


def refusal_words(refusal: Refusal, message: str | None = None) -> str:
    """A refusal on one line: "refused: 401 INVALID_API_KEY: …"."""
    return f"refused: {refusal.status} {refusal.code}: {message or refusal.message}"


def seconds_words(seconds: float | None) -> str:
    """A latency with two significant digits: "0.93 ms", "45 ms", "1.2 s"; "-": unknown."""
    if seconds is None:
        return "-"
    amount, unit = (seconds * 1_000, "ms") if seconds < 0.995 else (seconds, "s")
    rounded = float(f"{amount:.2g}")
    return f"{rounded:,.0f} {unit}" if rounded >= 10 else f"{rounded:g} {unit}"


def bytes_words(amount: int) -> str:
    """An amount of bytes: "0 B", "2.4 kB", "310 MB"."""
    if amount < 1_000:
        return f"{amount} B"
    size, units = float(amount), iter(("kB", "MB", "GB", "TB", "PB"))
    unit = ""
    while size >= 999.5 and (following := next(units, "")):
        size, unit = size / 1_000, following
    return f"{size:.0f} {unit}" if size >= 9.95 else f"{size:.1f} {unit}"
