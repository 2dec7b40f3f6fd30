"""The settings and upstreams that differ between two policies, by their names in policy files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from gateway.domain.limits import Limit
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.domain.upstreams import Server

#: Fields of a policy that are not settings, or are compared by other means.
_OTHERS: Final = frozenset(
    {
        "plans",
        "routes",
        "table",
        "hosts",
        "upstreams",
        "failed_auth",
        "auth_verify",
        "hash",
        "files",
    }
    | {"source", "warnings", "kept_plans", "used"}
)
#: Fields whose names differ from those in policy files.
_NAMES: Final = {
    "ietf_headers": "headers.ietf",
    "hsts": "headers.hsts",
    "fallback_header": "headers.fallback",
    "trusted_only": "headers.trusted_only",
}
#: Fields of a route that are compared as settings are, part by part, and the settings' names.
ROUTE_FIELDS: Final = {
    "total_s": "timeouts.total",
    "response_s": "timeouts.response",
    "body_bytes": "body",
    "retries": "retries",
    "access": "access",
    "cors": "cors",
    "request_headers": "request_headers",
    "response_headers": "response_headers",
    "respond": "respond",
    "maintenance": "maintenance",
}
#: Endings of fields that are their unit, and the units, the largest first.
_UNITS: Final[dict[str, tuple[tuple[float, str], ...]]] = {
    "_s": ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"), (0.001, "ms")),
    "_percent": ((1, "%"),),
    "_bytes": ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, "B")),
}
#: Longer values are truncated.
_MOST_VALUE: Final = 100


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that differs. name: "timeouts.header"; values as in policy files; None: not set"""

    name: str
    before: str | None
    after: str | None


def setting_changes(old: Policy, new: Policy) -> Iterator[Setting]:
    """The settings that differ, except plans, routes, upstreams and limits."""
    for field in dataclasses.fields(Policy):
        if field.name not in _OTHERS:
            values = (_Value(policy, getattr(policy, field.name)) for policy in (old, new))
            yield from _differing(_NAMES.get(field.name, field.name), "", *values)


def upstream_changes(old: Policy, new: Policy) -> Iterator[Setting]:
    """The upstreams that differ, each changed one by its settings: "api.servers"."""
    for name in dict.fromkeys((*old.upstreams, *new.upstreams)):
        values = (_Value(policy, policy.upstreams.get(name)) for policy in (old, new))
        yield from _differing(name, "", *values)


def route_changes(old: tuple[Policy, Route], new: tuple[Policy, Route]) -> Iterator[Setting]:
    """The settings in ROUTE_FIELDS that differ between two routes: "cors.origins".

    Not those that both have of their policies, whose difference is one of settings.
    """
    for field, name in ROUTE_FIELDS.items():
        pairs = [
            (getattr(route, field), getattr(policy, field, ...)) for policy, route in (old, new)
        ]
        if any(of_route != of_policy for of_route, of_policy in pairs):
            values = (_Value(policy, getattr(route, field)) for policy, route in (old, new))
            yield from _differing(name, _name_and_unit(field)[1], *values)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a policy. Paths in it are shown relative to the policy's folder."""

    policy: Policy
    it: Any

    def part(self, name: str) -> _Value:
        return _Value(self.policy, getattr(self.it, name))

    def words(self, unit: str) -> str | None:
        """unit: the ending of its field that is its unit; "": none"""
        words = self._words(self.it, unit)
        if words is None or len(words) <= _MOST_VALUE:
            return words
        return words[: _MOST_VALUE - 1] + "…"

    def _words(self, value: Any, unit: str) -> str | None:
        if value is None:
            return None
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, bytes):
            return f"{len(value)} bytes ({sha256(value).hexdigest()[:8]})"
        if isinstance(value, Server):
            weight = f" (weight {value.weight})" if value.weight != 1 else ""
            return f"{value.url}{weight}"
        if isinstance(value, tuple):
            return f"[{', '.join(str(self._words(each, '')) for each in value)}]"
        if dataclasses.is_dataclass(value):
            fields = (_name_and_unit(field.name) for field in dataclasses.fields(value))
            parts = (
                (name, self._words(getattr(value, f"{name}{ending}"), ending))
                for name, ending in fields
                if name != "name"
            )
            return ", ".join(f"{name} {words}" for name, words in parts if words is not None)
        if isinstance(value, int | float) and unit:
            return _amount(value, unit)
        if isinstance(value, float):
            return f"{value * 100:g}%"  # without a unit, it is a share
        source = self.policy.source
        return str(value) if source is None else str(value).removeprefix(f"{source.folder}/")


def _differing(name: str, unit: str, old: _Value, new: _Value) -> Iterator[Setting]:
    """The settings in which two values differ: parts of both where they have parts."""
    if _has_parts(old.it) and type(old.it) is type(new.it):
        for field in dataclasses.fields(old.it):
            part, ending = _name_and_unit(field.name)
            path = f"{name}.{part}"
            yield from _differing(path, ending, old.part(field.name), new.part(field.name))
    elif old.it != new.it:
        if isinstance(old.it, tuple) and isinstance(new.it, tuple):
            old, new = _without_common(old, new)
        before, after = old.words(unit), new.words(unit)
        if before != after:
            yield Setting(name, before, after)


def _has_parts(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, Server | Limit)


def _without_common(old: _Value, new: _Value) -> tuple[_Value, _Value]:
    """What only one of two long lists has, in place of both; both lists if most entries differ."""
    gone = tuple(each for each in old.it if each not in new.it)
    added = tuple(each for each in new.it if each not in old.it)
    if not (gone or added) or max(len(old.it), len(new.it)) <= len(gone) + len(added):
        return old, new
    return _Value(old.policy, gone or None), _Value(new.policy, added or None)


def _name_and_unit(field: str) -> tuple[str, str]:
    """The setting's name, and the ending that is its unit: "header" and "_s" of "header_s"."""
    ending = next((ending for ending in _UNITS if field.endswith(ending)), "")
    return field.removesuffix(ending), ending


def _amount(value: float, unit: str) -> str:
    """A value in the largest unit of which it is a whole number: "30s", "1500ms", "10MiB"."""
    for size, name in _UNITS[unit]:
        number = round(value / size)
        if number and abs(value / size - number) < 1e-9:
            return f"{number}{name}"
    return f"{value:g}{'s' if unit == '_s' else 'B'}"
