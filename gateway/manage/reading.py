"""Readers of single fields: each returns the value of a JSON value, or raises Invalid.

A fault names the place ("ip_ranges[1]") and quotes what was found there, but never what may be a
secret: a whole key, or the value of an unknown field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar

from gateway.domain.key_format import is_environment, looks_like_key
from gateway.domain.limits import Limit
from gateway.domain.networks import Network
from gateway.domain.patterns import (
    MOST_ENTRIES,
    MOST_TITLE,
    is_limit_name,
    is_scope,
    is_title,
    is_word,
)
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.manage.problems import Fault, Invalid
from gateway.policies import fields
from gateway.policies.faults import one_of, quoted
from gateway.policies.limits import parse_override

T = TypeVar("T")
Reader = Callable[[object], Any]

NAME_WORDS: Final = "up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit"
_LIMIT_WORDS: Final = (
    "a rate such as 300/minute or 300/minute,burst=500, a quota such as 10000/month, or a number "
    "of concurrent requests such as 20"
)
TIME_WORDS: Final = "a time as 2026-12-31T12:00:00Z, or a date as 2026-12-31"
_MOMENT_WORDS: Final = "a date as 2026-12-31, a time as 2026-12-31T12:00:00Z, or a duration as 30d"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_fields(
    given: Mapping[str, object], readers: Mapping[str, Reader], *required: str, at: str = ""
) -> dict[str, Any]:
    """The values of all given fields; raises Invalid with the faults of all.

    at: what the fields are in, "limits.search."; readers name it themselves
    """
    if len(given) > MOST_ENTRIES:
        # Each unknown name is compared with the known ones: 6,000 took 25 ms.
        raise Invalid(Fault("fields", f"{len(given)} of them", f"at most {MOST_ENTRIES}"))
    faults = [
        Fault(f"{at}{name}", "nothing", "a value, it is required")
        for name in required
        if name not in given
    ]
    values = {}
    for name, value in given.items():
        try:
            if name not in readers:
                _refuse(f"{at}{_place(name)}", "an unknown field", one_of(readers))
            values[name] = readers[name](value)
        except Invalid as invalid:
            faults += invalid.faults
    if faults:
        raise Invalid(*faults)
    return values


def or_none(read: Reader) -> Reader:
    """The same reader, which also accepts null."""
    return lambda value: None if value is None else read(value)


def read_name(value: object) -> str:
    """A key's name: printable, on one line."""
    text = _text("name", value, expected := f"1 to {MOST_TITLE} printable characters")
    if not is_title(text.strip(" ")):
        _refuse("name", found(text), expected)
    return text.strip(" ")


def read_billing_day(value: object) -> int:
    """The day of the month on which an account's months begin."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 31:
        _refuse("billing_day", found(value), "a day of the month from 1 to 31")
    return value


def read_word(at: str, value: object) -> str:
    """A name that policies or accounts use."""
    return _being(at, value, is_word, NAME_WORDS)


def read_plan(policy: Policy | None, value: object) -> str:
    """A plan; one of the policies', if they are known, by its current name."""
    name = read_word("plan", value)
    if policy is None:
        return name
    plan = policy.plan(name)
    if plan is None or plan.name in policy.kept_plans:
        _refuse("plan", found(name), f"a plan of the policies: {one_of(sorted(policy.plans))}")
    return plan.name


def read_environment(value: object) -> str:
    """The environment that a key is for."""
    expected = "up to 32 lower-case letters, digits and '-', beginning with a letter"
    text = _text("environment", value, expected)
    if not is_environment(text):
        _refuse("environment", found(text), expected)
    return text


def read_scopes(value: object) -> tuple[str, ...]:
    """Scopes, each once."""
    read = partial(_being, rule=is_scope, expected="one like a:read")
    return _each("scopes", value, read)


def read_services(value: object) -> tuple[str, ...]:
    """Service areas, each once, by name."""
    return tuple(sorted(_each("services", value, read_word)))


