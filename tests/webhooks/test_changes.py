"""The audit log of customers: what it has of each, and that operators' entries stay."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.audit import Event
from gateway.manage.audit_log import Audit
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.audit.store import RedisAuditStore
from gateway.stores.names import CUSTOMERS_AUDIT
from gateway.webhooks import changes
from gateway.webhooks.changes import CustomerAudit
from tests.kit.courier_api import GIVEN, WATCHES, Scene


def event_by(actor: str, subject: str = "watch:wat_1") -> Event:
    return Event(1, actor, "watch.pause", subject)


async def test_its_bound(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Each key has one, and each watch that is disabled; it begins anew after an hour."""
    monkeypatch.setattr(changes, "MOST_AN_HOUR", 2)
    store, now_s = MemoryAuditStore(), 0.0
    audit = CustomerAudit(store, lambda: now_s)
    for _ in range(5):
        await audit.append(event_by("key a (api)"))
        await audit.append(event_by("courier", "watch:wat_1"))
    await audit.append(event_by("key b (api)"))
    await audit.append(event_by("courier", "watch:wat_2"))
    assert len(await store.entries()) == 6
    assert caplog.text.count("changes of key a (api) are not in the audit log") == 1
    now_s = 3_600.0
    await audit.append(event_by("key a (api)"))
    assert len(await store.entries()) == 7


async def test_a_log_of_its_own(store_client: Any) -> None:
    """Its entries have a chain of their own; operators' are not moved by them."""
    operators = RedisAuditStore(store_client)
    customers = RedisAuditStore(store_client, CUSTOMERS_AUDIT)
    await operators.append(event_by("anna (cli)"))
    for _ in range(3):
        last = await customers.append(event_by("key a (api)"), drop_to=1)
    assert [entry.event.actor for entry in await operators.entries()] == ["anna (cli)"]
    assert (await operators.head())[0] == 1
    assert await customers.head() == (last.number, last.hash) == (3, last.hash)
    assert [entry.number for entry in await customers.oldest()] == [2, 3]
    assert not (await Audit(operators).verify()).faults


async def test_nothing_changes(store_client: Any) -> None:
    """A change that changes nothing has no entry."""
    async with Scene(store_client) as scene:
        await scene.add_integrations()
        made = (await scene.send("POST", WATCHES, GIVEN)).json()
        path = f"{WATCHES}/{made['id']}"
        for _ in range(3):
            await scene.send("POST", f"{path}/resume")
        for _ in range(3):
            await scene.send("POST", f"{path}/pause")
            await scene.send("PATCH", path, GIVEN)
        actions = [entry.event.action for entry in await scene.audit.entries()]
        assert actions == ["watch.pause", "watch.create"]
