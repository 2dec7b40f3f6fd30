"""Usage as operators read it: the store has the same numbers as the access log."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from gateway.domain.networks import parse_network
from gateway.domain.usage import GRAIN_S
from gateway.domain.warnings import KeptWarning
from gateway.stores.audit.store import RedisAuditStore
from gateway.stores.keys.store import RedisKeyStore
from gateway.stores.usage.store import RedisUsageStore
from gateway.stores.warnings.store import RedisWarningStore
from tests.end_to_end.conftest import Serve, Site, add_key, build_key
from tests.end_to_end.test_outage import number
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway, keys_command
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.upstream import reply
from tests.kit.usage_counts import Counts, logged, used
from tests.kit.wire import Wire, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")

TWO = ("--workers", "2")
#: An outage must be noticed soon here: known keys are served without the store.
SOON = "store: {timeout: 200ms}\n"


@dataclass
class Rig:
    """A separate store, and what is in it."""

    server: RedisServer
    keys: RedisKeyStore
    usage: RedisUsageStore
    warnings: RedisWarningStore
    audit: RedisAuditStore
    ids: list[str]

    async def key(self, plan: str = "free", **fields) -> str:
        text, record = await add_key(self.keys, plan, **fields)
        self.ids.append(record.id)
        return text

    async def warned(self, limit: str) -> list[KeptWarning]:
        """The warnings about this limit."""
        return [one for one in await self.warnings.newest() if one.limit == limit]

    async def agrees(self, gateway: ServedGateway, requests: int) -> Counts:
        """Wait until the log has this many requests, and the store the same; return the counts."""

        async def does() -> bool:
            counts = logged(gateway.log_lines())
            return sum(counts.values()) == requests and await used(self.usage, self.ids) == counts

        await eventually(does, "usage equals the access log's counts")
        return logged(gateway.log_lines())


@pytest_asyncio.fixture(loop_scope="session")
async def rig() -> AsyncIterator[Rig]:
    server = RedisServer(*DURABLE).start()
    try:
        async with Redis(port=server.port) as client:
            yield Rig(
                server,
                RedisKeyStore(client),
                RedisUsageStore(client),
                RedisWarningStore(client),
                RedisAuditStore(client),
                [],
            )
    finally:
        server.stop()


async def ask(gateway: ServedGateway, key: str | None, target: str, times: int) -> list[int]:
    """Send this many requests, each on a new connection: both workers get some."""
    asked = (gateway.fetch(target, key=key) for _ in range(times))
    return [answer.status for answer in await asyncio.gather(*asked)]


async def test_usage_is_what_the_log_says(serve: Serve, rig: Rig) -> None:
    """Every line of the access log is one request in usage, whatever its outcome."""
    gateway = await serve(*TWO, store=rig.server.url)
    good, busy = await rig.key(), await rig.key("brisk")
    elsewhere = await rig.key(networks=(parse_network("192.0.2.0/24"),))
    revoked = await rig.key(status="revoked")
    assert set(await ask(gateway, good, "/api/x", 20)) == {200}
    assert 429 in await ask(gateway, busy, "/api/search/x", 20)
    assert set(await ask(gateway, elsewhere, "/api/x", 3)) == {403}
    assert set(await ask(gateway, good, "/v1/connectors", 4)) == {403}
    assert set(await ask(gateway, revoked, "/api/x", 5)) == {401}
    assert set(await ask(gateway, build_key("free")[0], "/api/x", 2)) == {401}
    assert set(await ask(gateway, None, "/api/x", 3)) == {401}
    assert set(await ask(gateway, good, "/nowhere", 2)) == {404}
    assert set(await ask(gateway, None, "/public/x", 2)) == {200}
    assert set(await ask(gateway, good, "/v1/auth/verify", 2)) == {200}
    assert set(await ask(gateway, None, "/health", 2)) == {200}
    async with await Wire.connect(gateway.port) as wire:
        await wire.send(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        assert (await wire.read_response()).status == 400

    counts = await rig.agrees(gateway, 66)
    good_id, busy_id, elsewhere_id, revoked_id = rig.ids
    assert counts[good_id, "api", "admitted:2xx"] == 20
    assert counts[good_id, "connectors", "refused:insufficient_scope"] == 4
    assert counts[busy_id, "search", "limited:plan"] > 0
    assert counts[elsewhere_id, "api", "refused:ip_not_allowed"] == 3
    assert counts[revoked_id, "api", "refused:key_revoked"] == 5
    assert counts["", "none", "refused:bad_host"] == 1
    for grain in GRAIN_S:
        assert await used(rig.usage, rig.ids, grain) == counts
    await rig.usage.merge("nobody", int(time.time()) + 3_600)
    for grain in GRAIN_S:
        assert await used(rig.usage, rig.ids, grain) == counts
    assert await rig.usage.plans() == ["", "brisk", "free"]
    now_s = int(time.time())
    for grain, width_s in GRAIN_S.items():
        busiest = await rig.usage.busiest(grain, now_s - 2 * width_s, now_s + 1, 3)
        assert busiest[0] == (good_id, 28)
    shown = await keys_command(rig.server.url, "usage", good_id, "--window", "1h")
    assert shown["totals"] == {
        **{"admitted": 22, "refused:insufficient_scope": 4},
        **{"refused:not_found": 2},
    }
    assert shown["routes"]["api"] == {"admitted": 20}


async def test_statuses_and_bytes_of_answers(serve: Serve, rig: Rig, site: Site) -> None:
    """An upstream's 5xx is a failure; bytes are those of the bodies, and each has a latency."""
    gateway = await serve(*TWO, store=rig.server.url)
    key = await rig.key()
    for status, times in ((200, 3), (404, 2), (500, 1)):
        site.upstream.script = reply(status, b"x" * status)
        for _ in range(times):
            answer = await gateway.fetch("/api/x", method="POST", body=b"12345", key=key)
            assert answer.status == status
    counts = await rig.agrees(gateway, 6)
    outcomes = {outcome: number for (_, _, outcome), number in counts.items()}
    assert outcomes == {"admitted:2xx": 3, "admitted:4xx": 2, "failed:5xx": 1}
    shown = await keys_command(rig.server.url, "usage", rig.ids[0], "--window", "1h")
    assert shown["groups"] == {"admitted": 5, "limited": 0, "refused": 0, "failed": 1}
    assert shown["statuses"] == {"1xx": 0, "2xx": 3, "3xx": 0, "4xx": 2, "5xx": 1}
    assert shown["measures"]["bytes_in"] == 30
    assert shown["measures"]["bytes_out"] == 3 * 200 + 2 * 404 + 500
    assert shown["measures"]["latency_ms"]["p50"] > 0


