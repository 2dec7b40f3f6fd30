"""A test of policies has the result that a real gateway has for the same requests."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.cli.case_run import CaseResult, StepResult, make_identity, run_case
from gateway.cli.cases import Sender, Step, read_cases
from gateway.domain.policy import Policy
from gateway.policies.load import load
from gateway.stores.keys.store import RedisKeyStore
from tests.end_to_end.conftest import Serve
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.policies import GATEWAY, ROUTES
from tests.kit.redis_server import RedisServer
from tests.kit.wire import Response, Wire, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: By the day, so that nothing refills while the real gateway serves the requests.
PLANS = """
plans:
  free: {rate: 60/day, burst: 100}
  pro:  {rate: 600/day, routes: {search: 50/day}}
"""
DAILY = ROUTES.replace("/minute", "/day") + (
    "  tenant: {match: GET /tenant, upstream: api,"
    ' limits: [{name: t, rate: 3/day, per: "header:X-T"}]}\n'
    "  door:   {match: GET /door, upstream: api, auth: none,"
    " limits: [{name: door, quota: 2/day, per: ip}]}\n"
    "  heavy:  {match: GET /heavy, upstream: api, cost: 7}\n"
    "  ids:    {match: POST /ids, upstream: api, cost: {json: ids, max: 5, bytes: 1KiB}}\n"
    "  watch:  {match: GET /watch, upstream: api,"
    " limits: [{name: watch, rate: 1/day, mode: shadow}]}\n"
)
TESTS = """
accounts:
  acme: {plan: pro, services: [scm], limits: {plan: 20/day}}
keys:
  free: {plan: free}
  pro: {plan: pro, scopes: ["connectors:read"], permissions: {ticketing: [write]}}
  own: {plan: pro, limits: {search: 4/day}}
  acme: {account: acme}
  bound: {plan: free, ip_ranges: [203.0.113.0/24]}
  revoked: {plan: free, status: revoked}
  staging: {plan: free, environment: staging}
