"""Limits in policies: their values (a rate with its burst, a quota, or a number of leases), a
route's list, and `plans`, each with the lines of its overrides for later checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from gateway.domain.limits import (
    CANDIDATE,
    LEASE_US,
    MAX_AMOUNT,
    PERIODS_US,
    UNITS_US,
    Kind,
    Limit,
    build_rate,
)
from gateway.domain.patterns import LIMIT, NAME
from gateway.domain.policy import Plan
from gateway.policies import fields
from gateway.policies.faults import quoted
from gateway.policies.values import Fields, Value

#: The keys that a limit's values are written with, each a kind; with `of: connections` a limit
#: with `concurrency` is of the kind "connections".
KEYS: Final[tuple[Kind, ...]] = ("rate", "quota", "concurrency")
VALUES: Final = (*KEYS, "burst")
ENTRY: Final = ("name", "was", *VALUES, "in", "from", "of", "per", "mode", "candidate")
PLAN: Final = ("was", "rate", "burst", "candidate", "limits", "routes")
#: Earlier names of one thing.
MOST_RENAMES: Final = 8
#: The name of a plan's rate.
PLAN_LIMIT: Final = "plan"
#: Beside its rate, candidates included.
MOST_OF_PLAN: Final = 8
#: The most leases of a limit: each one is stored and renewed, unlike the units of a rate.
MOST_LEASES: Final = 100_000
#: The most connections of a limit: each check reads all that are counted.
MOST_CONNECTIONS: Final = 1_000
PER_EXPECTED: Final = "key, account, ip or header:NAME"
TOO_MANY_CONNECTIONS: Final = (
    f"at most {MOST_CONNECTIONS} with of: connections, as each check reads all of them"
)
NAME_EXPECTED: Final = (
    "a name: up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit"
)


def read_values(
    at: Value,
    given: Fields,
    name: str,
    per: str = "key",
    shadow: bool = False,
    leased: Kind = "concurrency",
) -> Limit | None:
    """A limit from `rate` and `burst`, from `quota` or from `concurrency`.

    at:     the mapping with them, for faults about missing keys
    leased: the kind that `concurrency` is
    """
    kinds = [key for key in KEYS if key in given]
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
        limit = Limit(name, leased, most, LEASE_US, per=per, shadow=shadow)
        if exceeds_connections(limit, limit):
            given["concurrency"].add_fault(TOO_MANY_CONNECTIONS)
        return limit
    quota = given["quota"].parsed(fields.read_quota, fields.QUOTA_EXPECTED)
    return None if quota is None else Limit(name, "quota", *quota, None, per, shadow)


def written_kind(limit: Limit) -> Kind:
    """The key that a limit's values are written with."""
    return "concurrency" if limit.is_leased else limit.kind


def exceeds_connections(limit: Limit, values: Limit) -> bool:
    """Are these values too large for a limit that counts connections?"""
    return limit.rules.shared and values.is_leased and values.amount > MOST_CONNECTIONS


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


def read_short(given: Fields, name: str) -> Limit | None:
    """The limit of a plan's or route's short form: `rate`, which is given, `burst`, `candidate`."""
    return _with_candidate(read_rate_and_burst(given, name), given)


def with_earlier_names(limit: Limit | None, was: tuple[str, ...]) -> Limit | None:
    """The limit, and its candidate, with these earlier names."""
    if limit is None or not was:
        return limit
    candidate = limit.candidate
    if candidate is not None:
        candidate = replace(candidate, was=tuple(f"{name}{CANDIDATE}" for name in was))
    return replace(limit, was=was, candidate=candidate)