def read_networks(value: object) -> tuple[Network, ...]:
    """Ranges of addresses, each once."""
    return _each("ip_ranges", value, _read_network)


def read_permissions(value: object) -> Mapping[str, tuple[str, ...]]:
    """Service area -> actions, each once."""

    def read(area: str, actions: object) -> tuple[str, tuple[str, ...]]:
        at = _inside("permissions", area)
        return _key_of("permissions", area), _each(at, actions, read_word)

    pairs = _entries("permissions", value, read, "an object of area -> list of actions")
    if (total := sum(len(actions) for _, actions in pairs)) > MOST_ENTRIES:
        _refuse("permissions", f"{total} actions", f"{MOST_ENTRIES} at most in all")
    return MappingProxyType({area: actions for area, actions in pairs if actions})


def read_limits(policy: Policy | None, value: object) -> Mapping[str, Limit]:
    """Limit overrides by name, of the kinds that these limits have in the policies."""
    known = None if policy is None else _limits_of(policy)
    renamed = {} if policy is None else _renamed(policy)

    def read(name: str, rate: object) -> tuple[str, Limit]:
        name = renamed.get(name, name)
        limit = _read_limit(_key_of("limits", name, is_limit_name), rate, known)
        if policy is not None:
            _check_cost(policy, limit, rate)
        return name, limit

    pairs = _entries("limits", value, read, f"an object of limit -> {_LIMIT_WORDS}")
    return MappingProxyType(dict(pairs))


def read_expiry_us(now_us: int, value: object) -> int:
    """The future time of "30d", "2026-12-31" (the start of that day in UTC) or an RFC 3339 time."""
    at_us = _time_us("expires", now_us, value)
    if at_us <= now_us:
        _refuse("expires", found(value), "a moment in the future")
    return at_us


def read_before_us(now_us: int, value: object) -> int:
    """The time of `expires_before`, in the same formats; it may be past."""
    return _time_us("expires_before", now_us, value)


def read_moment_us(at: str, value: object) -> int:
    """A time, as times are shown, or the start of a day in UTC."""
    text = _text(at, value, TIME_WORDS)
    return _moment_us(at, text, TIME_WORDS)


def found(value: object) -> str:
    """A value as a fault may show it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return "what looks like a whole key" if looks_like_key(value) else quoted(value)
        case int() | float():
            return "a number"
        case Mapping():
            return "an object"
        case _:
            return "a list"


# -- the parts -------------------------------------------------------------------------------------


def _refuse(at: str, what: str, expected: str) -> NoReturn:
    raise Invalid(Fault(at, what, expected))


def _text(at: str, value: object, expected: str) -> str:
    """A text that is not a key: names are shown to all users."""
    if not isinstance(value, str) or looks_like_key(value):
        _refuse(at, found(value), expected)
    return value


def _being(at: str, value: object, rule: Callable[[str], bool], expected: str) -> str:
    text = _text(at, value, expected)
    if not rule(text):
        _refuse(at, found(text), expected)
    return text


def _all(reads: Iterable[Callable[[], T]]) -> list[T]:
    """The values of all; raises Invalid with the faults of all."""
    values, faults = list[T](), list[Fault]()
    for read in reads:
        try:
            values.append(read())
        except Invalid as invalid:
            faults += invalid.faults
    if faults:
        raise Invalid(*faults)
    return values


def _each(at: str, value: object, read: Callable[[str, object], T]) -> tuple[T, ...]:
    """The entries of a list, each once."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        _refuse(at, found(value), "a list")
    if len(value) > MOST_ENTRIES:
        _refuse(at, f"{len(value)} entries", f"{MOST_ENTRIES} at most")
    reads = (partial(read, f"{at}[{index}]", entry) for index, entry in enumerate(value))
    return tuple(dict.fromkeys(_all(reads)))


def _entries(at: str, value: object, read: Callable[[str, object], T], expected: str) -> list[T]:
    """The entries of an object."""
    if not isinstance(value, Mapping):
        _refuse(at, found(value), expected)
    if len(value) > MOST_ENTRIES:
        _refuse(at, f"{len(value)} entries", f"{MOST_ENTRIES} at most")
    return _all(partial(read, name, entry) for name, entry in value.items())