@pytest.mark.parametrize("how", ["paused", "killed"])
async def test_none_is_lost_over_an_outage(serve: Serve, rig: Rig, how: str) -> None:
    """Requests during an outage are counted after the recovery: all of them, once."""
    gateway = await serve(*TWO, store=rig.server.url, settings=SOON)
    key = await rig.key("enterprise")
    await ask(gateway, key, "/api/x", 20)
    # Probably while a write is in progress.
    if how == "paused":
        rig.server.pause()
    else:
        rig.server.kill()
    for _ in range(3):
        await ask(gateway, key, "/api/x", 10)
        await ask(gateway, None, "/api/x", 5)
    await eventually(lambda: is_down(gateway), "the loss is noticed")
    rig.server.revive()
    await ask(gateway, key, "/api/x", 10)
    counts = await rig.agrees(gateway, 75)
    assert counts[rig.ids[0], "api", "admitted:2xx"] > 0


async def is_down(gateway: ServedGateway) -> bool:
    return await number(gateway, "gateway_store_up") == 0


async def test_a_worker_dies(serve: Serve, rig: Rig) -> None:
    """A killed worker loses only the counts it had not written yet; none counts twice."""
    gateway = await serve(*TWO, store=rig.server.url)
    before, at_the_end, after = [await rig.key("enterprise") for _ in range(3)]
    await ask(gateway, before, "/api/x", 20)
    await rig.agrees(gateway, 20)
    await ask(gateway, at_the_end, "/api/x", 20)
    await eventually(lambda: len(gateway.log_lines()) == 40, "the log has all of it")
    dying = gateway.worker_pids()[0]
    os.kill(dying, signal.SIGKILL)
    await eventually(
        lambda: dying not in (pids := gateway.worker_pids()) and len(pids) == 2,
        "another one is there",
    )
    await eventually(lambda: is_served(gateway), "both take requests")
    await ask(gateway, after, "/api/x", 20)

    async def is_counted() -> bool:
        found = await used(rig.usage, rig.ids[2:])
        return found[rig.ids[2], "api", "admitted:2xx"] == 20

    await eventually(is_counted, "what came afterwards is counted")
    found = await used(rig.usage, rig.ids)
    assert found[rig.ids[0], "api", "admitted:2xx"] == 20
    assert found[rig.ids[1], "api", "admitted:2xx"] <= 20


async def is_served(gateway: ServedGateway) -> bool:
    try:
        return set(await ask(gateway, None, "/health", 4)) == {200}
    except OSError:
        return False


async def test_a_stop_writes_all_counts(serve: Serve, rig: Rig) -> None:
    """A gateway writes all its counts when it stops."""
    gateway = await serve(*TWO, store=rig.server.url)
    key = await rig.key()
    await ask(gateway, key, "/api/x", 20)
    assert await gateway.stop() == 0
    assert await used(rig.usage, rig.ids) == logged(gateway.log_lines())


async def test_limits_are_warned_of(serve: Serve, rig: Rig) -> None:
    """A counter that comes near its limit, and reaches it, causes one warning each in total."""
    gateways = [await serve(*TWO, store=rig.server.url) for _ in range(2)]
    key = await rig.key()
    for gateway in gateways:
        await ask(gateway, key, "/api/search/x", 40)

    async def is_counted() -> bool:
        lines = [
            f'gateway_limit_warnings_total{{level="{level}",limit="search",plan="free"}}'
            for level in (80, 100)
        ]
        seen = [sum([await number(one, line) for one in gateways]) for line in lines]
        return seen == [1, 1]

    await eventually(is_counted, "each level is counted once")

    async def is_warned() -> bool:
        return {80, 100} <= {one.level for one in await rig.warned("search")}

    await eventually(is_warned, "each level is warned of")
    warned = await rig.warned("search")
    assert sorted(one.level for one in warned) == [80, 100]
    assert {(one.key_id, one.plan) for one in warned} == {(rig.ids[0], "free")}
    async with await Wire.connect(gateways[0].port) as wire:
        for _ in range(10):
            assert (await wire.request("GET", "/api/search/x", bearer(key))).status == 429
    assert await rig.warned("search") == warned
    assert await rig.audit.entries() == []
