"""The story of one customer, on two gateways and one store, across the end of a month."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from gateway.domain.counters import PREFIX
from gateway.stores.names import reset_name
from gateway.stores.redis.embedded import find_server_binary
from tests.end_to_end.conftest import Serve, Site
from tests.end_to_end.test_reload import rewrite
from tests.kit.command import run_aside
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway, create_key, keys_command
from tests.kit.needs import needs
from tests.kit.redis_server import RedisServer
from tests.kit.skewed import FAKETIME, MovedClock
from tests.kit.wire import Response

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs(FAKETIME)]

MONTHLY = "limits: [{name: monthly, quota: %d/month, from: account, per: account}]"
PLANS = f"""
plans:
  free: {{rate: 60/minute, burst: 100, {MONTHLY % 150}}}
  pro: {{rate: 600/minute, burst: 1000, {MONTHLY % 1000}}}
"""
RENAMED = PLANS.replace("free: {", "starter: {was: free, ").replace(
    "name: monthly", "name: per-month, was: monthly"
)
ROUTES = """
routes:
  search: {match: GET /api/search/*, upstream: api, rate: 30/minute}
  api: {match: "* /**", upstream: api}
"""


class Story:
    """Two gateways, whose store has a clock that moves."""

    def __init__(self, clock: MovedClock, store: str, gateways: list[ServedGateway]) -> None:
        self.clock = clock
        self.store = store
        self.gateways = gateways
        self.key = ""

    async def send(self, count: int, path: str = "/api/x") -> list[Response]:
        """Requests one after the other, at the gateways in turn."""
        return [
            await self.gateways[number % 2].fetch(path, key=self.key) for number in range(count)
        ]

    async def admitted(self, count: int, path: str = "/api/x") -> int:
        return sum(answer.status == 200 for answer in await self.send(count, path))

    async def move(self, key_id: str, seconds: int) -> None:
        """Set the store's clock forward. Gateways cache refusals by their own clocks: these end."""
        self.clock.move(seconds)
        async with Redis.from_url(self.store) as client:
            await client.set(reset_name(PREFIX), b"", px=1_000)
        # A worker learns of changes in their order.
        name = f"after {self.clock.shift_s} s"
        await keys_command(self.store, "edit", key_id, "--name", name)

        async def is_known() -> bool:
            answers = [
                await gateway.fetch("/v1/auth/verify", key=self.key) for gateway in self.gateways
            ]
            return all(answer.json()["key"]["name"] == name for answer in answers)

        await eventually(is_known, "both know the key's new name")

    async def until_reported(self, limit: str) -> None:
        """Wait until both gateways report this limit of the plan."""

        async def is_reported() -> bool:
            answers = [
                await gateway.fetch("/v1/auth/verify", key=self.key) for gateway in self.gateways
            ]
            rows = [answer.json()["limits"] for answer in answers]
            return all(limit in {f"{row['name']}={row['limit']}" for row in each} for each in rows)

        await eventually(is_reported, f"both report {limit}", 20)

    async def until_left(self, month: int, searches: int) -> None:
        """Wait until a gateway reports this; it caches the answer for a second."""

        async def is_left() -> bool:
            answer = await self.gateways[1].fetch("/v1/auth/verify", key=self.key)
            left = {row["name"]: row["remaining"] for row in answer.json()["limits"]}
            return (left["per-month"], left["find"]) == (month, searches)

        await eventually(is_left, f"{month} of the month and {searches} searches are left")

    async def account(self, *options: str) -> None:
        policies = str(self.gateways[0].policies)
        words = ("accounts", "set", "acme", "--store", self.store, "--policies", policies, *options)
        done = await run_aside(*words)
        assert done.returncode == 0, done.stderr


@pytest_asyncio.fixture(loop_scope="session")
async def story(site: Site, serve: Serve, tmp_path: Path) -> AsyncIterator[Story]:
    clock = MovedClock(tmp_path / "clock")
    async with AsyncExitStack() as stack:
        # Debian's redis-server, with jemalloc, does not start with the library.
        server = RedisServer(binary=find_server_binary(), environ=clock.environ).start()
        stack.callback(server.stop)
        gateways = [await serve(store=server.url, plans=PLANS, routes=ROUTES) for _ in range(2)]
        yield Story(clock, server.url, gateways)
        for gateway in gateways:
            assert "Traceback" not in gateway.output()


async def test_two_hours_of_a_customer(story: Story) -> None:
    """Create, use up, upgrade, rename, month's end, downgrade: each is felt at once, on both
    gateways, and nothing that was counted is lost or counted twice.
    """
    # The clock stands at a quarter to midnight before the account's billing day.
    today = datetime.fromtimestamp(story.clock.now_s(), UTC)
    tomorrow_s = 86_400 - today.timestamp() % 86_400
    story.clock.move(math.ceil(tomorrow_s) - 15 * 60 + (86_400 if tomorrow_s < 16 * 60 else 0))
    day = (datetime.fromtimestamp(story.clock.now_s() + 3_600, UTC)).day
    await story.account("--plan", "free", "--billing-day", str(day))
    key_id, story.key = await create_key(story.store, story.gateways[0].policies, account="acme")
    await keys_command(story.store, "edit", key_id, "--plan", "free")

    # Used up: 100 in a minute, then the rest of the month's 150.
    assert await story.admitted(110) == 100
    refused = (await story.send(1))[0]
    assert (refused.status, refused["X-RateLimit-Limit"]) == (429, "60")
    await story.move(key_id, 120)
    assert await story.admitted(60) == 50
    refused = (await story.send(1))[0]
    assert (refused.status, refused["X-RateLimit-Limit"]) == (429, "150")
    assert int(refused["Retry-After"]) <= 13 * 60

    # The upgrade is felt at once: 850 of the month are left, and nearly all of the burst.
    await keys_command(story.store, "edit", key_id, "--plan", "pro")
    await story.until_reported("plan=600")
    answer = (await story.send(1))[0]
    assert (answer.status, answer["X-RateLimit-Limit"]) == (200, "600")
    # A value of its own for a limit of a route.
    await keys_command(story.store, "edit", key_id, "--limit", "search=5/minute")
    await story.until_reported("search=5")
    assert await story.admitted(8, "/api/search/x") == 5

    # Plan, limit and route get other names: counters, values and plans of keys stay.
    for gateway in story.gateways:
        rewrite(gateway, "plans", RENAMED)
        rewrite(gateway, "routes", ROUTES.replace("search: {", "find: {was: search, "))
    await story.until_reported("per-month=1000")
    assert await story.admitted(3, "/api/search/x") == 0
    await story.until_left(1000 - 150 - 6, 0)

    # The month ends.
    await story.move(key_id, 15 * 60)
    assert await story.admitted(5) == 5
    await story.until_left(995, 5)
    assert await story.admitted(200) == 200

    # The downgrade, by the plan's old name: more than the month's 150 is used already.
    await keys_command(story.store, "edit", key_id, "--plan", "free")
    await story.until_reported("per-month=150")
    answers = await story.send(4)
    assert {answer.status for answer in answers} == {429}
    assert {answer["X-RateLimit-Limit"] for answer in answers} == {"150"}
    # An hour later nothing has changed for the month, but the plan is the renamed one.
    await story.move(key_id, 3_600)
    verified = (await story.gateways[0].fetch("/v1/auth/verify", key=story.key)).json()
    assert verified["key"]["plan"] == "starter"
    assert await story.admitted(2) == 0
    # A month of its own helps at once.
    own = "--limit", "per-month=400/month"
    await story.account("--plan", "pro", "--billing-day", str(day), *own)
    await story.until_reported("per-month=400")
    assert await story.admitted(120) == 100