def _key_of(at: str, name: str, rule: Callable[[str], bool] = is_word) -> str:
    """The name of an object's entry."""
    return _being(_inside(at, name), name, rule, NAME_WORDS)


def _inside(at: str, name: str) -> str:
    return f"{at}.{_place(name)}"


def _place(name: str) -> str:
    """A field's name, as a fault may show it."""
    return name if is_limit_name(name) else found(name)


def _read_network(at: str, value: object) -> Network:
    expected = "an address or a CIDR range such as 10.0.0.0/8, with no host bits set"
    text = _text(at, value, expected)
    try:
        return fields.read_network(text)
    except ValueError as error:
        raise Invalid(Fault(at, found(text), str(error))) from error


def _read_limit(name: str, value: object, known: Mapping[str, Limit | None] | None) -> Limit:
    at = f"limits.{name}"
    if known is not None and name not in known:
        _refuse(at, found(name), f"a limit of the policies: {one_of(sorted(known))}")
    text = _text(at, value, _LIMIT_WORDS)
    pattern = None if known is None else known[name]
    try:
        return parse_override(name, text, pattern)
    except ValueError as error:
        raise Invalid(Fault(at, found(text), str(error))) from error


def _check_cost(policy: Policy, limit: Limit, written: object) -> None:
    """Refuse values that no request could ever be admitted by: each costs more.

    Where some requests cost less, such as ones with few elements, those are admitted.
    """
    met = [route for route in policy.routes.values() if _meets(policy, route, limit.name)]
    least = min(met, key=lambda route: route.cost, default=None)
    if least is not None and not limit.ever_admits(least.cost):
        cost = f"a request of the route {least.name} costs {least.cost}"
        expected = f"{least.cost} or more for the limit {limit.name}, as {cost}"
        _refuse(f"limits.{limit.name}", found(written), expected)


def _meets(policy: Policy, route: Route, name: str) -> bool:
    """May this limit refuse requests of the route?"""
    if route.auth != "key":
        return False
    plans = policy.plans.values() if route.plan_limits else ()
    own = [*route.limits, *(limit for plan in plans for limit in plan.limits)]
    of_name = [limit for limit in own if limit.name == name]
    return any(not limit.shadow for limit in of_name) or (not of_name and route.name == name)


def _limits_of(policy: Policy) -> dict[str, Limit | None]:
    """Every limit that can be overridden; a route's name also without a limit of that name."""
    known: dict[str, Limit | None] = {"plan": None}
    for plan in policy.plans.values():
        known.update({limit.name: limit for limit in plan.more})
    for route in policy.routes.values():
        known.setdefault(route.name, None)
        known.update({limit.name: limit for limit in route.every_limit})
    return known


def _renamed(policy: Policy) -> dict[str, str]:
    """Earlier names of limits and routes -> the current one."""
    limits = [limit for plan in policy.plans.values() for limit in plan.more]
    limits += [limit for route in policy.routes.values() for limit in route.every_limit]
    current = {was: limit.name for limit in limits for was in limit.was}
    for route in policy.routes.values():
        current.update(dict.fromkeys(route.was, route.name))
    return current


def _time_us(at: str, now_us: int, value: object) -> int:
    text = _text(at, value, _MOMENT_WORDS)
    try:
        return now_us + round(fields.read_duration(text) * 1e6)
    except ValueError:
        return _moment_us(at, text, _MOMENT_WORDS)


def _moment_us(at: str, text: str, expected: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            moment = moment.replace(tzinfo=UTC)
        if moment.tzinfo is None:
            _refuse(at, f"{found(text)}, which has no time zone", expected)
        # In UTC, as it is shown: in some time zones, the end of the year 9999 is later than in UTC.
        since = moment.astimezone(UTC) - _EPOCH
    except (ValueError, OverflowError) as error:
        raise Invalid(Fault(at, found(text), expected)) from error
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