def _with_candidate(limit: Limit | None, given: Fields) -> Limit | None:
    """The limit with the values under its key `candidate`, which are of the same kind."""
    if "candidate" not in given:
        return limit
    at = given["candidate"]
    values = at.fields(VALUES)
    leased: Kind = limit.kind if limit is not None and limit.is_leased else "concurrency"
    candidate = None if values is None else read_values(at, values, CANDIDATE, leased=leased)
    if candidate is None or limit is None:
        return limit
    if limit.shadow:
        at.add_fault("no candidate with mode: shadow, as nothing is enforced", "a candidate")
    if candidate.kind != limit.kind:
        kinds = written_kind(limit), written_kind(candidate)
        at.add_fault(f"{kinds[0]}, as of the limit itself", kinds[1])
        return limit
    keeps_zone = candidate.rules.calendar and candidate.window_us >= UNITS_US["hour"]
    candidate = replace(
        candidate,
        name=limit.name + CANDIDATE,
        per=limit.per,
        shadow=True,
        of=limit.of,
        zone=limit.zone if keeps_zone else "UTC",
        billing=limit.billing and candidate.window_us == PERIODS_US["month"],
        is_candidate=True,
    )
    return replace(limit, candidate=candidate)


def read_entry(value: Value) -> Limit | None:
    """One element of the `limits` of a route or plan."""
    given = value.fields(ENTRY, required=("name",))
    if given is None:
        return None
    name = given["name"].matching(NAME, NAME_EXPECTED) if "name" in given else None
    per = given["per"].parsed(fields.read_per, PER_EXPECTED) if "per" in given else "key"
    mode = given["mode"].choice("enforce", "shadow") if "mode" in given else "enforce"
    # A placeholder for a faulty name, so that faults of the values are found as well.
    of = given["of"].choice("requests", "messages", "connections") if "of" in given else "requests"
    leased: Kind = "connections" if of == "connections" else "concurrency"
    limit = read_values(value, given, name or "-", per or "key", mode == "shadow", leased)
    zone, billing = _read_calendar(given, limit, per)
    if limit is not None and of == "messages" and limit.is_leased:
        given["of"].add_fault("of: messages only with a rate or a quota")
    if limit is not None and of == "connections" and not limit.is_leased:
        given["of"].add_fault("of: connections only with concurrency")
    if limit is not None:
        limit = replace(
            limit,
            zone=zone or "UTC",
            billing=billing,
            of="messages" if of == "messages" else "requests",
        )
    limit = with_earlier_names(_with_candidate(limit, given), read_was(given, name or "-"))
    return None if None in (name, per, mode, zone, of) else limit


def _read_calendar(given: Fields, limit: Limit | None, per: str | None) -> tuple[str | None, bool]:
    """The time zone of a quota, and whether its months begin on the account's billing day."""
    zone = given["in"].parsed(fields.read_zone, fields.ZONE_EXPECTED) if "in" in given else "UTC"
    is_short = limit is not None and limit.window_us < UNITS_US["hour"]
    if limit is not None and "in" in given and (is_short or not limit.rules.calendar):
        given["in"].add_fault("in only with a quota per hour, day, week or month")
    billing = "from" in given and given["from"].choice("account") is not None
    if billing and limit is not None:
        if not limit.rules.calendar or limit.unit != "month":
            given["from"].add_fault("from: account only with a quota per month")
        elif per not in {None, "key", "account"}:
            given["from"].add_fault("from: account only with per: key or per: account")
    return zone, billing


def read_was(given: Fields, name: str) -> tuple[str, ...]:
    """The earlier names of something: `was: old`, or `was: [oldest, old]`."""
    if "was" not in given:
        return ()
    value = given["was"]
    if value.is_text:
        items = [value]
    else:
        items = list(value.items("a name, or a list of names") or ())
        if len(items) > MOST_RENAMES:
            value.add_fault(f"at most {MOST_RENAMES}", f"{len(items)} names")
    names = [item.matching(NAME, NAME_EXPECTED) for item in items]
    for item, was in zip(items, names, strict=True):
        if was == name or (was is not None and names.count(was) > 1):
            item.add_fault("an earlier name, each once", quoted(was))
    return tuple(was for was in names if was is not None)


