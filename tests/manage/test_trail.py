"""Putting what people do at the end of the audit log."""

from __future__ import annotations

import logging

from gateway.domain.audit import Event
from gateway.domain.ports import StoreDown
from gateway.manage import trail
from gateway.stores.memory_audit import MemoryAuditStore

EVENT = Event(1, "anna (api)", "key.revoke", "key:7h3k9m2p4q6r", {"name": "hidden"}, None)


async def test_what_is_noted_is_in_the_log(caplog):
    """An event becomes the newest entry, and nothing else is said of it."""
    audit = MemoryAuditStore()
    await trail.note(audit, EVENT)
    (entry,) = await audit.entries()
    assert entry.event == EVENT
    assert caplog.records == []


async def test_what_cannot_be_noted_is_said(caplog):
    """Where the entry cannot be written the log says which, and whoever noted it goes on."""

    class Away(MemoryAuditStore):
        async def append(self, event):
            raise StoreDown("nobody there")

    with caplog.at_level(logging.ERROR):
        await trail.note(Away(), EVENT)
    (record,) = caplog.records
    for word in ("key.revoke", "key:7h3k9m2p4q6r", "anna (api)", "nobody there"):
        assert word in record.getMessage()
    assert "hidden" not in record.getMessage()
