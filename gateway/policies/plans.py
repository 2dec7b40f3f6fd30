"""`plans`: each into a Plan, with the places of its overrides for later checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gateway.domain.patterns import NAME
from gateway.domain.policy import Plan
from gateway.policies.limits import read_override, read_rate_and_burst
from gateway.policies.values import Value

PLAN: Final = ("rate", "burst", "routes")


@dataclass(frozen=True, slots=True, eq=False)
class PlanEntry:
    """A plan and where it is written. plan: None where its own limit could not be read.

    overrides_at: where each of its figures for a route is written, by name, faulty ones included
    """

    plan: Plan | None
    overrides_at: Mapping[str, Value]


def read_plan(name: str, at: Value) -> PlanEntry | None:
    """One entry; None where it is no mapping."""
    given = at.fields(PLAN, required=("rate",))
    if given is None:
        return None
    limit = read_rate_and_burst(given, "plan") if "rate" in given else None
    written = given["routes"].named(NAME, "a route") if "routes" in given else None
    overrides_at = written or {}
    read = {route: read_override(value, route) for route, value in overrides_at.items()}
    overrides = {route: figures for route, figures in read.items() if figures is not None}
    plan = None if limit is None else Plan(name, limit, MappingProxyType(overrides))
    return PlanEntry(plan, overrides_at)
