"""The answers of /v1/auth/verify: over real sockets, with a limiter that records its checks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.keys import Account
from gateway.domain.limits import MOST_LIMITS, Check, Decision
from gateway.domain.ports import LeaseLimiter
from gateway.policies.fields import parse_rate
from gateway.proxy import verify
from gateway.proxy.exchange import Exchange
from tests.kit.eventually import eventually
from tests.kit.wire import Response, bearer
from tests.proxy.conftest import Bench, Start

VERIFY = "/v1/auth/verify"
PLANS = "plans:\n  enterprise: {rate: 60/minute, burst: 100}\n"
ROUTES = """
routes:
  search: {match: GET /api/search, upstream: api, rate: 30/minute}
  hidden: {match: GET /hidden, upstream: api, scopes: ["other:read"], rate: 7/minute}
  mcp:    {match: "* /mcp", upstream: api, limits: [{name: held, concurrency: 5, mode: shadow}]}
  daily:  {match: GET /daily, upstream: api, limits: [{name: daily, quota: 9/day, per: account}]}
  api:    {match: "* /**", upstream: api}
"""
MANY = "routes:\n" + "".join(
    f"  r{number}: {{match: GET /r{number}, upstream: api, rate: {number + 1}/minute}}\n"
    for number in range(500)
)


class Watched:
    """A limiter that records its checks, and may be silent or unavailable."""

    def __init__(self, limiter: LeaseLimiter) -> None:
        self._limiter = limiter
        self.asked: list[Check] = []
        self.waiting: list[Callable[[], None]] | None = None
        self.is_away = False

    @property
    def counted(self) -> int:
        """How many checks had a cost."""
        return len([check for check in self.asked if check.cost])

    def decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        self.asked.append(check)
        if self.waiting is not None and not check.cost:
            self.waiting.append(lambda: self._decide(check, done))
        else:
            self._decide(check, done)

    def _decide(self, check: Check, done: Callable[[Decision | None], None]) -> None:
        if self.is_away and not check.cost:
            done(None)
        else:
            self._limiter.decide(check, done)

    def decide_waiting(self) -> None:
        waiting, self.waiting = self.waiting or [], None
        for decide in waiting:
            decide()

    def release(self, check: Check) -> None:
        self._limiter.release(check)


@pytest.fixture
async def bench(start: Start, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A gateway under these policies, with answers that are cached for the whole test."""
    monkeypatch.setattr(verify, "FRESH_S", 3_600.0)
    return await start(files={"plans": PLANS, "routes": ROUTES})


def watch(bench: Bench) -> Watched:
    gate = bench.gateway._context.gate
    watched = Watched(gate.limiter)
    gate.limiter = watched
    return watched


async def ask(bench: Bench, key: str | None = None, target: str = VERIFY) -> Response:
    async with await bench.connect() as wire:
        return await wire.request("GET", target, bearer(key or bench.key))


def left(answer: Response, name: str) -> int:
    (row,) = [row for row in answer.json()["limits"] if row["name"] == name]
    return int(row["remaining"])


async def test_the_whole_answer(bench: Bench) -> None:
    """Every field of the key, and a row for each limit that it can meet, the plan's first."""
    store = bench.gateway.keys
    await store.put_account(Account("acme", ("scm",)))
    key = await bench.mint(
        name="100 % 'Ünï'",
        permissions={"edr": ("read",)},
        expires_us=4_102_444_800_000_001,
    )
    await ask(bench, key, "/api/search")
    answer = await ask(bench, key)
    shown = answer.json()
    assert answer["Content-Type"] == "application/json"
    assert shown["valid"] is True
    assert shown["key"] == {
        "id": key.split("_")[2],
        "name": "100 % 'Ünï'",
        "account": "acme",
        "plan": "enterprise",
        "environment": "production",
        "scopes": ["connectors:read"],
        "permissions": {"edr": ["read"]},
        "ip_ranges": [],
        "services": ["scm"],
        "expires": "2100-01-01T00:00:00.000001Z",
    }
    rows = shown["limits"]
    assert [(row["route"], row["name"]) for row in rows] == [
        *((None, "plan"), ("search", "search"), ("mcp", "held"), ("daily", "daily")),
    ]
    assert [row.pop("reset_after") for row in rows[:3]] == [61, 61, 0]
    assert rows[:3] == [
        {
            **{
                "name": "plan",
                "route": None,
                "kind": "rate",
                "of": "requests",
                "limit": 60,
                "burst": 100,
            },
            **{
                "window_seconds": 60,
                "period": None,
                "time_zone": None,
                "per": "key",
                "mode": "enforce",
                "remaining": 59,
            },
        },
        {
            **{
                "name": "search",
                "route": "search",
                "kind": "rate",
                "of": "requests",
                "limit": 30,
                "burst": None,
            },
            **{
                "window_seconds": 60,
                "period": None,
                "time_zone": None,
                "per": "key",
                "mode": "enforce",
                "remaining": 29,
            },
        },
        {
            **{
                "name": "held",
                "route": "mcp",
                "kind": "concurrency",
                "of": "requests",
                "limit": 5,
                "burst": None,
            },
            **{"window_seconds": None, "period": None, "time_zone": None},
            **{"per": "key", "mode": "shadow", "remaining": 5},
        },
    ]
    assert 0 < rows[3]["reset_after"] <= 86_400


