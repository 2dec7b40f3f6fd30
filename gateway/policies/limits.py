"""Limits as policies write them: figures (a rate with its burst, or a quota) and a route's list."""

from __future__ import annotations

from typing import Final

from gateway.domain.limits import Limit
from gateway.policies import fields
from gateway.policies.fields import MAX_AMOUNT, NAME
from gateway.policies.values import Fields, Value

FIGURES: Final = ("rate", "burst", "quota")
ENTRY: Final = ("name", "rate", "burst", "quota", "concurrency", "per", "mode")
PER_EXPECTED: Final = "key, account, ip or header:NAME"
NAME_EXPECTED: Final = (
    "a name: up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit"
)


def read_figures(
    at: Value, given: Fields, name: str, per: str = "key", shadow: bool = False
) -> Limit | None:
    """A limit from `rate` and `burst`, or from `quota`, whichever is given.

    at: the mapping they stand in, for complaints about what is missing
    """
    kinds = [key for key in ("rate", "quota") if key in given]
    if len(kinds) != 1:
        at.complain("one of rate and quota", " and ".join(kinds) or "neither rate nor quota")
        return None
    if kinds == ["rate"]:
        return read_rate_and_burst(given, name, per, shadow)
    if "burst" in given:
        given["burst"].complain("no burst beside a quota: it belongs to a rate")
    quota = given["quota"].parsed(fields.read_rate, "a quota such as 10000/day")
    return None if quota is None else Limit(name, "quota", *quota, None, per, shadow)


def read_rate_and_burst(
    given: Fields, name: str, per: str = "key", shadow: bool = False
) -> Limit | None:
    """A limit from `rate`, which is there, and `burst`, which may be."""
    rate = given["rate"].parsed(fields.read_rate, "a rate such as 30/minute")
    if "burst" not in given:
        return None if rate is None else Limit(name, "rate", *rate, None, per, shadow)
    burst = given["burst"].integer(1, MAX_AMOUNT)
    if rate is None or burst is None:
        return None
    try:
        return fields.build_rate(name, *rate, burst, per, shadow)
    except ValueError as exc:
        given["burst"].complain(str(exc))
        return None


def read_entry(value: Value) -> Limit | None:
    """One element of a route's `limits`."""
    given = value.fields(ENTRY, required=("name",))
    if given is None:
        return None
    name = given["name"].spelled(NAME, NAME_EXPECTED) if "name" in given else None
    per = given["per"].parsed(fields.read_per, PER_EXPECTED) if "per" in given else "key"
    mode = given["mode"].choice("enforce", "shadow") if "mode" in given else "enforce"
    if "concurrency" in given:
        given["concurrency"].complain(
            "a rate or a quota: concurrency limits are not available in this version"
        )
        return None
    # A placeholder where the name is faulty, so that the figures are read and complained about.
    limit = read_figures(value, given, name or "-", per or "key", mode == "shadow")
    return None if None in (name, per, mode) else limit


def read_override(value: Value, name: str) -> Limit | None:
    """A plan's own figures for a route: "300/minute", or a mapping with rate and burst or quota."""
    if value.is_text:
        rate = value.parsed(fields.read_rate)
        return None if rate is None else Limit(name, "rate", *rate)
    given = value.fields(FIGURES)
    return None if given is None else read_figures(value, given, name)
