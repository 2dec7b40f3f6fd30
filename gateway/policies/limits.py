"""Limits in policies: their values (a rate with its burst, a quota, or a number of leases), a
route's list, and `plans`, each with the lines of its overrides for later checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gateway.domain.limits import KINDS, LEASE_US, MAX_AMOUNT, Limit, build_rate
from gateway.domain.patterns import NAME
from gateway.domain.policy import Plan
from gateway.policies import fields
from gateway.policies.values import Fields, Value

VALUES: Final = (*KINDS, "burst")
ENTRY: Final = ("name", *VALUES, "per", "mode")
PLAN: Final = ("rate", "burst", "routes")
#: The most leases of a limit: each one is stored and renewed, unlike the units of a rate.
MOST_LEASES: Final = 100_000
PER_EXPECTED: Final = "key, account, ip or header:NAME"
NAME_EXPECTED: Final = (
    "a name: up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit"
)


def read_values(
    at: Value, given: Fields, name: str, per: str = "key", shadow: bool = False
) -> Limit | None:
    """A limit from `rate` and `burst`, from `quota` or from `concurrency`.

    at: the mapping with them, for faults about missing keys
    """
    kinds = [key for key in KINDS if key in given]
    if len(kinds) != 1:
        at.add_fault("one of rate, quota and concurrency", " and ".join(kinds) or "none of them")
        return None
    if kinds == ["rate"]:
        return read_rate_and_burst(given, name, per, shadow)
    if "burst" in given:
        given["burst"].add_fault(f"no burst with {kinds[0]}: only a rate has a burst")
    if kinds == ["concurrency"]:
        most = given["concurrency"].integer(1, MOST_LEASES)
        if most is None:
            return None
        return Limit(name, "concurrency", most, LEASE_US, per=per, shadow=shadow)
    quota = given["quota"].parsed(fields.read_quota, fields.QUOTA_EXPECTED)
    return None if quota is None else Limit(name, "quota", *quota, None, per, shadow)


def read_rate_and_burst(
    given: Fields, name: str, per: str = "key", shadow: bool = False
) -> Limit | None:
    """A limit from `rate`, which is given, and `burst`, which is optional."""
    rate = given["rate"].parsed(fields.read_rate, fields.RATE_EXPECTED)
    if "burst" not in given:
        return None if rate is None else Limit(name, "rate", *rate, None, per, shadow)
    burst = given["burst"].integer(1, MAX_AMOUNT)
    if rate is None or burst is None:
        return None
    try:
        return build_rate(name, *rate, burst, per, shadow)
    except ValueError as exc:
        given["burst"].add_fault(str(exc))
        return None


def read_entry(value: Value) -> Limit | None:
    """One element of a route's `limits`."""
    given = value.fields(ENTRY, required=("name",))
    if given is None:
        return None
    name = given["name"].matching(NAME, NAME_EXPECTED) if "name" in given else None
    per = given["per"].parsed(fields.read_per, PER_EXPECTED) if "per" in given else "key"
    mode = given["mode"].choice("enforce", "shadow") if "mode" in given else "enforce"
    # A placeholder for a faulty name, so that faults of the values are found as well.
    limit = read_values(value, given, name or "-", per or "key", mode == "shadow")
    return None if None in (name, per, mode) else limit


def read_override(value: Value, name: str) -> Limit | None:
    """A plan's values for a route or limit: "300/minute", or a mapping."""
    if value.is_text:
        rate = value.parsed(fields.read_rate)
        return None if rate is None else Limit(name, "rate", *rate)
    given = value.fields(VALUES)
    return None if given is None else read_values(value, given, name)


@dataclass(frozen=True, slots=True, eq=False)
class PlanEntry:
    """A plan with its lines. plan: None if its own limit could not be read

    overrides_at: its overrides as written, by name, faulty ones included
    """

    plan: Plan | None
    overrides_at: Mapping[str, Value]


def read_plan(name: str, at: Value) -> PlanEntry | None:
    """One entry; None if it is not a mapping."""
    given = at.fields(PLAN, required=("rate",))
    if given is None:
        return None
    limit = read_rate_and_burst(given, "plan") if "rate" in given else None
    written = given["routes"].named(NAME, "a route") if "routes" in given else None
    overrides_at = written or {}
    read = {route: read_override(value, route) for route, value in overrides_at.items()}
    overrides = {route: values for route, values in read.items() if values is not None}
    plan = None if limit is None else Plan(name, limit, MappingProxyType(overrides))
    return PlanEntry(plan, overrides_at)