async def test_head_is_answered_like_get(bench: Bench) -> None:
    """The same head, and no body."""
    async with await bench.connect() as wire:
        answer = await wire.request("HEAD", VERIFY, bench.auth)
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer["Content-Length"]) > 100


async def test_it_costs_nothing_of_other_limits(bench: Bench) -> None:
    """Only its own limit counts it; the head has the plan's current values, each time."""
    watched = watch(bench)
    for expected in (60, 60, 59):
        answer = await ask(bench)
        assert (answer.status, answer["X-RateLimit-Limit"]) == (200, "60")
        assert answer["X-RateLimit-Remaining"] == str(expected)
        if watched.counted == 2:
            await ask(bench, target="/api/x")
    counted = [[limit.name for limit in check.limits] for check in watched.asked if check.cost]
    assert counted == [["auth_verify"], ["auth_verify"], ["plan"], ["auth_verify"]]


async def test_its_own_limit(start: Start) -> None:
    """Over it a key is refused like anywhere, for this limit; other keys and paths are not."""
    bench = await start(files={"plans": PLANS, "verify": "auth_verify: {rate: 2/minute}\n"})
    assert [(await ask(bench)).status for _ in range(4)] == [200, 200, 429, 429]
    refused = await ask(bench)
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(refused["Retry-After"]) <= 61
    assert (refused["X-RateLimit-Limit"], refused["X-RateLimit-Remaining"]) == ("2", "0")
    assert (await ask(bench, await bench.mint())).status == 200
    answer = await ask(bench, target="/api/x")
    assert (answer.status, answer["X-RateLimit-Remaining"]) == (200, "59")


async def test_an_answer_is_cached_for_a_moment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated request soon after gets the cached answer; later the limits are read again."""
    watched = watch(bench)
    first = await ask(bench)
    assert len(watched.asked) == 3  # its own limit, all of the key's, and the head
    await ask(bench, target="/api/search")
    again = await ask(bench)
    assert again.body == first.body
    assert len(watched.asked) == 6
    assert len(watched.asked[-1].limits) == 1
    monkeypatch.setattr(verify, "FRESH_S", 0.0)
    later = await ask(bench)
    assert (left(first, "search"), left(later, "search")) == (30, 29)


async def test_a_change_of_the_key_counts_at_once(bench: Bench) -> None:
    """After a change of the key or its account, the cached answer is not used."""
    await ask(bench)
    store = bench.gateway.keys
    (record,) = await store.records()
    await store.replace(record, replace(record, name="renamed"))
    assert (await ask(bench)).json()["key"]["name"] == "renamed"
    await store.put_account(Account("acme", ("scm",)))
    assert (await ask(bench)).json()["key"]["services"] == ["scm"]


async def test_a_reload_counts_at_once(bench: Bench) -> None:
    """Nor after a reload."""
    await ask(bench)
    gateway = bench.gateway
    plan = gateway._policy.plans["enterprise"]
    changed = replace(plan, limit=replace(plan.limit, amount=50))
    gateway._use(replace(gateway._policy, plans={"enterprise": changed}))
    answer = await ask(bench)
    assert answer["X-RateLimit-Limit"] == "50"
    assert answer.json()["limits"][0]["limit"] == 50


async def test_limits_per_address(start: Start) -> None:
    """With a limit per header or address, an answer is for one client alone."""
    routes = """
routes:
  api: {match: "* /**", upstream: api,
        limits: [{name: tenant, rate: 5/day, per: "header:x-tenant"}]}