tests:
  - name: all of it
    steps:
      - {send: GET /api/things, key: free, times: 103}
      - {send: GET /api/search/x, key: free}
      - {send: GET /api/search/x, key: pro, times: 52}
      - {send: GET /API/Search/%78, key: own, times: 5}
      - {send: GET /api/things, key: acme, times: 21}
      - {send: GET /v1/scm/x, key: acme}
      - {send: POST /api/incidents/batch, key: pro, times: 11}
      - {send: GET /v1/connectors, key: pro}
      - {send: HEAD /v1/connectors/, key: own}
      - {send: GET /v1/tickets/7, key: pro}
      - {send: GET /v1/tickets/7, key: own}
      - {send: GET /v1/scm/x, key: pro}
      - {send: GET /v1/x, key: bound, from: 203.0.113.9}
      - {send: GET /v1/x, key: bound, from: 198.51.100.9}
      - {send: GET /v1/x, key: revoked, from: 198.51.100.10}
      - {send: GET /v1/x, key: staging, from: 198.51.100.11}
      - {send: GET /v1/x, from: 198.51.100.12, times: 5}
      - {send: GET /v1/x, headers: {apiKey: nonsense}, from: 198.51.100.13}
      - {send: GET /nothing, key: pro}
      - {send: DELETE /public/x}
      - {send: GET /public/x}
      - {send: GET /v1/../../x, key: pro}
      - {send: GET /v1%2Fconnectors, key: pro}
      - {send: GET /v1/connectors., key: pro}
      - {send: GET /v1//./connectors, key: pro}
      - {send: GET /tenant, key: own, headers: {X-T: a}, times: 4}
      - {send: GET /tenant, key: own, headers: {X-T: b}}
      - {send: GET /tenant, key: own, headers: {X-T: [a, b]}}
      - {send: GET /door, from: 198.51.100.14, times: 3}
      - {send: GET /door, from: '2001:db8::1', times: 3}
      - {send: GET /door, from: '2001:db8::2'}
      - {send: GET /heavy, key: own, times: 2}
      - {send: POST /ids, key: own, body: {ids: [1, é, {}]}, times: 2}
      - {send: POST /ids, key: own, body: '{"ids": [1, 2]}', headers: {Content-Type: text/json}}
      - {send: POST /ids, key: own, body: '{"ids": [1', headers: {content-type: application/json}}
      - {send: POST /ids, key: own, body: {ids: [1, 2, 3, 4, 5, 6]}}
      - {send: POST /ids, key: own, body: ''}
      - {send: POST /ids, key: own}
      - {send: POST /ids, key: own, body: {ids: [1], more: LONG}}
      - {send: POST /ids, key: revoked, body: {ids: [1]}, from: 198.51.100.15}
      - {send: GET /watch, key: own, times: 3}
      - {send: GET /health}
      - {send: POST /health}
      - {send: GET /v1/auth/verify, key: own}
      - {send: POST /v1/x, key: own, headers: {Expect: more}}
""".replace("LONG", "x" * 1024)


async def test_as_a_real_gateway_decides(
    redis_server: RedisServer, serve: Serve, tmp_path: Path
) -> None:
    """Each step has the same status, route, reason, limit and remaining units."""
    # On its own store: other tests count failed attempts of 127.0.0.1.
    gateway = await serve(
        plans=PLANS,
        routes=DAILY,
        gateway=GATEWAY + "trusted_proxies: [127.0.0.1]\n",
        store=redis_server.url,
    )
    policy = load(gateway.policies)
    file = tmp_path / "all.yaml"
    file.write_text(TESTS)
    (case,) = read_cases([file], policy)
    expected = run_case(policy, case)
    assert len(expected.steps) == len(case.steps) > 30
    async with Redis(port=redis_server.port) as client:
        keys = await create_keys(RedisKeyStore(client), policy, expected)
    for result in expected.steps:
        sent = await send(gateway, result.step, keys)
        admitted = [answer for answer in sent if answer.status == 200]
        found = await decision_of(gateway, sent[-1])
        if found["route"] == "gateway:verify":
            found |= {"limit": "", "remaining": None}  # it reports the limits of its key
        assert (len(admitted), found) == (result.admitted, decided(result)), result.step.send


async def create_keys(
    store: RedisKeyStore, policy: Policy, expected: CaseResult
) -> dict[Sender, str]:
    """Store the case's keys and accounts; return the keys' texts."""
    senders = {step.step.shared.sender for step in expected.steps}
    keys = {}
    for sender in senders - {None}:
        assert sender is not None
        text, identity = make_identity(sender, policy, time.time_ns() // 1_000)
        await store.put_account(identity.account)
        await store.add(identity.record)
        keys[sender] = text
    return keys


async def send(gateway: ServedGateway, step: Step, keys: dict[Sender, str]) -> list[Response]:
    """The answers to the step's requests, behind a trusted proxy that names the client."""
    shared = step.shared
    fields = [("X-Forwarded-For", str(shared.client)), *shared.headers]
    if shared.sender is not None:
        fields += bearer(keys[shared.sender])
    content = None if step.body is None else step.body.content
    if step.body is not None and step.body.media_type:
        fields.append(("Content-Type", step.body.media_type))
    method, target = step.send.split(" ")
    answers = []
    for _ in range(step.times):
        async with await Wire.connect(gateway.port) as wire:
            answers.append(await wire.request(method, target, fields, content))
    return answers


async def decision_of(gateway: ServedGateway, answer: Response) -> dict[str, Any]:
    """What the access log and the headers say about a request."""
    request_id = answer["X-Request-Id"]

    def found() -> list[str]:
        lines = gateway.access_log.read_text().splitlines()
        return [line for line in lines if f'"{request_id}"' in line]

    await eventually(lambda: bool(found()), "the access log has the request")
    line = json.loads(found()[0])
    return {
        "status": "admitted" if answer.status == 200 else answer.status,
        "route": line["route"],
        "reason": line["reason"],
        "limit": line["limit"],
        "remaining": int(answer["X-RateLimit-Remaining"]),
        "has_retry_after": answer.maybe("Retry-After") is not None,
    }


def decided(result: StepResult) -> dict[str, Any]:
    """The same of the simulated one."""
    last = result.last
    assert last is not None
    return {
        "status": "admitted" if last.refusal is None else last.refusal.status,
        "route": last.route or None,
        "reason": None if last.refusal is None else last.refusal.reason,
        "limit": last.limit,
        "remaining": last.remaining,
        "has_retry_after": last.retry_after is not None,
    }
