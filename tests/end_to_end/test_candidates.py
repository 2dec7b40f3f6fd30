"""Candidates of limits: compared in each decision, and never noticed by a client."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.end_to_end.conftest import Serve
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.wire import Response, Wire, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: Per address, so that no key is needed: the store in memory has none.
ROUTES = """
routes:
  tight: {match: GET /tight, upstream: api, auth: none,
          limits: [{name: tried-tight, rate: 5/hour, per: ip, candidate: {rate: 3/hour}}]}
  wide:  {match: GET /wide, upstream: api, auth: none,
          limits: [{name: tried-wide, quota: 3/day, per: ip, candidate: {quota: 5/day}}]}
  other: {match: GET /other, upstream: api, auth: none,
          limits: [{name: tried-other, rate: 3/hour, burst: 4, per: ip,
                    candidate: {rate: 2/minute}}, {name: strict, rate: 1/hour, per: ip}]}
"""
EXPECTED = {
    "tried-tight": {"both_admit": 3, "only_candidate_refuses": 2, "both_refuse": 2},
    "tried-wide": {"both_admit": 3, "only_enforced_refuses": 4},
    # What the other limit refuses is not counted.
    "tried-other": {"both_admit": 1},
}


async def compared(gateway: ServedGateway) -> dict[str, dict[str, float]]:
    """The metric: limit -> outcome -> requests."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(await gateway.metrics()):
        for sample in family.samples:
            if sample.name == "gateway_limit_candidate_total":
                assert sample.labels.keys() == {"limit", "outcome"}
                of_limit = found.setdefault(sample.labels["limit"], {})
                of_limit[sample.labels["outcome"]] = sample.value
    return found


async def send(gateway: ServedGateway, target: str, times: int) -> list[Response]:
    """Send the same request over one connection."""
    async with await Wire.connect(gateway.port) as wire:
        return [await wire.request("GET", target) for _ in range(times)]


@pytest.mark.parametrize("store", ["", "memory://"], ids=["redis", "memory"])
async def test_limits_and_candidates_are_compared(serve: Serve, store: str) -> None:
    """Clients see the enforced limit alone; the metric has what each would have decided."""
    headers = "headers: {ietf: true}\n"
    gateway = await serve(store=store, routes=ROUTES, headers=headers)
    tight = await send(gateway, "/tight", 7)
    assert [answer.status for answer in tight] == [200] * 5 + [429] * 2
    assert [answer["X-RateLimit-Remaining"] for answer in tight] == [*"43210", "0", "0"]
    assert {answer["X-RateLimit-Limit"] for answer in tight} == {"5"}
    assert {answer["RateLimit-Policy"] for answer in tight} == {'"tried-tight";q=5;w=3600'}
    wide = await send(gateway, "/wide", 7)
    assert [answer.status for answer in wide] == [200] * 3 + [429] * 4
    assert {answer["X-RateLimit-Limit"] for answer in wide} == {"3"}
    other = await send(gateway, "/other", 3)
    assert [answer.status for answer in other] == [200] + [429] * 2
    assert await compared(gateway) == EXPECTED


async def test_the_admin_api_has_the_comparison(serve: Serve) -> None:
    """Of all workers together; the policies say which values are compared."""
    gateway = await serve(
        *("--workers", "2"),
        routes="""
routes:
  fresh: {match: GET /fresh, upstream: api, auth: none,
          limits: [{name: tried-fresh, rate: 4/hour, per: ip, candidate: {rate: 2/hour}}]}
""",
    )
    for _ in range(6):
        await gateway.fetch("/fresh")
    expected: dict[str, Any] = {
        "limit": "tried-fresh",
        "of": [{"where": "route fresh", "enforced": "4/hour", "candidate": "2/hour"}],
        **{"both_admit": 2, "only_candidate_refuses": 2},
        **{"only_enforced_refuses": 0, "both_refuse": 2},
    }

    async def is_shown() -> bool:
        answer = await fetch(
            gateway.admin_port,
            "/admin/v1/policies",
            key=gateway.admin_token,
            headers=[("Host", "127.0.0.1")],
        )
        assert answer.status == 200, answer.body
        return bool(answer.json()["candidates"] == [expected])

    await eventually(is_shown, "the candidates are compared")
