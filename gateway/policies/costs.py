"""`cost` of a route: a number of units, or where a request says it."""

from __future__ import annotations

from typing import Final

from gateway.domain.costs import BODY_BYTES, Costing, HeaderCost, JsonCost
from gateway.domain.limits import MAX_AMOUNT
from gateway.policies import fields
from gateway.policies.values import Value, setting

_JSON: Final = ("json", "max", "bytes")
_HEADER: Final = ("header", "default")
#: The largest body that may be counted: the worst one of this size takes 40 ms, in which no other
#: connection of the worker is served.
MOST_BODY_BYTES: Final = 256 * 1024


def read_cost(value: Value) -> int | Costing | None:
    """A number of units, `{json: ids, max: 100}` or `{header: X-Items, max: 100}`."""
    if not value.is_mapping:
        return value.integer(1, MAX_AMOUNT)
    given = value.fields((*_JSON, *_HEADER), required=("max",))
    if given is None:
        return None
    most = given["max"].integer(1, MAX_AMOUNT) if "max" in given else None
    sources = [key for key in ("json", "header") if key in given]
    if len(sources) != 1:
        value.add_fault("one of json and header", " and ".join(sources) or "none of them")
        return None
    of_other = {"json": "default", "header": "bytes"}[sources[0]]
    if of_other in given:
        given[of_other].add_fault(f"no {of_other} with {sources[0]}")
    if sources == ["json"]:
        path = given["json"].parsed(fields.read_json_path)
        body_bytes = setting(given, "bytes", _read_bytes, BODY_BYTES)
        return None if path is None or most is None else JsonCost(path, most, body_bytes)
    name = given["header"].parsed(fields.read_header)
    default = setting(given, "default", lambda one: one.integer(1, most or MAX_AMOUNT), 1)
    return None if name is None or most is None else HeaderCost(name, most, default)


def _read_bytes(value: Value) -> int | None:
    size = value.parsed(fields.read_size) if value.is_text else value.integer(1, MOST_BODY_BYTES)
    if size is not None and not 1 <= size <= MOST_BODY_BYTES:
        value.add_fault(f"a size from 1B to {MOST_BODY_BYTES // 1024}KiB")
        return None
    return size
