"""Webhooks are delivered whatever ends: couriers, gateways. A receiver knows every one of them.

Nothing that was answered 202 is lost, and twice comes at most what was in flight.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.kit.certificates import Certificate
from tests.kit.eventually import eventually
from tests.kit.hook_site import Site, open_site
from tests.kit.hooks import LEASE_ENDS_S, courier_pids, kill_couriers
from tests.kit.redis_server import RedisServer

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def site(
    tmp_path: Path, redis_server: RedisServer, certificate: Certificate
) -> AsyncIterator[Site]:
    async with open_site(tmp_path, redis_server.url, certificate) as made:
        yield made


async def test_a_courier_is_killed(site: Site) -> None:
    """What it had in flight is sent again when its leases end; nothing else comes twice."""
    gateway = await site.gateway()
    had = await site.in_flight(gateway, 20)
    (killed,) = courier_pids(gateway)
    kill_couriers(gateway)
    killed_s = time.monotonic()
    await eventually(lambda: killed not in courier_pids(gateway), "it is dead")
    site.receiver.release()
    await site.provider.send_accepted(gateway, 10)
    await site.all_arrive()
    await eventually(lambda: site.twice == had, "all in flight are sent again", LEASE_ENDS_S)
    last_s = max(at_s for sent, at_s in site.receiver.got if sent in had)
    assert set(site.receiver.times.values()) <= {1, 2}
    print(f"twice {len(site.twice)} of {len(had)} in flight; again after {last_s - killed_s:.1f} s")


async def test_a_gateway_stops(site: Site) -> None:
    """What is in flight is finished, and the next one delivers the rest; nothing comes twice."""
    gateway = await site.gateway()
    await site.in_flight(gateway, 40)
    gateway.signal(signal.SIGTERM)
    await eventually(lambda: "drain finished" in gateway.output(), "it stops")
    ending = asyncio.ensure_future(gateway.ended())
    site.receiver.release()
    assert await ending == 0
    left = site.lost
    successor = await site.gateway(before=gateway)
    await site.provider.send_accepted(successor, 5)
    await site.all_arrive()
    assert site.twice == set()
    print(f"the next gateway had {len(left)} to deliver")


async def test_a_take_over(site: Site) -> None:
    """Couriers of both gateways work at the same time; nothing is refused, nothing comes twice."""
    gateway = await site.gateway(couriers=2)
    await site.in_flight(gateway, 40)
    accepted = len(site.provider.accepted)
    site.provider.answers.clear()
    successor = asyncio.ensure_future(site.gateway("--take-over", before=gateway, couriers=2))
    while not successor.done():
        await site.provider.send(gateway)
        if "draining" in gateway.output():
            site.receiver.release()
        await asyncio.sleep(0.01)
    site.receiver.release()
    assert await gateway.ended() == 0
    await site.provider.send_accepted(await successor, 5)
    await site.all_arrive()
    assert set(site.provider.answers) == {202}
    assert site.twice == set()
    print(f"captured meanwhile: {len(site.provider.accepted) - accepted}")
