"""Tests of every store of reported connections; run with memory and with a real Redis."""

from __future__ import annotations

from tests.suites import every_rig


class ConnectionStoreSuite:
    """Subclasses give a fixture `store`, empty at the start, in which the workers a and b live."""

    @every_rig
    async def test_reports_add_up(self, store):
        """Of all workers; a later report of a worker replaces its earlier one."""
        assert await store.connected() == {}
        await store.report("a", {"7h3k9m2p4q6r": 3, "8h3k9m2p4q6r": 1})
        await store.report("b", {"7h3k9m2p4q6r": 2})
        assert await store.connected() == {"7h3k9m2p4q6r": 5, "8h3k9m2p4q6r": 1}
        await store.report("a", {"8h3k9m2p4q6r": 4})
        assert await store.connected() == {"7h3k9m2p4q6r": 2, "8h3k9m2p4q6r": 4}

    @every_rig
    async def test_a_report_is_withdrawn(self, store):
        """An empty one leaves nothing, also if there was none."""
        await store.report("a", {"7h3k9m2p4q6r": 3})
        for worker in ("a", "b"):
            await store.report(worker, {})
        assert await store.connected() == {}
