"""A limit's reset reaches every worker of every gateway at once."""

from __future__ import annotations

import time

import pytest

from gateway.manage.audit_log import Actor, Audit
from gateway.manage.limits import Limits
from gateway.policies.load import load
from gateway.stores.managed import open_managed
from gateway.stores.redis.address import parse_url
from tests.end_to_end.conftest import Serve, Site, add_key
from tests.kit.eventually import eventually
from tests.kit.wire import Wire, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROUTES = """
routes:
  daily: {match: GET /daily, upstream: api, plan_limits: false,
          limits: [{name: daily, quota: 40/day}]}
"""


#: Enough connections to a gateway of two workers for both to get some.
WIRES = 20


async def test_admitted_at_once(site: Site, serve: Serve) -> None:
    """A key whose refusal every worker has cached is admitted by each after the reset."""
    gateways = [await serve("--workers", "2", routes=ROUTES), await serve(routes=ROUTES)]
    policy = load(gateways[0].policies)
    text, record = await add_key(site.keys, "free")
    wires = [await Wire.connect(served.port) for served in gateways for _ in range(WIRES)]

    async def status(wire: Wire) -> int:
        return (await wire.request("GET", "/daily", bearer(text))).status

    assert [await status(wire) for wire in wires] == [200] * len(wires)
    # The second refusal on each connection is the worker's cached one, valid until midnight.
    for _ in range(2):
        assert [await status(wire) for wire in wires] == [429] * len(wires)
    async with open_managed(parse_url(site.store)) as stores:
        limits = Limits(
            stores.keys,
            stores.counters,
            stores.audit,
            lambda: policy,
            lambda: time.time_ns() // 1000,
        )
        (daily,) = await limits.now(record.id)
        assert (daily.limit.name, daily.standing.remaining) == ("daily", 0)
        await limits.reset(Actor("anna", "cli"), record.id, "daily")
        for wire in wires:

            async def is_admitted(wire: Wire = wire) -> bool:
                return await status(wire) == 200

            await eventually(is_admitted, "the key is admitted")
        subject = f"key:{record.id}"
        (entry,) = (await Audit(stores.audit).page(action="limit.reset", subject=subject)).entries
        assert entry.event.actor == "anna (cli)"
    for wire in wires:
        await wire.close()
