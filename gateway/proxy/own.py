"""What the gateway answers by itself: /health, /v1/health, /v1/auth/verify."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gateway.domain.counters import counter_names
from gateway.domain.limits import SECOND_US, Check, Decision, Limit, Standing
from gateway.domain.plans import limits_for
from gateway.errors import STORE_UNAVAILABLE
from gateway.http1.answers import json_body, whole_seconds

if TYPE_CHECKING:
    from gateway.domain.policy import Policy, Route
    from gateway.domain.ports import Identity
    from gateway.proxy.exchange import Exchange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def answer(exchange: Exchange) -> None:
    """Answer an admitted request to one of the gateway's own paths."""
    context = exchange.context
    if exchange.route.name == "gateway:ping":
        exchange.answer(200, b"")
    elif exchange.route.name == "gateway:health":
        now = rfc3339(context.clock_us())
        record = {"status": "ok", "timestamp": now, "version": context.version}
        exchange.answer(200, json_body(record))
    else:
        _verify(exchange)


def rfc3339(time_us: int) -> str:
    """Unix microseconds as "2026-01-31T12:00:00Z"."""
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")


def _verify(exchange: Exchange) -> None:
    """Ask how every limit of the key stands, each by itself, then tell."""
    identity = exchange.identity
    assert identity is not None, "the route asks for a key"
    rows = _limits(exchange.policy, exchange.route, identity)
    standings: list[Standing] = []

    def told(decision: Decision | None) -> None:
        if exchange.is_over:
            return
        if decision is None:
            exchange.answer_refusal(STORE_UNAVAILABLE)
            return
        standings.extend(decision.standings)
        if len(standings) == len(rows):
            exchange.answer(200, json_body(_record(identity, rows, standings)))

    for _, limit in rows:
        names = counter_names(
            (limit,),
            account=identity.record.account,
            lineage=identity.record.lineage,
            ip=exchange.subject,
            header=exchange.header,
        )
        exchange.context.gate.limiter.decide(Check((limit,), names, 0), told)


def _limits(policy: Policy, own_route: Route, identity: Identity) -> list[tuple[str | None, Limit]]:
    """Every limit that the key may meet, with the route where it does (None: its plan's)."""
    record = identity.record
    plan = policy.plans[record.plan]
    rows: dict[tuple[str, str], tuple[str | None, Limit]] = {}
    for limit in limits_for(plan, own_route, record.limits):
        rows[limit.counter, limit.per] = (None, limit)
    for route in policy.routes.values():
        if route.auth == "key":
            for limit in limits_for(plan, route, record.limits):
                rows.setdefault((limit.counter, limit.per), (route.name, limit))
    return list(rows.values())


def _window_seconds(limit: Limit) -> float | None:
    return None if limit.kind == "concurrency" else limit.window_us / SECOND_US


def _record(
    identity: Identity, rows: list[tuple[str | None, Limit]], standings: list[Standing]
) -> dict[str, Any]:
    record = identity.record
    return {
        "valid": True,
        "key": {
            "id": record.id,
            "name": record.name,
            "account": record.account,
            "plan": record.plan,
            "environment": record.environment,
            "scopes": list(record.scopes),
            "permissions": {area: list(actions) for area, actions in record.permissions.items()},
            "allowed_ip_ranges": [str(network) for network in record.networks],
            "services": list(identity.account.services),
            "expires": None if record.expires_us is None else rfc3339(record.expires_us),
        },
        "limits": [
            {
                "name": limit.name,
                "route": route,
                "kind": limit.kind,
                "limit": limit.amount,
                "burst": limit.burst,
                "window_seconds": _window_seconds(limit),
                "per": limit.per,
                "mode": "shadow" if limit.shadow else "enforce",
                "remaining": standing.remaining,
                "reset_after": whole_seconds(standing.reset_us),
            }
            for (route, limit), standing in zip(rows, standings, strict=True)
        ],
    }
