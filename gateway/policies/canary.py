"""`canary` of a route: the other upstream, and which requests go there."""

from __future__ import annotations

from typing import Final

from gateway.domain.canary import Canary
from gateway.policies import fields
from gateway.policies.values import Value, setting

CANARY: Final = ("upstream", "share", "by", "header", "value")
#: RFC 9110, 5.5: a field's value, without spaces at its ends.
VALUE: Final = r"[!-~](?:[ -~]{0,254}[!-~])?"


def read_canary(value: Value) -> tuple[Canary, Value] | None:
    """The canary, and the name of its upstream as written."""
    given = value.fields(CANARY, required=("upstream",))
    if given is None or "upstream" not in given:
        return None
    upstream = given["upstream"].text("the name of an upstream")
    if not {"share", "header"} & given.keys():
        value.add_fault("a share such as 5%, a header, or both", "neither share nor header")
    for key, needed in (("by", "share"), ("value", "header")):
        if key in given and needed not in given:
            given[key].add_fault(f"a {needed} with it", f"{key} without {needed}")
    canary = Canary(
        upstream or "",
        setting(given, "share", _read_share, 0.0),
        setting(given, "by", lambda at: at.parsed(fields.read_per), "key"),
        setting(given, "header", lambda at: at.parsed(fields.read_header), ""),
        setting(given, "value", lambda at: at.matching(VALUE, "a value such as always"), ""),
    )
    return canary, given["upstream"]


def _read_share(value: Value) -> float | None:
    return value.parsed(fields.read_percent, "a percentage such as 5%")