def read_entries(value: Value, most: int) -> list[tuple[Limit, Value]]:
    """The limits of a list, each as read and as written, without faulty ones."""
    entries = value.items("a list of limits") or ()
    read = [(read_entry(entry), entry) for entry in entries]
    candidates = sum(limit is not None and limit.candidate is not None for limit, _ in read)
    if len(entries) + candidates > most:
        found = f"{len(entries)} limits" + (f" and {candidates} candidates" if candidates else "")
        value.add_fault(f"at most {most}{', candidates included' if candidates else ''}", found)
    return [(limit, written) for limit, written in read if limit is not None]


def check_of(entries: Iterable[tuple[Limit, Value]], is_mcp: bool) -> None:
    """Only limits of routes with `mcp` count something else than requests.

    entries: limits of a route or plan, each as read and as written
    is_mcp:  they are those of a route that has `mcp`
    """
    for limit, written in entries:
        of = "connections" if limit.rules.shared else limit.of
        if of != "requests" and not is_mcp:
            written.add_fault(f"of: {of} only in a route with mcp", f"of: {of}")


def read_override(value: Value, name: str) -> Limit | None:
    """A plan's values for a route or limit: "300/minute", or a mapping."""
    if value.is_text:
        rate = value.parsed(fields.read_rate)
        return None if rate is None else Limit(name, "rate", *rate)
    given = value.fields(VALUES)
    return None if given is None else read_values(value, given, name)


def parse_override(name: str, text: str, limit: Limit | None) -> Limit:
    """A key's own values: "300/minute,burst=500", "10000/month", or "20" concurrent requests.

    limit: the policies' limit of this name, whose kind it has; None: not known. Raises ValueError
           with what was expected.
    """
    if limit is not None and limit.is_leased:
        most = MOST_CONNECTIONS if limit.rules.shared else MOST_LEASES
        if not re.fullmatch("[0-9]{1,6}", text) or not 1 <= int(text) <= most:
            raise ValueError(f"a number of {limit.rules.unit_words}, 1 to {most}")
        return Limit(name, "concurrency", int(text), LEASE_US)
    values, comma, burst = text.partition(",burst=")
    if comma and not re.fullmatch("[0-9]{1,10}", burst):
        raise ValueError("a burst such as 300/minute,burst=500")
    is_long = name != PLAN_LIMIT and re.fullmatch(r".*/ *(?:week|month) *", values)
    if limit.rules.calendar if limit else is_long:
        if comma:
            raise ValueError("no burst, because this limit is a quota")
        return Limit(name, "quota", *fields.read_quota(values))
    return fields.parse_rate(values, name=name, burst=int(burst) if comma else None)


@dataclass(frozen=True, slots=True, eq=False)
class PlanEntry:
    """A plan with its lines.

    plan:         None if its rate could not be read
    at:           its line
    overrides_at: its overrides as written, by name, faulty ones included
    more:         its further limits, each as read and as written
    """

    name: str
    plan: Plan | None
    at: Value
    overrides_at: Mapping[str, Value]
    more: Sequence[tuple[Limit, Value]]


def read_plan(name: str, at: Value) -> PlanEntry | None:
    """One entry; None if it is not a mapping."""
    given = at.fields(PLAN, required=("rate",))
    if given is None:
        return None
    limit = read_short(given, PLAN_LIMIT) if "rate" in given else None
    written = given["routes"].named(LIMIT, "a route") if "routes" in given else None
    overrides_at = written or {}
    read = {route: read_override(value, route) for route, value in overrides_at.items()}
    overrides = {route: values for route, values in read.items() if values is not None}
    more = read_entries(given["limits"], MOST_OF_PLAN) if "limits" in given else []
    check_of(more, is_mcp=False)
    plan = None
    if limit is not None:
        further = tuple(one for one, _ in more)
        plan = Plan(name, limit, MappingProxyType(overrides), further, read_was(given, name))
    return PlanEntry(name, plan, at, overrides_at, more)
