"""`timeouts`, `retries` and `body` of a route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.domain.forwarding import CAUSES, SAFE_METHODS, Cause, Retries
from gateway.domain.route import Route
from gateway.policies import fields
from gateway.policies.faults import one_of, suggestion
from gateway.policies.settings import read_size, read_timeout
from gateway.policies.values import Fields, Value, setting

TIMEOUTS: Final = ("total", "response")
RETRIES: Final = ("count", "causes", "budget")
MOST_RETRIES: Final = 10


@dataclass(frozen=True, slots=True)
class Forwarding:
    """The fields of `Route` with these names."""

    total_s: float | None
    response_s: float | None
    body_bytes: int | None
    retries: Retries | None


def read_forwarding(given: Fields) -> Forwarding:
    """Of a route's entries."""
    timeouts = given["timeouts"].fields(TIMEOUTS) if "timeouts" in given else None
    return Forwarding(
        total_s=setting(timeouts or {}, "total", read_timeout, None),
        response_s=setting(timeouts or {}, "response", read_timeout, None),
        body_bytes=setting(given, "body", read_size, None),
        retries=setting(given, "retries", _read_retries, None),
    )


def check_retries(route: Route, given: Fields) -> None:
    """Add a fault if none of the route's requests can be sent again."""
    if route.retries is not None and not route.methods & (SAFE_METHODS | {"*"}):
        expected = f"retries only on routes for {', '.join(sorted(SAFE_METHODS))}"
        given["retries"].add_fault(expected, f"retries of {route.method}")


def _read_retries(value: Value) -> Retries | None:
    if not value.is_mapping:
        count = value.integer(1, MOST_RETRIES)
        return None if count is None else Retries(count)
    given = value.fields(RETRIES, required=("count",))
    if given is None or "count" not in given:
        return None
    default = Retries(1)
    return Retries(
        setting(given, "count", lambda item: item.integer(1, MOST_RETRIES), default.count),
        setting(given, "causes", _read_causes, default.causes),
        setting(given, "budget", _read_budget, default.budget),
    )


def _read_budget(value: Value) -> float | None:
    return value.parsed(fields.read_share, "a percentage such as 20%")


def _read_causes(value: Value) -> tuple[Cause, ...] | None:
    items = value.items(f"a list of {', '.join(CAUSES)}")
    if items is None:
        return None
    if not items:
        value.add_fault(f"at least one of {', '.join(CAUSES)}", "an empty list")
    read = [_read_cause(item) for item in items]
    return tuple(dict.fromkeys(cause for cause in read if cause is not None))


def _read_cause(value: Value) -> Cause | None:
    text = str(value.node.value)  # a status is a number in YAML
    cause = next((cause for cause in CAUSES if cause == text), None)
    if cause is None:
        value.add_fault(one_of(CAUSES) + suggestion(text, CAUSES))
    return cause
