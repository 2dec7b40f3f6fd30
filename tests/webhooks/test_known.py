"""The integrations that are known while the store is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway import tasks
from gateway.domain.ports import StoreDown
from gateway.domain.webhooks.events import Integration
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.resources import INTEGRATIONS, Resources
from gateway.webhooks.known import LOAD_S, KnownIntegrations
from tests.kit.eventually import eventually

ONE = Integration("int_1", "acme", "github", "Code", 1, "1" * 32)
TWO = Integration("int_2", "acme", "github", "Code", 1, "2" * 32)


async def test_changes(store_client: Any) -> None:
    """What was loaded last holds; a record that cannot be read hides no other."""
    store = Resources(executing(store_client))
    known = KnownIntegrations(store)
    await store.add_integration(ONE)
    await store.add_integration(TWO)
    await store_client.hset(INTEGRATIONS, "bad", "{}")
    await known.load()
    assert [known.captures_to(each.capture) for each in (ONE, TWO)] == [ONE, TWO]
    rotated = replace(ONE, capture="3" * 32)
    await store.replace_integration(ONE, rotated)
    await store.remove_integration(TWO)
    assert known.captures_to(ONE.capture) == ONE
    await known.load()
    assert known.captures_to(rotated.capture) == rotated
    assert [known.captures_to(each.capture) for each in (ONE, TWO)] == [None, None]


async def test_an_outage(store_client: Any) -> None:
    """They stay known."""
    store = Resources(executing(store_client))
    known = KnownIntegrations(store)
    await store.add_integration(ONE)
    running = tasks.spawn(known.run(), "known integrations")
    await eventually(lambda: known.captures_to(ONE.capture) == ONE, "they are loaded")
    await tasks.end(running)
    failed: list[bool] = []

    async def down() -> Any:
        failed.append(True)
        raise StoreDown("the store is unavailable")

    store.integration_records = down  # type: ignore[method-assign]
    running = tasks.spawn(known.run(), "known integrations")
    await eventually(lambda: bool(failed), "the store is unavailable")
    assert known.captures_to(ONE.capture) == ONE
    assert not running.done()
    await tasks.end(running)


class AwayAtFirst:
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
    store = AwayAtFirst()
    running = tasks.spawn(KnownIntegrations(store).run(), "known integrations")
    await store.loaded.wait()
    await tasks.end(running)
    assert delays[0] < LOAD_S == delays[1]
