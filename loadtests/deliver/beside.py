"""What a request costs a worker, with and without a courier that delivers beside it.

On a machine whose cores are busy each request takes more CPU time, whatever keeps them busy. So it
is also measured beside the same deliveries of another gateway, with a Redis and a courier of its
own: what is more than that is due to the own courier. Requests come at a steady rate: clients that
wait for each answer come in other batches when Redis has more to do, which changes their cost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final

from redis.asyncio import Redis

from gateway.stores.keys.store import RedisKeyStore
from loadtests.compare.processes import cpu_s
from loadtests.deliver.site import ENVIRONMENT, SETTINGS, Site
from tests.kit.gateway import ServedGateway
from tests.kit.keys import make_key
from tests.kit.policies import GATEWAY, write_policies
from tests.kit.upstream import ScriptedUpstream, reply
from tests.kit.wire import Wire, build_request

#: Deliveries a second.
RATE: Final = 1_000.0
#: Without deliveries, and beside those of each courier, in turns.
_TURNS: Final = 6
_CLIENTS: Final = 4
#: Requests a second of each client.
_EACH: Final = 100.0
_PLANS: Final = "plans: {free: {rate: 1000000/minute}}"
_ROUTES: Final = "routes:\n  all: {match: GET /api/**, upstream: api}\n"


@asynccontextmanager
async def requests_of_a_gateway(site: Site, folder: Path) -> AsyncIterator[Requests]:
    """A gateway with one worker and one courier, over the site's Redis."""
    settings = SETTINGS.format(ca=site.certificate.ca, slots=256)
    async with (
        ScriptedUpstream(reply(200, b"{}")) as upstream,
        Redis(port=site.server.port) as redis,
    ):
        text, record = make_key(secrets.randbelow)
        await RedisKeyStore(redis).add(record)
        policies = write_policies(
            folder / "policies",
            upstream.url,
            gateway=GATEWAY + settings,
            plans=_PLANS,
            routes=_ROUTES,
        )
        arguments = ("--workers", "1", "--couriers", "1", "--log-level", "warning")
        async with ServedGateway(
            folder / "gateway",
            policies,
            site.server.url,
            *arguments,
            environment=ENVIRONMENT,
        ) as gateway:
            request = build_request("GET", "/api/x", [("Authorization", f"Bearer {text}")])
            yield Requests(gateway.worker_pids()[0], gateway.port, request)


class Requests:
    """Clients that wait for each answer. worker: the process whose CPU time counts"""

    def __init__(self, worker: int, port: int, request: bytes) -> None:
        self._worker = worker
        self._port = port
        self._request = request

    async def cost_us(self, count: int) -> float:
        """Of a request, on average over so many."""
        each = max(1, count // _CLIENTS)
        wires = [await Wire.connect(self._port) for _ in range(_CLIENTS)]
        before = cpu_s(self._worker)
        await asyncio.gather(*(self._send(wire, each) for wire in wires))
        spent_s = cpu_s(self._worker) - before
        for wire in wires:
            await wire.close()
        return 1e6 * spent_s / (each * _CLIENTS)

    async def _send(self, wire: Wire, count: int) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(count):
            await asyncio.sleep(began + number / _EACH - loop.time())
            await wire.send(self._request)
            assert (await wire.read_response()).status == 200


async def costs(
    requests: Requests, own: Site, other: Site, names: Sequence[str], count: int
) -> tuple[float, float, float]:
    """The medians without deliveries, beside own ones, and beside those of another gateway.

    names: integrations of both sites; count: requests of a turn
    """
    await requests.cost_us(count)  # Everything is loaded and connected.
    found: tuple[list[float], ...] = ([], [], [])
    for _ in range(_TURNS):
        for costs_us, site in zip(found, (None, own, other), strict=True):
            if site is None:
                costs_us.append(await requests.cost_us(count))
                continue
            delivering = asyncio.create_task(site.steadily(names, RATE))
            costs_us.append(await requests.cost_us(count))
            delivering.cancel()
            await asyncio.wait([delivering])
    alone_us, own_us, other_us = map(median, found)
    return alone_us, own_us, other_us
