"""`cost` of a route: numbers, elements of a JSON body, a number in a header."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.costs import BODY_BYTES, Costing, HeaderCost, JsonCost
from gateway.policies.load import load
from tests.policies.folder import complaints, write


def routes_with(cost: str) -> str:
    return f'routes: {{r: {{match: "POST /b", upstream: api, cost: {cost}}}}}\n'


@pytest.mark.parametrize(
    ("cost", "units", "costing"),
    [
        ("5", 5, None),
        ("{json: ids, max: 100}", 1, JsonCost(("ids",), 100, BODY_BYTES)),
        ("{json: data.my-ids, max: 2, bytes: 1KiB}", 1, JsonCost(("data", "my-ids"), 2, 1024)),
        ("{json: ., max: 9, bytes: 262144}", 1, JsonCost((), 9, 262_144)),
        ("{header: X-Items, max: 100}", 1, HeaderCost("x-items", 100)),
        ("{header: x-items, max: 50, default: 50}", 50, HeaderCost("x-items", 50, 50)),
    ],
)
def test_costs(tmp_path: Path, cost: str, units: int, costing: Costing | None) -> None:
    """What a request counts if nothing else is known of it, and how the rest is found."""
    policy = load(write(tmp_path, routes=routes_with(cost)))
    route = policy.routes["r"]
    assert (route.cost, route.costing) == (units, costing)
    assert route.most_cost == (units if costing is None else costing.most)
    names = {JsonCost: {"content-type", "content-encoding"}, HeaderCost: {"x-items"}}
    assert policy.counted_headers == names.get(type(costing), set())


@pytest.mark.parametrize(
    ("cost", "faults"),
    [
        ("0", ["cost: found the number 0, expected a whole number from 1 to"]),
        ("[1]", ["cost: found a list, expected a whole number from 1"]),
        ("many", ["cost: found 'many', expected a whole number from 1"]),
        (
            "{}",
            ["cost: found a mapping without 'max'", "cost: found none of them"],
        ),
        ("{json: ids}", ["cost: found a mapping without 'max', expected the key 'max'"]),
        ("{max: 9}", ["cost: found none of them, expected one of json and header"]),
        (
            "{json: ids, header: X-Items, max: 9}",
            ["cost: found json and header, expected one of json and header"],
        ),
        ("{jsn: ids, max: 9}", ["cost.jsn: found the key 'jsn', expected", "cost: found none"]),
        ("{json: ids, max: 0}", ["cost.max: found the number 0"]),
        ("{json: ids, max: 9, default: 2}", ["cost.default: found the number 2, expected no def"]),
        ("{json: ids, max: 9, bytes: 257KiB}", ["cost.bytes: found '257KiB', expected a size"]),
        ("{json: ids, max: 9, bytes: 0}", ["cost.bytes: found the number 0"]),
        ("{json: ids, max: 9, bytes: 0B}", ["cost.bytes: found '0B', expected a size from 1B"]),
        ("{json: '', max: 9}", ["cost.json: found '', expected an array's key such as ids"]),
        ("{json: a..b, max: 9}", ["cost.json: found 'a..b', expected an array's key"]),
        ("{json: 'ids[]', max: 9}", ["cost.json: found 'ids[]', expected an array's key"]),
        ("{json: [], max: 9}", ["cost.json: found a list"]),
        ("{json: a.a.a.a.a.a.a.a.a, max: 9}", ["cost.json: found 'a.a"]),
        ("{header: X-Items, max: 9, default: 10}", ["cost.default: found the number 10, expected"]),
        ("{header: X-Items, max: 9, bytes: 1KiB}", ["cost.bytes: found '1KiB', expected no bytes"]),
        ("{header: X Items, max: 9}", ["cost.header: found 'X Items', expected the name of a"]),
        (
            "{header: Cookie, max: 9}",
            ["cost.header: found 'Cookie', expected the name of a"],
        ),
        ("{header: Content-Length, max: 9}", ["cost.header: found 'Content-Length', expected a"]),
    ],
)
def test_faults(tmp_path: Path, cost: str, faults: list[str]) -> None:
    """Each says what was found, what was expected, and where."""
    found = complaints(write(tmp_path, routes=routes_with(cost)))
    assert len(found) == len(faults), found
    for one, words in zip(found, faults, strict=True):
        assert one.startswith(f"routes.yaml:1: routes.r.{words}")


PLANS = """
plans:
  free: {rate: 60/minute, burst: 100, routes: {own: 30/minute}}
  big:
    rate: 6000/minute
    limits: [{name: monthly, quota: 50/month}, {name: held, concurrency: 1}]
"""
NEVER = "expected at most {}: more is never admitted by "


@pytest.mark.parametrize(
    ("route", "faults"),
    [
        ("cost: 50", []),
        ("cost: 51", [f"found the number 51, {NEVER.format(50)}plan big's limit 'monthly'"]),
        (
            "cost: {json: ids, max: 101}",
            [
                f"found max: 101, {NEVER.format(100)}plan free's limit 'plan'",
                f"found max: 101, {NEVER.format(50)}plan big's limit 'monthly'",
            ],
        ),
        ("cost: {header: X-Items, max: 101}, plan_limits: false", []),
        (
            "cost: {header: X-Items, max: 51}",
            [f"found max: 51, {NEVER.format(50)}plan big's limit 'monthly'"],
        ),
        (
            "cost: 40, plan_limits: false, limits: [{name: own, rate: 50/minute}]",
            [f"found the number 40, {NEVER.format(30)}plan free's limit 'own'"],
        ),
        (
            "cost: 4, limits: [{name: a, rate: 3/minute}, {name: b, rate: 2/day, mode: shadow}]",
            [f"found the number 4, {NEVER.format(3)}its limit 'a'"],
        ),
        (
            "auth: none, cost: 9, limits: [{name: a, rate: 3/minute, per: ip}]",
            [f"found the number 9, {NEVER.format(3)}its limit 'a'"],
        ),
    ],
)
def test_costs_that_are_never_admitted(tmp_path: Path, route: str, faults: list[str]) -> None:
    """By the route's limits or a plan's, with the plan's own values; shadow limits refuse nothing,
    and a request holds one lease at any cost.
    """
    routes = (
        f"routes:\n  r: {{match: GET /, upstream: api, {route}}}\n"
        "  own: {match: GET /own, upstream: api, rate: 60/minute}\n"
    )
    found = complaints(write(tmp_path, routes=routes, plans=PLANS))
    assert found == [f"routes.yaml:2: routes.r.cost: {one}" for one in faults]
