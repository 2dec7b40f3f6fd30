"""Notices in Redis: who gets them, how many wait, and what else may be there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.ports import StoreDown
from gateway.domain.warnings import MOST_A_MINUTE, LimitWarning
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.notices import Disabled
from gateway.stores.names import NOTICED, NOTICES, NOTICES_DROPPED
from gateway.stores.warnings import store as module
from gateway.stores.warnings.store import WarningScript
from gateway.stores.webhooks.link import executing
from gateway.stores.webhooks.notices import NoticeStore
from gateway.stores.webhooks.queue import DeliveryQueue, tag_of
from gateway.stores.webhooks.resources import Resources

NOW_US = 1_800_000_000_123_456
OURS = Integration("int_1", "acme", "gateway", "Limits", 1)


def warning(count: int = 0, account: str = "acme") -> LimitWarning:
    name = f"gw:limit:{{{account}}}:key:{count}:search:rate:60000000"
    return LimitWarning(
        *(name, 80, "search", "free", str(count), NOW_US + count, 60_000_000), account=account
    )


class Site:
    def __init__(self, client: Any) -> None:
        self.client = client
        self.resources = Resources(executing(client))
        self.script = WarningScript(client.execute_command)
        self.store = NoticeStore(executing(client))

    async def keys(self) -> list[str]:
        """The key ids of the notices that wait, the oldest first."""
        found = await self.store.limits(0, 1_000)
        return [told.key_id for _, told in found if told is not None]


@pytest.fixture
def site(store_client: Any) -> Site:
    return Site(store_client)


async def test_for_accounts_with_an_integration(site: Site) -> None:
    """Each warning is a notice, once in its window; other accounts cost no room."""
    await site.resources.add_integration(OURS)
    for _ in range(2):
        await site.script.warn(warning())
        await site.script.warn(warning(account="other"))
        await site.script.warn(warning(account=""))
    ((read, told),) = await site.store.limits(0, 10)
    assert told == warning()
    await site.store.remove(read)
    assert await site.store.limits(0, 10) == []


async def test_no_bound_per_minute(site: Site) -> None:
    """Only the list of warnings has one. The oldest notice is read first, in pages."""
    await site.resources.add_integration(OURS)
    for number in range(MOST_A_MINUTE + 5):
        assert await site.script.warn(warning(number))
    assert await site.keys() == [str(number) for number in range(MOST_A_MINUTE + 5)]
    page = await site.store.limits(3, 2)
    assert [told.key_id for _, told in page if told is not None] == ["3", "4"]


async def test_too_many(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped and counted; the number is told once."""
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    await site.resources.add_integration(OURS)
    assert await site.store.dropped() == 0
    for number in range(5):
        await site.script.warn(warning(number))
    assert await site.keys() == ["2", "3", "4"]
    assert await site.store.dropped() == 2
    assert await site.store.dropped() == 0


async def test_one_integration_an_account(site: Site) -> None:
    """Of the kind `gateway`; it is known while it exists."""
    second = replace(OURS, id="int_2")
    assert await site.resources.add_integration(OURS)
    assert not await site.resources.add_integration(second)
    assert await site.resources.add_integration(replace(second, id="int_3", kind="operator"))
    assert await site.resources.add_integration(replace(second, id="int_4", account="other"))
    assert await site.store.integration_for("acme") == "int_1"
    assert [each.id for each in await site.resources.integrations()] == ["int_1", "int_3", "int_4"]
    await site.resources.remove_integration(second)  # as one that was read before it was removed
    assert await site.store.integration_for("acme") == "int_1"
    await site.resources.remove_integration(OURS)
    assert await site.store.integration_for("acme") is None
    assert await site.resources.add_integration(second)
    assert await site.store.integration_for("acme") == "int_2"


async def test_too_many_integrations(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was not added gets no notices."""
    monkeypatch.setattr("gateway.stores.webhooks.resources.MOST_INTEGRATIONS", 0)
    assert not await site.resources.add_integration(OURS)
    assert await site.store.integration_for("acme") is None


async def test_a_watch_that_is_disabled(site: Site) -> None:
    """It leaves one notice, however often it is said, and another one after it was resumed."""
    queue = DeliveryQueue(site.client.execute_command, 3, lambda: 1_000_000)
    await queue.disable("w", "int_1", "it was removed before")
    assert await site.store.disabled(3, 0, 10) == []
    await site.client.hset(f"{tag_of(3)}watches:int_1", "w", "{}")
    for why in ("it answered 410 Gone", "again"):
        await queue.disable("w", "int_1", why)
    ((read, disabled),) = await site.store.disabled(3, 0, 10)
    at_us = int(await site.client.zscore(f"{tag_of(3)}disabled", read))
    assert disabled == Disabled("int_1", "w", "it answered 410 Gone", at_us)
    await site.client.delete(f"{tag_of(3)}health:w")
    await queue.disable("w", "int_1", 'none\n"é"')
    (_, (_, second)) = await site.store.disabled(3, 0, 10)
    assert second is not None
    assert second.why == 'none\n"é"'
    await site.store.remove_disabled(3, read)
    assert len(await site.store.disabled(3, 0, 10)) == 1
    assert await site.store.disabled(3, 1, 10) == []


async def test_foreign_values(site: Site) -> None:
    """What others write under the names is no notice, and does not prevent the next one."""
    await site.resources.add_integration(OURS)
    await site.client.zadd(NOTICES, {"x": 1})
    await site.client.zadd(f"{tag_of(3)}disabled", {"x": 1})
    assert await site.store.limits(0, 10) == [(b"x", None)]
    assert await site.store.disabled(3, 0, 10) == [(b"x", None)]
    await site.client.set(NOTICES, "x")
    await site.client.hset(NOTICES_DROPPED, "x", "y")
    assert await site.store.dropped() == 0
    with pytest.raises(StoreDown):
        await site.store.limits(0, 10)
    assert await site.script.warn(warning())
    assert await site.keys() == ["0"]
    await site.client.set(NOTICED, "x")
    assert await site.script.warn(warning(1))
    assert await site.keys() == ["0"]
