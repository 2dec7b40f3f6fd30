"""The limits of the service, counted over real requests."""

from __future__ import annotations

import asyncio

import pytest

from tests.end_to_end.conftest import Serve, Site
from tests.kit.wire import Response, Wire, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def send(site: Site, key: str, method: str, target: str, times: int) -> list[Response]:
    """Send the same request this many times over one connection."""
    body = b"{}" if method == "POST" else None
    async with await Wire.connect(site.gateway.port) as wire:
        return [await wire.request(method, target, bearer(key), body) for _ in range(times)]


async def test_free_gets_a_hundred_at_once(site: Site) -> None:
    """60 a minute are advertised and counted down to 0, 40 more are admitted, then it is 429."""
    answers = await send(site, await site.key("free"), "GET", "/api/things", 100)
    assert [answer.status for answer in answers] == [200] * 100
    assert {answer["X-RateLimit-Limit"] for answer in answers} == {"60"}
    remaining = [int(answer["X-RateLimit-Remaining"]) for answer in answers]
    assert remaining == [*range(59, -1, -1), *[0] * 40]


async def test_the_refusal_says_when(site: Site) -> None:
    """A 429 has Retry-After, the same value in its body, and all headers."""
    key = await site.key("free")
    refused = next(
        answer
        for answer in await send(site, key, "GET", "/api/things", 300)
        if answer.status == 429
    )
    error = refused.json()["error"]
    assert set(error) == {"code", "message", "retry_after", "request_id"}
    assert error["request_id"] == refused["X-Request-Id"]
    assert error["code"] == "rate_limit_exceeded"
    assert error["retry_after"] == int(refused["Retry-After"]) >= 1
    assert (refused["X-RateLimit-Limit"], refused["X-RateLimit-Remaining"]) == ("60", "0")
    assert int(refused["X-RateLimit-Reset-After"]) >= error["retry_after"]


@pytest.mark.parametrize(
    ("method", "target", "limit"),
    [
        ("GET", "/api/search/anything", 30),
        ("POST", "/api/tickets/batch", 10),
        ("POST", "/api/v1/items/batch", 10),
        ("POST", "/api/batch", 10),
        ("POST", "/api/webhooks/test", 5),
    ],
)
async def test_a_routes_limit_counts_beside_the_plans(
    site: Site, method: str, target: str, limit: int
) -> None:
    """The route's limit applies, whatever remains of the plan's; refusals cost the plan nothing."""
    key = await site.key("free")
    answers = await send(site, key, method, target, limit + 5)
    assert [answer.status for answer in answers] == [200] * limit + [429] * 5
    assert {answer["X-RateLimit-Limit"] for answer in answers} == {str(limit)}
    remaining = [int(answer["X-RateLimit-Remaining"]) for answer in answers]
    assert remaining == [*range(limit - 1, -1, -1), *[0] * 5]
    assert len(site.upstream.requests) == limit
    (plain,) = await send(site, key, "GET", "/api/things", 1)
    assert (plain["X-RateLimit-Limit"], plain["X-RateLimit-Remaining"]) == ("60", str(59 - limit))


async def test_the_plan_refuses_and_the_route_counts_nothing(site: Site) -> None:
    """A request that the plan refuses does not count for the route, either."""
    key = await site.key("free")
    answers = await send(site, key, "GET", "/api/things", 100)
    assert answers[-1].status == 200
    (refused,) = await send(site, key, "POST", "/api/webhooks/test", 1)
    assert (refused.status, refused["X-RateLimit-Limit"]) == (429, "60")
    assert len(site.upstream.requests) == 100


async def test_keys_do_not_share(site: Site) -> None:
    """Keys count separately, even those of one account."""
    one, two = await site.key(account="acme"), await site.key(account="acme")
    await send(site, one, "POST", "/api/webhooks/test", 6)
    (answer,) = await send(site, two, "POST", "/api/webhooks/test", 1)
    assert (answer.status, answer["X-RateLimit-Remaining"]) == (200, "4")


async def test_waiting_retry_after_is_enough(site: Site) -> None:
    """A client that is refused and waits for Retry-After is admitted, if it is the only one."""
    key = await site.key("brisk")
    async with await Wire.connect(site.gateway.port) as wire:
        for _ in range(3):
            while (answer := await wire.request("GET", "/api/x", bearer(key))).status == 200:
                pass
            assert answer.status == 429
            await asyncio.sleep(int(answer["Retry-After"]))
            assert (await wire.request("GET", "/api/x", bearer(key))).status == 200


async def test_a_hundred_tasks_on_two_gateways(site: Site) -> None:
    """However many requests at once, on both gateways exactly the limit is admitted."""
    key = await site.key("free")

    async def ask(number: int) -> int:
        gateway = (site.gateway, site.other)[number % 2]
        async with await Wire.connect(gateway.port) as wire:
            answers = [await wire.request("GET", "/api/x", bearer(key)) for _ in range(3)]
        return sum(answer.status == 200 for answer in answers)

    # More would fit the bucket's refill, but not the promise of 100 in any minute.
    assert sum(await asyncio.gather(*(ask(number) for number in range(100)))) == 100
    assert len(site.upstream.requests) == 100


IDS = """
routes:
  ids: {match: POST /ids, upstream: api, rate: 50/minute, cost: {json: ids, max: 10}}
"""


async def test_elements_on_two_gateways(site: Site, serve: Serve) -> None:
    """Batches of three at once, on both gateways: as many are admitted as have 50 elements."""
    plans = "plans: {free: {rate: 60/minute}}"
    gateways = [await serve(routes=IDS, plans=plans) for _ in range(2)]
    key = await site.key("free")
    fields = [*bearer(key), ("Content-Type", "application/json")]

    async def ask(number: int) -> int:
        async with await Wire.connect(gateways[number % 2].port) as wire:
            answer = await wire.request("POST", "/ids", fields, b'{"ids": [1, 2, 3]}')
        return answer.status

    statuses = await asyncio.gather(*(ask(number) for number in range(40)))
    assert sorted(statuses) == [200] * 16 + [429] * 24
    async with await Wire.connect(gateways[0].port) as wire:
        for body, status in ((b'{"ids": [1, 2, 3]}', 429), (b'{"ids": [1, 2]}', 200)):
            answer = await wire.request("POST", "/ids", fields, body)
            assert (answer.status, answer["X-RateLimit-Remaining"]) == (status, "0")
    assert len(site.upstream.requests) == 17


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "DELETE", "PATCH", "BREW"])
async def test_every_method_counts(site: Site, method: str) -> None:
    """Every method is decided, counted and forwarded unchanged."""
    key = await site.key("free")
    (answer,) = await send(site, key, method, "/api/things", 1)
    assert (answer.status, answer["X-RateLimit-Remaining"]) == (200, "59")
    assert site.upstream.requests[0].method == method
    async with await Wire.connect(site.gateway.port) as wire:
        assert (await wire.request(method, "/api/things")).status == 401


async def test_head_meets_gets_limit(site: Site) -> None:
    """HEAD takes GET's route and its limits."""
    key = await site.key("free")
    (answer,) = await send(site, key, "HEAD", "/api/search/x", 1)
    assert (answer["X-RateLimit-Limit"], answer["X-RateLimit-Remaining"]) == ("30", "29")
