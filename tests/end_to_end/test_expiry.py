"""Keys expire by the store's time: gateways with clocks an hour off agree on each key."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.end_to_end.conftest import Site
from tests.kit.gateway import ServedGateway, run_command
from tests.kit.needs import needs
from tests.kit.skewed import FAKETIME, clean_up, skewed
from tests.kit.upstream import Exchange
from tests.kit.wire import Wire, bearer, build_request, fetch

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs(FAKETIME)]

HOUR_S = 3_600
MINUTE_US = 60_000_000


def store_us() -> int:
    """The store is on this machine, whose clock is right."""
    return time.time_ns() // 1000


def is_since(before_us: int, moment_us: int) -> bool:
    """Is a command's moment between its start and its end, which is now?

    Its reading of the store's clock may be wrong by a round trip, which is shorter than all of it.
    """
    now_us = store_us()
    most_us = now_us - before_us
    return before_us - most_us <= moment_us <= now_us + most_us


@pytest.fixture(scope="module", params=[-HOUR_S, HOUR_S], ids=["behind", "ahead"])
def skew_s(request: pytest.FixtureRequest) -> float:
    return float(request.param)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def gateway(
    _site: Site, tmp_path_factory: pytest.TempPathFactory, skew_s: float
) -> AsyncIterator[ServedGateway]:
    """A gateway on the site's store whose host's clock is wrong."""
    folder = tmp_path_factory.mktemp("skewed")
    served = ServedGateway(folder, _site.policies, _site.store, environment=skewed(skew_s))
    try:
        async with served:
            yield served
    finally:
        clean_up()


async def listed(gateway: ServedGateway, status: str, key_id: str) -> list[dict[str, Any]]:
    """The admin API's list of keys with a status, reduced to this key."""
    target = f"/admin/v1/keys?status={status}&text={key_id}"
    host = ("Host", f"127.0.0.1:{gateway.admin_port}")
    answer = await fetch(gateway.admin_port, target, key=gateway.admin_token, headers=[host])
    assert answer.status == 200, answer.body
    return list(answer.json()["items"])


async def test_a_key_is_good_until_the_store_says_so(site: Site, gateway: ServedGateway) -> None:
    """A key with half an hour left is admitted, one that expired half an hour ago is not."""
    good = await site.key(expires_us=store_us() + 30 * MINUTE_US)
    expired = await site.key(expires_us=store_us() - 30 * MINUTE_US)
    for served in (site.gateway, gateway):
        assert (await served.fetch("/api/things", key=good)).status == 200
        assert (await served.fetch("/v1/auth/verify", key=good)).status == 200
        refused = await served.fetch("/api/things", key=expired)
        assert refused.status == 401
        assert "expired" in refused.json()["message"]


async def test_the_admin_pages_go_by_the_store(site: Site, gateway: ServedGateway) -> None:
    """The admin pages show keys as expired, and compute new expiries, by the store's time."""
    good, expired = [
        (await site.key(expires_us=store_us() + minutes * MINUTE_US)).split("_")[2]
        for minutes in (30, -30)
    ]
    assert [key["status"] for key in await listed(gateway, "valid", good)] == ["valid"]
    assert [key["status"] for key in await listed(gateway, "expired", expired)] == ["expired"]
    assert await listed(gateway, "expired", good) == await listed(gateway, "valid", expired) == []


async def test_commands_go_by_the_store(site: Site, skew_s: float) -> None:
    """`--expires 30m` and an overlap are added to the store's time, on any machine."""

    async def run(*words: str) -> dict[str, Any]:
        arguments = ("keys", *words, "--store", site.store, "--json")
        done = await asyncio.to_thread(run_command, *arguments, environment=skewed(skew_s))
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    before_us = store_us()
    made = await run("create", "--name", "ci", "--plan", "free", "--expires", "30m")
    record = await site.keys.get(made["id"])
    assert record is not None
    assert record.expires_us is not None
    assert is_since(before_us, record.created_us)
    assert is_since(before_us, record.expires_us - 30 * MINUTE_US)
    assert made["status"] == "valid"
    before_us = store_us()
    await run("rotate", made["id"], "--overlap", "10m")
    rotated = await site.keys.get(made["id"])
    assert rotated is not None
    assert rotated.expires_us is not None
    assert is_since(before_us, rotated.expires_us - 10 * MINUTE_US)


async def test_a_stream_ends_when_its_key_expires(site: Site, gateway: ServedGateway) -> None:
    """A stream ends when its key expires by the store's time, and not before."""

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await exchange.ended()
        raise ConnectionError

    site.upstream.script = script
    began = False
    for lifetime_us in (2_000_000, 20_000_000):
        expires_us = store_us() + lifetime_us
        key = await site.key(expires_us=expires_us)
        async with await Wire.connect(gateway.port) as wire:
            await wire.send(build_request("GET", "/api/stream", bearer(key)))
            head = await wire.read_head()
            # A busy machine needs more time to begin.
            began = head.status != 401 or store_us() < expires_us
            if began:
                assert head.status == 200
                assert await wire.read_chunk() == b"a"
                await wire.read_end()
                assert store_us() >= expires_us
                break
    assert began, "no stream began before its key expired"
