"""The integrations that are known in an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gateway import tasks
from gateway.domain.ports import StoreDown
from gateway.webhooks.known import LOAD_S, KnownIntegrations


class Away:
    """A store that is away for the first load."""

    def __init__(self) -> None:
        self.loaded = asyncio.Event()
        self.asked = 0

    async def integration_records(self) -> Mapping[str, bytes]:
        self.asked += 1
        if self.asked == 1:
            raise StoreDown("away")
        if self.asked == 3:
            self.loaded.set()
        return {}


async def test_after_an_error(delays: list[float]) -> None:
    """It looks again soon: until then nothing is captured in an outage."""
    store = Away()
    running = tasks.spawn(KnownIntegrations(store).run(), "known integrations")
    await store.loaded.wait()
    await tasks.end(running)
    assert delays[0] < LOAD_S == delays[1]
