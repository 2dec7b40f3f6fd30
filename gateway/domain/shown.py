"""Limits and times in JSON: the same names and units in every response and command."""

from __future__ import annotations

from datetime import UTC, datetime

from gateway.domain.limits import SECOND_US, Decision, Limit, Standing


def limit_as_json(limit: Limit, route: str | None) -> dict[str, object]:
    """The values of a limit. route: one that has it; None: it is the plan's"""
    return {
        "name": limit.name,
        "route": route,
        "kind": limit.rules.written or limit.kind,
        "of": limit.kind if limit.rules.shared else limit.of,
        "limit": limit.amount,
        "burst": limit.burst,
        "window_seconds": limit.window_s,
        "period": limit.unit if limit.rules.calendar else None,
        "time_zone": limit.zone if limit.rules.calendar else None,
        "per": limit.per,
        "mode": "shadow" if limit.shadow else "enforce",
    }


def reset_after_s(standing: Standing) -> int:
    """Whole seconds until all of a limit is available, rounded up (X-RateLimit-Reset-After)."""
    return whole_seconds(standing.reset_us)


def rfc3339(at_us: int) -> str:
    """Unix microseconds as "2026-01-31T12:00:00Z", with microseconds unless they are zero."""
    seconds, micros = divmod(at_us, SECOND_US)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{micros:06}Z" if micros else f"{text}Z"


def whole_seconds(time_us: int) -> int:
    """Microseconds as seconds, rounded up, so that a time in seconds is never too early."""
    return -(-time_us // SECOND_US)


def retry_after_s(decision: Decision) -> int | None:
    """Whole seconds to wait after a refusal, at least 1; None: waiting does not help."""
    return None if decision.retry_us is None else max(1, whole_seconds(decision.retry_us))