"""
    bench = await start(files={"plans": PLANS, "routes": routes})

    async def ask(tenant: str, target: str = VERIFY) -> Response:
        async with await bench.connect() as wire:
            return await wire.request("GET", target, [*bench.auth, ("X-Tenant", tenant)])

    await ask("a", "/x")
    assert [left(await ask(tenant), "tenant") for tenant in "abab"] == [4, 5, 4, 5]


async def test_many_routes_are_read_in_one_turn(start: Start) -> None:
    """500 limits are read by 16 checks in one turn, and collected once for a plan."""
    bench = await start(files={"plans": PLANS, "routes": MANY})
    watched, verified = watch(bench), bench.gateway._context.verified
    answer = await ask(bench)
    rows = answer.json()["limits"]
    assert [row["limit"] for row in rows] == [60, *range(1, 501)]
    checks = [check for check in watched.asked if not check.cost]
    assert [len(check.limits) for check in checks] == [MOST_LIMITS] * 15 + [21, 1]
    walked = verified._met
    for _ in range(5):
        await ask(bench, await bench.mint())
    assert verified._met is walked
    assert list(walked) == [("enterprise", 1)]


async def test_concurrent_requests_share_a_check(bench: Bench) -> None:
    """Requests during a look-up wait for it, and get the same answer."""
    watched = watch(bench)
    watched.waiting = []
    waiting = [asyncio.ensure_future(ask(bench)) for _ in range(20)]
    await eventually(lambda: watched.counted == 20, "all are counted")
    assert len(watched.waiting) == 1
    watched.decide_waiting()
    answers = await asyncio.gather(*waiting)
    assert len({answer.body for answer in answers}) == 1
    assert {answer.status for answer in answers} == {200}


async def test_a_client_that_closed(bench: Bench) -> None:
    """A client that closed gets none, and the others get theirs."""
    watched = watch(bench)
    watched.waiting = []
    closing = await bench.connect()
    await closing.send(f"GET {VERIFY} HTTP/1.1\r\nHost: x\r\napiKey: {bench.key}\r\n\r\n".encode())
    await eventually(lambda: watched.counted == 1, "it is counted")
    waiting = asyncio.ensure_future(ask(bench))
    await closing.close()
    await eventually(lambda: watched.counted == 2, "so is the other")
    watched.decide_waiting()
    assert (await waiting).status == 200


async def test_an_outage(bench: Bench) -> None:
    """All waiting requests get a 503, and nothing is cached."""
    watched = watch(bench)
    watched.is_away = True
    answer = await ask(bench)
    assert (answer.status, answer.json()["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert len(bench.gateway._context.verified) == 0
    watched.is_away = False
    assert (await ask(bench)).status == 200
    watched.is_away = True  # only the head's limit is read now
    assert (await ask(bench)).status == 503


@pytest.mark.parametrize(
    ("home", "part"),
    [(verify, "_body"), (verify, "_names"), (verify, "_answer_headed"), (Exchange, "answer")],
)
async def test_an_internal_error(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    home: object,
    part: str,
) -> None:
    """If an answer cannot be built, all waiting requests get a 500 at once; the next are served."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    watched = watch(bench)
    watched.waiting = []
    with monkeypatch.context() as patched:
        patched.setattr(home, part, broken)
        waiting = [asyncio.ensure_future(ask(bench)) for _ in range(3)]
        await eventually(lambda: watched.counted == 3, "all are counted")
        watched.decide_waiting()
        answers = await asyncio.gather(*waiting)
    assert [answer.status for answer in answers] == [500] * 3
    assert "broken" in caplog.text
    assert (await ask(bench)).status == 200


async def test_the_cache_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of answers is bounded, in number and in time."""
    verified = bench.gateway._context.verified
    monkeypatch.setattr(verify, "MOST_KEPT", 5)
    for _ in range(8):
        await ask(bench, await bench.mint())
    assert len(verified) == 5
    monkeypatch.setattr(verify, "FRESH_S", 0.0)
    await ask(bench)
    assert len(verified) == 1


def test_a_row_is_json() -> None:
    """The row that is built by hand is valid JSON, for any limit."""
    begun = verify._row(parse_rate("5/day", name="a-b.c_d"), "x")
    row: dict[str, Any] = json.loads(begun + '"remaining": 1}')
    assert (row["name"], row["route"], row["window_seconds"]) == ("a-b.c_d", "x", 86_400.0)
