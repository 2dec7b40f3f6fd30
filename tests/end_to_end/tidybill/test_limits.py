"""The limits of the example: of plans and routes, by key, account, address and header."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from tests.end_to_end.test_observed import counted
from tests.kit.eventually import eventually
from tests.kit.tidybill import API, APP, Service, Tidybill
from tests.kit.upstream import Exchange, echo
from tests.kit.wire import Response

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = [("Content-Type", "application/json")]


async def send(
    tidybill: Tidybill, url: str, times: int, *, method: str = "GET", **sent: str | None
) -> list[Response]:
    """The answers to equal requests on one connection. sent: `key` and `client`"""
    host, slash, path = url.partition("/")
    headers = tidybill.headers(host, **sent)
    async with tidybill.connect(host) as wire:
        return [await wire.request(method, slash + path, headers) for _ in range(times)]


def statuses(answers: list[Response]) -> dict[int, int]:
    """How many answers have each status."""
    found = [answer.status for answer in answers]
    return {status: found.count(status) for status in sorted(set(found))}


async def test_the_plan_trial(tidybill: Tidybill) -> None:
    """A burst of a hundred; also for a key from the time when the plan was called "free"."""
    for plan in ("trial", "free"):
        key = await tidybill.key(plan)
        answers = await send(tidybill, f"{API}/v1/customers/7", 101, key=key)
        # A unit a second comes back meanwhile.
        assert [each.status for each in answers[:100]] == [200] * 100
        assert answers[0]["X-RateLimit-Limit"] == "60"
        assert '"monthly";q=5000' in answers[0]["RateLimit-Policy"]


async def test_plans_have_their_own_rates_of_searches(tidybill: Tidybill) -> None:
    """30 a minute, 60 for a browser, 120 and 600 for customers; each key has its own."""
    url = f"{API}/v1/search?q=x"
    rates = {"trial": 30, "browser": 60, "team": 120, "business": 600}
    for plan, rate in rates.items():
        (answer,) = await send(tidybill, url, 1, key=await tidybill.key(plan))
        assert (answer["X-RateLimit-Limit"], answer["X-RateLimit-Remaining"]) == (
            str(rate),
            str(rate - 1),
        )
    key = await tidybill.key("trial")
    answers = await send(tidybill, url, 33, key=key)
    assert statuses(answers) == {200: 30, 429: 3}
    assert int(answers[-1]["Retry-After"]) > 0
    assert (await tidybill.line(answers[-1]))["limit"] == "search"


async def test_a_quota_that_is_tried_out(tidybill: Tidybill) -> None:
    """It counts each search, and clients are not told of it."""
    key = await tidybill.key()
    answers = await send(tidybill, f"{API}/v1/search?q=x", 3, key=key)
    assert statuses(answers) == {200: 3}
    assert "search-daily" not in answers[0]["RateLimit-Policy"]
    shown = await tidybill.fetch(f"{API}/v1/auth/verify", key=key)
    (limit,) = [each for each in shown.json()["limits"] if each["name"] == "search-daily"]
    assert (limit["mode"], limit["remaining"]) == ("shadow", 4997)


async def test_a_candidate(tidybill: Tidybill) -> None:
    """Of 121 invoices the limit refuses one; half the rate would refuse 61."""
    name, labels = "gateway_limit_candidate_total", {"limit": "invoices-create"}
    before = await counted(tidybill.gateway, name, **labels, outcome="only_candidate_refuses")
    key = await tidybill.key()
    answers = await send(tidybill, f"{API}/v1/invoices", 121, method="POST", key=key)
    assert statuses(answers) == {200: 120, 429: 1}

    async def is_compared() -> bool:
        found = await counted(tidybill.gateway, name, **labels, outcome="only_candidate_refuses")
        return found == before + 60

    await eventually(is_compared, "60 requests that only the candidate would refuse")


async def test_each_invoice_of_a_batch_counts(tidybill: Tidybill) -> None:
    """Fifty at most, in the route's limit and the plan's."""
    key = await tidybill.key("trial")

    async def batch(size: int) -> Response:
        body = json.dumps({"invoices": [{"number": each} for each in range(size)]}).encode()
        return await tidybill.fetch(
            f"{API}/v1/invoices/batch", key=key, method="POST", headers=JSON, body=body
        )

    too_large = await batch(51)
    assert (too_large.status, too_large.json()["code"]) == (413, "COST_TOO_HIGH")
    assert [(await batch(50)).status for _ in range(2)] == [200, 200]
    refused = await batch(50)
    assert refused.status == 429
    assert (await tidybill.line(refused))["limit"] == "plan"


async def test_rows_of_an_import(tidybill: Tidybill) -> None:
    """As many units as X-Rows says; all that may be, without it. The plan is not asked."""
    key = await tidybill.key("trial")

    async def remaining(*headers: tuple[str, str]) -> int:
        url = f"{API}/v1/imports"
        answer = await tidybill.fetch(url, key=key, method="POST", headers=headers, body=b"a;b")
        assert (answer.status, answer["X-RateLimit-Limit"]) == (200, "10000")
        return int(answer["X-RateLimit-Remaining"])

    assert await remaining(("X-Rows", "40")) == 9960
    assert await remaining() == 8960


async def test_each_company_has_its_rate_of_reports(tidybill: Tidybill) -> None:
    """With one key for many companies."""
    key, url = await tidybill.key(), f"{API}/v1/reports/taxes"
    for company in ("north", "south"):
        headers = [("X-Company", company)]
        found = [await tidybill.fetch(url, key=key, headers=headers) for _ in range(11)]
        assert statuses(found) == {200: 10, 429: 1}


async def test_e_mails_of_an_account(tidybill: Tidybill) -> None:
    """Its keys share the quota of a day, and the plan has a larger one."""
    url = f"{API}/v1/invoices/7/send"
    policy = {"trial": '"emails";q=500;', "business": '"emails";q=20000;'}
    for plan, part in policy.items():
        keys = [await tidybill.key(plan, f"mailing-{plan}") for _ in range(2)]
        remaining = []
        for key in keys:
            (answer,) = await send(tidybill, url, 1, method="POST", key=key)
            assert part in answer["RateLimit-Policy"]
            remaining.append(parts_of(answer["RateLimit"])["emails"])
        assert remaining[1] == remaining[0] - 1


def parts_of(field: str) -> dict[str, int]:
    """The units that remain, by limit: of '"plan";r=59;t=60, "emails";r=499;t=3600'."""
    parts = [part.strip().split(";") for part in field.split(",")]
    return {name.strip('"'): int(remaining.removeprefix("r=")) for name, remaining, *_ in parts}


@pytest.mark.parametrize(
    ("path", "method", "plan", "most", "limit"),
    [
        ("/v1/invoices/7/pdf", "GET", "business", 2, "pdfs"),
        ("/v1/exports", "POST", "business", 1, "exports-running"),
        ("/v1/events", "GET", "trial", 3, "streams"),
        ("/v1/invoices/7", "GET", "team", 20, "in-progress"),
    ],
)
async def test_requests_in_progress(
    tidybill: Tidybill, path: str, method: str, plan: str, most: int, limit: str
) -> None:
    """One more is refused, and admitted when another one has ended."""
    key, url = await tidybill.key(plan), f"{API}{path}"
    release = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await release.wait()
        await echo(exchange)

    # The account of the key may be one of the tenth whose requests the canary gets.
    services: list[Service] = [tidybill.services[name] for name in ("large", "small", "next")]
    before = sum(len(service.requests) for service in services)
    for service in services:
        service.answer = held
    async with AsyncExitStack() as stack:
        stack.callback(release.set)
        waiting = [
            asyncio.create_task(tidybill.fetch(url, key=key, method=method)) for _ in range(most)
        ]
        await eventually(
            lambda: sum(len(service.requests) for service in services) == before + most,
            "all are in progress",
        )
        refused = await tidybill.fetch(url, key=key, method=method)
        assert (refused.status, refused["Retry-After"]) == (429, "1")
        assert (await tidybill.line(refused))["limit"] == limit
    assert statuses(list(await asyncio.gather(*waiting))) == {200: most}

    async def is_admitted() -> bool:
        return (await tidybill.fetch(url, key=key, method=method)).status == 200

    await eventually(is_admitted, "the leases are released")


@pytest.mark.parametrize(
    ("method", "url", "amount"),
    [
        ("GET", f"{API}/v1/status", 30),
        ("POST", f"{APP}/session", 10),
        ("POST", f"{APP}/pay/8c/confirm", 5),
    ],
)
async def test_limits_by_address(tidybill: Tidybill, method: str, url: str, amount: int) -> None:
    """Without a key; another address has its own."""
    client = f"203.0.113.{100 + amount}"
    answers = await send(tidybill, url, amount + 1, method=method, client=client)
    assert statuses(answers) == {200: amount, 429: 1}
    assert (await tidybill.fetch(url, method=method)).status == 200


async def test_a_person_reads_that_it_was_too_much(tidybill: Tidybill) -> None:
    """The page of errors, and when to come back."""
    headers = tidybill.headers(APP, client="203.0.113.90", more=[("Accept", "text/html")])
    async with tidybill.connect(APP) as wire:
        answers = [await wire.request("DELETE", "/session", headers) for _ in range(11)]
    assert "<h1>This did not work</h1>" in answers[-1].body.decode()
    assert int(answers[-1]["Retry-After"]) > 0
