"""What a request costs a worker, with and without a courier that delivers beside it.

On a core that others use as well each request takes more CPU time, whatever they do: its caches
are theirs meanwhile. So the worker has a core of its own, and all else shares the others. It is
measured beside the same deliveries of another gateway as well, with a Redis and a courier of its
own: what is more than that is due to the own courier. Requests come at a steady rate: clients that
wait for each answer come in other batches when Redis has more to do, which changes their cost.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
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
_AT_ONCE: Final = 4
_CLIENTS: Final = 4
#: Requests a second of each client.
_EACH: Final = 100.0
_PLANS: Final = "plans: {free: {rate: 1000000/minute}}"
_ROUTES: Final = "routes:\n  all: {match: GET /api/**, upstream: api}\n"


@contextmanager
def core_apart() -> Iterator[int | None]:
    """A core that this process, and what it starts, leaves free; None: it has but one."""
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        yield None
        return
    apart = max(cores)
    os.sched_setaffinity(0, cores - {apart})
    try:
        yield apart
    finally:
        os.sched_setaffinity(0, cores)


@asynccontextmanager
async def requests_of_a_gateway(
    site: Site, folder: Path, core: int | None
) -> AsyncIterator[Requests]:
    """A gateway with one worker and one courier, over the site's Redis. core: of the worker"""
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
            if core is not None:
                os.sched_setaffinity(gateway.worker_pid, {core})
            yield Requests(gateway.worker_pid, gateway.port, request)


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


@dataclass
class Arm:
    """Turns beside the deliveries of a site; None: of none. costs_us: of a request"""

    site: Site | None
    costs_us: list[float] = field(default_factory=list)
    delivered: int = 0
    seconds: float = 0.0

    async def turn(self, requests: Requests, names: Sequence[str], count: int) -> None:
        if self.site is None:
            self.costs_us.append(await requests.cost_us(count))
            return
        before, began = (await self.site.figures()).count, time.monotonic()
        # Each of these waits until its event is accepted before the next one.
        delivering = [
            asyncio.create_task(self.site.steadily(names, RATE / _AT_ONCE)) for _ in range(_AT_ONCE)
        ]
        self.costs_us.append(await requests.cost_us(count))
        for each in delivering:
            each.cancel()
        await asyncio.wait(delivering)
        self.seconds += time.monotonic() - began
        self.delivered += (await self.site.figures()).count - before

    @property
    def cost_us(self) -> float:
        return median(self.costs_us)

    def more_than(self, other: Arm) -> float:
        """By which part its requests cost more, turn by turn: a slow minute affects both."""
        pairs = zip(self.costs_us, other.costs_us, strict=True)
        return median(one / another for one, another in pairs) - 1


async def costs(
    requests: Requests,
    sites: Sequence[Site | None],
    names: Sequence[str],
    turns: int,
    count: int,
) -> list[Arm]:
    """What a request costs beside each of these, in turns.

    names: integrations of all sites; turns: of each; count: requests of a turn
    """
    await requests.cost_us(count)  # Everything is loaded and connected.
    arms = [Arm(site) for site in sites]
    for _ in range(turns):
        for arm in arms:
            await arm.turn(requests, names, count)
    return arms
